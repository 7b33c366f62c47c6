/* Inside the diagnosis: shards beside what they should be, and explanations offered with what each leaves. */
#ifndef SF_ORACLES_DIAGNOSE_FIT_H
#define SF_ORACLES_DIAGNOSE_FIT_H

#include "harness/base/alloc.h"
#include "oracles/diagnose/diagnose.h"

struct sf_fit_shard {
  const struct sf_diagnosis_shard *shard;
  int64_t rows, cols;
  float *x; /* what it should hold */
};

struct sf_fit {
  const struct sf_diagnosis_problem *p;
  struct sf_arena *arena;
  enum sf_status status;
  struct sf_fit_shard *shards;
  int64_t local_max;      /* elements of the largest shard */
  float *predicted;       /* scratch: local_max */
  float *logical;         /* scratch: the whole tensor */
  double norm, baseline;  /* of x; left without any explanation */
  bool replicas_differ;   /* two shards hold different values of one element */
  struct sf_diagnosis best, nearest; /* best: of what fits; nearest: what leaves least of all that was tried */
};

/* Fills `local` with what shard i would hold. */
typedef void (*sf_fit_predict)(struct sf_fit *fit, int32_t i, float *local, const void *ctx);
/* Largest error of a shard against its prediction, in noise levels (by tensor, and by row where rows have levels); infinite for NaN. */
double sf_fit_left(struct sf_fit *fit, sf_fit_predict predict, const void *ctx);
/* The same for one shard against given values. */
double sf_fit_left_of(const struct sf_fit *fit, int32_t i, const float *predicted);
/* Whether an explanation that leaves so much counts. */
bool sf_fit_accepts(const struct sf_fit *fit, double left);
void sf_fit_offer(struct sf_fit *fit, enum sf_diagnosis_class cls, double left, const char *format, ...) SF_PRINTF(4, 5);
/* NULL marks the fit as out of memory. */
void *sf_fit_alloc(struct sf_fit *fit, size_t size_bytes);

/* Shards whose ranks differ from shard i's on the axes of the mask alone; their number is at least 1. */
bool sf_fit_same_group(const struct sf_fit *fit, int32_t i, int32_t j, unsigned axes);
/* "tp", "tp x dp"; of experts "etp", "ep x edp". */
void sf_axes_text(char *out, size_t out_size, const struct sf_fit *fit, unsigned axes);
/* "3, 5, 7 and 2 more" of the marked indices. */
void sf_marked_text(char *out, size_t out_size, const bool *marked, int64_t count);

/* A factor in words, "2 = tp or dp": every size of the case that it may be, of the axes that the tensor is parallel or replicated along;
 * else a ratio, or the number. accuracy: relative. True when a size or a ratio was found, or the number is as simple. diagnose_factor.c. */
bool sf_factor_text(char *out, size_t out_size, const struct sf_diagnosis_problem *p, double factor, double accuracy);

/* The explanations. */
void sf_explain_sums(struct sf_fit *fit);        /* diagnose_sums.c: partial and repeated sums over ranks */
void sf_explain_microbatches(struct sf_fit *fit);/* diagnose_sums.c: sums over microbatches and uses */
void sf_explain_values(struct sf_fit *fit);      /* diagnose_values.c: scale, terms, stale values, precision */
void sf_explain_places(struct sf_fit *fit);      /* diagnose_places.c: pieces, rows, order of fused parts */
void sf_explain_part(struct sf_fit *fit);        /* diagnose_part.c: where it is wrong */

#endif
