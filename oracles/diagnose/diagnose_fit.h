/* Inside the diagnosis: shards beside what they should be, and explanations offered with what each leaves. */
#ifndef SF_ORACLES_DIAGNOSE_FIT_H
#define SF_ORACLES_DIAGNOSE_FIT_H

#include "oracles/diagnose/view.h"

struct sf_fit_shard {
  const struct sf_view_shard *shard;
  int64_t rows, cols;
  float *x;      /* what it should hold */
  int32_t place; /* the first shard that holds the same elements in the same order */
};

struct sf_fit {
  const struct sf_tensor_view *v;
  struct sf_arena *arena;
  enum sf_status status;
  struct sf_fit_shard *shards;
  int64_t local_max;                 /* elements of the largest shard */
  float *predicted;                  /* scratch: local_max */
  float *term;                       /* scratch: local_max */
  float *logical;                    /* scratch: the whole tensor */
  double norm, baseline;             /* of x; left without any explanation */
  bool is_inside;                    /* of a part of a tensor alone */
  bool replicas_differ;              /* two shards hold different values of one element */
  struct sf_diagnosis best, nearest; /* best: of what fits; nearest: what leaves least of all that was tried */
};

/* Fills `local` with what shard i would hold. */
typedef void (*sf_fit_predict)(struct sf_fit *fit, int32_t i, float *local, const void *ctx);
/* Largest error of a shard against its prediction, in noise levels (by tensor, and by row where rows have levels); infinite for NaN. */
double sf_fit_left(struct sf_fit *fit, sf_fit_predict predict, const void *ctx);
/* The same for one shard and given values. */
double sf_fit_left_of(const struct sf_fit *fit, int32_t i, const float *predicted);
/* One rank to quote: the first whose own value is wrong. */
int32_t sf_fit_wrong_rank(const struct sf_fit *fit);
/* Whether an explanation that leaves so much of the error is good enough. */
bool sf_fit_accepts(const struct sf_fit *fit, double left);
/* What went wrong: becomes the cause of a diagnosis, "partial sum: tp". */
struct sf_cause {
  enum sf_diagnosis_class cls;
  const char *what; /* NULL: not known */
  const char *of;   /* NULL, or the group, term, factor .. that the mistake is about */
};
/* Keeps an explanation in fit->best if it counts and is better than the one there, in fit->nearest if none left less. format: its text. */
void sf_fit_offer(struct sf_fit *fit, struct sf_cause cause, double left, const char *format, ...) SF_PRINTF(4, 5);
/* Whether what is left of the error is as small as rounding. */
bool sf_fit_is_exact(double left);
/* NULL marks the fit as out of memory. */
void *sf_fit_alloc(struct sf_fit *fit, size_t size_bytes);

/* How many of count numbers are not zero. */
int64_t sf_fit_count_nonzero(const float *x, int64_t count);
/* An sf_fit_predict of a struct sf_diagnosis_related: each rank has the right value or this one; the nearer one. NULL: zeros. */
void sf_fit_predict_stale(struct sf_fit *fit, int32_t i, float *local, const void *related);
/* Whether the group joins two shards. */
bool sf_fit_same_group(const struct sf_fit *fit, const struct sf_view_group *group, int32_t i, int32_t j);
/* Shard i's elements of the logical tensor. */
void sf_fit_gather(const struct sf_fit *fit, int32_t i, float *local, const float *logical);
/* The same of a term, which may be one row for all. */
void sf_fit_gather_term(struct sf_fit *fit, int32_t i, float *local, const struct sf_diagnosis_related *term);
struct sf_factor {
  char text[200];    /* "2 = tp or dp": every size of the view that the factor may be; else the number */
  const char *cause; /* the same without the number; NULL: it is neither a size nor a simple number */
  char names[160];   /* "tp or dp"; "" */
};
/* Names a factor. accuracy: relative. diagnose_factor.c. */
void sf_factor_name(struct sf_factor *out, const struct sf_tensor_view *view, double factor, double accuracy);

/* Puts the best explanation of fit->v into fit->best. v, arena, status and is_inside are set, all else is zero. */
void sf_fit_explain(struct sf_fit *fit);

/* The explanations. */
void sf_explain_sums(struct sf_fit *fit);         /* diagnose_sums.c: partial and repeated sums over ranks */
void sf_explain_microbatches(struct sf_fit *fit); /* diagnose_sums.c: sums over microbatches and uses */
void sf_explain_values(struct sf_fit *fit);       /* diagnose_values.c: scale, terms, stale values, precision */
void sf_explain_places(struct sf_fit *fit);       /* diagnose_places.c: pieces, rows, order of fused parts */
void sf_explain_part(struct sf_fit *fit);         /* diagnose_part.c: where it is wrong */
void sf_explain_own_scales(struct sf_fit *fit);   /* diagnose_shares.c: a factor for each rank */
void sf_explain_supposed(struct sf_fit *fit);     /* diagnose_shares.c: what the reference makes with a supposed mistake */
void sf_explain_inside(struct sf_fit *fit);       /* diagnose_inside.c: wrong rows and columns by themselves; last */

#endif
