/* Exact mode: linear and communication modules read integers -1, 0 and 1 (gradients: times a power of two), few enough that every sum of
 * products stays below the integers that the format holds one by one. */
#include "harness/tensor/exact.h"

#define CLASS(name) (UINT64_C(1) << SF_MODULE_##name)
#define BDAS (CLASS(SELF_ATTN_BDA) | CLASS(CROSS_ATTN_BDA) | CLASS(MLP_BDA) | CLASS(ADAPTER_BDA))
#define CROSS_LINEARS (CLASS(CROSS_LINEAR_Q) | CLASS(CROSS_LINEAR_KV) | CLASS(CROSS_LINEAR_PROJ))
#define LATENT_LINEARS (CLASS(LINEAR_Q) | CLASS(LINEAR_Q_DOWN) | CLASS(LINEAR_Q_UP) | CLASS(LINEAR_KV_DOWN) | CLASS(LINEAR_KV_UP))
#define LINEARS                                                                                                                            \
  (CLASS(LINEAR_QKV) | CLASS(LINEAR_PROJ) | CLASS(LINEAR_FC1) | CLASS(LINEAR_FC2) | CLASS(ADAPTER) | CLASS(OUTPUT_LAYER) |                 \
   CLASS(MTP_EH_PROJ) | CLASS(SHARED_FC1) | CLASS(SHARED_FC2) | CLASS(MTP_OUTPUT_LAYER) | LATENT_LINEARS | CROSS_LINEARS)
/* What comes into linear_kv_down_proj is a sum over heads, of as many integers as there are. */
#define GRADS_OF_SUMS CLASS(LINEAR_KV_DOWN)
#define NORMS                                                                                                                              \
  (CLASS(INPUT_LAYERNORM) | CLASS(Q_LAYERNORM) | CLASS(KV_LAYERNORM) | CLASS(POST_SELF_ATTN_LAYERNORM) | CLASS(PRE_MLP_LAYERNORM) |        \
   CLASS(PRE_CROSS_ATTN_LAYERNORM) | CLASS(POST_MLP_LAYERNORM) | CLASS(FINAL_LAYERNORM) |                           \
   CLASS(MTP_ENORM) | CLASS(MTP_HNORM) | CLASS(MTP_FINAL_LAYERNORM))
#define EXPERTS (CLASS(EXPERTS_FC1) | CLASS(EXPERTS_FC2))
#define EMBEDDINGS (CLASS(WORD_EMBEDDINGS) | CLASS(EMBEDDING) | CLASS(MTP_EMBEDDING))

/* Outputs that a linear or a residual add reads; attention, activation and loss keep their own distributions. */
static const uint64_t INTEGER_ACTS = EMBEDDINGS | NORMS | BDAS | CLASS(CORE_ATTENTION) | CLASS(CROSS_CORE_ATTENTION) |
                                     CLASS(CROSS_LINEAR_PROJ) | CLASS(ACTIVATION) | CLASS(LINEAR_PROJ) | CLASS(LINEAR_FC2) |
                                     CLASS(COMBINE) | CLASS(SHARED_ACTIVATION) | CLASS(SHARED_FC2) | CLASS(SHARED_ADD) | CLASS(ADAPTER);
/* Input gradients that come into a linear or a residual add; those that come into attention, activation or norm are not among them. */
static const uint64_t INTEGER_ACT_GRADS = NORMS | BDAS | CLASS(LOSS) | CLASS(MTP_LOSS) | CLASS(CROSS_CORE_ATTENTION) |
                                          CLASS(CROSS_KEY_VALUE) | CLASS(ADAPTER) | CLASS(ACTIVATION) | CLASS(SHARED_ACTIVATION) |
                                          CLASS(QK_NORM) | CLASS(ROTARY) | CLASS(CORE_ATTENTION);
/* Where branches end in a norm, it reads these; COMBINE too where nothing is added to it. */
static const uint64_t BEFORE_POST_NORM = CLASS(LINEAR_PROJ) | CLASS(LINEAR_FC2) | CLASS(SHARED_ADD);
/* Where queries and keys have norms, these stand before linear_qkv. */
static const uint64_t BEFORE_QK_NORM = CLASS(ROTARY) | CLASS(CORE_ATTENTION);

static bool has(uint64_t classes, enum sf_module_class cls) { return classes >> cls & 1; }

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
  if (!c->data.exact || !has(LINEARS | EMBEDDINGS, class_of_param(catalog, param))) return;
  const int64_t lattice = p->shape.rows > 1 ? lattice_of(p->shape, sf_case_storage(c)) : 1;
  *fill = (struct sf_fill){.key = fill->key, .scale = 1, .dtype = SF_F32, .exact = true, .cols = p->shape.cols, .lattice = lattice};
}

void sf_fill_make_exact_trace(struct sf_fill *fill, const struct sf_catalog *catalog, struct sf_trace_id id) {
  if (!catalog->logical.data.exact) return;
  const uint64_t act_grads = catalog->logical.model.qk_norm ? INTEGER_ACT_GRADS & ~BEFORE_QK_NORM : INTEGER_ACT_GRADS;
  const uint64_t post_norm_reads = catalog->logical.moe.shared_ffn > 0 ? BEFORE_POST_NORM : BEFORE_POST_NORM | CLASS(COMBINE);
  const uint64_t acts = catalog->logical.model.post_norm ? INTEGER_ACTS & ~post_norm_reads : INTEGER_ACTS;
  const uint64_t classes = id.kind == SF_KIND_ACT ? acts : act_grads;
  if (id.kind != SF_KIND_WGRAD && !has(classes, catalog->modules[id.subject].cls)) return;
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

/* Modules of which dropout makes a tensor inexact: what joins the stream, and what the branches' last linears make of their gradient. Their
 * wgrad is inexact too; main gradients are not, since they read what was written over it. */
static uint64_t inexact_by_dropout(const struct sf_case *c, enum sf_kind kind) {
  const int64_t kept = 1000 - c->train.dropout_milli;
  if (1000 % kept == 0 && is_power_of_two(1000 / kept)) return 0;
  return kind == SF_KIND_ACT ? CLASS(SELF_ATTN_BDA) | CLASS(CROSS_ATTN_BDA) | CLASS(MLP_BDA)
                             : CLASS(LINEAR_PROJ) | CLASS(CROSS_LINEAR_PROJ) | CLASS(LINEAR_FC2) | CLASS(SHARED_FC2);
}

bool sf_trace_is_exact(const struct sf_catalog *catalog, struct sf_trace_id id) {
  const struct sf_case *c = &catalog->logical;
  if (!c->data.exact || c->mode != SF_MODE_ISOLATED) return false;
  const uint64_t inexact = inexact_by_dropout(c, (enum sf_kind)id.kind);
  switch ((enum sf_kind)id.kind) {
  case SF_KIND_ACT:
    return has((LINEARS | BDAS | EMBEDDINGS | CLASS(SHARED_ADD)) & ~inexact, catalog->modules[id.subject].cls);
  case SF_KIND_ACT_GRAD:
    return has((LINEARS | BDAS) & ~inexact & ~GRADS_OF_SUMS, catalog->modules[id.subject].cls);
  case SF_KIND_WGRAD:
    return tokens_fit(c) && has((LINEARS | EMBEDDINGS) & ~inexact & ~GRADS_OF_SUMS, class_of_param(catalog, id.subject));
  case SF_KIND_MAIN_GRAD:
    return main_grad_is_exact(c, id.step) && !has(EXPERTS, class_of_param(catalog, id.subject)); /* no wgrad is written over theirs */
  default:
    return false;
  }
}
