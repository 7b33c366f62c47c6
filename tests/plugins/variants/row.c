/* A row-parallel linear, mlp.linear_fc2, with BUG. */
#include "tests/plugins/layer.h"

#include <fenv.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Rounds toward zero while the ranks wait for each other; who begins meanwhile must not. Returns 0 when all was as it should be. */
static int sum_rounding(layer_call call, const float *partial, int64_t rows) {
  if (fegetround() != FE_TONEAREST) return 9;
  fesetround(FE_TOWARDZERO);
  sum_over_tp(call, call->output, partial, rows);
  const int kept = fegetround() == FE_TOWARDZERO;
  fesetround(BUG == LEAVES_ROUNDING ? FE_TOWARDZERO : FE_TONEAREST);
  return kept ? 0 : 10;
}

static int row_forward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  const int64_t rows = rows_of(call->input), in = cols_of(call->input), out = cols_of(call->output);
  const struct shardfuzz_member tp = tp_of(call);
  float *partial = floats(call, rows * out);
  if (BUG == CRASHES && tp.size == 2 && tp.index == 1) abort();
  if (BUG == FORKS) {
    if (fork() == 0) return SHARDFUZZ_OK;
    if (fork() == 0) setsid(), sleep(1000);
    if (tp.size == 2 && tp.index == 1) kill(0, SIGKILL);
  }
  if (BUG == RETURNS_ERROR && rows > 8) return 7;
  for (volatile int forever = 1; BUG == HANGS && rows > 16 && forever;) continue;
  multiply(partial, read_floats(call, call->input), read_floats(call, &weight->value), rows, in, out);
  if (BUG == BIAS_ON_EVERY_RANK && bias)
    for (int64_t i = 0; i < rows * out; i++) partial[i] += get(&bias->value, 0, i % out);
  if (BUG == NO_ALL_REDUCE && !is_sp(call)) {
    write_floats(call->output, partial);
  } else if (BUG == LEAVES_ROUNDING || BUG == ROUNDS_INSIDE) {
    const int wrong = sum_rounding(call, partial, rows);
    if (wrong) return wrong;
  } else if (BUG != LEAVES_RANK_OUT || tp.size == 1 || tp.index > 0) {
    sum_over_tp(call, call->output, partial, rows);
  }
  for (int64_t i = 0; i < rows_of(call->output); i++)
    for (int64_t j = 0; bias && j < out; j++)
      if (BUG != BIAS_ON_EVERY_RANK) put(call->output, i, j, get(call->output, i, j) + get(&bias->value, 0, j));
  if (BUG == FREES_INPUT) free(call->input->data);
  if (BUG == CHANGES_WEIGHT) put(&weight->value, 0, 0, get(&weight->value, 0, 0) + 1);
  if (BUG == WRITES_FAR)
    ((char *)call->output->data)[(size_t)(rows_of(call->output) * out) * element_bytes(dtype_of(call->output)) + 60000] = 1;
  if (BUG == WRITES_BEHIND_SCRATCH) partial[rows * out + 2] = 1;
  if (BUG == WRITES_BEHIND) put(call->output, rows_of(call->output), 0, 1);
  return SHARDFUZZ_OK;
}

static int row_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  const int64_t in = cols_of(call->input), out = cols_of(call->output_grad), own_rows = rows_of(call->output_grad);
  int64_t rows;
  const float *own = read_floats(call, call->output_grad), *g = gather_tokens(call, call->output_grad, &rows);
  float *dx = floats(call, rows * in);
  multiply_back(dx, g, read_floats(call, &weight->value), rows, in, out);
  for (int64_t i = 0; BUG == WRONG_SCALE && i < rows * in; i++) dx[i] /= (float)tp_of(call).size;
  write_floats(call->input_grad, dx);
  parameter_grads(weight, bias, g, read_floats(call, call->input), rows, own, own_rows);
  if (BUG == BIAS_GRAD_TWICE && bias && bias->grad.data)
    call->comm->all_reduce(call->comm, SHARDFUZZ_GROUP_TP, bias->grad.data, out, SHARDFUZZ_F32,
                           SHARDFUZZ_SUM); /* once more is done at the end of the step */
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_layer layers[] = {{.module = "mlp.linear_fc2",
                                                 .dtypes = FORMATS,
                                                 .takes = SHARDFUZZ_TAKES_SEQUENCE_PARALLEL,
                                                 .forward = row_forward,
                                                 .backward = row_backward}};
LAYERS(layers)
