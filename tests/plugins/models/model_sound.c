/* The example's model as it is. */
#include "targets/plugin/include/shardfuzz/plugin.h"

const struct shardfuzz_plugin *gpt_plugin_get(void);
const struct shardfuzz_plugin *shardfuzz_plugin_get(void) { return gpt_plugin_get(); }
