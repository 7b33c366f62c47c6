#include "harness/run/process/rank_page.h"

#include "harness/base/alloc.h"
#include "harness/base/system/temporary.h"
#include "harness/run/process/world_end.h"
#include "harness/run/trial/engine.h"
#include "harness/worker/starved.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { RANK_PATH_TEXT = 1200, LINE_TEXT = 2800, MOMENT_SECONDS = 2, STOP_SECONDS = 2, TICKS_MIN = 16, STILL_SHARE = 4 };
static const double TICK_SECONDS_MAX = 0.5, TICK_SECONDS_MIN = 0.001;

struct sf_rank_watch {
  struct sf_mpi *mpi;
  int32_t rank, world, first, count;
  struct sf_rank_page *own;
  struct sf_rank_page **pages;                /* one for each rank of the job; NULL: this machine cannot reach its file */
  const struct sf_process_page **trial_pages; /* room for the pages of one trial's ranks */
  volatile sig_atomic_t stopped;              /* interrupted: a trial that goes on is given up, and its case gets no verdict */
  volatile sig_atomic_t ticks_left;           /* ticks of the timer until the deadline */
  double tick_seconds, seconds, ran;          /* seconds: between ticks, of the deadline, since the trial began (counted by ticks) */
  double starved_before;                      /* starved seconds of this rank when the trial began */
  struct sf_world_still still;                /* of the trial's ranks, by `ran` */
  const char *hint;
  char path[RANK_PATH_TEXT];
};

static struct sf_rank_watch *watching; /* for the handlers; set before they are installed, NULL after the end */

static void path_of(char *out, const char *store_path, int32_t rank) { snprintf(out, RANK_PATH_TEXT, "%s.rank-%d", store_path, rank); }

/* A file of another size is from another version: with create it is begun anew, else it counts as missing. */
static struct sf_rank_page *map_file(const char *path, bool create) {
  const int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666);
  struct stat info;
  struct sf_rank_page *page = MAP_FAILED;
  if (fd < 0) return NULL;
  bool sized = fstat(fd, &info) == 0 && info.st_size == (off_t)sizeof *page;
  if (!sized && create) sized = ftruncate(fd, 0) == 0 && ftruncate(fd, sizeof *page) == 0;
  if (sized) page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? NULL : page;
}

static void unmap(struct sf_rank_page *page) {
  if (page) munmap(page, sizeof *page);
}

/* --- the end of a job; called by signal handlers too ----------------------------------------------------------- */

/* Ticks every so many seconds; 0: never. */
static void set_timer(double seconds) {
  const struct timeval tick = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
  const struct itimerval timer = {.it_interval = tick, .it_value = tick};
  setitimer(ITIMER_REAL, &timer, NULL);
}

/* True for exactly one rank of the trial, which reports the failure. */
static bool is_first_to_tell(const struct sf_rank_watch *watch) {
  struct sf_rank_page *page = watch->pages[watch->first] ? watch->pages[watch->first] : watch->own;
  return __atomic_exchange_n(&page->told, 1, __ATOMIC_SEQ_CST) == 0;
}

/* Uses write, because the code that was interrupted may hold stderr's lock. */
static void tell(const struct sf_rank_watch *watch, const char *text) {
  char line[LINE_TEXT];
  int length;
  if (watch->own->index < 0)
    length = snprintf(line, sizeof line, "shardfuzz: %.1200s%s\n", text, watch->hint);
  else
    length = snprintf(line, sizeof line, "shardfuzz: %scase %" PRId64 ": %.1200s%s\n", watch->own->shrinking ? "shrinking " : "",
                      watch->own->index, text, watch->hint);
  if (length > (int)sizeof line - 1) length = (int)sizeof line - 1;
  if (write(STDERR_FILENO, line, (size_t)length) < 0) return;
}

static void keep_end(struct sf_rank_page *page, const struct sf_world_end *end) {
  memset(&page->end, 0, sizeof page->end);
  page->end.verdict = end->is_own ? SF_VERDICT_INCONCLUSIVE : SF_VERDICT_FINDING;
  page->end.cls = end->cls;
  page->end.manner = end->manner;
  page->end.rank = end->rank;
  memcpy(page->end.label, end->label, sizeof end->label);
  sf_world_end_text(page->end.text, sizeof page->end.text, end);
  page->failed = 1;
}

static void on_fatal(int number, siginfo_t *info, void *context) {
  if (!watching) {
    raise(number);
    return;
  }
  struct sf_rank_page *own = watching->own;
  sf_process_note_signal(&own->process, info, context);
  if (own->active && is_first_to_tell(watching)) {
    const struct sf_process_page *page = &own->process;
    struct sf_world_end end;
    sf_world_end_find(&end, &page, 1, false);
    end.rank = watching->rank - watching->first;
    keep_end(own, &end);
    tell(watching, own->end.text);
  }
  raise(number); /* the handler is off: the default action ends the process, and with it the job */
}

/* Collects the pages of the trial's ranks. A rank that has finished may already wait for its next trial. If this rank cannot see all pages,
 * it speaks for itself only. */
static int32_t look_around(struct sf_rank_watch *watch) {
  static const struct sf_process_page through = {.progress = {.in_call = SF_COMM_ENDED}, .is_own = 1};
  for (int32_t i = 0; i < watch->count; i++) {
    const struct sf_rank_page *page = watch->pages[watch->first + i];
    if (!page) {
      watch->trial_pages[0] = &watch->own->process;
      return 1;
    }
    watch->trial_pages[i] = page->active && page->index == watch->own->index ? &page->process : &through;
  }
  return watch->count;
}

/* Does not count the time in which one of the ranks had no processor, since the others may wait for it. Ten times the deadline ends the
 * trial in any case. */
static bool has_time_left(struct sf_rank_watch *watch) {
  double starved = 0;
  const int32_t seen = look_around(watch);
  if (watch->stopped || watch->ran >= SF_LIMIT_FACTOR * watch->seconds ||
      sf_world_stands(&watch->still, watch->trial_pages, seen, watch->ran, watch->seconds))
    return false;
  for (int32_t i = 0; i < watch->count; i++) {
    const struct sf_rank_page *page = watch->pages[watch->first + i];
    const bool counts = seen < watch->count ? page == watch->own : sf_world_waits_for(watch->trial_pages, seen, i);
    if (counts && page && page->active && page->index == watch->own->index) starved = fmax(starved, page->starved);
  }
  const double left = watch->seconds - (watch->ran - starved), soon = watch->seconds / STILL_SHARE;
  if (left > 0) watch->ticks_left = (sig_atomic_t)ceil(fmin(left, soon) / watch->tick_seconds);
  return left > 0;
}

/* Counts the deadline in ticks, so that the time in which the whole job stands still (a frozen container, a suspended job) is a single
 * tick. All ranks of the trial begin at the same moment; the first one whose ticks are over looks where all of them stand. */
static void on_tick(int number) {
  (void)number;
  const int kept = errno; /* errno of the interrupted code */
  watching->ran += watching->tick_seconds;
  watching->own->starved = sf_starved_seconds(getpid()) - watching->starved_before;
  errno = kept;
  if (--watching->ticks_left > 0 || has_time_left(watching)) return;
  if (watching->stopped) {
    if (sf_rank_watch_may_tell(watching)) tell(watching, "interrupted");
  } else if (sf_rank_watch_may_tell(watching)) {
    struct sf_world_end end;
    const int32_t count = look_around(watching);
    sf_world_end_find(&end, watching->trial_pages, count, true);
    keep_end(watching->own, &end);
    tell(watching, watching->own->end.text);
  }
  _exit(1); /* a rank that ends without MPI_Finalize ends the job */
}

static void (*stop_before)(int); /* the handler that this process had before; it still runs */

/* For signals that reach the ranks alone; a launcher that is interrupted itself ends its ranks sooner. */
static void on_stop(int number) {
  stop_before(number);
  if (!watching) return;
  watching->stopped = 1;
  const double ticks = STOP_SECONDS / watching->tick_seconds + 1;
  if (watching->own->active && watching->ticks_left > ticks) watching->ticks_left = (sig_atomic_t)ticks;
}

static void watch_stop(int number) {
  void (*before)(int) = signal(number, SIG_DFL);
  if (before != SIG_DFL && before != SIG_IGN && before != SIG_ERR) stop_before = before;
  signal(number, stop_before ? on_stop : before);
}

/* When ranks leave on their own while the launcher is ending the job, Open MPI's mpirun sometimes hangs or crashes. So a rank that has
 * nothing to report waits until it is ended. */
bool sf_rank_watch_may_tell(struct sf_rank_watch *watch) {
  signal(SIGTERM, SIG_DFL);
  set_timer(0);
  if (is_first_to_tell(watch)) return true;
  sleep(MOMENT_SECONDS);
  return false;
}

void sf_rank_watch_fail(struct sf_rank_watch *watch, const struct sf_outcome *outcome) {
  if (sf_rank_watch_may_tell(watch)) {
    watch->own->end = *outcome;
    watch->own->failed = 1;
    tell(watch, outcome->text);
  }
  sf_mpi_abort(watch->mpi, outcome->verdict == SF_VERDICT_FINDING ? 1 : 3);
}

/* --- life ------------------------------------------------------------------------------------------------------ */

enum sf_status sf_rank_watch_open(struct sf_rank_watch **out, struct sf_mpi *mpi, const char *store_path, const char *hint,
                                  struct sf_error *error) {
  struct sf_rank_watch *watch = sf_alloc(sizeof *watch);
  if (!watch) return sf_error_set(error, SF_ENOMEM, "out of memory");
  watch->mpi = mpi;
  watch->rank = sf_mpi_rank(mpi);
  watch->world = sf_mpi_world(mpi);
  watch->hint = hint;
  watch->tick_seconds = TICK_SECONDS_MAX;
  path_of(watch->path, store_path, watch->rank);
  watch->pages = sf_alloc((size_t)watch->world * sizeof *watch->pages);
  watch->trial_pages = sf_alloc((size_t)watch->world * sizeof *watch->trial_pages);
  watch->own = map_file(watch->path, true);
  const int reason = errno;
  sf_mpi_control_barrier(mpi); /* a rank that failed comes here too: the others wait for it */
  if (!watch->pages || !watch->trial_pages || !watch->own) {
    const enum sf_status status =
        watch->own ? sf_error_set(error, SF_ENOMEM, "out of memory") : sf_error_set(error, SF_EIO, "%s: %s", watch->path, strerror(reason));
    sf_rank_watch_close(watch);
    return status;
  }
  for (int32_t i = 0; i < watch->world; i++) {
    char path[RANK_PATH_TEXT];
    path_of(path, store_path, i);
    watch->pages[i] = i == watch->rank ? watch->own : map_file(path, false);
  }
  watching = watch;
  sf_process_catch_fatal(on_fatal);
  signal(SIGALRM, on_tick);
  watch_stop(SIGINT);
  watch_stop(SIGTERM);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  *out = watch;
  return SF_OK;
}

enum sf_status sf_rank_watch_open_temporary(struct sf_rank_watch **out, struct sf_mpi *mpi, struct sf_error *error) {
  struct sf_temporary own = {.lock = -1};
  char folder[SF_TEMPORARY_PATH] = "", store_path[SF_TEMPORARY_PATH + 8];
  const bool root = sf_mpi_rank(mpi) == 0;
  void *shared = folder;
  size_t size_bytes = sizeof folder;
  if (root && sf_temporary_create(&own, "/tmp", NULL) == SF_OK) memcpy(folder, own.path, sizeof folder);
  enum sf_status status = sf_mpi_bcast_bytes(mpi, 0, &shared, &size_bytes);
  if (status != SF_OK) {
    sf_temporary_remove(&own);
    return sf_error_set(error, status, "MPI could not pass on a path");
  }
  if (!root) {
    memcpy(folder, shared, sizeof folder);
    sf_free(shared);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) *folder = '\0'; /* rank 0 may be on another machine */
  }
  snprintf(store_path, sizeof store_path, "%s/case", folder);
  status = sf_rank_watch_open(out, mpi, store_path, "", error);
  sf_mpi_control_barrier(mpi);
  if (status == SF_OK) unlink((*out)->path);
  sf_mpi_control_barrier(mpi);
  sf_temporary_remove(&own);
  rmdir(folder);
  return status;
}

static void start_ticks(struct sf_rank_watch *watch, double seconds) {
  watch->tick_seconds = fmax(fmin(seconds / TICKS_MIN, TICK_SECONDS_MAX), TICK_SECONDS_MIN);
  watch->ticks_left = (sig_atomic_t)fmin(ceil(seconds / watch->tick_seconds), INT32_MAX);
  watch->seconds = seconds;
  watch->ran = 0;
  watch->still = (struct sf_world_still){0};
  watch->starved_before = sf_starved_seconds(getpid());
  set_timer(watch->tick_seconds);
}

enum sf_status sf_rank_watch_begin(struct sf_rank_watch *watch, const struct sf_rank_trial *trial) {
  struct sf_rank_page *own = watch->own;
  watch->first = trial->first;
  watch->count = trial->count;
  memset(own, 0, sizeof *own);
  own->process.progress.rank = own->process.trace_rank = -1;
  own->index = trial->index;
  if (trial->found) {
    own->found = *trial->found;
    own->shrinking = 1;
  }
  /* Watches nobody before all ranks have come: the first may wait for a long time until the last one's earlier trial is over. */
  if (sf_mpi_meet(watch->mpi, trial->first, trial->count) != SF_OK) return SF_EIO;
  own->active = 1;
  start_ticks(watch, watch->stopped && trial->seconds > STOP_SECONDS ? STOP_SECONDS : trial->seconds);
  return SF_OK;
}

void sf_rank_watch_end(struct sf_rank_watch *watch) {
  set_timer(0);
  watch->own->active = 0;
}

struct sf_process_page *sf_rank_watch_page(const struct sf_rank_watch *watch) {
  return &watch->own->process;
}

enum sf_status sf_rank_engine_create(struct sf_engine **out, struct sf_mpi *mpi, struct sf_process_page *page,
                                     const struct sf_pool_options *pool) {
  const struct sf_engine_options options = {.device = pool->device,
                                            .gemm = pool->gemm,
                                            .max_memory = pool->max_memory,
                                            .mpi = mpi,
                                            .progress = &page->progress,
                                            .trace_key = &page->trace_key,
                                            .trace_rank = &page->trace_rank,
                                            .is_own = &page->is_own};
  return sf_engine_create(out, &options);
}

void sf_rank_watch_unlink(struct sf_rank_watch *watch) { unlink(watch->path); }

void sf_rank_watch_close(struct sf_rank_watch *watch) {
  if (!watch) return;
  if (watching == watch) watching = NULL;
  for (int32_t i = 0; watch->pages && i < watch->world; i++) {
    if (i != watch->rank) unmap(watch->pages[i]);
  }
  unmap(watch->own);
  sf_free(watch->pages);
  sf_free(watch->trial_pages);
  sf_free(watch);
}

bool sf_rank_page_take(struct sf_rank_page *out, const char *store_path, int32_t rank) {
  char path[RANK_PATH_TEXT];
  path_of(path, store_path, rank);
  struct sf_rank_page *page = map_file(path, false);
  if (!page) return false;
  *out = *page;
  page->active = page->failed = 0;
  unmap(page);
  return true;
}
