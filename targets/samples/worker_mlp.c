/* A sample worker in C with MPI: act = fc2(relu(fc1(x))), fc1 cut by columns, fc2 by rows. Its case may plant a missing all-reduce.
 *   shardfuzz worker build/worker_mlp CASES.jsonl */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DESCRIPTION "{'name': 'sample-mlp-c', 'draws': 4, 'fields': {'ranks': {'choices': [1, 2, 4], 'layout': true}, 'tokens': {'min': 1, 'max': 8}, " \
  "'hidden': {'min': 8, 'max': 64, 'step': 8}, 'seed': {'min': 0, 'max': 1000}, 'bug': {'choices': ['none', 'no-reduce'], 'layout': true}}}"

enum { TOKENS_MAX = 8, HIDDEN_MAX = 64 };
static int rank, ranks;
static float x[TOKENS_MAX * HIDDEN_MAX], fc1[TOKENS_MAX * HIDDEN_MAX], fc2[TOKENS_MAX * HIDDEN_MAX];

/* A value in -1..1 of (seed, which, index). */
static double draw(uint64_t seed, uint64_t which, uint64_t index) {
  uint64_t bits = (seed * 31 + which + 1) * 0x9e3779b97f4a7c15u + index * 0xd1b54a32d192ed03u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return (double)(int64_t)(bits ^ bits >> 31) * 0x1p-63;
}

/* run > 0: as rounding might have moved it. */
static float stored(double value, uint64_t run, uint64_t at) { return (float)(run ? value * (1 + 0x1p-23 * draw(run, 77, at)) : value); }

static void step(int tokens, int hidden, uint64_t seed, uint64_t run, int reduce) {
  const int n = hidden / ranks;
  for (int i = 0; i < tokens * hidden; i++) x[i] = stored(draw(seed, 0, (uint64_t)i), run, (uint64_t)i);
  for (int i = 0; i < tokens * n; i++) {
    double sum = 0;
    for (int k = 0; k < hidden; k++) sum += x[i / n * hidden + k] * draw(seed, 1, (uint64_t)((rank * n + i % n) * hidden + k));
    fc1[i] = stored(sum > 0 ? sum : 0, run, (uint64_t)i + 10000);
  }
  for (int i = 0; i < tokens * hidden; i++) {
    double sum = 0;
    for (int k = 0; k < n; k++) sum += fc1[i / hidden * n + k] * draw(seed, 2, (uint64_t)(i % hidden * hidden + rank * n + k));
    fc2[i] = stored(sum, run, (uint64_t)i + 20000);
  }
  if (reduce) MPI_Allreduce(MPI_IN_PLACE, fc2, tokens * hidden, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* NULL, or what is wrong. Room is reserved first: a full disk or memory is an error of posix_fallocate. */
static const char *save(const char *folder, int tokens, int hidden) {
  char path[512], head[1200], places[512];
  const int n = hidden / ranks;
  const long first = 4L * tokens * n, second = 4L * tokens * hidden;
  snprintf(path, sizeof path, "%s/rank-%05d.safetensors", folder, rank);
  snprintf(places, sizeof places, "{\\\"format\\\":1,\\\"rank\\\":%d,\\\"ranks\\\":%d,\\\"mode\\\":\\\"e2e\\\",\\\"tensors\\\":{\\\"s0/mb0/fwd/act/mlp.fc1/0\\\":"
           "{\\\"shape\\\":[%d,%d],\\\"index\\\":[[[0,%d]],[[%d,%d]]]},\\\"s0/mb0/fwd/act/mlp.fc2/0\\\":{}}}", rank, ranks, tokens, hidden, tokens, rank * n, n);
  const int size = snprintf(head + 8, sizeof head - 8, "{\"__metadata__\":{\"shardfuzz\":\"%s\"},\"s0/mb0/fwd/act/mlp.fc1/0\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
           "\"data_offsets\":[0,%ld]},\"s0/mb0/fwd/act/mlp.fc2/0\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%ld,%ld]}}",
           places, tokens, n, first, tokens, hidden, first, first + second);
  for (int i = 0; i < 8; i++) head[i] = (char)((uint64_t)size >> (8 * i));
  const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const int failed = fd < 0 ? errno : posix_fallocate(fd, 0, 8 + size + first + second);
  if (failed) return strerror(failed);
  const int whole = write(fd, head, (size_t)size + 8) == size + 8 && write(fd, fc1, (size_t)first) == first && write(fd, fc2, (size_t)second) == second;
  return close(fd) == 0 && whole ? NULL : "the trace could not be written";
}

static json_t *answer(json_t *request) {
  const char *what = "", *folder = "", *bug = "";
  int tokens = 1, hidden = 8, seed = 0, number = -1;
  json_unpack(request, "{s:s, s?s, s?i, s?{s:i, s:i, s:i, s:s}}", "request", &what, "out", &folder, "draw", &number, "case", "tokens", &tokens, "hidden",
              &hidden, "seed", &seed, "bug", &bug);
  if (strcmp(what, "describe") == 0) {
    char text[] = DESCRIPTION;
    for (char *at = text; *at; at++) *at = *at == '\'' ? '"' : *at;
    return json_pack("{s:o}", "ok", json_loads(text, 0, NULL));
  }
  step(tokens, hidden, (uint64_t)seed, (uint64_t)(number + 1), strcmp(bug, "no-reduce") != 0);
  const char *wrong = save(folder, tokens, hidden);
  return wrong ? json_pack("{s:s}", "full", wrong) : json_pack("{s:{}}", "ok");
}

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char *line = NULL;
  size_t room = 0;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("SHARDFUZZ_SOCKET") ? getenv("SHARDFUZZ_SOCKET") : "");
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) return 1;
  FILE *in = fdopen(fd, "r");
  dprintf(fd, "{\"hello\": 1, \"rank\": %d, \"ranks\": %d}\n", rank, ranks);
  while (getline(&line, &room, in) > 0) {
    json_t *request = json_loads(line, 0, NULL), *said = NULL;
    if (strcmp(json_string_value(json_object_get(request, "request")), "quit") == 0) break;
    said = answer(request);
    json_object_set(said, "id", json_object_get(request, "id"));
    char *text = json_dumps(said, JSON_COMPACT);
    dprintf(fd, "%s\n", text);
    free(text);
    json_decref(said);
    json_decref(request);
  }
  return MPI_Finalize();
}
