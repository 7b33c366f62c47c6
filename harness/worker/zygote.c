#include "harness/worker/zygote.h"

#include "harness/base/system/local_socket.h"
#include "harness/worker/wait.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long a leader may take to kill what its ranks have started. */
static const double END_SECONDS = 10;

/* Sends the line with the descriptors beside its first byte. */
static bool send_with(int fd, char *line, size_t length, const int *descriptors, int count) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
  } control = {0};
  struct iovec text = {line, length};
  struct msghdr message = {
      .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
  memcpy(CMSG_DATA(header), descriptors, (size_t)count * sizeof(int));
  return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)text.iov_len;
}

int sf_zygote_fork(const char *path, int32_t ranks, const char *meeting, int output_fd, int held) {
  const int descriptors[2] = {output_fd, held};
  int fd = sf_socket_connect(path);
  json_t *request = json_pack("{s:i, s:s}", "fork", (int)ranks, "socket", meeting);
  char *line = request ? json_dumps(request, JSON_COMPACT) : NULL;
  const size_t length = line ? strlen(line) : 0;
  if (line) line[length] = '\n'; /* replaces the NUL: length + 1 bytes are sent */
  if (fd >= 0 && (!line || !send_with(fd, line, length + 1, descriptors, held >= 0 ? 2 : 1))) {
    close(fd);
    fd = -1;
  }
  free(line);
  json_decref(request);
  return fd;
}

bool sf_zygote_lives(const char *path) {
  const int fd = sf_socket_connect(path);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

double sf_zygote_end(int fd) {
  struct sf_wait wait = {.seconds = END_SECONDS};
  char text[64] = "";
  size_t length = 0;
  double seconds = -1;
  shutdown(fd, SHUT_WR);
  while (length < sizeof text - 1 && sf_wait_for(&wait, fd, POLLIN) == SF_WAIT_READY) {
    const ssize_t got = read(fd, text + length, sizeof text - 1 - length);
    if (got <= 0) break;
    length += (size_t)got;
  }
  close(fd);
  return sscanf(text, "%lf", &seconds) == 1 ? seconds : -1;
}
