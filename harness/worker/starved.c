#include "harness/worker/starved.h"

#include <stdio.h>
#include <sys/socket.h>

pid_t sf_peer_pid(int fd) {
  struct ucred peer = {.pid = 0};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

/* The second number of schedstat: nanoseconds on a run queue. */
double sf_starved_seconds(pid_t pid) {
  char path[64];
  unsigned long long ran = 0, waited = 0;
  snprintf(path, sizeof path, "/proc/%ld/schedstat", (long)pid);
  FILE *file = pid > 0 ? fopen(path, "re") : NULL;
  if (!file) return 0;
  const int read = fscanf(file, "%llu %llu", &ran, &waited);
  fclose(file);
  return read == 2 ? (double)waited / 1e9 : 0;
}
