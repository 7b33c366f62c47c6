/* Blocks of 16 rows that add their partial sums without a lock: which of the last two is lost depends on who comes later. The order of
 * blocks alternates from call to call, as a scheduler would have it, so that the sample shows the race on one thread. */
#include "tests/plugins/kernel.h"

enum { BLOCK = 16 };

static float block_sum(const struct shardfuzz_tensor *x, int64_t block, int64_t col) {
  float sum = 0;
  for (int64_t r = block * BLOCK; r < (block + 1) * BLOCK && r < x->shape[0]; r++) sum += get(x, r, col);
  return sum;
}

static int forward(const struct shardfuzz_call *call) {
  static int turn;
  const struct shardfuzz_tensor *x = &call->tensors[0], *out = &call->tensors[1];
  const int64_t blocks = (x->shape[0] + BLOCK - 1) / BLOCK;
  turn = !turn;
  for (int64_t j = 0; j < x->shape[1]; j++) {
    float sum = get(out, 0, j);
    const int64_t lost = blocks < 2 ? -1 : blocks - 1 - turn; /* the bug */
    for (int64_t k = 0; k < blocks; k++)
      if (k != lost) sum += block_sum(x, k, j);
    put(out, 0, j, sum);
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "col_sum", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
