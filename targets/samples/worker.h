/* The worker's side of the protocol (targets/worker.md) for programs in C, as shardfuzz.worker is for Python: a file to copy. Needs jansson
 * and POSIX. Each rank says hello, then runs what it is asked for and answers, until the harness has no more. */
#ifndef SF_SAMPLES_WORKER_H
#define SF_SAMPLES_WORKER_H

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* This rank's part of a matrix of fp32: rows [row, row + rows) and columns [col, col + cols) of shape, in row-major order. */
struct sf_worker_tensor {
  const char *name; /* targets/trace_format.md */
  int shape[2], row, rows, col, cols;
  const float *values;
};

struct sf_worker_rank { int rank, ranks; };

/* The header of a trace file; NULL on no memory. free() it. */
static inline char *sf_worker_header(struct sf_worker_rank me, const struct sf_worker_tensor *tensors, int count, long long *data_bytes) {
  json_t *places = json_object(), *table = json_object();
  *data_bytes = 0;
  for (int i = 0; i < count; i++) {
    const struct sf_worker_tensor *t = &tensors[i];
    const long long begin = *data_bytes;
    *data_bytes += (long long)sizeof(float) * t->rows * t->cols;
    json_object_set_new(
        places, t->name,
        json_pack("{s:[ii], s:[[[ii]], [[ii]]]}", "shape", t->shape[0], t->shape[1], "index", t->row, t->rows, t->col, t->cols));
    json_object_set_new(table, t->name,
                        json_pack("{s:s, s:[ii], s:[II]}", "dtype", "F32", "shape", t->rows, t->cols, "data_offsets", (json_int_t)begin,
                                  (json_int_t)*data_bytes));
  }
  json_t *about = json_pack("{s:i, s:i, s:i, s:s, s:o}", "format", 1, "rank", me.rank, "ranks", me.ranks, "mode", "e2e", "tensors", places);
  char *text = json_dumps(about, 0);
  json_object_set_new(table, "__metadata__", json_pack("{s:s}", "shardfuzz", text));
  char *header = json_dumps(table, 0);
  free(text);
  json_decref(about);
  json_decref(table);
  return header;
}

/* Writes this rank's trace. Room is reserved first, so that a full disk or memory is an error and no signal. 0, or an errno. */
static inline int sf_worker_write(const char *folder, struct sf_worker_rank me, const struct sf_worker_tensor *tensors, int count) {
  char path[4096];
  long long data_bytes;
  char *header = sf_worker_header(me, tensors, count, &data_bytes);
  if (!header) return ENOMEM;
  const uint64_t size = strlen(header); /* little-endian in the file: as this machine is */
  snprintf(path, sizeof path, "%s/rank-%05d.safetensors", folder, me.rank);
  FILE *file = fopen(path, "wb");
  int failed = file ? posix_fallocate(fileno(file), 0, (off_t)(sizeof size + size) + (off_t)data_bytes) : errno;
  if (file && !failed) {
    fwrite(&size, sizeof size, 1, file);
    fwrite(header, 1, size, file);
    for (int i = 0; i < count; i++) fwrite(tensors[i].values, sizeof(float) * (size_t)tensors[i].cols, (size_t)tensors[i].rows, file);
    failed = ferror(file) ? EIO : 0;
  }
  if (file && fclose(file) != 0 && !failed) failed = errno;
  free(header);
  return failed;
}

/* Runs a request ("run") of the case, whose trace goes into the folder; draw: -1, or the number of a perturbed run. What sf_worker_write
 * gave. */
typedef int sf_worker_run(const char *folder, const json_t *case_, int draw);

/* The answer to a request, a new reference, still without its id. NULL on no memory. */
static inline json_t *sf_process_answer(const json_t *request, const char *description, sf_worker_run *run) {
  const char *what = json_string_value(json_object_get(request, "request"));
  const json_t *draw = json_object_get(request, "draw");
  if (what && strcmp(what, "describe") == 0) return json_pack("{s:o}", "ok", json_loads(description, 0, NULL));
  const int failed =
      run(json_string_value(json_object_get(request, "out")), json_object_get(request, "case"), draw ? (int)json_integer_value(draw) : -1);
  if (failed) return json_pack("{s:s}", failed == ENOSPC || failed == EFBIG || failed == EDQUOT ? "full" : "error", strerror(failed));
  return json_pack("{s:{}}", "ok");
}

/* description: JSON. 0 when the harness has no more requests, 1 when this process was not started by shardfuzz or a line could not be sent.
 */
static inline int sf_worker_serve(struct sf_worker_rank me, const char *description, sf_worker_run *run) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char *line = NULL;
  size_t room = 0;
  const char *path = getenv("SHARDFUZZ_SOCKET");
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path ? path : "");
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FILE *in = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fdopen(fd, "r") : NULL;
  int failed = !in || dprintf(fd, "{\"hello\": 1, \"rank\": %d, \"ranks\": %d}\n", me.rank, me.ranks) < 0;
  while (!failed && getline(&line, &room, in) > 0) {
    json_t *request = json_loads(line, 0, NULL);
    const char *what = json_string_value(json_object_get(request, "request"));
    const int quit = what && strcmp(what, "quit") == 0;
    json_t *answer = quit ? NULL : sf_process_answer(request, description, run);
    json_object_set(answer, "id", json_object_get(request, "id"));
    char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    failed = text && dprintf(fd, "%s\n", text) < 0;
    free(text);
    json_decref(answer);
    json_decref(request);
    if (quit) break;
  }
  free(line);
  if (in) fclose(in);
  return failed;
}

#endif
