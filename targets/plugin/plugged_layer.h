/* One module of one rank whose forward and backward a plugin computes (targets/plugin/plugin_layers.h). The module's owner makes the
 * parameters and maps as ever, asks here whether a plugin has the module, and hands its calls over. */
#ifndef SF_TARGETS_PLUGGED_LAYER_H
#define SF_TARGETS_PLUGGED_LAYER_H

#include "targets/builtin/parallel/rank_run.h"
#include "targets/plugin/plugin_layers.h"

enum { SF_PLUGGED_PARAMETERS_MAX = 4, SF_PLUGGED_INNER_MAX = 2, SF_PLUGGED_ATTRIBUTES_MAX = 4 };

struct sf_plugged_piece;

/* A module inside the layer that hands over its tensors itself. */
struct sf_plugged_inner {
  const char *name;
  int32_t module;
  const struct sf_shard_map *map; /* of the output; or of the input's gradient */
};

struct sf_plugged {
  const struct sf_plugin_layer *layer;
  char name[72]; /* "decoder.layers.3.mlp.linear_fc2" */
  /* Told by the owner; maps are borrowed. The first module is where the input's gradient is traced, the last where the output is; -1: by
   * the owner, elsewhere. */
  int32_t first_module, last_module;
  const struct sf_shard_map *in_map, *out_map;
  const struct sf_shard_map *in_grad_map, *out_grad_map; /* of the input's and the output's gradient */
  const int64_t *expert_rows;             /* of mlp.experts, [expert_count]: its rows in the call at hand, which are no tokens in order */
  int32_t expert_count;
  int64_t capacity;                       /* elements that a result's buffer has at least: sizes that vary want one */
  enum sf_dtype in_dtype, out_dtype;      /* of input and output, and of their gradients */
  bool has_documents;                     /* it is told where documents begin */
  bool is_ids;                            /* the input is numbers of words, which have no gradient */
  /* NULL: not cast. in_pieces, grad_in_pieces: other tp ranks have other pieces of the input, of the output's gradient. */
  struct sf_fp8_linear *fp8;
  bool in_pieces, grad_in_pieces;
  float *input_scales; /* of the microbatches that wait for their backward */
  int32_t attribute_count;
  struct {
    const char *name;
    int64_t value;
  } attributes[SF_PLUGGED_ATTRIBUTES_MAX]; /* beyond those that every call has */
  int32_t param_count;
  struct {
    const char *name;
    struct sf_parameter *param;
    int call; /* of its gradient */
  } params[SF_PLUGGED_PARAMETERS_MAX];
  struct sf_plugged_inner outputs[SF_PLUGGED_INNER_MAX], input_grads[SF_PLUGGED_INNER_MAX]; /* of mlp */
  struct sf_plugged_piece **saved; /* by this rank's microbatch: what waits for its backward, or NULL */
};

/* NULL: the module is built in. Else a plugin's layer, of which the owner changes what differs: both modules are `cls` of `layer`, and
 * both formats the compute format. in_grad_map, out_grad_map NULL: as in_map, out_map. Leaves the rank with SF_ENOMEM. */
struct sf_plugged *sf_plugged_create(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer, bool is_mlp);
/* The layer multiplies fp8 casts; its weight is its first parameter. fp8 NULL: it does not. */
void sf_plugged_cast(struct sf_rank_run *run, struct sf_plugged *plugged, struct sf_fp8_linear *fp8, bool in_pieces, bool grad_in_pieces);
/* Add what the plugin's layer is told by name: a parameter (NULL: the model has none), a number. name is a constant. */
void sf_plugged_add_parameter(struct sf_plugged *plugged, const char *name, struct sf_parameter *param, int call);
void sf_plugged_add_attribute(struct sf_plugged *plugged, const char *name, int64_t value);

/* Shape: input as in_map says, floats or with is_ids int32 (borrowed) -> as out_map says (the caller's), traced. What the plugin does
 * against its contract leaves the rank. */
float *sf_plugged_forward(struct sf_rank_run *run, struct sf_plugged *plugged, const void *input);
/* Shape: grad as out_grad_map says, input as in_map says (both borrowed) -> gradient of the input, as in_grad_map says (the caller's),
 * traced; with is_ids NULL. Adds the parameters'. */
float *sf_plugged_backward(struct sf_rank_run *run, struct sf_plugged *plugged, const float *grad, const void *input);

#endif
