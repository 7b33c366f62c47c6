#include "harness/worker/starved.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

pid_t sf_peer_pid(int fd) {
  struct ucred peer = {.pid = 0};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

/* The second number of schedstat: nanoseconds on a run queue. */
double sf_starved_seconds(pid_t pid) {
  char path[64], text[96];
  snprintf(path, sizeof path, "/proc/%ld/schedstat", (long)pid);
  const int file = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  char *waited = strchr(text, ' ');
  return waited ? (double)strtoull(waited, NULL, 10) / 1e9 : 0;
}
