/* Diagnosis: which simple mistake explains the error of one tensor. Every explanation predicts what the ranks would hold had it happened;
 * what is left of the error after the prediction, in noise levels, ranks them. It words a finding for people and is part of neither shrink
 * key nor signature. */
#ifndef SF_ORACLES_DIAGNOSE_H
#define SF_ORACLES_DIAGNOSE_H

#include "harness/spec/mesh.h"
#include "oracles/judge/judge.h"

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
  X(REPEATED_TERM, "repeated_term", "a term of the sum is added several times")                                                            \
  X(SCALE, "scale", "a constant factor")                                                                                                   \
  X(LOW_PRECISION, "low_precision", "rounded to fewer bits than promised")                                                                 \
  X(PART, "part", "wrong in some rows, columns or ranks, right in all others")                                                             \
  X(EARLIER, "earlier", "before communication failed, a tensor was wrong already")
enum sf_diagnosis_class {
#define X(name, text, meaning) SF_DIAGNOSIS_##name,
  SF_DIAGNOSIS_MAP(X)
#undef X
      SF_DIAGNOSIS_COUNT
};
const char *sf_diagnosis_class_name(enum sf_diagnosis_class cls);

struct sf_diagnosis {
  enum sf_diagnosis_class cls;
  double left;     /* of the error, in noise levels; of all of it when nothing fits */
  char text[320];  /* one sentence; "" = there is no diagnosis */
};

/* Axes that a tensor's ranks are spread over: tp, cp, dp; etp, ep, edp; pp, for what several pipeline stages hold or sum. */
enum { SF_MESH_DENSE = 1, SF_MESH_EXPERTS = 2, SF_MESH_STAGES = 4 };

/* What one rank handed over. data: as the map says; borrowed. */
struct sf_diagnosis_shard {
  int32_t rank;
  struct sf_coord at;
  struct sf_shard_map map;
  const float *data;
};

/* Another tensor that an explanation may need; x has the problem's shape (a TERM may be one row, which stands for every row). */
enum sf_relation {
  SF_RELATED_STALE,   /* what might stand there in place of the right value */
  SF_RELATED_SUMMAND, /* one of the tensors whose weighted sum is the reference: of one microbatch and one use (call) */
  SF_RELATED_TERM,    /* something that the module adds */
  SF_RELATED_RANK_SUMMAND, /* what the tp rank `call` alone contributes to a sum over tp */
  SF_RELATED_VARIANT, /* what rank `rank` would hold had it made the mistake number `variant`, computed from what the module reads */
};
struct sf_diagnosis_related {
  enum sf_relation relation;
  enum sf_diagnosis_class cls; /* STALE: which class it means (STALE or SHIFTED); VARIANT: what the mistake is */
  char name[128];              /* VARIANT: the whole sentence */
  struct sf_shape shape;
  const float *x;
  double weight;               /* SUMMAND */
  int32_t microbatch, call;    /* SUMMAND; RANK_SUMMAND: call = tp index */
  int32_t variant, rank;       /* VARIANT: those of one number are one explanation; rank -1 = every rank that has none of its own */
};

/* Everything here is borrowed. */
struct sf_diagnosis_problem {
  const struct sf_case *c;
  struct sf_trace_id id;
  struct sf_trace_spec spec;
  const float *x;           /* what the logical tensor should be */
  double noise;             /* of the whole tensor, > 0 */
  const double *row_noise;  /* NULL, or a level for each row, which a prediction has to keep too */
  const struct sf_diagnosis_shard *shards; /* maps fit the shape, nothing in them is partial */
  int32_t shard_count;
  unsigned meshes;          /* SF_MESH_*: those of the module, for naming factors */
  bool on_expert_mesh;      /* coordinates of shards are on the expert mesh: TP etp, EP ep, DP edp, CP 0 */
  bool of_attention;        /* one of the modules round the scores */
  double kept;              /* tokens that the microbatch's mask keeps; 0: not known */
  const struct sf_diagnosis_related *related;
  int32_t related_count;
};

/* Tries every explanation and words the best. SF_ENOMEM. */
enum sf_status sf_diagnose(struct sf_diagnosis *out, const struct sf_diagnosis_problem *problem) SF_MUST_USE;

/* The problem of a finding that the collector's last judgement made, from the shards of its tensor as they arrived (their maps as declared:
 * partial ones are merged first). Leaves out->text empty where nothing can be said: no shards, a tensor that the reference lacks.
 * SF_ENOMEM. */
enum sf_status sf_diagnose_finding(struct sf_diagnosis *out, const struct sf_collector *collector, const struct sf_finding *finding,
                                   const struct sf_diagnosis_shard *shards, int32_t shard_count) SF_MUST_USE;

#endif
