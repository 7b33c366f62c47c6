/* Sets of MPI ranks (harness/worker/rank_set.h) for jobs of the pool. Every rank gets each job that it takes part in; rank 0 answers, and
 * any rank may answer that the communication failed, which rank 0 may never hear of. In between stands a relay, a process of the pool like
 * any other below its watcher: it owns the set, and passes one job at a time, so that no rank is ahead of the others.
 *
 * It speaks whole structures and not JSON lines, because both sides are this program; and it is a process of its own, because a set that is
 * lost (MPI cannot undo half-made collectives) is to the pool a process that died of its job. */
#include "harness/base/sinks.h"
#include "harness/base/system/temporary.h"
#include "harness/comm/nccl.h"
#include "harness/run/process/process.h"
#include "harness/run/process/rank_page.h"
#include "harness/run/process/subject.h"
#include "harness/run/trial/chunk_log.h"
#include "harness/run/trial/engine.h"
#include "harness/worker/confine.h"
#include "harness/worker/rank_set.h"
#include "targets/plugin/plugin_target.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CONNECT_SECONDS = 60, PATH_TEXT = 96 };

/* A message from a rank: a result of rank 0, or a failure that any rank saw. */
struct rank_message {
  bool failed;
  struct sf_job_result result;
};

/* --- relay: between the pool's descriptor and the ranks -------------------------------------------------------- */

/* Hides what the set prints unless the user asks for it, to find out why a set does not start. The shell that becomes the launcher puts in
 * the socket's path. */
static enum sf_status start_ranks(struct sf_rank_set *set, const struct sf_pool_options *options, const char *folder,
                                  const char *page_path) {
  static struct sf_worker_report report;
  struct sf_text command = {0};
  sf_shell_append(&command, options->self);
  sf_text_append(&command, " mpi-worker --socket \"$SHARDFUZZ_SOCKET\" --page %s --device %d --gemm %d --nccl %d --max-memory %.0f",
                 page_path, (int)options->device, (int)options->gemm, (int)options->nccl, options->max_memory);
  const struct sf_rank_set_options of_set = {.command = command.data,
                                             .launcher = options->launcher,
                                             .ranks = options->launch_ranks,
                                             .start_seconds = CONNECT_SECONDS,
                                             .folder = folder,
                                             .held = -1,
                                             .shows_output = getenv("SHARDFUZZ_LAUNCHER_OUTPUT") != NULL};
  const enum sf_status status = command.failed ? SF_ENOMEM : sf_rank_set_start(set, &report, &of_set);
  sf_text_destroy(&command);
  return status;
}

/* Hands the next job to its ranks; answers a case that is too large for the set itself. Returns whether the job is under way. */
static bool pass_job(const struct sf_rank_set *set, int pool_fd, enum sf_leaving *leaving) {
  static struct sf_job job;
  static struct sf_job_result refusal;
  *leaving = SF_LEAVING_UNREACHED;
  if (!sf_fd_read(pool_fd, &job, sizeof job)) return false;
  const int64_t ranks = sf_case_ranks(&job.c);
  if (ranks > set->count) {
    memset(&refusal, 0, sizeof refusal);
    refusal.tag = job.tag;
    refusal.outcome.status = SF_EINPUT;
    snprintf(refusal.outcome.text, sizeof refusal.outcome.text, "the case has %lld ranks, the launched set only %d", (long long)ranks,
             set->count);
    if (sf_process_answer(pool_fd, &refusal)) *leaving = SF_LEAVING_NOT;
    return false;
  }
  *leaving = SF_LEAVING_RANKS;
  for (int32_t i = 0; i < ranks; i++) {
    if (!sf_fd_write(set->ranks[i].fd, &job, sizeof job)) return false;
  }
  *leaving = SF_LEAVING_NOT;
  return true;
}

/* Works until a rank fails, a side closes or the launcher has ended: processes that a plugin has forked may keep a rank's descriptor open.
 * Looks at the pool's descriptor only while no job is under way. */
static enum sf_leaving relay_loop(struct sf_rank_set *set, int pool_fd) {
  static struct rank_message message;
  enum sf_leaving leaving = SF_LEAVING_NOT;
  bool under_way = false;
  while (leaving == SF_LEAVING_NOT) {
    const bool alive = sf_rank_set_wait(set, under_way ? -1 : pool_fd, SF_MOMENT_MS);
    bool any = false;
    for (int32_t i = 0; i < set->count; i++) {
      if (!set->fds[i].revents) continue;
      if (!sf_fd_read(set->ranks[i].fd, &message, sizeof message)) return SF_LEAVING_RANKS;
      if (!sf_process_answer(pool_fd, &message.result)) return SF_LEAVING_UNREACHED;
      if (message.failed) return SF_LEAVING_RANKS;
      under_way = false;
      any = true;
    }
    if (!alive && !any) return SF_LEAVING_RANKS;
    if (set->fds[set->count].revents) under_way = pass_job(set, pool_fd, &leaving);
  }
  return leaving;
}

static _Noreturn void relay_main(int pool_fd, struct sf_process_page *page, const struct sf_pool_options *options, const char *folder,
                                    const char *page_path) {
  static struct sf_rank_set set;
  const char ready = 1;
  sf_close_others(pool_fd, -1); /* else this process would keep the store's lock and other processes' descriptors open */
  if (start_ranks(&set, options, folder, page_path) == SF_OK && sf_fd_write(pool_fd, &ready, sizeof ready))
    page->leaving = relay_loop(&set, pool_fd);
  close(pool_fd); /* the pool learns at once that the set is gone */
  sf_rank_set_destroy(&set);
  _exit(0);
}

/* --- pool's side ----------------------------------------------------------------------------------------------- */

static struct sf_process_page *map_pages(const char *path, int32_t count, int flags) {
  const size_t size_bytes = (size_t)count * sizeof(struct sf_process_page);
  const int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd < 0) return NULL;
  void *pages = MAP_FAILED;
  if (!(flags & O_CREAT) || ftruncate(fd, (off_t)size_bytes) == 0)
    pages = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return pages == MAP_FAILED ? NULL : pages;
}

/* The pages of a launched set lie in a file, because its ranks are not our children. */
static bool make_pages(struct sf_process *process, const char *path, int32_t ranks) {
  sf_process_unmap(process);
  process->page = map_pages(path, ranks, O_CREAT);
  if (!process->page) return false;
  process->page_count = ranks;
  for (int32_t i = 0; i < ranks; i++) process->page[i].progress.rank = process->page[i].trace_rank = -1;
  return true;
}

/* Ranks find the socket and the pages by name until all ranks are there; from then on both sides hold them open. */
static enum sf_status start_in(const char *folder, struct sf_process *process, const struct sf_pool_options *options) {
  char page_path[PATH_TEXT], ready = 0;
  int fd;
  snprintf(page_path, sizeof page_path, "%.80s/page", folder);
  if (!make_pages(process, page_path, options->launch_ranks)) return SF_EIO;
  process->launched = true;
  const pid_t pid = sf_process_fork(process, true, &fd);
  if (pid == 0) relay_main(fd, process->page, options, folder, page_path);
  struct sf_wait wait = {.seconds = INFINITY, .stop = options->stop}; /* the relay gives up by itself */
  const enum sf_waited waited = pid > 0 ? sf_wait_for(&wait, process->fd, POLLIN) : SF_WAIT_LATE;
  if (waited == SF_WAIT_READY && sf_fd_read(process->fd, &ready, sizeof ready)) return SF_OK;
  sf_process_stop(process);
  return waited == SF_WAIT_STOPPED ? SF_ECANCELLED : SF_EIO;
}

enum sf_status sf_launch_start(struct sf_process *process, const struct sf_pool_options *options) {
  struct sf_temporary folder;
  if (options->launch_ranks < 1 || options->launch_ranks > SF_LAUNCH_RANKS_MAX) return SF_EUSAGE;
  if (sf_temporary_create(&folder, "/tmp", NULL) != SF_OK) return SF_EIO;
  sf_temporary_keep(&folder);
  const enum sf_status status = start_in(folder.path, process, options);
  sf_temporary_remove(&folder);
  return status;
}

/* --- rank's side ----------------------------------------------------------------------------------------------- */

static int serve_jobs(struct sf_mpi *mpi, int fd, struct sf_process_page *page, const struct sf_pool_options *pool) {
  struct sf_engine *engine = NULL;
  struct sf_job job;
  if (sf_rank_engine_create(&engine, mpi, page, pool) != SF_OK) return 3;
  bool confined = false;
  while (sf_fd_read(fd, &job, sizeof job)) {
    if (!confined && sf_plugin_target_path(job.c.target)) sf_confine(false), confined = true;
    static struct rank_message message;
    memset(&message, 0, sizeof message);
    page->progress = (struct sf_comm_progress){.rank = -1};
    page->trace_rank = -1;
    message.result.tag = job.tag;
    struct sf_chunk_log record = {0};
    const bool root = job.diagnose && sf_mpi_rank(mpi) == 0;
    sf_engine_be_quick(engine, job.effort == SF_EFFORT_QUICK);
    sf_engine_run(engine, &job.c, root ? &record : NULL, &message.result.outcome);
    sf_outcome_turn_to_wanted(&message.result.outcome, &job);
    if (root) sf_engine_diagnose(engine, &job.c, &record, &message.result.outcome);
    sf_chunk_log_destroy(&record);
    message.failed = sf_outcome_breaks_ranks(&message.result.outcome);
    if (message.failed || sf_mpi_rank(mpi) == 0) {
      if (!sf_fd_write(fd, &message, sizeof message)) break;
    }
    if (message.failed) pause(); /* the relay ends the set: MPI cannot undo half-made collectives */
  }
  sf_engine_destroy(engine);
  return 0;
}

int sf_launch_rank_main(const char *socket_path, const char *page_path, const struct sf_pool_options *pool) {
  struct sf_error error = {SF_OK, ""};
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a rank whose launcher is gone would spin for ever */
  struct sf_mpi *mpi = NULL;
  enum sf_status status = sf_mpi_create(&mpi, &error);
  if (status == SF_OK && pool->nccl) status = sf_mpi_use_nccl(mpi, &error);
  if (status != SF_OK) { /* seen with SHARDFUZZ_LAUNCHER_OUTPUT */
    sf_print(stderr, "shardfuzz: %s\n", error.text);
    return 3;
  }
  struct sf_process_page *pages = map_pages(page_path, sf_mpi_world(mpi), 0);
  if (!pages) return 3;
  struct sf_process_page *page = &pages[sf_mpi_rank(mpi)];
  page->pid = getpid();
  sf_process_watch_signals(page);
  const int fd = sf_rank_connect(socket_path, sf_mpi_rank(mpi), sf_mpi_world(mpi));
  if (fd < 0) return 3;
  const int code = serve_jobs(mpi, fd, page, pool);
  sf_mpi_destroy(mpi);
  return code;
}
