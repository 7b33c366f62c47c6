/* Made for an ABI version that this program does not know. */
#include "tests/plugins/kernel.h"

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static const struct shardfuzz_plugin plugin = {.abi = 7, .size_bytes = sizeof plugin, .kind = SHARDFUZZ_KIND_OPERATIONS};
  return &plugin;
}
