/* A sample worker in C with MPI: fc2(relu(fc1(x))), fc1 cut by columns, fc2 by rows. Its case may plant a missing all-reduce.
 *   shardfuzz worker build/worker_mlp CASES.jsonl */
#include "targets/samples/worker.h"

#include <mpi.h>

#define DESCRIPTION \
  "{\"name\": \"sample-mlp-c\", \"draws\": 4, \"fields\": {\"ranks\": {\"choices\": [1, 2, 4], \"layout\": true}, " \
  "\"tokens\": {\"min\": 1, \"max\": 8}, \"hidden\": {\"min\": 8, \"max\": 32, \"step\": 8}, \"seed\": {\"min\": 0, \"max\": 1000}, " \
  "\"bug\": {\"choices\": [\"none\", \"no-reduce\"], \"layout\": true}}}"

static struct sf_worker_rank me;
static float x[256], fc1[256], fc2[256]; /* the input; what the products put out */

/* A value in -1..1 that is a function of its arguments: of the logical element, whoever holds it. */
static double draw(int seed, int which, int index) {
  uint64_t bits = (uint64_t)(seed * 31 + which + 1) * 0x9e3779b97f4a7c15u + (uint64_t)index * 0xd1b54a32d192ed03u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  return (double)(int64_t)(bits ^ bits >> 31) * 0x1p-63;
}

/* A stored value; in perturbed run k > 0 as rounding might have moved it. */
static float stored(double value, int k, int at) { return (float)(k ? value * (1 + 0x1p-23 * draw(k, 77, at)) : value); }

static void step(int tokens, int hidden, int seed, int k, int reduce) {
  const int n = hidden / me.ranks;
  for (int i = 0; i < tokens * hidden; i++) x[i] = stored(draw(seed, 0, i), k, i);
  for (int i = 0; i < tokens * n; i++) {
    double sum = 0;
    for (int j = 0; j < hidden; j++) sum += x[i / n * hidden + j] * draw(seed, 1, (me.rank * n + i % n) * hidden + j);
    fc1[i] = stored(sum > 0 ? sum : 0, k, i + 1000);
  }
  for (int i = 0; i < tokens * hidden; i++) {
    double sum = 0;
    for (int j = 0; j < n; j++) sum += fc1[i / hidden * n + j] * draw(seed, 2, i % hidden * hidden + me.rank * n + j);
    fc2[i] = stored(sum, k, i + 2000);
  }
  if (reduce) MPI_Allreduce(MPI_IN_PLACE, fc2, tokens * hidden, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int run(const char *folder, const json_t *fields, int number) {
  const char *bug = json_string_value(json_object_get(fields, "bug"));
  const int tokens = (int)json_integer_value(json_object_get(fields, "tokens")),
            hidden = (int)json_integer_value(json_object_get(fields, "hidden"));
  const int seed = (int)json_integer_value(json_object_get(fields, "seed")), n = hidden / me.ranks;
  const struct sf_worker_tensor tensors[] = {{"s0/mb0/fwd/act/mlp.fc1/0", {tokens, hidden}, 0, tokens, me.rank * n, n, fc1},
                                             {"s0/mb0/fwd/act/mlp.fc2/0", {tokens, hidden}, 0, tokens, 0, hidden, fc2}};
  step(tokens, hidden, seed, number + 1, strcmp(bug, "no-reduce") != 0);
  return sf_worker_write(folder, me, tensors, 2);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &me.ranks);
  const int failed = sf_worker_serve(me, DESCRIPTION, run);
  MPI_Finalize();
  return failed;
}
