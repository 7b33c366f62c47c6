/* Plugins: shared libraries with kernels, layers or a model under test (include/shardfuzz/plugin.h has the contract). */
#ifndef SF_TARGETS_PLUGIN_PLUGIN_H
#define SF_TARGETS_PLUGIN_PLUGIN_H

#include "harness/base/status.h"
#include "targets/plugin/include/shardfuzz/plugin.h"

/* Loads the library and checks its declaration as far as it can be without knowing the operations and modules. Code of the library runs:
 * call it in a process that may be lost. It is never unloaded. SF_EINPUT with one line: no such file, not loadable here, no entry point,
 * another ABI version, a declaration with something missing. */
enum sf_status sf_plugin_load(const struct shardfuzz_plugin **out, const char *path, struct sf_error *error) SF_MUST_USE;
/* Declared operation `index`. */
const struct shardfuzz_operation *sf_plugin_operation(const struct shardfuzz_plugin *plugin, int32_t index);
/* Declared layer `index`, of a plugin of SHARDFUZZ_KIND_LAYERS. */
const struct shardfuzz_layer *sf_plugin_layer(const struct shardfuzz_plugin *plugin, int32_t index);
/* The model of a plugin of SHARDFUZZ_KIND_MODEL. */
const struct shardfuzz_model *sf_plugin_model_declared(const struct shardfuzz_plugin *plugin);

#endif
