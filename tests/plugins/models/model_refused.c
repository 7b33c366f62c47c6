/* Declarations of a model that are refused, chosen by the variable REFUSED. */
#include "tests/plugins/kernel.h"

#include <stdlib.h>

static int run(const struct shardfuzz_model_call *call) { return call->dtype == SHARDFUZZ_F32 ? SHARDFUZZ_OK : 1; }

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static struct shardfuzz_range range = {"layout.tp", 1, 2};
  static struct shardfuzz_model model = {
      .name = "refused", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .range_count = 1, .ranges = &range, .run = run};
  static struct shardfuzz_plugin plugin = {.abi = SHARDFUZZ_PLUGIN_ABI,
                                           .size_bytes = sizeof plugin,
                                           .kind = SHARDFUZZ_KIND_MODEL,
                                           .entry_count = 1,
                                           .name = "refused",
                                           .entries = &model,
                                           .entry_bytes = sizeof model};
  const char *what = getenv("REFUSED");
  if (what == NULL) what = "";
  if (strcmp(what, "field") == 0) range.field = "layout.width";
  if (strcmp(what, "never") == 0) range = (struct shardfuzz_range){"layout.zero", 0, 1};
  if (strcmp(what, "empty") == 0) range.max = 0;
  if (strcmp(what, "run") == 0) model.run = NULL;
  if (strcmp(what, "two") == 0) plugin.entry_count = 2;
  return &plugin;
}
