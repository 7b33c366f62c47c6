#include "generators/shrink.h"

#include "generators/codec_internal.h"
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <string.h>

struct sf_shrink {
  struct sf_case current, candidate;
  struct sf_space space;
  struct sf_shrink_report report;
  bool waiting;    /* a candidate was handed out, and its result is not known yet */
  uint64_t *tried; /* open addressing, 0 = free; keys of every case that was given */
  size_t slot_count, tried_count;
};

static uint64_t case_key(const struct sf_case *c) {
  uint64_t hash = 1;
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT)
      hash = sf_hash_string(hash, (const char *)c + field->offset);
    else
      hash = sf_hash_u64(hash, (uint64_t)sf_case_field_get(c, field));
  }
  return hash == 0 ? 1 : hash;
}

/* The slot that holds the key, or the free one for it. */
static uint64_t *find_slot(uint64_t *slots, size_t slot_count, uint64_t key) {
  size_t at = (size_t)key & (slot_count - 1);
  while (slots[at] != 0 && slots[at] != key) at = (at + 1) & (slot_count - 1);
  return &slots[at];
}

static bool grow(struct sf_shrink *shrink) {
  const size_t slot_count = shrink->slot_count == 0 ? 256 : 2 * shrink->slot_count;
  uint64_t *slots = sf_alloc(slot_count * sizeof *slots);
  if (slots == NULL) return false;
  for (size_t i = 0; i < shrink->slot_count; i++)
    if (shrink->tried[i] != 0) *find_slot(slots, slot_count, shrink->tried[i]) = shrink->tried[i];
  sf_free(shrink->tried);
  shrink->tried = slots;
  shrink->slot_count = slot_count;
  return true;
}

/* Notes the case. SF_ECANCELLED: it was noted before. */
static enum sf_status note_tried(struct sf_shrink *shrink, const struct sf_case *c) {
  const uint64_t key = case_key(c);
  if (2 * (shrink->tried_count + 1) > shrink->slot_count && !grow(shrink)) return SF_ENOMEM;
  uint64_t *slot = find_slot(shrink->tried, shrink->slot_count, key);
  if (*slot == key) return SF_ECANCELLED;
  *slot = key;
  shrink->tried_count++;
  return SF_OK;
}

enum sf_status sf_shrink_create(struct sf_shrink **out, const struct sf_case *in, const struct sf_space *space,
                                const struct sf_shrink_report *resume, struct sf_error *error) {
  enum sf_status status = sf_case_validate(in, error);
  if (status != SF_OK) return status;
  struct sf_shrink *shrink = sf_alloc(sizeof *shrink);
  if (shrink == NULL) return sf_error_set(error, SF_ENOMEM, "no memory to shrink");
  shrink->current = *in;
  shrink->space = *space;
  if (resume != NULL) shrink->report = *resume;
  shrink->report.minimal = false;
  status = note_tried(shrink, in);
  if (status != SF_OK) {
    sf_shrink_destroy(shrink);
    return sf_error_set(error, status, "no memory to shrink");
  }
  *out = shrink;
  return SF_OK;
}

/* Goes to the first step of the next pass; false when a whole round changed nothing. */
static bool next_pass(struct sf_shrink *shrink) {
  shrink->report.step = 0;
  shrink->report.pass++;
  if (shrink->report.pass < sf_shrink_pass_count()) return true;
  shrink->report.pass = 0;
  if (!shrink->report.progress) return false;
  shrink->report.progress = false;
  return true;
}

bool sf_shrink_next(struct sf_shrink *shrink, struct sf_case *candidate, enum sf_status *status) {
  SF_ASSERT(!shrink->waiting);
  *status = SF_OK;
  while (!shrink->report.minimal) {
    bool usable;
    if (!sf_shrink_candidate(&shrink->candidate, &usable, &shrink->current, &shrink->space, shrink->report.pass, shrink->report.step)) {
      shrink->report.minimal = !next_pass(shrink);
      continue;
    }
    const enum sf_status noted = usable ? note_tried(shrink, &shrink->candidate) : SF_ECANCELLED;
    if (noted == SF_OK) {
      shrink->waiting = true;
      *candidate = shrink->candidate;
      return true;
    }
    if (noted == SF_ENOMEM) {
      *status = SF_ENOMEM;
      return false;
    }
    shrink->report.step++;
  }
  return false;
}

void sf_shrink_tell(struct sf_shrink *shrink, bool still_fails) {
  SF_ASSERT(shrink->waiting);
  shrink->waiting = false;
  shrink->report.evaluations++;
  if (still_fails) {
    /* Tries the same step again, which may go further on the smaller case. */
    shrink->current = shrink->candidate;
    shrink->report.progress = true;
    shrink->report.accepted++;
  } else {
    shrink->report.step++;
  }
}

const struct sf_case *sf_shrink_current(const struct sf_shrink *shrink) { return &shrink->current; }

struct sf_shrink_report sf_shrink_report(const struct sf_shrink *shrink) {
  return shrink->report;
}

void sf_shrink_destroy(struct sf_shrink *shrink) {
  if (shrink == NULL) return;
  sf_free(shrink->tried);
  sf_free(shrink);
}

enum sf_status sf_shrink_run(struct sf_case *out, const struct sf_case *in, const struct sf_space *space,
                             bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                             struct sf_shrink_report *report) {
  struct sf_shrink *shrink = NULL;
  struct sf_case candidate;
  enum sf_status status = sf_shrink_create(&shrink, in, space, NULL, NULL);
  if (status != SF_OK) return status;
  while (shrink->report.evaluations < budget && sf_shrink_next(shrink, &candidate, &status))
    sf_shrink_tell(shrink, still_fails(ctx, &candidate));
  /* The budget may end exactly when nothing is left to try. */
  if (status == SF_OK && !shrink->waiting && !shrink->report.minimal) shrink->waiting = sf_shrink_next(shrink, &candidate, &status);
  if (status == SF_OK) {
    *out = shrink->current;
    if (report != NULL) *report = shrink->report;
  }
  sf_shrink_destroy(shrink);
  return status;
}
