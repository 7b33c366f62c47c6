/* A sample worker in C with MPI: fc2(relu(fc1(x))), fc1 cut by columns, fc2 by rows. Its case may plant a missing all-reduce.
 *   shardfuzz worker build/worker_mlp CASES.jsonl */
#include <jansson.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DESCRIPTION "{\"name\": \"sample-mlp-c\", \"draws\": 4, \"fields\": {\"ranks\": {\"choices\": [1, 2, 4], \"layout\": true}, \"tokens\": {\"min\": 1, \"max\": 8}, " \
  "\"hidden\": {\"min\": 8, \"max\": 32, \"step\": 8}, \"seed\": {\"min\": 0, \"max\": 1000}, \"bug\": {\"choices\": [\"none\", \"no-reduce\"], \"layout\": true}}}"
#define FC1 "s0/mb0/fwd/act/mlp.fc1/0"
#define FC2 "s0/mb0/fwd/act/mlp.fc2/0"
static int rank, ranks;
static float x[256], fc[2][256]; /* the input; what both products put out */

/* A value in -1..1 that is a function of its arguments: of the logical element, whoever holds it. */
static double draw(int seed, int which, int index) {
  uint64_t bits = (uint64_t)(seed * 31 + which + 1) * 0x9e3779b97f4a7c15u + (uint64_t)index * 0xd1b54a32d192ed03u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  return (double)(int64_t)(bits ^ bits >> 31) * 0x1p-63;
}

/* A stored value; in perturbed run k > 0 as rounding might have moved it. */
static float stored(double value, int k, int at) { return (float)(k ? value * (1 + 0x1p-23 * draw(k, 77, at)) : value); }

static void step(int tokens, int hidden, int seed, int k, int reduce) {
  const int n = hidden / ranks;
  for (int i = 0; i < tokens * hidden; i++) x[i] = stored(draw(seed, 0, i), k, i);
  for (int i = 0; i < tokens * n; i++) {
    double sum = 0;
    for (int j = 0; j < hidden; j++) sum += x[i / n * hidden + j] * draw(seed, 1, (rank * n + i % n) * hidden + j);
    fc[0][i] = stored(sum > 0 ? sum : 0, k, i + 1000);
  }
  for (int i = 0; i < tokens * hidden; i++) {
    double sum = 0;
    for (int j = 0; j < n; j++) sum += fc[0][i / hidden * n + j] * draw(seed, 2, i % hidden * hidden + rank * n + j);
    fc[1][i] = stored(sum, k, i + 2000);
  }
  if (reduce) MPI_Allreduce(MPI_IN_PLACE, fc[1], tokens * hidden, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Room is reserved first, so that a full disk or memory is an error of posix_fallocate; NULL when all is well. */
static const char *save(const char *folder, int tokens, int hidden) {
  char path[512];
  const int n = hidden / ranks, first = 4 * tokens * n, last = first + 4 * tokens * hidden;
  json_t *meta = json_pack("{s:i, s:i, s:i, s:s, s:{s:{s:[ii], s:[[[ii]], [[ii]]]}, s:{}}}", "format", 1, "rank", rank, "ranks", ranks, "mode", "e2e", "tensors", FC1,
                           "shape", tokens, hidden, "index", 0, tokens, rank * n, n, FC2);
  char *places = json_dumps(meta, 0);
  json_t *table = json_pack("{s:{s:s}, s:{s:s, s:[ii], s:[ii]}, s:{s:s, s:[ii], s:[ii]}}", "__metadata__", "shardfuzz", places, FC1, "dtype", "F32", "shape", tokens, n,
                            "data_offsets", 0, first, FC2, "dtype", "F32", "shape", tokens, hidden, "data_offsets", first, last);
  char *head = json_dumps(table, 0);
  const uint64_t size = strlen(head); /* little-endian in the file: as this machine is */
  snprintf(path, sizeof path, "%s/rank-%05d.safetensors", folder, rank);
  FILE *file = fopen(path, "wb");
  const int failed = file ? posix_fallocate(fileno(file), 0, (off_t)(8 + size) + last) : -1;
  if (!failed) fwrite(&size, 8, 1, file), fputs(head, file), fwrite(fc[0], 1, (size_t)first, file), fwrite(fc[1], 4, (size_t)(tokens * hidden), file);
  const int closed = file ? fclose(file) : -1;
  json_decref(meta), json_decref(table), free(places), free(head);
  return failed ? strerror(failed) : closed ? "the trace could not be written" : NULL;
}

static json_t *answer(json_t *request) {
  const char *what = "", *folder = "", *bug = "";
  int tokens = 1, hidden = 8, seed = 0, k = -1;
  json_unpack(request, "{s:s, s?s, s?i, s?{s:i, s:i, s:i, s:s}}", "request", &what, "out", &folder, "draw", &k, "case", "tokens", &tokens, "hidden", &hidden, "seed",
              &seed, "bug", &bug);
  if (strcmp(what, "describe") == 0) return json_pack("{s:o}", "ok", json_loads(DESCRIPTION, 0, NULL));
  step(tokens, hidden, seed, k + 1, strcmp(bug, "no-reduce") != 0);
  const char *wrong = save(folder, tokens, hidden);
  return wrong ? json_pack("{s:s}", "full", wrong) : json_pack("{s:{}}", "ok");
}

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char line[1 << 16];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("SHARDFUZZ_SOCKET") ? getenv("SHARDFUZZ_SOCKET") : "");
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) return 1;
  FILE *in = fdopen(fd, "r");
  dprintf(fd, "{\"hello\": 1, \"rank\": %d, \"ranks\": %d}\n", rank, ranks);
  while (fgets(line, sizeof line, in) && !strstr(line, "\"quit\"")) {
    json_t *request = json_loads(line, 0, NULL), *said = answer(request);
    json_object_set(said, "id", json_object_get(request, "id"));
    char *text = json_dumps(said, JSON_COMPACT);
    dprintf(fd, "%s\n", text);
    free(text), json_decref(said), json_decref(request);
  }
  return MPI_Finalize();
}
