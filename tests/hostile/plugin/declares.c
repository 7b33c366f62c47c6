/* A plugin that declares what its loader tells it to. */
#include "targets/plugin/include/shardfuzz/plugin.h"

void hostile_declare(const struct shardfuzz_plugin *plugin);

static const struct shardfuzz_plugin *declared;

void hostile_declare(const struct shardfuzz_plugin *plugin) { declared = plugin; }

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) { return declared; }
