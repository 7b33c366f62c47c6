/* The catalogue of a case: its modules in execution order, its parameters and every traced tensor, with canonical names,
 * logical shapes, promised formats and how a layout cuts them. It is derived from the logical part of the case alone.
 * Reference, targets and oracle name tensors by it; harness/docs/model.md defines what each holds. */
#ifndef SF_SPEC_CATALOG_H
#define SF_SPEC_CATALOG_H

#include "harness/spec/modules.h"

struct sf_module {
  enum sf_module_class cls;
  int32_t layer;                    /* -1 outside the decoder's layers; model.layers + k in multi-token prediction at depth k */
  int32_t first_param, param_count; /* its parameters stand one after the other */
  char name[72];                    /* "decoder.layers.3.mlp.linear_fc1" */
};

/* Logical tensors are matrices, row-major: activations are [token, feature] with token row = position * microbatch_size +
 * sequence (Megatron's [s, b, h]); weights are [output, input]; a vector is one row. */
struct sf_shape {
  int64_t rows, cols;
};

struct sf_param {
  char name[96];  /* "decoder.layers.3.mlp.linear_fc1.weight" */
  int32_t module; /* index into modules */
  struct sf_shape shape;
  enum sf_cut row_cut, col_cut;
  bool frozen, decayed; /* decayed: weight decay applies */
  float scale, offset;  /* initial value = offset + scale * unit-variance draw (consistent.h) */
};

struct sf_catalog {
  int32_t module_count, param_count;
  struct sf_module *modules; /* execution order of the forward pass, optimizer last */
  struct sf_param *params;   /* in module order; weight before bias */
  int32_t *places;           /* [layer + 1][class]: index into modules; -1 where there is none */
  struct sf_case logical;    /* copy of the case it was built from */
};

/* c must be valid. SF_ENOMEM is the only failure. */
enum sf_status sf_catalog_create(struct sf_catalog **out, const struct sf_case *c) SF_MUST_USE;
void sf_catalog_destroy(struct sf_catalog *catalog); /* takes NULL */

/* Index of the module, or of a parameter of it; -1 when the model has none. which: place among those that modules.def gives the class: 0
 * weight, 1 bias; of QK_NORM 0 q.weight, 1 k.weight, 2 q.bias, 3 k.bias. */
int32_t sf_catalog_module(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer);
int32_t sf_catalog_param(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer, int which);

/* --- traced tensors ------------------------------------------------------------------------------------------- */

#define SF_KIND_MAP(X)                                                                                                                     \
  X(PARAM, "param", "value of a parameter at the start of a step")                                                                         \
  X(ACT, "act", "output of a module (activation)")                                                                                         \
  X(ACT_GRAD, "act_grad", "gradient of a module's input")                                                                                  \
  X(WGRAD, "wgrad", "gradient of a parameter from one microbatch")                                                                         \
  X(MAIN_GRAD, "main_grad", "gradient of a parameter that the optimizer gets, before clipping")                                            \
  X(PARAM_DELTA, "param_delta", "change of a parameter's master weight in a step")                                                         \
  X(SCALAR, "scalar", "a number of the step: loss, tokens, gradient norm, clip factor, loss scale, overflow")

enum sf_kind {
#define X(name, text, meaning) SF_KIND_##name,
  SF_KIND_MAP(X)
#undef X
      SF_KIND_COUNT
};
const char *sf_kind_name(enum sf_kind kind); /* the text above */
/* Whether tensors of the kind belong to a parameter. */
static inline bool sf_kind_is_of_param(enum sf_kind kind) {
  return kind == SF_KIND_PARAM || kind == SF_KIND_WGRAD || kind == SF_KIND_MAIN_GRAD || kind == SF_KIND_PARAM_DELTA;
}

/* LOSS_SCALE: of the step, and of the step that would follow the last; OVERFLOW: 1 when its main gradients are not all finite, else 0. Both
 * exist with loss scaling only. */
#define SF_SCALAR_MAP(X)                                                                                                                   \
  X(LOSS, "loss") X(TOKENS, "tokens") X(GRAD_NORM, "grad_norm") X(CLIP, "clip") X(LOSS_SCALE, "loss_scale") X(OVERFLOW, "overflow")
enum sf_scalar {
#define X(name, text) SF_SCALAR_##name,
  SF_SCALAR_MAP(X)
#undef X
      SF_SCALAR_COUNT
};
const char *sf_scalar_name(enum sf_scalar scalar); /* the text above */

#define SF_PASS_MAP(X) X(FWD, "fwd") X(RECOMPUTE, "recompute") X(BWD, "bwd") X(STEP, "step")
enum sf_pass {
#define X(name, text) SF_PASS_##name,
  SF_PASS_MAP(X)
#undef X
      SF_PASS_COUNT
};
const char *sf_pass_name(enum sf_pass pass); /* the text above */

/* call: 0 = the module itself; ACT and ACT_GRAD call 1 = the same tensor as the next (previous) pipeline stage received it;
 * WGRAD call 1 = the tied word embedding's gradient from its use as output_layer; 2 + 2k = the word embedding's from the embedding at depth
 * k of multi-token prediction, 3 + 2k = the output layer's, or tied embedding's, from its output_layer. */
struct sf_trace_id {
  uint16_t step, microbatch; /* microbatch: global number; 0 for PARAM, MAIN_GRAD, PARAM_DELTA, SCALAR */
  uint8_t pass, kind, call;
  int32_t subject;
};
uint64_t sf_trace_key(struct sf_trace_id id);          /* unique, not ordered */
struct sf_trace_id sf_trace_id_from_key(uint64_t key); /* of a key that sf_trace_key gave */
/* "s0/mb1/fwd/act/decoder.layers.0.mlp.linear_fc1/0"; always terminated. */
void sf_trace_id_text(char *out, size_t out_size, const struct sf_catalog *catalog, struct sf_trace_id id);

struct sf_trace_spec {
  struct sf_shape shape;
  enum sf_cut row_cut, col_cut;
  enum sf_dtype promised; /* precision promised for this tensor */
  int32_t module;         /* the module that is to blame when it is wrong */
};
enum { SF_CALL_TIED_HEAD = 1, SF_CALL_MTP_EMBEDDING = 2, SF_CALL_MTP_HEAD = 3, SF_CALLS_PER_DEPTH = 2 };
/* False, with *out unwritten, when the model of the catalogue has no such tensor. */
bool sf_trace_spec(struct sf_trace_spec *out, const struct sf_catalog *catalog, struct sf_trace_id id);
/* Whether isolated mode puts a given tensor in the place of this one: of modules' own results and weight gradients, not of copies on other
 * stages or of the routing, whose zeros say which experts a token has. */
bool sf_trace_is_given(const struct sf_catalog *catalog, struct sf_trace_id id);

#endif
