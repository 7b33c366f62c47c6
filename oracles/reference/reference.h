/* The single-device reference: the arithmetic of harness/docs/model.md, written plainly and apart from the targets. */
#ifndef SF_ORACLES_REFERENCE_H
#define SF_ORACLES_REFERENCE_H

#include "harness/tensor/consistent.h"
#include "harness/tensor/product.h"

/* Matrix products, given by whoever runs the reference. */
struct sf_gemm_table {
  /* NULL, or asked before `multiply` and before a chain in order is computed in place: true if it has computed the product, else c is as it
   * was. */
  bool (*faster)(void *ctx, const struct sf_product *product);
  void *ctx;
  void (*multiply)(const struct sf_product *product); /* in_order is never set */
};

/* How a rerun differs from the plain run (harness/docs/tolerance.md): E3 perturbs every stored tensor before it is rounded and every fp32
 * number inside a module that may cancel (by at least half an ulp), E5 takes each sum in random order: products over K, weight gradients
 * over tokens. Products stored in bf16 are summed in 2, 4 or 8 parts, each rounded. Of sums in fp32 most stay whole, with their large terms
 * first, last or at both ends: beside a large term a chain of additions loses about sqrt(K / 12) ulp, which parts hide. INNER is E3 of the
 * fp32 numbers alone: what is stored is rounded as it is. SIZES is no rerun
 * but a bound: each product adds up the absolute values of its terms, and a given sum of parts is that of its parts' absolute values. No
 * part of a product, of which a layout may make a tensor of its own, is larger. */
enum sf_perturb { SF_PERTURB_NONE, SF_PERTURB_STORED, SF_PERTURB_SPLIT, SF_PERTURB_INNER, SF_PERTURB_SIZES };
/* How E5 takes sums in fp32: most of them whole and some in parts; each in parts; each whole, a chain with one term after the other. Terms
 * that are all alike are rounded alike: a chain of them is far off, whatever their order, while parts and a library's kernel, which keeps
 * several sums, are not. Which of them a candidate is like is not known. */
enum sf_summing { SF_SUMS_MIXED, SF_SUMS_IN_PARTS, SF_SUMS_TERM_BY_TERM };

/* Tensors that the caller gives the modules. */
struct sf_given {
  /* What a finished tensor, or the weight of a later step (by the id of its PARAM), is overwritten with, borrowed during the call. NULL: it
   * stays as it was computed. A weight that is given next is not computed: its PARAM_DELTA is emitted as zeros. */
  const float *(*tensor)(void *ctx, struct sf_trace_id id);
  /* Of a given tensor that is a sum of parts of the case's storage format, each of which a rank goes on with by itself: the sums of their
   * elements' absolute values, borrowed during the call. Reruns move the sum by a rounding of these. NULL: it is no such sum. */
  const float *(*part_sizes)(void *ctx, struct sf_trace_id id);
  void *ctx;
};

/* Parts of a step's data, and the weights that a step begins with. */
enum sf_data_part {
  SF_DATA_TOKENS,
  SF_DATA_LABELS,
  SF_DATA_MASK,
  SF_DATA_DOCUMENTS,
  SF_DATA_PADDING, /* as routers' own losses see it */
  SF_DATA_MEMORY,
  SF_DATA_DROPOUT,
  SF_DATA_WEIGHTS
};

/* Formulas that are often taken for the right ones: name, what it is about, and what is said behind "as if". */
#define SF_SLIP_MAP(X)                                                                                                                     \
  X(NONE, "", "")                                                                                                                          \
  X(ROUTER_RAW, "weights of experts", "the weights of the chosen experts were not divided by their sum")                                   \
  X(SCORES_RAW, "scores of attention", "the scores were not divided by the root of the head size")                                         \
  X(SCORES_BY_SIZE, "scores of attention", "the scores were divided by the head size, not by its root")                                    \
  X(INTERLEAVED, "pairs of the rotation", "the rotation took neighbouring columns as pairs, and not those half a head apart")              \
  X(NO_ROTATION, "rotation", "nothing was rotated by its position")                                                                        \
  X(ROTATION_BACKWARD, "rotation", "the rotation went the other way")                                                                      \
  X(NEXT_POSITION, "positions", "positions were counted from 1")                                                                           \
  X(GROUPS_BY_TURN, "heads of keys", "query heads took the heads of keys and values by turns, and not group by group")                     \
  X(FIRST_GROUP, "heads of keys", "all query heads took the first head of keys and values")                                                \
  X(LAST_HEAD_ALONE, "query heads of a group", "a key and value head had the gradients of its last query head alone")                      \
  X(FIRST_HEAD_ALONE, "query heads of a group", "a key and value head had the gradients of its first query head alone")                    \
  X(SINK_NOT_SUMMED, "sinks", "the sink was left out of the sum of exponentials")                                                          \
  X(CAUSAL_MEMORY, "memory", "queries saw the memory up to their own position alone")                                                      \
  X(NO_MEAN, "means of norms", "the norm did not subtract the mean")                                                                       \
  X(MEAN_TOO, "means of norms", "the norm subtracted the mean too")                                                                        \
  X(NEXT_KEY, "causal mask", "queries saw one key beyond their own")                                                                       \
  X(ALL_KEYS, "causal mask", "queries saw all keys, those behind them too")                                                                \
  X(NOT_OWN_KEY, "causal mask", "queries did not see their own key")                                                                       \
  X(NEXT_EXPERT, "experts", "tokens went through the expert beside theirs")                                                                \
  X(SLOTS_IN_TURN, "tokens of experts", "the token of a slot were the slot's number modulo the number of tokens")                          \
  X(ROUTER_ALL, "weights of experts", "the weights of the chosen experts were divided by the sum of all experts' scores")                  \
  X(LOAD_BY_BLOCKS, "load of experts", "rows lay sequence by sequence when the load of experts was counted")                               \
  X(ONE_CHOICE_COUNTS, "choices of experts", "the load-balancing loss counted one of the experts that a token chose")                      \
  X(RAW_SHARES, "scores of experts", "the load-balancing loss took scores that are not divided by their sum")                              \
  X(PADDING_COUNTS, "padding", "padding had gradients of the router's losses")                                                             \
  X(ROUTER_SHARED, "weights of experts", "the weights of the chosen experts were divided by their sum")                                    \
  X(NO_FP8, "fp8 casts", "nothing was cast to fp8")                                                                                        \
  X(CAPACITY_DOWN, "capacity of experts", "the capacity of experts were rounded down")                                                     \
  X(DIVISOR_FIXED, "weights of experts", "the sum that weights of experts are divided by were a constant")                                 \
  X(SCALE_OF_E5M2, "fp8 scales", "the scales of E4M3 casts were made from the largest number of E5M2")                                     \
  X(AMAX_OF_LAST, "fp8 histories", "a step left the amax of its last microbatch in the history")                                           \
  X(GRADS_E4M3, "fp8 formats", "gradients were cast to E4M3, and not to E5M2")                                                             \
  X(ALL_E5M2, "fp8 formats", "inputs and weights were cast to E5M2, and not to E4M3")                                                      \
  X(DROPOUT_BARE, "dropout", "what dropout keeps was not scaled up")                                                                       \
  X(GELU_QUICK, "GELU", "GELU were x times the logistic of 1.702 x")                                                                       \
  X(GELU_TANH, "GELU", "GELU were computed by its approximation with tanh")                                                                \
  X(EPSILON_SMALL, "epsilon of norms", "the norm's epsilon were 1e-6: it is 1e-5")                                                         \
  X(EPSILON_NONE, "epsilon of norms", "the norm had no epsilon: it is 1e-5")                                                               \
  X(SAMPLE_VARIANCE, "variance", "the variance were divided by n - 1")                                                                     \
  X(SMOOTHING_UNPADDED, "label smoothing", "label smoothing were spread over the vocabulary without its padding")                          \
  X(SMOOTHING_ALL, "label smoothing", "label smoothing were spread over all columns, the label's own too")
enum sf_slip {
#define X(name, about, text) SF_SLIP_##name,
  SF_SLIP_MAP(X)
#undef X
      SF_SLIP_COUNT
};

/* What may be computed within a set of tokens, or of columns of the vocabulary, as if there were no others. */
enum sf_within {
  SF_WITHIN_KEYS,     /* the keys that a query sees */
  SF_WITHIN_QUERIES,  /* the queries that keys and values have gradients of */
  SF_WITHIN_SLOPES,   /* the keys that queries have gradients of */
  SF_WITHIN_CAPACITY, /* tokens by whose number an expert has room */
  SF_WITHIN_LOAD,     /* tokens that have taken an expert's room */
  SF_WITHIN_CHOICES,  /* balance loss: how often experts were chosen */
  SF_WITHIN_SCORES,   /* balance loss: sums of experts' scores */
  SF_WITHIN_TOKENS,   /* balance and z loss: the number of tokens that they divide by */
  SF_WITHIN_SHARE,    /* the same losses, divided by the number of sets besides */
  SF_WITHIN_EXPS,     /* main loss: the sum of exponentials; columns */
  SF_WITHIN_MAX,      /* main loss: the largest logit, which exponentials and the label's logit are taken relative to; columns */
  SF_WITHIN_LABEL,    /* main loss: the label's logit, 0 where another set has it; columns */
  SF_WITHIN_SMOOTHED, /* main loss: the logits over which labels are smoothed; columns */
};

/* A mistake that the run makes on purpose, so that a candidate's tensor can be compared with what the mistake would give. Zeros: none. */
struct sf_supposed {
  uint32_t parts;           /* 1 << enum sf_data_part: these are of .. */
  int64_t step, microbatch; /* .. this step and microbatch */
  enum sf_slip slip;
  bool of_first_sequence; /* documents and padding of the first sequence stand for those of all */
  /* Sets of tokens or columns, such as those of each rank. */
  uint32_t within;       /* 1 << enum sf_within */
  const int32_t *set_of; /* [seq], of each position, or [vocab_padded], of each column; borrowed, as all arrays here */
  int32_t sets, set;     /* set: where a tensor has room for one set's number alone */
  /* KEYS, QUERIES, SLOPES: query and key meet where the key's set is so many behind the query's, round about; without: where it is not. */
  int32_t offset;
  bool without;
  double score_times;       /* 0, or what scores of attention are multiplied with besides */
  int32_t head_parts;       /* GROUPS_BY_TURN, FIRST_GROUP: within each of so many equal parts of the heads; 0: one part */
  const int32_t *positions; /* [microbatch_size x seq] NULL, or where each token is taken to stand, from 0 to seq - 1 */
  bool has_dropout_of;      /* the dropout mask is that of .. */
  int32_t dropout_of;       /* .. this module */
  bool has_depth;           /* labels and masks (by `parts`) of every depth of multi-token prediction are those of .. */
  int64_t depth;            /* -1: the main loss */
  const int32_t *order;     /* NULL, or [seq]: of `parts` (tokens, labels, mask, dropout) each position has what belongs to another one */
  /* What modules read in place of tensors of one kind (ACT or ACT_GRAD): those of the step and microbatch above, or of one module alone
   * `times` what module `from` has there, or these values in the step and microbatch above. In isolated mode alone. */
  bool reads;
  enum sf_kind kind;
  int32_t module; /* -1: of every module, those of the step and microbatch above */
  int32_t from;
  float times;
  const float *values; /* NULL, or [rows x cols] of the tensor */
  /* What modules read in place of a parameter in every step: [rows x cols] in the storage format; NULL: nothing. */
  const float *weight;
  int32_t param;
};

/* Tensors that the caller looks at; borrowed. */
struct sf_wanted {
  const struct sf_trace_id *ids;
  int32_t count;
};

struct sf_reference_options {
  bool fp64; /* all arithmetic in double and no rounding, whatever the case's precision; emits doubles */
  enum sf_perturb perturb;
  uint64_t draw; /* seed of the perturbation; odd: equal numbers of a tensor are perturbed alike */
  enum sf_summing sums; /* of SPLIT */
  const struct sf_gemm_table *gemm;
  struct sf_arena *arena;             /* empty, for the run's tensors; NULL: of the run's own, which costs fresh pages */
  const struct sf_given *given;       /* NULL, or in isolated mode: what takes the place of consistent tensors */
  const struct sf_supposed *supposed; /* NULL: no mistake */
  /* NULL: all tensors. Else others may be left out, or emitted with other values; these have the values that they have in a whole run. */
  const struct sf_wanted *wanted;
};

/* Receives every tensor of the run in execution order (the order defines "first"): whole logical matrix, floats, or doubles with fp64.
 * In isolated mode what is emitted is what the module computed, before it is overwritten. Borrowed during the call. */
struct sf_reference_sink {
  void *ctx;
  void (*emit)(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape);
};

/* Runs all steps of the catalogue's case. Emits PARAM (every step and after the last), ACT, ACT_GRAD, WGRAD, MAIN_GRAD, PARAM_DELTA and
 * SCALARs with pass FWD, BWD or STEP and the calls of harness/docs/model.md except call 1 of ACT and ACT_GRAD. SF_ENOMEM is the only
 * failure. */
enum sf_status sf_reference_run(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                const struct sf_reference_sink *sink) SF_MUST_USE;

#endif
