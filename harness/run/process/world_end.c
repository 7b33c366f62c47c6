#include "harness/run/process/world_end.h"

#include "harness/base/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A world counts as still when it is found the same this many times in a row. */
enum { STILL_LOOKS = 5, STILL_PAUSE_MS = 20 };

static int weight_of(const struct sf_process_page *page) {
  if (page->signal) return 3;
  return page->progress.in_call == SF_COMM_OUTSIDE ? 2 : page->progress.in_call == SF_COMM_INSIDE ? 1 : 0;
}

static int32_t heaviest(const struct sf_process_page *const *pages, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; i++) {
    if (weight_of(pages[i]) > weight_of(pages[best])) best = i;
  }
  return best;
}

static uint64_t state_of(const struct sf_process_page *const *pages, int32_t count) {
  uint64_t state = 0;
  for (int32_t i = 0; i < count; i++) {
    state = sf_hash_u64(state, (uint64_t)pages[i]->progress.in_call);
    state = sf_hash_u64(state, pages[i]->trace_key);
    state = sf_hash_bytes(state, pages[i]->progress.label, sizeof pages[i]->progress.label);
  }
  return state;
}

static bool stands_still(const struct sf_process_page *const *pages, int32_t count) {
  const struct timespec pause = {0, STILL_PAUSE_MS * 1000000L};
  const uint64_t state = state_of(pages, count);
  for (int look = 0; look < STILL_LOOKS; look++) {
    nanosleep(&pause, NULL);
    if (state_of(pages, count) != state) return false;
  }
  return true;
}

uint64_t sf_world_waiting(const struct sf_process_page *const *pages, int32_t count) {
  const uint64_t state = state_of(pages, count);
  return count < 2 || weight_of(pages[heaviest(pages, count)]) > 1 ? 0 : state | 1;
}

bool sf_world_waits_for(const struct sf_process_page *const *pages, int32_t count, int32_t i) {
  return weight_of(pages[i]) > 1 || weight_of(pages[heaviest(pages, count)]) <= 1;
}

bool sf_world_stands(struct sf_world_still *still, const struct sf_process_page *const *pages, int32_t count, double now, double seconds) {
  const uint64_t waiting = sf_world_waiting(pages, count);
  if (waiting != still->waiting) *still = (struct sf_world_still){waiting, now};
  return waiting != 0 && now - still->since >= fmax(seconds / 4, 2);
}

static bool are_all_own(const struct sf_process_page *const *pages, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    if (!pages[i]->is_own) return false;
  return true;
}

void sf_world_end_find(struct sf_world_end *out, const struct sf_process_page *const *pages, int32_t count, bool hang) {
  const int32_t best = heaviest(pages, count);
  const struct sf_process_page *page = pages[best];
  const bool waits = weight_of(page) == 1;
  out->page = page;
  out->rank = count > 1 ? best : page->progress.rank;
  out->cls = !hang || page->signal ? SF_CLASS_CRASH : count > 1 && waits && stands_still(pages, count) ? SF_CLASS_DEADLOCK : SF_CLASS_HANG;
  out->is_own = out->cls == SF_CLASS_HANG && are_all_own(pages, count);
  out->manner = out->cls != SF_CLASS_CRASH ? SF_MANNER_NONE : page->signal ? (enum sf_manner)page->manner : SF_MANNER_DIED;
  const size_t length = strnlen(page->progress.label, sizeof page->progress.label);
  memcpy(out->label, page->progress.label, length);
  out->label[length] = '\0';
}

/* snprintf with numbers and texts alone takes no lock and no memory in the C libraries we know. */
void sf_world_end_text(char *out, size_t out_size, const struct sf_world_end *end) {
  const char *name = end->page->signal ? sigdescr_np(end->page->signal) : NULL;
  if (end->cls == SF_CLASS_DEADLOCK) {
    snprintf(out, out_size, "every rank waits for another; rank %d waits in '%s'", end->rank, end->label);
  } else if (end->is_own) {
    snprintf(out, out_size, "the reference and the judgement took longer than the case's deadline; the code under test did not run");
  } else if (end->cls == SF_CLASS_HANG) {
    snprintf(out, out_size, "rank %d did not go on after '%s'", end->rank, end->label);
  } else if (end->page->signal) {
    const char *fault = end->page->fault;
    snprintf(out, out_size, "rank %d died of signal %d (%s) after '%s'%s%.95s", end->rank, end->page->signal, name ? name : "unknown",
             end->label, *fault ? ": the plugin " : "", fault);
  } else {
    snprintf(out, out_size, "the process of rank %d ended by itself after '%s'", end->rank, end->label);
  }
}
