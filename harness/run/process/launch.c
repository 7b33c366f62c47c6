/* Rank sets started by a launcher command (mpirun) on this machine. Every rank connects to a socket and gets each job that it takes part
 * in; rank 0 answers, and any rank may answer that the communication failed, which rank 0 may never hear of. In between stands a relay
 * process, which leads the launcher's process group and speaks to the pool like any other process: one job at a time, so that no rank is
 * ahead of the others.
 *
 * A set ends by its ranks being killed: the launcher then cleans up (shared memory, session folders) and ends. What keeps it from outliving
 * us: the kernel sends SIGTERM to the relay when the pool's process is gone, SIGTERM to the launcher when the relay is, SIGKILL to a rank
 * when its launcher is. */
#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/base/system/temporary.h"
#include "harness/comm/nccl.h"
#include "harness/run/process/process.h"
#include "harness/run/process/rank_page.h"
#include "harness/run/trial/chunk_log.h"
#include "harness/run/trial/engine.h"
#include "harness/worker/descendants.h"
#include "harness/worker/launcher.h"
#include "harness/worker/shell.h"
#include "targets/plugin/plugin_target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECT_SECONDS = 60, END_SECONDS = 2, TICK_MS = 200, PATH_TEXT = 96, PAUSE_US = 5000, KILL_ROUNDS = 100 };

struct hello {
  int32_t rank, world;
};

/* A message from a rank: a result of rank 0, or a failure that any rank saw. */
struct rank_message {
  bool failed;
  struct sf_job_result result;
};

/* --- relay: between the pool's descriptor and the ranks -------------------------------------------------------- */

struct relay {
  int pool_fd, listen_fd;
  int32_t world;
  pid_t launcher;
  int rank_fds[SF_LAUNCH_RANKS_MAX];
  pid_t rank_pids[SF_LAUNCH_RANKS_MAX];
};

static volatile sig_atomic_t relay_stopped; /* of the relay process: set by SIGTERM */

static void on_stop(int number) {
  (void)number;
  relay_stopped = 1;
}

/* Hides the launcher's output unless the user asks for it, to find out why a set does not start. */
static _Noreturn void launcher_main(const char *command) {
  const int quiet = getenv("SHARDFUZZ_LAUNCHER_OUTPUT") ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
  sf_launcher_become(command, quiet);
}

static pid_t start_ranks(const struct sf_pool_options *options, const char *socket_path, const char *page_path) {
  struct sf_text command = {0};
  sf_text_append(&command, "exec ");
  sf_shell_launcher(&command, options->launcher, options->launch_ranks);
  sf_text_append(&command, " ");
  sf_shell_append(&command, options->self);
  sf_text_append(&command, " mpi-worker --socket %s --page %s --device %d --gemm %d --nccl %d --max-memory %.0f </dev/null", socket_path,
                 page_path, (int)options->device, (int)options->gemm, (int)options->nccl, options->max_memory);
  const pid_t pid = command.failed ? -1 : fork();
  if (pid == 0) launcher_main(command.data);
  sf_text_destroy(&command);
  return pid;
}

static bool welcome(struct relay *relay, int fd) {
  struct hello hello;
  struct ucred who = {0, 0, 0};
  socklen_t size = sizeof who;
  if (!sf_fd_read(fd, &hello, sizeof hello) || hello.world != relay->world || hello.rank < 0 || hello.rank >= relay->world) return false;
  if (relay->rank_fds[hello.rank] >= 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return false;
  relay->rank_fds[hello.rank] = fd;
  relay->rank_pids[hello.rank] = who.pid;
  return true;
}

static bool accept_ranks(struct relay *relay) {
  struct sf_watch watch = {0};
  for (int32_t connected = 0; connected < relay->world;) {
    struct pollfd waiting = {relay->listen_fd, POLLIN, 0};
    if (relay_stopped || sf_watch_seconds(&watch) > CONNECT_SECONDS || waitpid(relay->launcher, NULL, WNOHANG) > 0) return false;
    if (poll(&waiting, 1, TICK_MS) <= 0) continue;
    const int fd = accept4(relay->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) continue;
    if (!welcome(relay, fd)) {
      close(fd);
      return false;
    }
    connected++;
  }
  return true;
}

/* Hands the next job to its ranks; answers a case that is too large for the set itself. Returns whether the job is under way. */
static bool pass_job(struct relay *relay, bool *lost) {
  static struct sf_job job;
  static struct sf_job_result refusal;
  *lost = true;
  if (!sf_fd_read(relay->pool_fd, &job, sizeof job)) return false;
  const int64_t ranks = sf_case_ranks(&job.c);
  if (ranks > relay->world) {
    memset(&refusal, 0, sizeof refusal);
    refusal.tag = job.tag;
    refusal.outcome.status = SF_EINPUT;
    snprintf(refusal.outcome.text, sizeof refusal.outcome.text, "the case has %lld ranks, the launched set only %d", (long long)ranks,
             relay->world);
    *lost = !sf_fd_write(relay->pool_fd, &refusal, sizeof refusal);
    return false;
  }
  for (int32_t i = 0; i < ranks; i++) {
    if (!sf_fd_write(relay->rank_fds[i], &job, sizeof job)) return false;
  }
  *lost = false;
  return true;
}

static bool launcher_has_ended(const struct relay *relay) {
  siginfo_t info = {.si_pid = 0};
  return waitid(P_PID, (id_t)relay->launcher, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

/* Works until a rank fails, a side closes or the launcher has ended: processes that a plugin has forked may keep a rank's descriptor open.
 * Looks at the pool's descriptor only while no job is under way. */
static void relay_loop(struct relay *relay) {
  static struct pollfd fds[SF_LAUNCH_RANKS_MAX + 1];
  static struct rank_message message;
  bool under_way = false, lost = false;
  for (int32_t i = 0; i < relay->world; i++) fds[i] = (struct pollfd){relay->rank_fds[i], POLLIN, 0};
  while (!lost && !relay_stopped) {
    fds[relay->world] = (struct pollfd){under_way ? -1 : relay->pool_fd, POLLIN, 0};
    const int ready = poll(fds, (nfds_t)relay->world + 1, TICK_MS);
    if (ready < 0 && errno != EINTR) return;
    if (ready == 0 && launcher_has_ended(relay)) return;
    if (ready <= 0) continue;
    for (int32_t i = 0; i < relay->world; i++) {
      if (!fds[i].revents) continue;
      if (!sf_fd_read(fds[i].fd, &message, sizeof message)) return;
      if (!sf_fd_write(relay->pool_fd, &message.result, sizeof message.result) || message.failed) return;
      under_way = false;
    }
    if (fds[relay->world].revents) under_way = pass_job(relay, &lost);
  }
}

/* Kills the ranks. The launcher notices that, cleans up and ends. If it does not end, or has no ranks yet, it is ended too, and so are
 * processes that a plugin has left. */
static void end_ranks(const struct relay *relay) {
  bool any = false;
  struct sf_watch watch = {0};
  for (int32_t i = 0; i < relay->world; i++) {
    if (relay->rank_pids[i] > 0) any = kill(relay->rank_pids[i], SIGKILL) == 0 || any;
  }
  if (!any) kill(relay->launcher, SIGTERM);
  while (sf_watch_seconds(&watch) < END_SECONDS && waitpid(relay->launcher, NULL, WNOHANG) == 0) usleep(PAUSE_US);
  for (int round = 0; round < KILL_ROUNDS && waitpid(-1, NULL, WNOHANG) >= 0; round++) {
    sf_descendants_kill_own();
    usleep(PAUSE_US);
  }
}

static _Noreturn void relay_main(int pool_fd, int listen_fd, const struct sf_pool_options *options, const char *socket_path,
                                 const char *page_path) {
  static struct relay relay;
  const char ready = 1;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_stop; /* without SA_RESTART: poll returns */
  sigaction(SIGTERM, &action, NULL);
  signal(SIGINT, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans become ours */
  const int keep[2] = {pool_fd < listen_fd ? pool_fd : listen_fd, pool_fd < listen_fd ? listen_fd : pool_fd};
  sf_launcher_close_others(keep, 2); /* else this process would keep the store's lock and other processes' descriptors open */
  relay.pool_fd = pool_fd;
  relay.listen_fd = listen_fd;
  relay.world = options->launch_ranks;
  for (int32_t i = 0; i < relay.world; i++) relay.rank_fds[i] = -1;
  relay.launcher = start_ranks(options, socket_path, page_path);
  const bool complete = relay.launcher > 0 && accept_ranks(&relay);
  if (complete && sf_fd_write(pool_fd, &ready, sizeof ready)) relay_loop(&relay);
  close(pool_fd); /* the pool learns at once that the set is gone */
  if (relay.launcher > 0) end_ranks(&relay);
  kill(0, SIGKILL); /* the whole group: the rest of the launcher, and this process */
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

static pid_t fork_relay(const int pair[2], int listen_fd, const struct sf_pool_options *options, const char *socket_path,
                        const char *page_path) {
  const pid_t parent = getpid();
  fflush(NULL);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  close(pair[0]);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(0);
  relay_main(pair[1], listen_fd, options, socket_path, page_path);
}

/* Ranks find the socket and the pages by name until all ranks are there; from then on both sides hold them open. */
static enum sf_status start_in(const char *folder, struct sf_process *process, const struct sf_pool_options *options) {
  char socket_path[PATH_TEXT], page_path[PATH_TEXT], ready = 0;
  int pair[2] = {-1, -1};
  snprintf(socket_path, sizeof socket_path, "%.80s/socket", folder);
  snprintf(page_path, sizeof page_path, "%.80s/page", folder);
  const int listen_fd = make_pages(process, page_path, options->launch_ranks) ? sf_launcher_listen(socket_path, SF_LAUNCH_RANKS_MAX) : -1;
  const bool paired = listen_fd >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0;
  const pid_t pid = paired ? fork_relay(pair, listen_fd, options, socket_path, page_path) : -1;
  if (listen_fd >= 0) close(listen_fd);
  if (paired) close(pair[1]);
  if (pid < 0) {
    if (paired) close(pair[0]);
    return SF_EIO;
  }
  setpgid(pid, pid);
  process->pid = pid;
  process->fd = pair[0];
  process->launched = true;
  if (sf_fd_read(process->fd, &ready, sizeof ready)) return SF_OK;
  sf_process_stop(process);
  return SF_EIO;
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

void sf_launch_end(const struct sf_process *process) {
  struct sf_watch watch = {0};
  siginfo_t info;
  kill(process->pid, SIGTERM);
  do {
    info.si_pid = 0;
    if (waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0) return;
    usleep(2000);
  } while (sf_watch_seconds(&watch) < END_SECONDS + 1);
}

/* --- rank's side ----------------------------------------------------------------------------------------------- */

static int connect_to(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static int serve_jobs(struct sf_mpi *mpi, int fd, struct sf_process_page *page, const struct sf_pool_options *pool) {
  struct sf_engine *engine = NULL;
  struct sf_job job;
  if (sf_rank_engine_create(&engine, mpi, page, pool) != SF_OK) return 3;
  bool confined = false;
  while (sf_fd_read(fd, &job, sizeof job)) {
    if (!confined && sf_plugin_target_path(job.c.target)) sf_warden_confine(false), confined = true;
    static struct rank_message message;
    memset(&message, 0, sizeof message);
    page->progress = (struct sf_comm_progress){.rank = -1};
    page->trace_rank = -1;
    message.result.tag = job.tag;
    struct sf_chunk_log record = {0};
    const bool root = job.diagnose && sf_mpi_rank(mpi) == 0;
    sf_engine_run(engine, &job.c, root ? &record : NULL, &message.result.outcome);
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
  const struct hello hello = {sf_mpi_rank(mpi), sf_mpi_world(mpi)};
  const int fd = connect_to(socket_path);
  if (fd < 0 || !sf_fd_write(fd, &hello, sizeof hello)) return 3;
  const int code = serve_jobs(mpi, fd, page, pool);
  sf_mpi_destroy(mpi);
  return code;
}
