/* A plugin of one layer, the row-parallel linear that ends an MLP, in fp32 and without sequence parallelism:
 *
 *   cc -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o linear_fc2.so linear_fc2.c
 *   shardfuzz fuzz --target plugin:./linear_fc2.so --cases 1000
 */
#include <shardfuzz/plugin.h>

/* y [tokens x hidden] = sum over tp of x [tokens x in] W^T, then + b: the bias is added once, after the sum. */
static int forward(const struct shardfuzz_layer_call *call) {
  const float *x = call->input->data, *w = call->parameters[0].value.data;
  const float *b = call->parameter_count > 1 ? call->parameters[1].value.data : 0;
  const int64_t tokens = call->input->shape[0], in = call->input->shape[1], hidden = call->output->shape[1];
  float *y = call->output->data;
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t j = 0; j < hidden; j++) {
      float sum = 0;
      for (int64_t k = 0; k < in; k++) sum += x[t * in + k] * w[j * in + k];
      y[t * hidden + j] = sum;
    }
  call->comm->all_reduce(call->comm, SHARDFUZZ_GROUP_TP, y, tokens * hidden, SHARDFUZZ_F32, SHARDFUZZ_SUM);
  for (int64_t i = 0; b && i < tokens * hidden; i++) y[i] += b[i % hidden];
  return SHARDFUZZ_OK;
}

/* dx = dy W, dW = dy^T x, db = column sums of dy: nothing is summed over tp. A frozen parameter has no gradient. */
static int backward(const struct shardfuzz_layer_call *call) {
  const float *dy = call->output_grad->data, *x = call->input->data, *w = call->parameters[0].value.data;
  const int64_t tokens = call->input->shape[0], in = call->input->shape[1], hidden = call->output_grad->shape[1];
  float *dx = call->input_grad->data, *dw = call->parameters[0].grad.data,
        *db = call->parameter_count > 1 ? call->parameters[1].grad.data : 0;
  for (int64_t i = 0; i < tokens * in; i++) dx[i] = 0;
  for (int64_t i = 0; dw && i < hidden * in; i++) dw[i] = 0;
  for (int64_t j = 0; db && j < hidden; j++) db[j] = 0;
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t j = 0; j < hidden; j++) {
      const float g = dy[t * hidden + j];
      for (int64_t k = 0; k < in; k++) dx[t * in + k] += g * w[j * in + k];
      for (int64_t k = 0; dw && k < in; k++) dw[j * in + k] += g * x[t * in + k];
      if (db) db[j] += g;
    }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_layer layers[] = {
    {.module = "mlp.linear_fc2", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .forward = forward, .backward = backward}};

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static const struct shardfuzz_plugin plugin = {.abi = SHARDFUZZ_PLUGIN_ABI,
                                                 .size_bytes = sizeof plugin,
                                                 .kind = SHARDFUZZ_KIND_LAYERS,
                                                 .entry_count = 1,
                                                 .name = "linear_fc2",
                                                 .entries = layers,
                                                 .entry_bytes = sizeof layers[0]};
  return &plugin;
}
