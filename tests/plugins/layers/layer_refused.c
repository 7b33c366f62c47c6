/* Declares what REFUSED says in the environment, to be refused: a module that does not exist, a field that no case has, the same module
 * twice, no backward, a kind of a later version. */
#include "tests/plugins/layer.h"

#include <stdlib.h>

static int pass(layer_call call) {
  (void)call;
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_limit odd[] = {{"layout.width", 2, 0}};
static const struct shardfuzz_layer unknown[] = {{.module = "mlp.conv3d", .dtypes = FORMATS, .forward = pass, .backward = pass}};
static const struct shardfuzz_layer field[] = {
    {.module = "mlp", .dtypes = FORMATS, .forward = pass, .backward = pass, .limits = odd, .limit_count = 1}};
static const struct shardfuzz_layer twice[] = {{.module = "mlp", .dtypes = FORMATS, .forward = pass, .backward = pass},
                                               {.module = "mlp.linear_fc2", .dtypes = FORMATS, .forward = pass, .backward = pass}};
static const struct shardfuzz_layer forward_only[] = {{.module = "mlp", .dtypes = FORMATS, .forward = pass}};

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static struct shardfuzz_plugin plugin = {.abi = SHARDFUZZ_PLUGIN_ABI,
                                           .size_bytes = sizeof plugin,
                                           .kind = SHARDFUZZ_KIND_LAYERS,
                                           .entry_count = 1,
                                           .name = "refused",
                                           .entry_bytes = sizeof unknown[0]};
  const char *what = getenv("REFUSED");
  plugin.entries = !what || !strcmp(what, "unknown") ? unknown
                   : !strcmp(what, "field")          ? field
                   : !strcmp(what, "twice")          ? twice
                                                     : forward_only;
  if (what && !strcmp(what, "twice")) plugin.entry_count = 2;
  if (what && !strcmp(what, "kind")) plugin.kind = 9;
  return &plugin;
}
