// Throws out of a C function.
#include <shardfuzz/plugin.h>

#include <stdexcept>

static int forward(const shardfuzz_call *call) {
  if (call->tensors[0].shape[1] >= 5) throw std::runtime_error("no kernel for this width"); // the bug
  const float *a = static_cast<const float *>(call->tensors[0].data), *b = static_cast<const float *>(call->tensors[1].data);
  float *out = static_cast<float *>(call->tensors[2].data);
  for (int64_t j = 0; j < call->tensors[0].shape[1]; j++) out[j] = a[j] + b[j];
  return SHARDFUZZ_OK;
}

static const shardfuzz_operation operations[] = {{"add", SHARDFUZZ_BIT(SHARDFUZZ_F32), SHARDFUZZ_TAKES_UNALIGNED, forward, nullptr, nullptr, nullptr, 0, 0}};

extern "C" const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static const struct shardfuzz_plugin plugin = {SHARDFUZZ_PLUGIN_ABI, sizeof plugin, SHARDFUZZ_KIND_OPERATIONS, 1, "throws", operations, sizeof operations[0], 0};
  return &plugin;
}
