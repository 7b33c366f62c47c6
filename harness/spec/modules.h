/* The classes of modules and what is a fact of each: one row of modules.def. The catalogue, traces, exact mode, fp8, diagnosis, planted
 * bugs and plugins read this table. */
#ifndef SF_SPEC_MODULES_H
#define SF_SPEC_MODULES_H

#include "harness/spec/case.h"

#include <stddef.h>

/* In execution order within a layer, so that the numeric value orders culprits. */
enum sf_module_class {
#define MODULE(name, ...) SF_MODULE_##name,
#include "harness/spec/modules.def"
#undef MODULE
  SF_MODULE_CLASS_COUNT
};

/* How a layout cuts one dimension of a logical tensor over tp and cp. Context parallelism cuts tokens alone, into the zig-zag pieces of
 * harness/docs/model.md; every other cut is the same on all cp ranks. */
enum sf_cut {
  SF_CUT_NONE,     /* every rank holds all of it */
  SF_CUT_EVEN,     /* tp equal contiguous parts */
  SF_CUT_QKV,      /* interleaved QKV: [query heads of the group, key, value] x kv_heads, see harness/docs/model.md */
  SF_CUT_GATE_UP,  /* [gate; up]: each half in tp equal parts */
  SF_CUT_SEQUENCE, /* tokens, or rows of the memory: the cp rank's, in tp equal contiguous parts with sp */
  SF_CUT_TOKENS,   /* tokens: the cp rank's, all of them on every tp rank */
  /* Over the expert mesh: experts in ep equal contiguous parts, and within each expert etp equal parts. */
  SF_CUT_EXPERTS,
  SF_CUT_EXPERTS_GATE_UP, /* each expert is [gate; up]: each half in etp equal parts */
};
/* Whether the dimension is cut over the expert mesh. */
static inline bool sf_cut_is_expert(enum sf_cut cut) { return cut == SF_CUT_EXPERTS || cut == SF_CUT_EXPERTS_GATE_UP; }

/* Sizes of tensors, as they follow from a case c. */
#define SF_SIZE_MAP(X)                                                                                                                     \
  X(ONE, 1)                                                                                                                                \
  X(TOKENS, c->model.seq * c->train.microbatch_size)                                                                                       \
  X(MEMORY_ROWS, c->model.memory_seq * c->train.microbatch_size)                                                                           \
  X(SEQ, c->model.seq)                                                                                                                     \
  X(VOCAB, c->model.vocab_padded)                                                                                                          \
  X(HIDDEN, c->model.hidden)                                                                                                               \
  X(PAIR, 2 * c->model.hidden)                                                                                                             \
  X(HEADS, c->model.heads)                                                                                                                 \
  X(HEAD_DIM, c->model.head_dim)                                                                                                           \
  X(ATTENTION, c->model.heads * c->model.head_dim)                                                                                         \
  X(KEY_VALUE, 2 * c->model.heads * c->model.head_dim)                                                                                     \
  X(QKV, (c->model.heads + 2 * c->model.kv_heads) * c->model.head_dim)                                                                     \
  X(Q_LATENT, c->model.q_lora_rank)                                                                                                        \
  X(KV_LATENT, c->model.kv_lora_rank)                                                                                                      \
  X(KV_DOWN, c->model.kv_lora_rank + c->model.qk_rope_dim)                                                                                 \
  X(KV_UP, c->model.heads *(2 * c->model.head_dim - c->model.qk_rope_dim))                                                                 \
  X(FFN, c->model.ffn)                                                                                                                     \
  X(FC1, sf_case_fc1_parts(c) * c->model.ffn)                                                                                              \
  X(SHARED_FFN, c->moe.shared_ffn)                                                                                                         \
  X(SHARED_FC1, sf_case_fc1_parts(c) * c->moe.shared_ffn)                                                                                  \
  X(EXPERTS, c->moe.experts)                                                                                                               \
  X(EXPERTS_FFN, c->moe.experts * c->moe.ffn)                                                                                              \
  X(EXPERTS_FC1, sf_case_fc1_parts(c) * c->moe.experts * c->moe.ffn)                                                                       \
  X(SLOTS, c->moe.topk * c->model.hidden) /* a token's experts side by side, in order of their number */                                   \
  /* the load-balancing loss of each scope, the z loss of the microbatch */                                                                \
  X(AUX_LOSSES, (c->moe.aux_micro > 0 ? (c->moe.scope == SF_SCOPE_SEQUENCE ? c->train.microbatch_size : 1) : 0) + (c->moe.z_micro > 0))

enum sf_size {
  SF_SIZE_NONE, /* there is no such tensor */
#define X(name, expression) SF_SIZE_##name,
  SF_SIZE_MAP(X)
#undef X
};
int64_t sf_size_of(const struct sf_case *c, enum sf_size size); /* 0 of SF_SIZE_NONE */

/* A field of a case that lies in lo..hi; path NULL: holds always. */
struct sf_need {
  const char *path; /* as in the JSON: "model.kv_lora_rank" */
  size_t offset;
  bool is_flag;
  int64_t lo, hi; /* hi INT64_MAX: no bound */
};
#define SF_NEED(field, lo, hi)                                                                                                             \
  { #field, offsetof(struct sf_case, field), sizeof((struct sf_case *)0)->field == sizeof(bool), lo, hi }
bool sf_need_holds(const struct sf_need *need, const struct sf_case *c); /* whether the case meets it */

/* Formats: that of stored tensors, that of the residual stream, fp32 in every precision. */
enum sf_promise { SF_PROMISE_STORED, SF_PROMISE_STREAM, SF_PROMISE_F32 };

/* An activation, or the gradient of one; rows SF_SIZE_NONE: it does not exist. Cuts of [gate; up] hold for gated activations alone. */
struct sf_module_tensor {
  enum sf_size rows, cols;
  enum sf_cut row_cut, col_cut;
  enum sf_promise promise;
};

/* What a parameter's initial values are: offset + scale * draw (struct sf_param). */
enum sf_initial {
  SF_INITIAL_FAN_IN,  /* scale: the power of two nearest to 1 / sqrt(columns) */
  SF_INITIAL_EXPERT,  /* the same of one expert's columns */
  SF_INITIAL_WORDS,   /* as FAN_IN if tied, else as TABLE */
  SF_INITIAL_TABLE,   /* scale 1/2 */
  SF_INITIAL_UNIT,    /* scale 1 */
  SF_INITIAL_SMALL,   /* scale 1/8 */
  SF_INITIAL_AROUND_1 /* scale 1/8, offset 1 */
};

struct sf_module_param {
  const char *part; /* what follows the module's name; NULL: there is none */
  enum sf_size rows, cols;
  enum sf_cut row_cut, col_cut;
  enum sf_initial initial;
  struct sf_need when;
};

/* What a class is, and what tensors it makes are for. */
enum sf_trait {
  SF_TRAIT_NORM = 1 << 0,
  SF_TRAIT_EMBEDDING = 1 << 1,
  SF_TRAIT_RESIDUAL_ADD = 1 << 2,
  SF_TRAIT_LINEAR = 1 << 3, /* not routers and experts */
  SF_TRAIT_COLUMN = 1 << 4, /* a column-parallel linear, whose output stays cut */
  SF_TRAIT_ROW = 1 << 5,    /* a row-parallel linear */
  SF_TRAIT_EXPERT = 1 << 6, /* has weights of experts */
  SF_TRAIT_FP8 = 1 << 7,    /* a linear whose operands are cast where precision.compute is fp8 */
  SF_TRAIT_PLUGGABLE = 1 << 8,
  SF_TRAIT_ANY_NEED = 1 << 9, /* exists where one of its needs holds; else: where all do */
  /* Exact mode gives integers in place of its output, which a linear or a residual add reads; of its input's gradient. */
  SF_TRAIT_INTEGER_ACT = 1 << 10,
  SF_TRAIT_INTEGER_GRAD = 1 << 11,
  SF_TRAIT_INTO_ATTENTION = 1 << 12,  /* attention takes differences of products of what it puts out */
  SF_TRAIT_GRAD_INTO_MEANS = 1 << 13, /* attention's or a norm's backward begins with its input's gradient, and nothing else reads it */
  /* Tensor-parallel ranks (of experts: their own) add parts of its output, of its input's gradient or of what that is made from, in the
   * storage format. */
  SF_TRAIT_ADDS_ACT = 1 << 14,
  SF_TRAIT_ADDS_GRAD = 1 << 15
};

enum { SF_NEEDS = 2 };
struct sf_module_row {
  const char *name;                      /* "mlp.linear_fc1" */
  uint32_t traits;                       /* of enum sf_trait */
  struct sf_need needs[SF_NEEDS];        /* when a model has it */
  struct sf_module_tensor act, act_grad; /* its output; the gradient of its input */
  struct sf_module_param params[4];      /* those that not every model has come last */
  int64_t frozen;                        /* SF_FROZEN_* that freezes them */
  /* Of linears: what puts out its input, and whose act_grad is the gradient of its output; 0: not a module of this table alone. */
  enum sf_module_class input, reader;
};
extern const struct sf_module_row sf_modules[SF_MODULE_CLASS_COUNT];

/* Whether the class has any of the traits. */
static inline bool sf_module_is(enum sf_module_class cls, uint32_t traits) { return (sf_modules[cls].traits & traits) != 0; }
/* Whether the model of the case has modules of this class. */
bool sf_module_exists(enum sf_module_class cls, const struct sf_case *c);
/* The cut as the case's activation has it: halves of [gate; up] are there for gated ones alone. */
enum sf_cut sf_module_cut(enum sf_cut cut, const struct sf_case *c);

#endif
