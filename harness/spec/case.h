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
  SF_CASE_FIELDS_TEXT = 2048,
  SF_OPERATION_TEXT = 64
};

/* The choices of each enum field: X(constant, name in a case's file). The one list of them: enum and names are made of it, and everything
 * that shows a choice asks the table of fields for its name (sf_case_choice). */
#define SF_CHOICE_CONSTANT(constant, name, ...) constant,

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
/* RELU2: squared ReLU, max(x, 0)^2. Third: what the device's, the reference's and the operations' functions for it are called. Fourth:
 * columns that it reads for each that it puts out, 2 of a gated one, which reads [gate; up]. */
#define SF_OTHER_ACTIVATION_MAP(X) X(SF_ACT_SWIGLU, "swiglu", swiglu, 2) X(SF_ACT_RELU2, "relu2", relu2, 1)
#define SF_ACTIVATION_MAP(X) X(SF_ACT_GELU, "gelu", gelu, 1) SF_OTHER_ACTIVATION_MAP(X)
enum sf_activation { SF_ACTIVATION_MAP(SF_CHOICE_CONSTANT) SF_ACT_COUNT };
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
  X(SF_DIST_NORMAL, "normal")                                                                                                              \
  X(SF_DIST_UNIFORM, "uniform")                                                                                                            \
  X(SF_DIST_HEAVY, "heavy") X(SF_DIST_OUTLIERS, "outliers") X(SF_DIST_OFFSET, "offset") X(SF_DIST_SPARSE, "sparse")
enum sf_value_dist { SF_DIST_MAP(SF_CHOICE_CONSTANT) SF_DIST_COUNT };

/* So many earlier steps may give a cast its scale, and so many steps overwrite each of them twice. */
enum { SF_FP8_HISTORY_MAX = 4, SF_STEPS_MAX = 2 * (SF_FP8_HISTORY_MAX + 1) };

/* The groups of a case; harness/spec/fields.def says what each member is. Choices are held as the numbers of their enums, flags as bits. */
#define SF_MEMBER_INT(min, max, smallest) int64_t
#define SF_MEMBER_BOOL bool
#define SF_MEMBER_ENUM(map) int64_t
#define SF_MEMBER_FLAGS(map) int64_t
#define SF_MEMBER_TEXT(type) type
typedef char sf_layout_order[SF_ORDER_TEXT];

struct sf_model {
#define MODEL(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/fields.def"
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
#define MOE(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/fields.def"
};

struct sf_precision {
#define PRECISION(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/fields.def"
};

/* Bits of train.frozen: parameters of these modules get no gradient and no update. */
#define SF_FROZEN_MAP(X)                                                                                                                   \
  X(SF_FROZEN_EMBEDDING, "embedding")                                                                                                      \
  X(SF_FROZEN_QKV, "qkv") X(SF_FROZEN_PROJ, "proj") X(SF_FROZEN_FC1, "fc1") X(SF_FROZEN_FC2, "fc2") X(SF_FROZEN_NORMS, "norms")
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
#define TRAIN(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/fields.def"
};

struct sf_data {
#define DATA(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/fields.def"
};

struct sf_layout {
#define LAYOUT(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/layout.def"
#undef LAYOUT
};

/* Save and load with another layout: after so many steps the state is saved, and a model on the second layout, of as many ranks, loads it
 * and does the remaining steps. All fields are at their smallest while after_step is 0. */
struct sf_reload {
#define RELOAD(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/fields.def"
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
#define CASE(name, member, type, ...) SF_MEMBER_##type member;
#include "harness/spec/fields.def"
  struct sf_model model;
  struct sf_moe moe;
  struct sf_precision precision;
  struct sf_train train;
  struct sf_data data;
  struct sf_layout layout;
  struct sf_reload reload;
  char target[SF_TARGET_TEXT];       /* "builtin", "plugin:" and the path of a library, "op:NAME", or the name of a framework's worker */
  char operation[SF_OPERATION_TEXT]; /* "", or the operation that the case is one of */
  char fields[SF_CASE_FIELDS_TEXT];  /* "", or a compact JSON object: of a framework's case what is not at its first choice, of an
                                        operation's its row */
  char plant[SF_NAME_TEXT];          /* "" or the id of a planted fault or of a mutant (harness/comm/mutate.h) */
  struct sf_expect expect;
};

/* --- the table of fields ------------------------------------------------------------------------------------- */

enum sf_field_type { SF_FIELD_INT, SF_FIELD_BOOL, SF_FIELD_ENUM, SF_FIELD_FLAGS, SF_FIELD_TEXT };
struct sf_field {
  const char *path;          /* "layout.tp" */
  const char *meaning;       /* what it is, for people; no full stop */
  size_t offset, size_bytes; /* of the member in struct sf_case */
  enum sf_field_type type;
  int64_t min, max;         /* numbers: range a file may give; 0..2^63-1 at the widest */
  int64_t smallest;         /* value of an omitted field */
  const char *const *names; /* ENUM: text of value i; FLAGS: text of bit i; NULL-terminated */
};
/* The fields that are drawn, in that order: the first of sf_case_fields. The others, target and plant, stand behind them. */
enum sf_case_field {
#define FIELD(name, ...) SF_CASE_##name,
#include "harness/spec/fields.def"
  SF_CASE_DRAWN /* how many */
};
/* All fields in the order of the table. `expect` is not among them. */
extern const struct sf_field sf_case_fields[];
extern const int sf_case_field_count;
enum { SF_CASE_FIELDS_MAX = 128 };
/* Indices into sf_case_fields, section by section, as files and lists show the fields: those that begin with "model." side by side, and so
 * on. Writes sf_case_field_count of them. */
void sf_case_field_order(int order[SF_CASE_FIELDS_MAX]);
size_t sf_case_section_length(const char *path);             /* 5 of "model.layers"; 0 of a field of the document itself */
const struct sf_field *sf_case_field_find(const char *path); /* NULL when there is none */
int64_t sf_case_field_get(const struct sf_case *c, const struct sf_field *field);       /* not for TEXT */
void sf_case_field_put(struct sf_case *c, const struct sf_field *field, int64_t value); /* not for TEXT */
/* The name of what an ENUM field holds: "relu2" of model.activation. The path is one of an ENUM field, and the value one of its choices. */
const char *sf_case_choice(const struct sf_case *c, const char *path);
/* SF_EINPUT: there is no such field, and which may be meant. */
enum sf_status sf_case_field_unknown(const char *path, struct sf_error *error) SF_MUST_USE;
/* Parses a value as the command line gives it: a number, true/false/on/off, an enum's name, flags joined by '+' or "none", a text. */
enum sf_status sf_case_field_parse(struct sf_case *c, const char *path, const char *value, struct sf_error *error) SF_MUST_USE;

/* A case of a framework (targets/worker.md): seed, target and what stands in `fields` say all of it. Everything else is as sf_case_init
 * leaves it, but for the axes of the layout and the mode, which repeat what the framework's case says under their names, so that it has
 * ranks and a signature. */
static inline bool sf_case_is_framework(const struct sf_case *c) { return c->fields[0] != '\0' && c->operation[0] == '\0'; }
/* json: an object. SF_EINPUT when it is none, is too long, or has axes that are no numbers from 1 on. */
enum sf_status sf_case_set_framework(struct sf_case *c, const char *json, struct sf_error *error) SF_MUST_USE;

/* A case of a single operation: target, `operation` and `fields` say all of it, everything else is as sf_case_init leaves it. What the
 * fields may be is the operation's to know. */
static inline bool sf_case_is_operation(const struct sf_case *c) { return c->operation[0] != '\0'; }

/* The smallest valid case: every field at `smallest`. */
void sf_case_init(struct sf_case *c);

/* Whether the fields fit together (divisibility, sizes, ranks). The text names field and reason. SF_EINPUT when not. */
enum sf_status sf_case_validate(const struct sf_case *c, struct sf_error *error) SF_MUST_USE;

/* Parts of linear_fc1's output, dense or an expert's: 2 where the model's activation is gated. */
static inline int64_t sf_case_fc1_parts(const struct sf_case *c) {
#define SF_ACTIVATION_PARTS(constant, text, name, parts) [constant] = parts,
  static const int8_t all[SF_ACT_COUNT] = {SF_ACTIVATION_MAP(SF_ACTIVATION_PARTS)};
  return all[c->model.activation];
}

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
/* All fields, fixed order, two-space indentation (an operation's: on one line), newline at the end. The caller frees *out with sf_free. */
enum sf_status sf_case_to_json(char **out, const struct sf_case *c) SF_MUST_USE;
/* sf_case_from_json of a file; SF_ENOTFOUND, SF_EIO and SF_ENOMEM too. */
enum sf_status sf_case_read(struct sf_case *out, const char *path, struct sf_error *error) SF_MUST_USE;
/* sf_case_to_json into a file, whole or not at all. Fails as sf_bytes_write_file does. */
enum sf_status sf_case_write(const struct sf_case *c, const char *path, struct sf_error *error) SF_MUST_USE;

#endif
