#include "harness/worker/launcher.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int sf_launcher_listen(const char *path, int32_t connections) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, connections) == 0) return fd;
  close(fd);
  return -1;
}

void sf_launcher_close_others(const int *keep, int32_t count) {
  unsigned from = 3;
  for (int32_t i = 0; i < count; i++) {
    const unsigned kept = (unsigned)keep[i];
    if (kept > from) close_range(from, kept - 1, 0);
    if (kept >= from) from = kept + 1;
  }
  close_range(from, ~0u, 0);
}

static void set_default(const char *name, const char *value) { setenv(name, value, 0); }

_Noreturn void sf_launcher_become(const char *command, int output_fd) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  set_default("OMPI_ALLOW_RUN_AS_ROOT", "1");
  set_default("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  set_default("OMPI_MCA_hwloc_base_binding_policy", "none");
  set_default("OMPI_MCA_mpi_yield_when_idle", "1");
  set_default("OMPI_MCA_odls_base_sigkill_timeout", "0");
  set_default("OMP_NUM_THREADS", "1");
  if (output_fd >= 0) {
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
  }
  execl("/bin/sh", "sh", "-c", command, (char *)NULL);
  _exit(127);
}
