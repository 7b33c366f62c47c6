/* Layers of a shared library (targets/plugin, shardfuzz/plugin.h) in the place of modules of the built-in target. */
#ifndef SF_TARGETS_PLUGIN_LAYERS_H
#define SF_TARGETS_PLUGIN_LAYERS_H

#include "targets/plugin/plugin.h"
#include "targets/target.h"

enum { SF_PLUGIN_LAYERS_MAX = 32, SF_PLUGIN_LABEL_TEXT = 72, SF_PLUGIN_RANGES_MAX = 256 };

/* Where a plugin's program may stand, and the labels of the calls that it makes there: "mlp.linear_fc2.fwd",
 * "mlp.linear_fc2.fwd.all_reduce". Kept by their address; all ranks of the process share them. */
struct sf_plugin_place {
  char name[SF_PLUGIN_LABEL_TEXT];
  char calls[SF_COMM_OP_COUNT][SF_PLUGIN_LABEL_TEXT]; /* by enum sf_comm_op */
};
void sf_plugin_place_init(struct sf_plugin_place *out, const char *name); /* cuts a name that leaves a call's label no room */

/* One declared layer. */
struct sf_plugin_layer {
  const struct shardfuzz_layer *declared;
  enum sf_module_class cls; /* the module that is replaced; of mlp and mlp.experts their linear_fc1 */
  bool is_mlp;
  struct sf_plugin_place places[2]; /* forward, backward */
};

struct sf_plugin_layers {
  int32_t count;
  struct sf_plugin_layer at[SF_PLUGIN_LAYERS_MAX];
};

/* Finds the modules of a plugin of SHARDFUZZ_KIND_LAYERS. SF_EINPUT: a module or a case's field that does not exist, or a module that
 * stands twice. */
enum sf_status sf_plugin_layers_init(struct sf_plugin_layers *out, const struct shardfuzz_plugin *plugin,
                                     struct sf_error *error) SF_MUST_USE;

/* Whether the layers take the case. SF_ENOTSUP with the reason; also when the case's model has none of their modules. SF_ENOMEM. */
enum sf_status sf_plugin_layers_support(const struct sf_plugin_layers *layers, const struct sf_case *c, struct sf_error *error) SF_MUST_USE;

/* A range of a case's field outside of which no case is supported. */
struct sf_plugin_range {
  char path[48];
  int64_t lo, hi;
  uint32_t left_out; /* of precision.compute: bits of formats within lo..hi that are not taken */
};
/* For drawing. A field may occur several times. Returns how many, at most SF_PLUGIN_RANGES_MAX. */
int32_t sf_plugin_layers_ranges(struct sf_plugin_range *out, const struct sf_plugin_layers *layers);
/* Add one to the list of *count; what is beyond the most is left out. dtypes: SHARDFUZZ_BIT of each. */
void sf_plugin_add_range(struct sf_plugin_range *out, int32_t *count, const char *path, int64_t lo, int64_t hi);
void sf_plugin_add_formats(struct sf_plugin_range *out, int32_t *count, uint32_t dtypes);

#endif
