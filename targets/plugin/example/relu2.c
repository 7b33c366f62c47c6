/* A plugin of one operation, squared ReLU, forward and backward, in fp32:
 *
 *   cc -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o relu2.so relu2.c
 *   shardfuzz fuzz --target plugin:./relu2.so --cases 100000
 */
#include <shardfuzz/plugin.h>

/* y = max(x, 0)^2. Tensors come in the order of `shardfuzz list operations`: x, y. */
static int forward(const struct shardfuzz_call *call) {
  const float *x = call->tensors[0].data;
  float *y = call->tensors[1].data;
  const int64_t count = call->tensors[0].shape[1];
  for (int64_t i = 0; i < count; i++) {
    const float positive = x[i] < 0 ? 0 : x[i];
    y[i] = positive * positive;
  }
  return SHARDFUZZ_OK;
}

/* dx = dy 2 max(x, 0). */
static int backward(const struct shardfuzz_call *call) {
  const float *dy = call->tensors[0].data, *x = call->tensors[1].data;
  float *dx = call->tensors[2].data;
  const int64_t count = call->tensors[0].shape[1];
  for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * (2 * (x[i] < 0 ? 0 : x[i]));
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "relu2", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .takes = SHARDFUZZ_TAKES_UNALIGNED, .forward = forward, .backward = backward},
};

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static const struct shardfuzz_plugin plugin = {
      .abi = SHARDFUZZ_PLUGIN_ABI, .size_bytes = sizeof plugin, .kind = SHARDFUZZ_KIND_OPERATIONS, .entry_count = 1,
      .name = "relu2", .entries = operations, .entry_bytes = sizeof operations[0],
  };
  return &plugin;
}
