/* Rank sets started by a launcher command (mpirun). Every rank connects to a socket of the parent. Rank 0's connection carries jobs and
 * results; the others carry one message at most: the failure of a communication that rank 0 may never hear of. The parent's side of that is a
 * relay process, which leads the process group and speaks to the pool like any other worker. */
#include "harness/base/alloc.h"
#include "harness/run/engine.h"
#include "harness/run/worker.h"

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

enum { RANKS_MAX = 1024, CONNECT_SECONDS = 60 };

struct hello {
  int32_t rank, world;
};

/* What ranks send: a result of rank 0, or a failure any rank saw. */
struct rank_message {
  bool failed;
  struct sf_job_result result;
};

/* --- relay: between the pool's descriptor and the ranks -------------------------------------------------------- */

struct relay {
  int pool_fd, listen_fd;
  int32_t world;
  int rank_fds[RANKS_MAX];
};

static pid_t start_ranks(const struct sf_pool_options *options, const char *socket_path, const char *page_path) {
  char command[1024], count[16];
  const char *hole = strstr(options->launcher, "{n}");
  snprintf(count, sizeof count, "%d", options->launch_ranks);
  snprintf(command, sizeof command, "exec %.*s%s%s '%s' mpi-worker --socket '%s' --page '%s' </dev/null", hole ? (int)(hole - options->launcher) : (int)strlen(options->launcher),
           options->launcher, hole ? count : "", hole ? hole + 3 : "", options->self, socket_path, page_path);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  setenv("OMP_NUM_THREADS", "1", 0);
  const int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (quiet >= 0 && !getenv("SHARDFUZZ_LAUNCHER_OUTPUT")) {
    dup2(quiet, STDOUT_FILENO);
    dup2(quiet, STDERR_FILENO);
  }
  execl("/bin/sh", "sh", "-c", command, (char *)NULL);
  _exit(127);
}

static bool accept_ranks(struct relay *relay) {
  const double until = sf_engine_now() + CONNECT_SECONDS;
  for (int32_t i = 0; i < relay->world; i++) relay->rank_fds[i] = -1;
  for (int32_t connected = 0; connected < relay->world;) {
    struct pollfd waiting = {relay->listen_fd, POLLIN, 0};
    if (sf_engine_now() > until || waitpid(-1, NULL, WNOHANG) > 0) return false;
    if (poll(&waiting, 1, 200) <= 0) continue;
    const int fd = accept4(relay->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    struct hello hello;
    if (fd < 0) continue;
    if (!sf_fd_read(fd, &hello, sizeof hello) || hello.world != relay->world || hello.rank < 0 || hello.rank >= relay->world || relay->rank_fds[hello.rank] >= 0) {
      close(fd);
      return false;
    }
    relay->rank_fds[hello.rank] = fd;
    connected++;
  }
  return true;
}

/* Passes jobs down and results up until a rank fails or a side closes. */
static void relay_loop(struct relay *relay) {
  static struct pollfd fds[RANKS_MAX + 1];
  for (int32_t i = 0; i < relay->world; i++) fds[i] = (struct pollfd){relay->rank_fds[i], POLLIN, 0};
  fds[relay->world] = (struct pollfd){relay->pool_fd, POLLIN, 0};
  for (;;) {
    if (poll(fds, (nfds_t)relay->world + 1, -1) < 0 && errno != EINTR) return;
    if (fds[relay->world].revents) {
      struct sf_job job;
      if (!sf_fd_read(relay->pool_fd, &job, sizeof job) || !sf_fd_write(relay->rank_fds[0], &job, sizeof job)) return;
    }
    for (int32_t i = 0; i < relay->world; i++) {
      if (!fds[i].revents) continue;
      struct rank_message message;
      if (!sf_fd_read(fds[i].fd, &message, sizeof message)) return;
      if (!sf_fd_write(relay->pool_fd, &message.result, sizeof message.result) || message.failed) return;
    }
  }
}

static _Noreturn void relay_main(int pool_fd, int listen_fd, const struct sf_pool_options *options, const char *socket_path, const char *page_path) {
  static struct relay relay;
  relay.pool_fd = pool_fd;
  relay.listen_fd = listen_fd;
  relay.world = options->launch_ranks;
  const pid_t launcher = start_ranks(options, socket_path, page_path);
  if (launcher > 0 && accept_ranks(&relay)) relay_loop(&relay);
  kill(0, SIGKILL); /* the whole group: launcher, ranks and this process */
  _exit(0);
}

/* --- pool's side ----------------------------------------------------------------------------------------------- */

static int listen_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 64) == 0) return fd;
  close(fd);
  return -1;
}

static struct sf_worker_page *map_pages(const char *path, int32_t count, int flags) {
  const size_t size_bytes = (size_t)count * sizeof(struct sf_worker_page);
  const int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd < 0) return NULL;
  void *pages = MAP_FAILED;
  if (!(flags & O_CREAT) || ftruncate(fd, (off_t)size_bytes) == 0) pages = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return pages == MAP_FAILED ? NULL : pages;
}

/* The pages of a launched set are a file, since its ranks are no children of ours. */
static bool make_pages(struct sf_worker *worker, const char *path, int32_t ranks) {
  sf_worker_unmap(worker);
  worker->page = map_pages(path, ranks, O_CREAT);
  if (!worker->page) return false;
  worker->page_count = ranks;
  for (int32_t i = 0; i < ranks; i++) worker->page[i].progress.rank = worker->page[i].trace_rank = -1;
  return true;
}

enum sf_status sf_launch_start(struct sf_worker *worker, const struct sf_pool_options *options) {
  if (options->launch_ranks < 1 || options->launch_ranks > RANKS_MAX) return SF_EUSAGE;
  char socket_path[96], page_path[96];
  snprintf(worker->directory, sizeof worker->directory, "/tmp/shardfuzz-XXXXXX");
  if (!mkdtemp(worker->directory)) {
    *worker->directory = '\0';
    return SF_EIO;
  }
  snprintf(socket_path, sizeof socket_path, "%s/socket", worker->directory);
  snprintf(page_path, sizeof page_path, "%s/page", worker->directory);
  int pair[2] = {-1, -1};
  const int listen_fd = make_pages(worker, page_path, options->launch_ranks) ? listen_at(socket_path) : -1;
  if (listen_fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) goto fail;
  const pid_t parent = getpid();
  fflush(NULL);
  const pid_t pid = fork();
  if (pid < 0) goto fail;
  if (pid == 0) {
    close(pair[0]);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    relay_main(pair[1], listen_fd, options, socket_path, page_path);
  }
  setpgid(pid, pid);
  close(pair[1]);
  close(listen_fd);
  worker->pid = pid;
  worker->fd = pair[0];
  return SF_OK;
fail:
  if (listen_fd >= 0) close(listen_fd);
  if (pair[0] >= 0) close(pair[0]);
  if (pair[1] >= 0) close(pair[1]);
  sf_worker_stop(worker);
  return SF_EIO;
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

/* Rank 0 reads the next job; everyone gets it. False at the end. */
static bool next_job(struct sf_mpi *mpi, int fd, struct sf_job *job) {
  const bool first = sf_mpi_rank(mpi) == 0;
  void *data = first ? job : NULL;
  size_t size_bytes = first && sf_fd_read(fd, job, sizeof *job) ? sizeof *job : 0;
  if (sf_mpi_bcast_bytes(mpi, 0, &data, &size_bytes) != SF_OK) return false;
  const bool go_on = size_bytes == sizeof *job;
  if (!first) {
    if (go_on) memcpy(job, data, sizeof *job);
    sf_free(data);
  }
  return go_on;
}

static bool is_communication_failure(const struct sf_outcome *outcome) {
  return outcome->status == SF_OK && outcome->verdict == SF_VERDICT_FINDING && (outcome->cls == SF_CLASS_DEADLOCK || outcome->cls == SF_CLASS_MISMATCH || outcome->cls == SF_CLASS_CRASH);
}

static int serve_jobs(struct sf_mpi *mpi, int fd, struct sf_worker_page *page) {
  const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default(), .mpi = mpi, .progress = &page->progress, .trace_key = &page->trace_key, .trace_rank = &page->trace_rank};
  struct sf_engine *engine = NULL;
  struct sf_job job;
  if (sf_engine_create(&engine, &options) != SF_OK) return 3;
  while (next_job(mpi, fd, &job)) {
    static struct rank_message message;
    memset(&message, 0, sizeof message);
    page->progress.rank = page->trace_rank = -1;
    page->progress.label[0] = '\0';
    message.result.tag = job.tag;
    sf_engine_run(engine, &job.c, NULL, &message.result.outcome);
    message.failed = is_communication_failure(&message.result.outcome) || (message.result.outcome.status != SF_OK && message.result.outcome.status != SF_EINPUT);
    if (message.failed || sf_mpi_rank(mpi) == 0) {
      if (!sf_fd_write(fd, &message, sizeof message)) break;
    }
    if (message.failed) pause(); /* the relay ends the set: MPI cannot undo half-made collectives */
  }
  sf_engine_destroy(engine);
  return 0;
}

int sf_launch_rank_main(const char *socket_path, const char *page_path) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a rank whose launcher is gone would spin for ever */
  struct sf_mpi *mpi = NULL;
  if (sf_mpi_create(&mpi, NULL) != SF_OK) return 3;
  struct sf_worker_page *pages = map_pages(page_path, sf_mpi_world(mpi), 0);
  if (!pages) return 3;
  struct sf_worker_page *page = &pages[sf_mpi_rank(mpi)];
  sf_worker_watch_signals(page);
  const struct hello hello = {sf_mpi_rank(mpi), sf_mpi_world(mpi)};
  const int fd = connect_to(socket_path);
  if (fd < 0 || !sf_fd_write(fd, &hello, sizeof hello)) return 3;
  const int code = serve_jobs(mpi, fd, page);
  sf_mpi_destroy(mpi);
  return code;
}
