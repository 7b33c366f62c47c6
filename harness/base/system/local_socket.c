#include "harness/base/system/local_socket.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Makes a socket and binds or connects it. */
static int socket_at(const char *path, int (*act)(int fd, const struct sockaddr *address, socklen_t size)) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (snprintf(address.sun_path, sizeof address.sun_path, "%s", path) >= (int)sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || act(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  const int cause = errno;
  close(fd);
  errno = cause;
  return -1;
}

int sf_socket_connect(const char *path) { return socket_at(path, connect); }

int sf_socket_listen(const char *path, int backlog) {
  const int fd = socket_at(path, bind);
  if (fd < 0 || listen(fd, backlog) == 0) return fd;
  const int cause = errno;
  close(fd);
  errno = cause;
  return -1;
}
