/* Exact mode: linear and communication modules read integers -1, 0 and 1 (gradients: times a power of two), few enough that every sum of
 * products stays below the integers that the format holds one by one. */
#include "harness/tensor/exact.h"

/* The output is an integer: a linear or a residual add reads it. Where branches end in a norm, that reads what they put out. */
static bool is_integer_act(const struct sf_case *c, enum sf_module_class cls) {
  const bool ends_mlp = cls == SF_MODULE_LINEAR_FC2 || cls == (c->moe.shared_ffn > 0 ? SF_MODULE_SHARED_ADD : SF_MODULE_COMBINE);
  return sf_module_is(cls, SF_TRAIT_INTEGER_ACT) && !(c->model.post_norm && (cls == SF_MODULE_LINEAR_PROJ || ends_mlp));
}

/* The input's gradient is an integer: it comes into a linear or a residual add. Where queries and keys have norms, these stand before
 * linear_qkv. */
static bool is_integer_grad(const struct sf_case *c, enum sf_module_class cls) {
  return sf_module_is(cls, SF_TRAIT_INTEGER_GRAD) && !(c->model.qk_norm && (cls == SF_MODULE_ROTARY || cls == SF_MODULE_CORE_ATTENTION));
}

static enum sf_module_class class_of_param(const struct sf_catalog *catalog, int32_t param) {
  return catalog->modules[catalog->params[param].module].cls;
}

/* Integers up to this one are all of the format; one of them is left for a bias. */
static int64_t largest_integer(enum sf_dtype dtype) { return (int64_t)(1 / sf_dtype_unit_roundoff(dtype)) - 1; }

static int64_t lattice_of(struct sf_shape shape, enum sf_dtype dtype) {
  const int64_t longest = shape.rows > shape.cols ? shape.rows : shape.cols, most = largest_integer(dtype);
  return (longest + most - 1) / most;
}

void sf_fill_make_exact_param(struct sf_fill *fill, const struct sf_catalog *catalog, int32_t param) {
  const struct sf_case *c = &catalog->logical;
  const struct sf_param *p = &catalog->params[param];
  if (!c->data.exact || !sf_module_is(class_of_param(catalog, param), SF_TRAIT_LINEAR | SF_TRAIT_EMBEDDING)) return;
  const int64_t lattice = p->shape.rows > 1 ? lattice_of(p->shape, sf_case_storage(c)) : 1;
  *fill = (struct sf_fill){.key = fill->key, .scale = 1, .dtype = SF_F32, .exact = true, .cols = p->shape.cols, .lattice = lattice};
}

void sf_fill_make_exact_trace(struct sf_fill *fill, const struct sf_catalog *catalog, struct sf_trace_id id) {
  const struct sf_case *c = &catalog->logical;
  if (!c->data.exact) return;
  if (id.kind == SF_KIND_ACT && !is_integer_act(c, catalog->modules[id.subject].cls)) return;
  if (id.kind == SF_KIND_ACT_GRAD && !is_integer_grad(c, catalog->modules[id.subject].cls)) return;
  *fill = (struct sf_fill){.key = fill->key, .scale = fill->scale, .dtype = fill->dtype, .exact = true, .cols = 1, .lattice = 1};
}

static bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/* A product over tokens is summed in fp32. */
static bool tokens_fit(const struct sf_case *c) {
  const int64_t rows = c->model.seq > c->model.memory_seq ? c->model.seq : c->model.memory_seq;
  return rows * c->train.microbatch_size <= largest_integer(SF_F32);
}

static bool main_grad_is_exact(const struct sf_case *c, int32_t step) {
  if (2 * (1 + c->model.mtp_depth) * c->train.microbatches > largest_integer(SF_F32)) return false;
  return c->train.loss_norm == SF_LOSS_PER_MICROBATCH || is_power_of_two(sf_data_step_tokens(c, step));
}

/* Whether dropout makes a tensor of the module inexact: what joins the stream, and what the branches' last linears make of their gradient.
 * Their wgrad is inexact too; main gradients are not, since they read what was written over it. */
static bool is_inexact_by_dropout(const struct sf_case *c, enum sf_kind kind, enum sf_module_class cls) {
  const int64_t kept = 1000 - c->train.dropout_milli;
  if (1000 % kept == 0 && is_power_of_two(1000 / kept)) return false;
  return kind == SF_KIND_ACT ? sf_module_is(cls, SF_TRAIT_RESIDUAL_ADD) && cls != SF_MODULE_ADAPTER_BDA : sf_module_is(cls, SF_TRAIT_ROW);
}

/* Whether all that the module makes of this kind are sums of integers. What comes into linear_kv_down_proj is a sum over heads, of as many
 * integers as there are. */
static bool is_exact_of(const struct sf_case *c, enum sf_kind kind, enum sf_module_class cls, uint32_t traits) {
  const bool is_of_sums = kind != SF_KIND_ACT && cls == SF_MODULE_LINEAR_KV_DOWN;
  return sf_module_is(cls, traits) && !is_of_sums && !is_inexact_by_dropout(c, kind, cls);
}

bool sf_trace_is_exact(const struct sf_catalog *catalog, struct sf_trace_id id) {
  const struct sf_case *c = &catalog->logical;
  const enum sf_kind kind = (enum sf_kind)id.kind;
  if (!c->data.exact || c->mode != SF_MODE_ISOLATED) return false;
  switch (kind) {
  case SF_KIND_ACT:
    return catalog->modules[id.subject].cls == SF_MODULE_SHARED_ADD ||
           is_exact_of(c, kind, catalog->modules[id.subject].cls, SF_TRAIT_LINEAR | SF_TRAIT_RESIDUAL_ADD | SF_TRAIT_EMBEDDING);
  case SF_KIND_ACT_GRAD:
    return is_exact_of(c, kind, catalog->modules[id.subject].cls, SF_TRAIT_LINEAR | SF_TRAIT_RESIDUAL_ADD);
  case SF_KIND_WGRAD:
    return tokens_fit(c) && is_exact_of(c, kind, class_of_param(catalog, id.subject), SF_TRAIT_LINEAR | SF_TRAIT_EMBEDDING);
  case SF_KIND_MAIN_GRAD: /* no wgrad is written over those of experts */
    return main_grad_is_exact(c, id.step) && !sf_module_is(class_of_param(catalog, id.subject), SF_TRAIT_EXPERT);
  default:
    return false;
  }
}
