/* Explanations by sums: over ranks (left out, or done once too often), and over microbatches and uses of a parameter. */
#include "oracles/diagnose/diagnose_fit.h"

#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- over ranks ------------------------------------------------------------------------------------------------ */

struct group_sum {
  unsigned axes;
  double factor; /* the sum is so many times the reference */
};

/* logical[e] += local[e] over the elements of a map. */
static void add_to_logical(float *logical, const float *local, int64_t logical_cols, const struct sf_shard_map *map) {
  for (int32_t i = 0; i < map->rows.count; i++) {
    for (int64_t row = map->rows.runs[i].start; row < map->rows.runs[i].start + map->rows.runs[i].len; row++) {
      for (int32_t j = 0; j < map->cols.count; j++) {
        const struct sf_run run = map->cols.runs[j];
        float *out = logical + row * logical_cols + run.start;
        for (int64_t k = 0; k < run.len; k++) out[k] += local[k];
        local += run.len;
      }
    }
  }
}

/* What the ranks of shard i's group along the axes hold together of its elements. */
static void group_total(struct sf_fit *fit, int32_t i, unsigned axes, float *local) {
  const struct sf_diagnosis_problem *p = fit->p;
  const struct sf_shape shape = p->spec.shape;
  memset(fit->logical, 0, (size_t)(shape.rows * shape.cols) * sizeof *fit->logical);
  for (int32_t j = 0; j < p->shard_count; j++)
    if (sf_fit_same_group(fit, i, j, axes)) add_to_logical(fit->logical, p->shards[j].data, shape.cols, &p->shards[j].map);
  sf_shard_gather(local, fit->logical, shape, &p->shards[i].map);
}

/* The sum over the group should be factor times the reference: what is off in it is taken for this rank's error. */
static void predict_partial(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct group_sum *sum = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  group_total(fit, i, sum->axes, local);
  for (int64_t k = 0; k < s->rows * s->cols; k++) {
    const double off = (double)local[k] / sum->factor - (double)s->x[k];
    local[k] = (float)((double)s->shard->data[k] - off);
  }
}

/* <sum, x> / <x, x> over all shards. */
static double factor_of_sum(struct sf_fit *fit, unsigned axes) {
  double dot = 0, squares = 0;
  for (int32_t i = 0; i < fit->p->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    group_total(fit, i, axes, fit->predicted);
    for (int64_t k = 0; k < s->rows * s->cols; k++) dot += (double)fit->predicted[k] * (double)s->x[k];
    squares += sf_sum_squares(s->x, s->rows * s->cols);
  }
  return squares > 0 ? dot / squares : 1;
}

static int32_t group_size(const struct sf_fit *fit, int32_t i, unsigned axes) {
  int32_t size = 0;
  for (int32_t j = 0; j < fit->p->shard_count; j++) size += sf_fit_same_group(fit, i, j, axes);
  return size;
}

/* One rank to quote: the first whose own value is wrong. */
static int32_t first_wrong_rank(const struct sf_fit *fit) {
  for (int32_t i = 0; i < fit->p->shard_count; i++)
    if (sf_fit_left_of(fit, i, fit->shards[i].x) > 0.5 * fit->baseline) return fit->p->shards[i].rank;
  return fit->p->shards[0].rank;
}

static void explain_partial(struct sf_fit *fit, unsigned axes) {
  char text[32], by[200];
  sf_axes_text(text, sizeof text, fit, axes);
  struct group_sum sum = {axes, 1};
  const double left = sf_fit_left(fit, predict_partial, &sum);
  sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, left,
               "rank %d holds a partial sum over %s: the shards summed over %s give the reference: a missing all-reduce",
               first_wrong_rank(fit), text, text);
  if (sf_fit_accepts(fit, left)) return;
  sum.factor = factor_of_sum(fit, axes);
  if (!(fabs(sum.factor) > 0) || !sf_factor_text(by, sizeof by, fit->p, sum.factor, 3 * fit->p->noise / fit->norm)) return;
  sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, sf_fit_left(fit, predict_partial, &sum),
               "rank %d holds a part of a sum over %s: the shards summed over %s give the reference times %s: not reduced over %s",
               first_wrong_rank(fit), text, text, by, text);
}

/* Every rank of the group holds what all of them should hold, added up position by position. */
static void predict_summed(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const unsigned axes = *(const unsigned *)ctx;
  const int64_t count = fit->shards[i].rows * fit->shards[i].cols;
  memset(local, 0, (size_t)count * sizeof *local);
  for (int32_t j = 0; j < fit->p->shard_count; j++) {
    const struct sf_fit_shard *other = &fit->shards[j];
    if (!sf_fit_same_group(fit, i, j, axes) || other->rows * other->cols != count) continue;
    for (int64_t k = 0; k < count; k++) local[k] += other->x[k];
  }
}

/* A gradient of the step that is too large by the size of a data-parallel axis is a matter of its normaliser: a scale. Not where the
 * ranks hold different parts. */
static bool is_normalised_over(const struct sf_fit *fit, unsigned axes) {
  if (fit->p->id.kind != SF_KIND_MAIN_GRAD || (axes & ~(1u << SF_AXIS_TP)) == 0) return false;
  for (int32_t i = 0; i < fit->p->shard_count; i++)
    for (int32_t j = 0; j < i; j++)
      if (sf_fit_same_group(fit, i, j, axes) && !sf_shard_map_equal(&fit->p->shards[i].map, &fit->p->shards[j].map)) return false;
  return true;
}

static void explain_summed(struct sf_fit *fit, unsigned axes) {
  char text[32];
  if (is_normalised_over(fit, axes)) return;
  sf_axes_text(text, sizeof text, fit, axes);
  sf_fit_offer(fit, SF_DIAGNOSIS_EXTRA_REDUCTION, sf_fit_left(fit, predict_summed, &axes),
               "the values are the sum over %s of what the %d ranks should hold each: summed over %s once too often", text,
               group_size(fit, 0, axes), text);
}

/* Related values for one rank each: what it has before the ranks' values are summed. */
static void predict_own_summand(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  (void)ctx;
  const struct sf_diagnosis_problem *p = fit->p;
  memset(local, 0, (size_t)(fit->shards[i].rows * fit->shards[i].cols) * sizeof *local);
  for (int32_t k = 0; k < p->related_count; k++) {
    const struct sf_diagnosis_related *r = &p->related[k];
    if (r->relation == SF_RELATED_RANK_SUMMAND && r->call == p->shards[i].at.at[SF_AXIS_TP])
      sf_shard_gather(local, r->x, p->spec.shape, &p->shards[i].map);
  }
}

static bool has_related(const struct sf_fit *fit, enum sf_relation relation) {
  for (int32_t k = 0; k < fit->p->related_count; k++)
    if (fit->p->related[k].relation == relation) return true;
  return false;
}

void sf_explain_sums(struct sf_fit *fit) {
  if (fit->p->id.kind == SF_KIND_PARAM) return; /* weights are no sums: zeros beside them are not a summand */
  for (unsigned axes = 1; axes <= SF_AXES_ALL; axes++) {
    bool divides = fit->p->shard_count > 0, repeated = false;
    for (unsigned axis = 0; axis < SF_AXIS_COUNT; axis++) { /* every axis of the mask must join shards that nothing else joins */
      const bool grows = group_size(fit, 0, axes) > group_size(fit, 0, axes & ~(1u << axis));
      if (axes >> axis & 1u && !grows) divides = false;
    }
    for (int32_t i = 1; i < fit->p->shard_count; i++) repeated |= sf_fit_same_group(fit, 0, i, axes);
    if (!divides || !repeated) continue;
    if (fit->replicas_differ) explain_partial(fit, axes); /* a factor on every replica is a scale */
    explain_summed(fit, axes);
  }
  if (!has_related(fit, SF_RELATED_RANK_SUMMAND)) return;
  sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, sf_fit_left(fit, predict_own_summand, NULL),
               "rank %d holds the product of its own slice of the contraction alone, a partial sum over tp: a missing reduction",
               first_wrong_rank(fit));
}

/* --- over microbatches and uses -------------------------------------------------------------------------------- */

/* Which of the summands a rank has added up. */
struct selection {
  int64_t dp;
  bool own;          /* those of its own data-parallel rank */
  int32_t first, last; /* of the microbatches of a data-parallel rank, by their number there; last -1 = to the end */
  int32_t call;      /* -1 = all uses */
  int32_t left_out;  /* microbatch, -1 = none */
};

static bool selects(const struct selection *s, const struct sf_diagnosis_related *r, int32_t dp_index) {
  const int64_t local = r->microbatch / s->dp;
  if (s->own && r->microbatch % s->dp != dp_index) return false;
  if (local < s->first || (s->last >= 0 && local > s->last)) return false;
  if (s->left_out >= 0 && r->microbatch == s->left_out) return false;
  return s->call < 0 || r->call == s->call;
}

static void predict_selected(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct selection *selection = ctx;
  const struct sf_diagnosis_problem *p = fit->p;
  const int64_t count = p->spec.shape.rows * p->spec.shape.cols;
  memset(fit->logical, 0, (size_t)count * sizeof *fit->logical);
  for (int32_t k = 0; k < p->related_count; k++) {
    const struct sf_diagnosis_related *r = &p->related[k];
    if (r->relation != SF_RELATED_SUMMAND || !selects(selection, r, p->shards[i].at.at[SF_AXIS_DP])) continue;
    for (int64_t e = 0; e < count; e++) fit->logical[e] += (float)(r->weight * (double)r->x[e]);
  }
  sf_shard_gather(local, fit->logical, p->spec.shape, &p->shards[i].map);
}

static void explain_own_data(struct sf_fit *fit, const struct selection *all) {
  struct selection s = *all;
  s.own = true;
  sf_fit_offer(fit, SF_DIAGNOSIS_UNSYNCHRONISED, sf_fit_left(fit, predict_selected, &s),
               "replicas are not synchronised over dp: each holds the gradient of its own data alone");
}

static void explain_some_microbatches(struct sf_fit *fit, const struct selection *all, int32_t local_count) {
  struct selection s = *all;
  s.last = 0;
  sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, sf_fit_left(fit, predict_selected, &s),
               "the sum over microbatches has only the first of the %d of each rank", local_count);
  s = *all;
  s.first = local_count - 1;
  sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, sf_fit_left(fit, predict_selected, &s),
               "the sum over microbatches has only the last of the %d of each rank", local_count);
  s = *all;
  s.last = local_count - 2;
  sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, sf_fit_left(fit, predict_selected, &s),
               "the sum over microbatches lacks the last of the %d of each rank", local_count);
  for (int32_t m = 0; m < local_count * (int32_t)all->dp; m++) {
    s = *all;
    s.left_out = m;
    sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, sf_fit_left(fit, predict_selected, &s),
                 "the sum over microbatches lacks microbatch %d", m);
  }
}

/* Reduced before the last microbatches were there, whose gradients each rank of the axes has added for itself. */
struct late {
  struct selection early; /* what was reduced */
  unsigned axes;
};

/* The group's sum has what was reduced as often as it has ranks, and the rest once: what is off in it is taken for this rank's error. */
static void predict_late(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct late *late = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  const int64_t count = s->rows * s->cols;
  const double repeated = group_size(fit, i, late->axes) - 1;
  float *total = sf_arena_alloc(fit->arena, (size_t)count * sizeof *total);
  if (total == NULL) {
    fit->status = SF_ENOMEM;
    return;
  }
  predict_selected(fit, i, local, &late->early);
  group_total(fit, i, late->axes, total);
  for (int64_t k = 0; k < count; k++) {
    const double off = (double)total[k] - repeated * (double)local[k] - (double)s->x[k];
    local[k] = (float)((double)s->shard->data[k] - off);
  }
}

static void explain_late(struct sf_fit *fit, const struct selection *all, int32_t local_count) {
  static const unsigned masks[] = {SF_AXES(SF_AXIS_DP), SF_AXES(SF_AXIS_CP), SF_AXES(SF_AXIS_CP) | SF_AXES(SF_AXIS_DP)};
  for (int32_t first_late = 1; first_late < local_count && fit->replicas_differ; first_late++)
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
      char text[32];
      struct late late = {*all, masks[m]};
      if (group_size(fit, 0, masks[m]) == 1) continue;
      late.early.last = first_late - 1;
      sf_axes_text(text, sizeof text, fit, masks[m]);
      sf_fit_offer(
          fit, SF_DIAGNOSIS_UNSYNCHRONISED, sf_fit_left(fit, predict_late, &late),
          "replicas are not synchronised over %s: reduced before the last %d of a rank's %d microbatches, which each has added for itself",
          text, local_count - first_late, local_count);
    }
}

void sf_explain_microbatches(struct sf_fit *fit) {
  const struct sf_diagnosis_problem *p = fit->p;
  if (!has_related(fit, SF_RELATED_SUMMAND)) return;
  const struct selection all = {.dp = p->c->layout.dp, .last = -1, .call = -1, .left_out = -1};
  const int32_t local_count = (int32_t)(p->c->train.microbatches / p->c->layout.dp);
  if (p->c->layout.dp > 1) explain_own_data(fit, &all);
  if (local_count > 1) explain_some_microbatches(fit, &all, local_count);
  explain_late(fit, &all, local_count);
  for (int32_t call = 0; call < 2; call++) {
    struct selection s = all;
    s.call = call;
    sf_fit_offer(fit, SF_DIAGNOSIS_MISSING_REDUCTION, sf_fit_left(fit, predict_selected, &s),
                 "the tied weight has the gradient of its use as %s alone: not summed over its two uses",
                 call == 0 ? "embedding" : "output layer");
  }
}
