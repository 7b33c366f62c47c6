// Throws out of a layer.
#include <shardfuzz/plugin.h>

#include <stdexcept>

static int pass(const shardfuzz_layer_call *call) {
  throw std::runtime_error(call->module); // the bug
}

static const shardfuzz_layer layers[] = {{"decoder.final_layernorm", SHARDFUZZ_BIT(SHARDFUZZ_F32), SHARDFUZZ_TAKES_SEQUENCE_PARALLEL, pass, pass, nullptr, nullptr, 0, 0}};

extern "C" const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static const struct shardfuzz_plugin plugin = {SHARDFUZZ_PLUGIN_ABI, sizeof plugin, SHARDFUZZ_KIND_LAYERS, 1, "throws", layers, sizeof layers[0], 0};
  return &plugin;
}
