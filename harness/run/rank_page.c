#include "harness/run/rank_page.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { RANK_PATH_TEXT = 1200 };

static struct sf_rank_page *timed_page; /* of this process, for the handler; written once before the timer is armed */
static char page_path[RANK_PATH_TEXT];

static void path_of(char *out, const char *store_path, int32_t rank) { snprintf(out, RANK_PATH_TEXT, "%s.rank-%d", store_path, rank); }

static struct sf_rank_page *map_file(const char *path, bool create) {
  const int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666);
  struct stat info;
  struct sf_rank_page *page = MAP_FAILED;
  if (fd < 0) return NULL;
  const bool sized = fstat(fd, &info) == 0 && (info.st_size == (off_t)sizeof *page || (create && ftruncate(fd, sizeof *page) == 0));
  if (sized) page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? NULL : page;
}

static void on_deadline(int number) {
  (void)number;
  timed_page->hung = 1;
  _exit(1); /* a rank that ends without MPI_Finalize ends the job */
}

enum sf_status sf_rank_page_open(struct sf_rank_page **out, const char *store_path, int32_t rank, struct sf_error *error) {
  path_of(page_path, store_path, rank);
  struct sf_rank_page *page = map_file(page_path, true);
  if (!page) return sf_error_set(error, SF_EIO, "%s: %s", page_path, strerror(errno));
  timed_page = page;
  sf_worker_watch_signals(&page->worker);
  signal(SIGALRM, on_deadline);
  *out = page;
  return SF_OK;
}

static void set_timer(double seconds) {
  const struct itimerval timer = {.it_value = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

void sf_rank_page_begin(struct sf_rank_page *page, int64_t index, double seconds) {
  memset(page, 0, sizeof *page);
  page->worker.progress.rank = page->worker.trace_rank = -1;
  page->index = index;
  page->active = 1;
  set_timer(seconds);
}

void sf_rank_page_end(struct sf_rank_page *page) {
  set_timer(0);
  page->active = 0;
}

void sf_rank_page_fail(struct sf_rank_page *page, const struct sf_outcome *failure) {
  page->failure = *failure;
  page->failed = 1;
}

void sf_rank_page_close(struct sf_rank_page *page, bool remove_file) {
  if (!page) return;
  munmap(page, sizeof *page);
  if (remove_file) unlink(page_path);
}

/* --- reading --------------------------------------------------------------------------------------------------- */

/* How much a page explains: what a rank saw itself, then a rank that hung outside a call, then one that hung inside. */
static int weight_of(const struct sf_rank_page *page) {
  if (!page->active || page->index < 0) return 0;
  if (page->worker.signal) return 4;
  if (page->failed) return 3;
  if (page->hung) return page->worker.progress.in_call ? 1 : 2;
  return 0;
}

static void tell(const struct sf_rank_page *page, struct sf_outcome *outcome) {
  const struct sf_comm_progress *at = &page->worker.progress;
  if (page->failed) {
    *outcome = page->failure;
    return;
  }
  memset(outcome, 0, sizeof *outcome);
  outcome->verdict = SF_VERDICT_FINDING;
  outcome->cls = page->worker.signal ? SF_CLASS_CRASH : SF_CLASS_HANG;
  outcome->rank = at->rank;
  snprintf(outcome->label, sizeof outcome->label, "%.*s", (int)sizeof at->label, at->label);
  if (page->worker.signal) {
    snprintf(outcome->text, sizeof outcome->text, "rank %d died of signal %d (%s) after '%s'", at->rank, page->worker.signal, strsignal(page->worker.signal),
             outcome->label);
  } else {
    snprintf(outcome->text, sizeof outcome->text, "rank %d did not go on after '%s'", at->rank, outcome->label);
  }
}

bool sf_rank_pages_read(const char *store_path, int64_t *index, struct sf_outcome *outcome) {
  int best = 0;
  for (int32_t rank = 0;; rank++) {
    char path[RANK_PATH_TEXT];
    path_of(path, store_path, rank);
    struct sf_rank_page *page = map_file(path, false);
    if (!page) return best > 0;
    if (weight_of(page) > best) {
      best = weight_of(page);
      *index = page->index;
      tell(page, outcome);
    }
    page->active = 0;
    munmap(page, sizeof *page);
  }
}
