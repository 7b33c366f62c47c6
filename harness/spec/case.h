/* A case: everything that fixes one trial. The logical part (model, precision, train, data, seed, mode) says what is
 * computed; the layout says who computes it. One table of fields serves the JSON reader and writer, --set, the codec's
 * names and `describe`. */
#ifndef SF_SPEC_CASE_H
#define SF_SPEC_CASE_H

#include "harness/base/status.h"
#include "harness/spec/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SF_CASE_SCHEMA = 1,
  SF_ORDER_TEXT = 24,
  SF_NAME_TEXT = 96,
  SF_TARGET_TEXT = 512,
  SF_SIGNATURE_TEXT = 192,
  SF_CASE_FRAMEWORK_TEXT = 2048
};

/* The choices of each enum field: X(constant, name in a case's file). The one list of them: enum and names are made of it, and everything
 * that shows a choice asks the table of fields for its name (sf_case_choice). */
#define SF_CHOICE_CONSTANT(constant, name) constant,

/* What layers compute with. The first three store in the format of that name (equal numbers); FP8 stores in bf16 and casts the operands of
 * the linear layers' products. */
#define SF_COMPUTE_MAP(X) X(SF_COMPUTE_FP32, "fp32") X(SF_COMPUTE_BF16, "bf16") X(SF_COMPUTE_FP16, "fp16") X(SF_COMPUTE_FP8, "fp8")
enum sf_compute { SF_COMPUTE_MAP(SF_CHOICE_CONSTANT) SF_COMPUTE_COUNT };
/* Where an fp8 cast has its scale from: the tensor itself, or what it was in earlier steps. */
#define SF_FP8_RECIPE_MAP(X) X(SF_FP8_CURRENT, "current") X(SF_FP8_DELAYED, "delayed")
enum sf_fp8_recipe { SF_FP8_RECIPE_MAP(SF_CHOICE_CONSTANT) };
#define SF_MODE_MAP(X) X(SF_MODE_ISOLATED, "isolated") X(SF_MODE_E2E, "e2e")
enum sf_mode { SF_MODE_MAP(SF_CHOICE_CONSTANT) };
#define SF_NORM_MAP(X) X(SF_NORM_RMS, "rms") X(SF_NORM_LAYER, "layer")
enum sf_norm { SF_NORM_MAP(SF_CHOICE_CONSTANT) };
/* RELU2: squared ReLU, max(x, 0)^2. */
#define SF_ACTIVATION_MAP(X) X(SF_ACT_GELU, "gelu") X(SF_ACT_SWIGLU, "swiglu") X(SF_ACT_RELU2, "relu2")
enum sf_activation { SF_ACTIVATION_MAP(SF_CHOICE_CONSTANT) };
#define SF_POSITIONS_MAP(X) X(SF_POS_NONE, "none") X(SF_POS_LEARNED, "learned") X(SF_POS_ROTARY, "rotary")
enum sf_positions { SF_POSITIONS_MAP(SF_CHOICE_CONSTANT) };
#define SF_LOSS_NORM_MAP(X) X(SF_LOSS_PER_TOKEN, "per_token") X(SF_LOSS_PER_MICROBATCH, "per_microbatch")
enum sf_loss_norm { SF_LOSS_NORM_MAP(SF_CHOICE_CONSTANT) };
/* How context parallelism does attention: RING passes keys and values round, ALLGATHER collects them, A2A trades sequence for heads. */
#define SF_CP_COMM_MAP(X) X(SF_CP_RING, "ring") X(SF_CP_ALLGATHER, "allgather") X(SF_CP_A2A, "a2a")
enum sf_cp_comm { SF_CP_COMM_MAP(SF_CHOICE_CONSTANT) };
/* Which tokens are drawn. EDGE: only first and last ids of vocab_padded/2, /4 and /8 slices (where a vocabulary shard may begin). */
#define SF_TOKENS_MAP(X) X(SF_TOKENS_UNIFORM, "uniform") X(SF_TOKENS_EDGE, "edge") X(SF_TOKENS_FEW, "few")
enum sf_token_dist { SF_TOKENS_MAP(SF_CHOICE_CONSTANT) };
/* Loss masks. UNEVEN: each microbatch keeps a different share of its tokens; SPARSE: one to three tokens a microbatch. */
#define SF_MASK_MAP(X) X(SF_MASK_FULL, "full") X(SF_MASK_UNEVEN, "uneven") X(SF_MASK_SPARSE, "sparse")
enum sf_mask_dist { SF_MASK_MAP(SF_CHOICE_CONSTANT) };
/* Values of parameters, injected activations and injected gradients (harness/tensor/consistent.h). */
#define SF_DIST_MAP(X)                                                                                                                     \
  X(SF_DIST_NORMAL, "normal") X(SF_DIST_UNIFORM, "uniform") X(SF_DIST_HEAVY, "heavy") X(SF_DIST_OUTLIERS, "outliers")                      \
  X(SF_DIST_OFFSET, "offset") X(SF_DIST_SPARSE, "sparse")
enum sf_value_dist { SF_DIST_MAP(SF_CHOICE_CONSTANT) SF_DIST_COUNT };

/* So many earlier steps may give a cast its scale, and so many steps overwrite each of them twice. */
enum { SF_FP8_HISTORY_MAX = 4, SF_STEPS_MAX = 2 * (SF_FP8_HISTORY_MAX + 1) };

struct sf_model {
  int64_t layers;       /* 1..128 */
  int64_t hidden;       /* width of the residual stream */
  int64_t heads;        /* query heads; heads * head_dim need not equal hidden */
  int64_t kv_heads;     /* key/value heads ("query groups"); divides heads */
  int64_t head_dim;     /* even when positions are rotary */
  int64_t ffn;          /* width of the MLP; SwiGLU's linear_fc1 has 2 * ffn outputs */
  int64_t vocab;        /* token ids and labels are below this */
  int64_t vocab_padded; /* rows of the embedding, columns of the logits; >= vocab; padded columns take part in the softmax */
  int64_t seq;          /* tokens of a sequence */
  int64_t norm, activation, positions; /* enums above */
  int64_t memory_seq;   /* positions of the memory that each layer's cross-attention reads; 0 = no cross-attention */
  int64_t window;       /* a query sees this many keys, itself included; 0 = all before it */
  int64_t kv_lora_rank; /* multi-latent attention: width of the latent that keys and values are made of; 0 = none */
  int64_t q_lora_rank;  /* the same of the queries; 0 = they are made of the hidden state */
  int64_t qk_rope_dim;  /* multi-latent attention: how many columns of a query or key head are rotated, the last ones; the keys' are one for
                           all heads */
  bool bias;            /* every linear but output_layer and adapter has a bias; norms have one iff LayerNorm */
  bool tied;            /* output_layer uses the word embedding's weight */
  bool adapter;         /* a replicated linear behind a sequence gather before the final norm */
  bool qk_norm;         /* queries and keys of each head are normalised (model.norm) before the rotation */
  bool sinks;           /* attention: a learned logit per query head joins the softmax and takes no value */
  bool parallel_residual; /* the MLP reads the residual stream from before attention */
  bool post_norm;       /* a norm (model.norm) of each branch's output too, before it joins the residual stream */
  int64_t mtp_depth;    /* multi-token prediction: extra layers that predict the tokens 1..mtp_depth further ahead; 0 = off */
};

/* How a token's experts are chosen and weighted. SOFTMAX: probabilities over all experts, not normalised again over the chosen ones;
 * SIGMOID: scores of each by itself, normalised over the chosen ones when they are several. */
#define SF_ROUTER_MAP(X) X(SF_ROUTER_SOFTMAX, "softmax") X(SF_ROUTER_SIGMOID, "sigmoid")
enum sf_moe_router { SF_ROUTER_MAP(SF_CHOICE_CONSTANT) };
/* The tokens among which capacity is counted and over which the auxiliary loss is a mean. */
#define SF_SCOPE_MAP(X) X(SF_SCOPE_SEQUENCE, "sequence") X(SF_SCOPE_MICROBATCH, "microbatch")
enum sf_moe_scope { SF_SCOPE_MAP(SF_CHOICE_CONSTANT) };

/* Mixture of experts, in every layer or in none. The other fields are at their smallest while experts is 0. */
struct sf_moe {
  int64_t experts;        /* 0: a dense MLP; else 2 or more */
  int64_t topk;           /* experts of a token */
  int64_t ffn;            /* width of one expert */
  int64_t router;         /* enum sf_moe_router */
  int64_t scope;          /* enum sf_moe_scope */
  int64_t capacity_milli; /* tokens an expert takes in a scope, in thousandths of an even share; 0 = all (dropless) */
  int64_t shared_ffn;     /* width of the shared expert; 0 = none */
  int64_t aux_micro;      /* coefficient of the load-balancing loss of each layer, 1e-6; 0 = none */
  int64_t z_micro;        /* coefficient of the router's z loss of each layer, 1e-6; 0 = none */
};

struct sf_precision {
  int64_t compute; /* enum sf_compute. Main gradients, master weights, the loss are always fp32 */
  int64_t loss_scale_log2;   /* the loss's gradient is multiplied by 2^n before the backward pass; 0 = off */
  int64_t loss_scale_window; /* dynamic scaling: doubled after this many steps without overflow, halved by one; 0 = static */
  bool residual_fp32;        /* the residual stream and its gradients are fp32 tensors */
  bool stochastic;           /* bf16 only: no fp32 master weights; each update is rounded stochastically to bf16 */
  int64_t fp8_recipe;        /* enum sf_fp8_recipe */
  int64_t fp8_history;       /* delayed: the scale comes from this many earlier steps, 1..SF_FP8_HISTORY_MAX; else 1 */
  int64_t fp8_bf16_first, fp8_bf16_last; /* so many of the model's first and last layers stay in bf16; some layer does not */
};

/* Bits of train.frozen: parameters of these modules get no gradient and no update. */
enum sf_frozen {
  SF_FROZEN_EMBEDDING = 1,
  SF_FROZEN_QKV = 2,
  SF_FROZEN_PROJ = 4,
  SF_FROZEN_FC1 = 8,
  SF_FROZEN_FC2 = 16,
  SF_FROZEN_NORMS = 32,
  SF_FROZEN_ALL = 63
};

struct sf_train {
  int64_t steps;            /* 1..SF_STEPS_MAX */
  int64_t microbatches;     /* global microbatches of a step; dp divides it */
  int64_t microbatch_size;  /* sequences of a microbatch */
  int64_t loss_norm;        /* enum sf_loss_norm */
  int64_t recompute_layers; /* 0 = keep activations; n = checkpoint chunks of n layers (full recompute) */
  int64_t clip_milli;       /* gradient clipping at clip_milli / 1000; 0 = off */
  int64_t lr_micro;         /* learning rate, 1e-6 */
  int64_t weight_decay_milli; /* decoupled; matrices only, not vectors */
  int64_t beta1_milli, beta2_milli; /* Adam; epsilon is 1e-8 */
  int64_t frozen;           /* bits of enum sf_frozen */
  int64_t dropout_milli;    /* hidden dropout: probability, in thousandths, that an element of a branch is left out of the residual add */
  int64_t mtp_weight_milli; /* the extra losses together weigh this much of the main one, in thousandths */
  int64_t label_smoothing_milli; /* share of the label's weight spread over model.vocab_padded columns, in thousandths */
};

struct sf_data {
  int64_t tokens, mask;          /* enum sf_token_dist, sf_mask_dist */
  int64_t documents; /* a sequence is cut at documents - 1 drawn places (the same place twice is one cut); attention and positions
                        know their document alone */
  int64_t padding;               /* a sequence ends with 0 to this many padding tokens (drawn), its first token is none */
  int64_t weights, acts, grads;  /* enum sf_value_dist */
  bool exact;                    /* isolated mode only: what linear and communication modules read are small integers, so that their
                                    results do not depend on the order of sums */
  bool overflow; /* isolated mode with loss scaling only: in one step one number of a gradient that is given is infinite, and so of one
                    trained parameter's main gradient */
};

struct sf_layout {
  int64_t tp, cp, ep, etp, dp, pp, vpp; /* ep, etp: of experts; vpp: model chunks of a pipeline rank */
  char order[SF_ORDER_TEXT]; /* fastest axis first: "tp-cp-ep-dp-pp" */
  int64_t cp_comm;           /* enum sf_cp_comm; SF_CP_RING when cp is 1 */
  int64_t zero;              /* ZeRO stage over dp x cp: 0 none, 1 optimizer states, 2 gradients too */
  bool sp;                   /* sequence parallelism over tp; false when tp is 1 */
  int64_t pp_first_layers, pp_last_layers; /* layers of the first and last stage; 0 = an even share of what is left */
  int64_t bucket_elements;   /* gradient buckets close at this many elements; 0 = one bucket */
  bool overlap;              /* a bucket's reduction is launched when its last gradient is ready */
  bool recompute_sharded;    /* the saved input of a recomputed chunk is cut over tp and gathered again */
  bool tp_overlap;           /* sp: linears keep their own rows of the input; the weight's gradient gathers the others while it computes */
};

/* Save and load with another layout: after so many steps the state is saved, and a model on the second layout, of as many ranks, loads it
 * and does the remaining steps. All fields are at their smallest while after_step is 0. */
struct sf_reload {
  int64_t after_step; /* 0 = off; below train.steps */
  struct sf_layout layout;
};

/* What a trial showed (harness/docs/overview.md, Glossary). */
#define SF_VERDICT_MAP(X)                                                                                                                  \
  X(PASS, "every tensor that could be judged is within its tolerance")                                                                     \
  X(FINDING, "something is wrong; the class of the finding says how")                                                                      \
  X(INCONCLUSIVE, "the case could not be judged: neither passed nor failed")                                                               \
  X(SKIP, "the case was not run: the target does not take it, or it needs too much memory")
enum sf_verdict {
#define X(name, meaning) SF_VERDICT_##name,
  SF_VERDICT_MAP(X)
#undef X
      SF_VERDICT_COUNT
};
const char *sf_verdict_name(enum sf_verdict verdict); /* "PASS", .. */

struct sf_expect {
  bool present;
  char verdict[16]; /* a name of enum sf_verdict */
  char signature[SF_SIGNATURE_TEXT];
};

struct sf_case {
  int64_t seed; /* of the data: parameters, tokens, masks, injected tensors */
  int64_t mode; /* enum sf_mode */
  struct sf_model model;
  struct sf_moe moe;
  struct sf_precision precision;
  struct sf_train train;
  struct sf_data data;
  struct sf_layout layout;
  struct sf_reload reload;
  int64_t schedule; /* seed of the simulator's scheduling decisions; 0 = round-robin, rendezvous at the wait */
  char target[SF_TARGET_TEXT]; /* "builtin", "plugin:" and the path of a library of layers, or the name of a framework's worker */
  char framework[SF_CASE_FRAMEWORK_TEXT]; /* "", or of a framework's case: what is not at its first choice, as a compact JSON object */
  char plant[SF_NAME_TEXT];  /* "" or the id of a planted fault or of a mutant (harness/comm/mutate.h) */
  struct sf_expect expect;
};

/* --- the table of fields ------------------------------------------------------------------------------------- */

enum sf_field_type { SF_FIELD_INT, SF_FIELD_BOOL, SF_FIELD_ENUM, SF_FIELD_FLAGS, SF_FIELD_TEXT };
struct sf_field {
  const char *path;   /* "layout.tp" */
  enum sf_field_type type;
  size_t offset, size_bytes; /* of the member in struct sf_case */
  int64_t min, max;   /* numbers: range a file may give; 0..2^63-1 at the widest */
  int64_t smallest;   /* value of an omitted field */
  const char *const *names; /* ENUM: text of value i; FLAGS: text of bit i; NULL-terminated */
};
/* All fields in the order in which files are written. `expect` is not among them. */
extern const struct sf_field sf_case_fields[];
extern const int sf_case_field_count;
const struct sf_field *sf_case_field_find(const char *path); /* NULL when there is none */
int64_t sf_case_field_get(const struct sf_case *c, const struct sf_field *field);             /* not for TEXT */
void sf_case_field_put(struct sf_case *c, const struct sf_field *field, int64_t value);       /* not for TEXT */
/* The name of what an ENUM field holds: "relu2" of model.activation. The path is one of an ENUM field, and the value one of its choices. */
const char *sf_case_choice(const struct sf_case *c, const char *path);
/* SF_EINPUT: there is no such field, and which may be meant. */
enum sf_status sf_case_field_unknown(const char *path, struct sf_error *error) SF_MUST_USE;
/* Parses a value as the command line gives it: a number, true/false/on/off, an enum's name, flags joined by '+' or "none", a text. */
enum sf_status sf_case_field_parse(struct sf_case *c, const char *path, const char *value, struct sf_error *error) SF_MUST_USE;

/* A case of a framework (targets/worker.md): seed, target and what stands in `framework` say all of it. Everything else is as sf_case_init
 * leaves it, but for the axes of the layout and the mode, which repeat what the framework's case says under their names, so that it has
 * ranks and a signature. */
static inline bool sf_case_is_framework(const struct sf_case *c) { return c->framework[0] != '\0'; }
/* json: an object. SF_EINPUT when it is none, is too long, or has axes that are no numbers from 1 on. */
enum sf_status sf_case_set_framework(struct sf_case *c, const char *json, struct sf_error *error) SF_MUST_USE;

/* The smallest valid case: every field at `smallest`. */
void sf_case_init(struct sf_case *c);

/* Whether the fields fit together (divisibility, sizes, ranks). The text names field and reason. SF_EINPUT when not. */
enum sf_status sf_case_validate(const struct sf_case *c, struct sf_error *error) SF_MUST_USE;

/* The format in which activations, their gradients and the model's weights are stored: what "round" means. */
enum sf_dtype sf_case_storage(const struct sf_case *c);
const char *sf_compute_name(int64_t compute); /* of enum sf_compute: "fp32", "bf16", "fp16", "fp8" */

int64_t sf_case_ranks(const struct sf_case *c); /* world size: tp * cp * dp * pp */

/* Whether step `step` (train.steps: what stands after the last one) is done by the second layout. */
static inline bool sf_case_is_reloaded(const struct sf_case *c, int64_t step) {
  return c->reload.after_step > 0 && step >= c->reload.after_step;
}
/* The case with the second layout in the place of the first, and without reloading. reload.after_step is above 0. */
struct sf_case sf_case_after_reload(const struct sf_case *c);

/* Hash of the logical part and seed and mode: cases with the same hash share a reference. */
uint64_t sf_case_logical_hash(const struct sf_case *c);

/* Pipeline stages of the layout: pp * vpp. Stage s stands on pipeline rank s mod pp, as its model chunk s / pp. */
int64_t sf_case_stage_count(const struct sf_case *c);
/* Layers of stage `stage`: [*first, *first + *count). */
void sf_case_stage_layers(const struct sf_case *c, int64_t stage, int64_t *first, int64_t *count);

/* --- JSON (case_json.c, on Jansson) --------------------------------------------------------------------------- */

/* Strict: unknown or repeated key, wrong type, number out of range, impossible layout, schema other than 1 give
 * SF_EINPUT and "PATH: field: reason". *out is written only on success. name stands for the file in the text. */
enum sf_status sf_case_from_json(struct sf_case *out, const char *json, size_t size_bytes, const char *name,
                                 struct sf_error *error) SF_MUST_USE;
/* All fields, fixed order, two-space indentation, newline at the end. The caller frees *out with sf_free. */
enum sf_status sf_case_to_json(char **out, const struct sf_case *c) SF_MUST_USE;
enum sf_status sf_case_read(struct sf_case *out, const char *path, struct sf_error *error) SF_MUST_USE;
enum sf_status sf_case_write(const struct sf_case *c, const char *path, struct sf_error *error) SF_MUST_USE;

#endif
