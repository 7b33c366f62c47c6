/* Template: the state of a run of the reference, and its memory. */
#ifndef SF_ORACLES_REFERENCE_RUN_H
#define SF_ORACLES_REFERENCE_RUN_H

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "oracles/reference/reference_acts.h"

#include <string.h>

struct param_state {
  real *master, *weight;               /* weight = round(master); the same array when nothing is rounded */
  real *main_grad, *moment1, *moment2; /* NULL when frozen; moments NULL in a run of one step, where they start from zero */
};

/* One operand of one linear layer: the largest sizes that it has had. */
struct fp8_cast {
  float amax;                        /* of the step so far */
  float history[SF_FP8_HISTORY_MAX]; /* of earlier steps, the last one first */
  int32_t count;                     /* of those that count */
};

/* How sums are taken and numbers moved; see enum sf_perturb. */
struct noise {
  const struct sf_reference_options *options;
  uint64_t sum_count;           /* microbatch and sums so far in it: tells the splits of E5 apart */
  real *part, *part_a, *part_b; /* E5: a part of a split product and of its two factors; E3: part_b, a factor, moved; SIZES: both factors */
  int32_t *order;               /* E5 only: the indices of a split sum, shuffled */
  real *sizes;                  /* E5 only: of the terms of a product */
};

/* fp8 only. */
struct fp8_state {
  struct fp8_cast *casts;      /* [modules][operands] */
  real *input, *grad, *weight; /* operands as they are multiplied */
};

/* Of the steps. */
struct step_state {
  double loss_sum;                   /* of the step, before normalisation by its tokens */
  double loss_scale;                 /* 1 without scaling */
  int64_t good_steps, steps_applied; /* without overflow: since the scale last changed, in all */
};

/* What the caller looks at (reference_wanted.h); unused when it looks at all. */
struct wanted_set {
  uint64_t *keys, mask;   /* open addressing: keys + 1 of trace points; 0: free */
  uint8_t *of_microbatch; /* [steps x microbatches] WANTS_FORWARD, WANTS_BACKWARD */
  struct {
    bool main_grads, more;
  } * of_step;                            /* [steps + 1] some main gradient; something else of the step's end */
  int64_t last_microbatch, last_step_end; /* the last that anything is wanted of; -1: none */
};

struct run {
  const struct sf_catalog *catalog;
  const struct sf_case *c;
  const struct sf_reference_options *options;
  const struct sf_reference_sink *sink;
  const struct sf_reference_nudge *nudge;
  struct sf_arena *arena;
  bool out_of_memory;
  enum sf_dtype format;        /* of stored tensors */
  enum sf_dtype stream_format; /* of the residual stream and its gradients */
  uint16_t step, microbatch;
  int64_t tokens, memory_rows, hidden, qkv_width, context_width;
  struct param_state *params;
  struct step_state state;
  struct model_acts acts;
  struct scratch scratch;
  struct attention_scratch attention;
  struct latent_scratch latent;
  struct cross_scratch cross;
  struct moe_scratch moe;
  struct fp8_state fp8;
  struct noise noise;
  struct wanted_set wanted;
};

/* Memory of the run for `count` objects of `bytes` each; NULL once it is out. */
static inline void *take_all(struct run *run, int64_t count, size_t bytes) {
  void *memory = sf_arena_alloc(run->arena, (size_t)count * bytes);
  run->out_of_memory = run->out_of_memory || memory == NULL;
  return memory;
}
static inline real *take(struct run *run, int64_t count) { return take_all(run, count, sizeof(real)); }               /* count numbers */
static inline int32_t *take_indices(struct run *run, int64_t count) { return take_all(run, count, sizeof(int32_t)); } /* count indices */

/* --- storing and tracing ---------------------------------------------------------------------------------------- */

/* Rounds to the format; not in the build in double, which stores nothing in less. */
static inline void round_to(real *values, int64_t count, enum sf_dtype format) {
#ifdef SF_REFERENCE_DOUBLE
  (void)values, (void)count, (void)format;
#else
  sf_round_array(values, count, format);
#endif
}

#endif
