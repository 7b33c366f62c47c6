/* Diagnosis: which simple mistake explains the error of one tensor. Every explanation predicts what the ranks would hold had it happened;
 * what is left of the error after the prediction, in noise levels, ranks them. It words a finding for people and is part of neither shrink
 * key nor signature.
 *
 * A view is all that an explanation sees of a tensor. The built-in layers make one from memory (diagnose.h), frameworks from their traces
 * (harness/check). */
#ifndef SF_ORACLES_VIEW_H
#define SF_ORACLES_VIEW_H

#include "harness/base/alloc.h"
#include "harness/spec/catalog.h"

#define SF_DIAGNOSIS_MAP(X)                                                                                                                \
  X(UNKNOWN, "unknown", "nothing simple fits")                                                                                             \
  X(UNSYNCHRONISED, "unsynchronised", "copies that must be made equal, and each holds the value of its own data")                          \
  X(MISSING_REDUCTION, "missing_reduction", "partial sums, over ranks or microbatches, that nobody added")                                 \
  X(EXTRA_REDUCTION, "extra_reduction", "summed once too often")                                                                           \
  X(STALE, "stale", "the value of another step, microbatch or layer, or zeros")                                                            \
  X(FUSED_ORDER, "fused_order", "parts of a fused projection in the wrong order")                                                          \
  X(PERMUTED, "permuted", "each rank holds another rank's piece, and every piece is there")                                                \
  X(NEIGHBOUR, "neighbour", "a rank holds another rank's piece, and some piece is nowhere")                                                \
  X(SHIFTED, "shifted", "rows, elements of a vector or layers of a stage, moved by a constant")                                            \
  X(TRANSPOSED, "transposed", "rows and columns exchanged")                                                                                \
  X(MISSING_TERM, "missing_term", "a term or a module is left out")                                                                        \
  X(REPEATED_TERM, "repeated_term", "a term of the sum is added several times")                                                            \
  X(SCALE, "scale", "a constant factor, of the whole or of a term")                                                                        \
  X(OFFSET, "offset", "a constant added to every element")                                                                                 \
  X(OTHER_SETTING, "other_setting", "as it would be with another value of a setting")                                                      \
  X(OTHER_FORMULA, "other_formula", "as a formula gives it that is often taken for the right one")                                         \
  X(LOW_PRECISION, "low_precision", "rounded to fewer bits than promised")                                                                 \
  X(PART, "part", "wrong in some rows, columns or ranks, right in all others")                                                             \
  X(EARLIER, "earlier", "before communication failed, a tensor was wrong already")
enum sf_diagnosis_class {
#define X(name, text, meaning) SF_DIAGNOSIS_##name,
  SF_DIAGNOSIS_MAP(X)
#undef X
      SF_DIAGNOSIS_COUNT
};
const char *sf_diagnosis_class_name(enum sf_diagnosis_class cls); /* the text above */

/* A place in a tensor. */
struct sf_element {
  int64_t row, col;
};
/* How many of something there are in a tensor, and how many of them have a wrong element. */
struct sf_wrong_share {
  int64_t wrong, all;
};

/* A wrong tensor in numbers. An element may be off by an even share of what its row (without levels of rows: the tensor) may be off. */
struct sf_numbers {
  struct sf_wrong_share elements;          /* of those that some rank holds; all = 0: nothing here is known */
  struct sf_wrong_share rows, cols, parts; /* parts: heads or experts; all = 0 where the tensor has none */
  char part_name[16];                      /* "heads", "experts"; "" */
  double norm, error, mean, mean_got;      /* of the reference, of the difference (of the worst replica of each element); the means of what
                                              the elements should be and of what the first of their ranks holds */
  struct sf_element worst, worst_local;    /* the element that is off by most: in the logical tensor, and in what the rank holds */
  int32_t worst_rank;                      /* -1: of the sum of several */
  double wanted, got, allowed;             /* there */
};

enum { SF_CAUSE_TEXT = 128, SF_CULPABLE_TEXT = 720 };
struct sf_diagnosis {
  enum sf_diagnosis_class cls;
  double whole, left;        /* the error, and what the explanation leaves of it, in noise levels; the same when nothing fits */
  char text[320];            /* one sentence; "" = there is no diagnosis */
  char cause[SF_CAUSE_TEXT]; /* the mistake in a few words without ranks, layers and sizes, the same wherever it is made; "": the text
                                tells at most by how much the tensor is wrong */
  char operation[SF_CULPABLE_TEXT]; /* the first operation that went wrong, in the words of the framework's worker; "": not known */
  struct sf_numbers numbers;
};

/* What one rank handed over, row by row. */
struct sf_view_shard {
  int32_t rank;   /* -1: merged from several */
  int32_t tp, dp; /* its index among the ranks that cut the tensor, and among those that have other data; 0 where it is not known */
  int64_t count;
  const int64_t *at; /* of each element: which of the logical tensor it is, counted row by row */
  const float *data;
};

/* Ranks that a sum may run over: a kind of process group. */
enum sf_group_kind {
  SF_GROUP_OTHER,
  SF_GROUP_TENSOR, /* its ranks cut tensors (tp, etp) */
  SF_GROUP_DATA,   /* its ranks have other data (dp, cp, edp) */
};
struct sf_view_group {
  char name[32]; /* "tp", "dp x cp" */
  enum sf_group_kind kind;
  const int32_t *of_rank; /* equal numbers: in one group; NULL: all ranks are one */
};

/* What a factor may be. Names of one tier are all said, since nothing tells which it is; a lower tier goes before a higher one. */
struct sf_view_size {
  int32_t tier;
  double value;
  const char *name, *inverse; /* inverse: of 1 / value; NULL: "1 / NAME" */
};

/* Another tensor that an explanation may need; x has the view's shape (a TERM may be one row, which stands for every row). */
enum sf_relation {
  SF_RELATED_STALE,    /* what might stand there in place of the right value */
  SF_RELATED_SUPPOSED, /* what the reference makes with a supposed mistake; name: "it were .." behind "as if" */
  SF_RELATED_SUMMAND,  /* one of the tensors whose weighted sum is the reference: of one microbatch and one use (call) */
  SF_RELATED_TERM,     /* something that the module adds */
  SF_RELATED_VARIANT,  /* what rank `rank` would hold had it made the mistake number `variant`, computed from what the module reads */
};
struct sf_diagnosis_related {
  enum sf_relation relation;
  enum sf_diagnosis_class cls; /* STALE: which class it means (STALE or SHIFTED); VARIANT, SUPPOSED: what the mistake is */
  char name[128];              /* VARIANT: the whole sentence; SUMMAND: the use, "output layer", or "" where the weight has one alone */
  const char *cause;           /* the name without numbers; NULL: it has none */
  bool names_rank;             /* VARIANT: .. behind "rank 3 " */
  char without[64];            /* SUPPOSED: what x leaves out, so that a rank may hold a share of it; "": nothing */
  struct sf_shape shape;
  const float *x;
  double weight;            /* SUMMAND; SUPPOSED: 0, or a factor to be said behind the name */
  int32_t microbatch, call; /* SUMMAND */
  int32_t dp, turn;         /* SUMMAND: whose data it is, and its number among the microbatches of that rank */
  int32_t variant, rank;    /* VARIANT: those of one number are one explanation; rank -1 = every rank that has none of its own */
};

/* Parts that a dimension lies in: SF_CUT_QKV or SF_CUT_GATE_UP, else nothing is known of it. */
struct sf_view_fused {
  enum sf_cut rows, cols;
  int64_t heads, kv_heads, head_dim; /* of queries, keys and values */
};

/* Everything here is borrowed. */
struct sf_tensor_view {
  enum sf_kind kind;
  bool is_norm;          /* of one element: squares are compared, which add up, and terms are given as squares */
  struct sf_shape shape; /* a row lies along the last dimension; a vector is one row */
  enum sf_dtype promised;
  const float *x;                     /* what the logical tensor should be */
  double noise;                       /* of the whole tensor, > 0 */
  const double *row_noise;            /* NULL, or a level for each row, which a prediction has to keep too */
  const struct sf_view_shard *shards; /* nothing in them is a summand unless it is a mistake */
  int32_t shard_count;
  const struct sf_view_group *groups; /* small ones before those that contain them; of those that join the same shards the first counts */
  int32_t group_count;
  const char *tp_name;              /* of the axis that cuts tensors, "tp" or "etp" */
  int64_t tp_size, row_parts;       /* 1: not known; row_parts: of rows that are gathered */
  const struct sf_view_size *sizes; /* by tier */
  int32_t size_count;
  int64_t data_ranks, microbatches; /* ranks that share the step's microbatches, and microbatches of each; 1: not known */
  struct sf_view_fused fused;
  const char *part_name; /* NULL, or what equal parts of rows or columns are: "heads", "experts" */
  bool parts_of_rows;
  int64_t part_size; /* rows or columns of each */
  const struct sf_diagnosis_related *related;
  int32_t related_count;
};

/* Whether two diagnoses are of one mistake. False where one says nothing. */
bool sf_diagnosis_says_the_same(const struct sf_diagnosis *a, const struct sf_diagnosis *b);
/* Whether a diagnosis says why a tensor is wrong: not only where, or by how much. */
bool sf_diagnosis_says_why(const struct sf_diagnosis *diagnosis);

/* What an element of the row may be off by. numbers.c. */
double sf_view_allowed(const struct sf_tensor_view *view, int64_t row);
/* The numbers of a view. SF_ENOMEM. numbers.c. */
enum sf_status sf_numbers_of(struct sf_numbers *out, const struct sf_tensor_view *view) SF_MUST_USE;

/* Tries every explanation, puts the best into words, and fills the numbers. SF_ENOMEM. */
enum sf_status sf_diagnose(struct sf_diagnosis *out, const struct sf_tensor_view *view) SF_MUST_USE;

#endif
