/* Explanations by sums: over ranks (left out, or done once too often), and over microbatches and uses of a parameter. */
#include "oracles/diagnose/diagnose_fit.h"

#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- over ranks ------------------------------------------------------------------------------------------------ */

struct group_sum {
  const struct sf_view_group *group;
  double factor;                           /* the sum is this many times the reference .. */
  const struct sf_diagnosis_related *term; /* .. plus this many times the term; NULL: no term */
  double times;
};

bool sf_fit_same_group(const struct sf_fit *fit, const struct sf_view_group *group, int32_t i, int32_t j) {
  const struct sf_view_shard *shards = fit->v->shards;
  return group->of_rank == NULL || group->of_rank[shards[i].rank] == group->of_rank[shards[j].rank];
}

/* Whether the group joins the first shard with another, and no earlier group joins the same shards. */
static bool is_new_group(const struct sf_fit *fit, const struct sf_view_group *group) {
  const int32_t count = fit->v->shard_count;
  bool is_new = false;
  for (int32_t i = 1; i < count; i++) is_new |= sf_fit_same_group(fit, group, 0, i);
  for (const struct sf_view_group *earlier = fit->v->groups; earlier < group && is_new; earlier++) {
    is_new = false;
    for (int32_t i = 0; i < count * count && !is_new; i++)
      is_new = sf_fit_same_group(fit, earlier, i / count, i % count) != sf_fit_same_group(fit, group, i / count, i % count);
  }
  return is_new;
}

/* The sum over shard i's group, at the shard's elements. */
static void group_total(struct sf_fit *fit, int32_t i, const struct sf_view_group *group, float *local) {
  const struct sf_tensor_view *v = fit->v;
  const struct sf_shape shape = v->shape;
  memset(fit->logical, 0, (size_t)(shape.rows * shape.cols) * sizeof *fit->logical);
  for (int32_t j = 0; j < v->shard_count; j++)
    for (int64_t k = 0; sf_fit_same_group(fit, group, i, j) && k < v->shards[j].count; k++)
      fit->logical[v->shards[j].at[k]] += v->shards[j].data[k];
  sf_fit_gather(fit, i, local, fit->logical);
}

/* The sum over the group should be factor times the reference; its difference from that counts as this rank's error. */
static void predict_partial(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct group_sum *sum = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  group_total(fit, i, sum->group, local);
  if (sum->term != NULL) sf_fit_gather_term(fit, i, fit->term, sum->term);
  for (int64_t k = 0; k < s->rows * s->cols; k++) {
    const double more = sum->term != NULL ? sum->times * (double)fit->term[k] : 0;
    const double off = ((double)local[k] - more) / sum->factor - (double)s->x[k];
    local[k] = (float)((double)s->shard->data[k] - off);
  }
}

/* <sum, x> / <x, x> over all shards. */
static double factor_of_sum(struct sf_fit *fit, const struct sf_view_group *group) {
  double dot = 0, squares = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    group_total(fit, i, group, fit->predicted);
    for (int64_t k = 0; k < s->rows * s->cols; k++) dot += (double)fit->predicted[k] * (double)s->x[k];
    squares += sf_sum_squares(s->x, s->rows * s->cols);
  }
  return squares > 0 ? dot / squares : 1;
}

static int32_t group_size(const struct sf_fit *fit, int32_t i, const struct sf_view_group *group) {
  int32_t size = 0;
  for (int32_t j = 0; j < fit->v->shard_count; j++) size += sf_fit_same_group(fit, group, i, j);
  return size;
}

/* <sum - x, term> / <term, term> over all shards, as a whole number. */
static double times_in_sum(struct sf_fit *fit, const struct sf_view_group *group, const struct sf_diagnosis_related *term) {
  double dot = 0, squares = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    group_total(fit, i, group, fit->predicted);
    sf_fit_gather_term(fit, i, fit->term, term);
    for (int64_t k = 0; k < s->rows * s->cols; k++) dot += ((double)fit->predicted[k] - (double)s->x[k]) * (double)fit->term[k];
    squares += sf_sum_squares(fit->term, s->rows * s->cols);
  }
  return squares > 0 ? round(dot / squares) : 0;
}

/* For ranks that did not reduce a sum to which each has added a term. */
static void explain_partial_with_terms(struct sf_fit *fit, const struct sf_view_group *group) {
  for (int32_t k = 0; k < fit->v->related_count; k++) {
    const struct sf_diagnosis_related *r = &fit->v->related[k];
    const double times = r->relation == SF_RELATED_TERM ? times_in_sum(fit, group, r) : 0;
    const struct group_sum sum = {group, 1, r, times};
    if (times < 1 || times >= fit->v->shard_count) continue;
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "partial sum", group->name},
                 sf_fit_left(fit, predict_partial, &sum),
                 "rank %d holds a partial sum over %s: the shards summed over %s give the reference and %.0f times %s, which each rank "
                 "adds: a missing all-reduce",
                 sf_fit_wrong_rank(fit), group->name, group->name, times, r->name);
  }
}

static void explain_partial(struct sf_fit *fit, const struct sf_view_group *group) {
  struct sf_factor by;
  const char *text = group->name;
  struct group_sum sum = {.group = group, .factor = 1};
  const double left = sf_fit_left(fit, predict_partial, &sum);
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "partial sum", text}, left,
               "rank %d holds a partial sum over %s: the shards summed over %s give the reference: a missing all-reduce",
               sf_fit_wrong_rank(fit), text, text);
  if (sf_fit_accepts(fit, left)) return;
  explain_partial_with_terms(fit, group);
  sum.factor = factor_of_sum(fit, group);
  if (!(fabs(sum.factor) > 0)) return;
  sf_factor_name(&by, fit->v, sum.factor, 3 * fit->v->noise / fit->norm);
  if (by.cause == NULL) return;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "part of a sum", text}, sf_fit_left(fit, predict_partial, &sum),
               "rank %d holds a part of a sum over %s: the shards summed over %s give the reference times %s: not reduced over %s",
               sf_fit_wrong_rank(fit), text, text, by.text, text);
}

/* For a sum that was reduced twice: adds what all ranks of the group should hold, element by element. */
static void predict_summed(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct sf_view_group *group = ctx;
  const int64_t count = fit->shards[i].rows * fit->shards[i].cols;
  memset(local, 0, (size_t)count * sizeof *local);
  for (int32_t j = 0; j < fit->v->shard_count; j++) {
    const struct sf_fit_shard *other = &fit->shards[j];
    if (!sf_fit_same_group(fit, group, i, j) || other->rows * other->cols != count) continue;
    for (int64_t k = 0; k < count; k++) local[k] += other->x[k];
  }
}

/* A main gradient that is too large by the size of a data-parallel axis has a wrong normaliser: its error is a scale. This does not hold if
 * the ranks hold different parts. */
static bool is_normalised_over(const struct sf_fit *fit, const struct sf_view_group *group) {
  if (fit->v->kind != SF_KIND_MAIN_GRAD || group->kind == SF_GROUP_TENSOR) return false;
  for (int32_t i = 0; i < fit->v->shard_count; i++)
    for (int32_t j = 0; j < i; j++)
      if (sf_fit_same_group(fit, group, i, j) && fit->shards[i].place != fit->shards[j].place) return false;
  return true;
}

/* Adds the different pieces of the group's ranks, each once, element by element. */
static void predict_mixed(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct sf_view_group *group = ctx;
  const int64_t count = fit->shards[i].rows * fit->shards[i].cols;
  memset(local, 0, (size_t)count * sizeof *local);
  for (int32_t j = 0; j < fit->v->shard_count; j++) {
    const struct sf_fit_shard *other = &fit->shards[j];
    bool is_new = sf_fit_same_group(fit, group, i, j) && other->rows * other->cols == count;
    for (int32_t k = 0; k < j && is_new; k++) is_new = !sf_fit_same_group(fit, group, i, k) || fit->shards[k].place != other->place;
    for (int64_t k = 0; k < count && is_new; k++) local[k] += other->x[k];
  }
}

static void explain_summed(struct sf_fit *fit, const struct sf_view_group *group) {
  if (is_normalised_over(fit, group)) return;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_EXTRA_REDUCTION, "summed once too often", group->name},
               sf_fit_left(fit, predict_summed, group),
               "the values are the sum over %s of what the %d ranks should hold each: summed over %s once too often", group->name,
               group_size(fit, 0, group), group->name);
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_EXTRA_REDUCTION, "different parts summed", group->name},
               sf_fit_left(fit, predict_mixed, group), "the values are the sum over %s of different parts, which belong to different ranks",
               group->name);
}

static bool has_related(const struct sf_fit *fit, enum sf_relation relation) {
  for (int32_t k = 0; k < fit->v->related_count; k++)
    if (fit->v->related[k].relation == relation) return true;
  return false;
}

void sf_explain_sums(struct sf_fit *fit) {
  if (fit->v->kind == SF_KIND_PARAM) return; /* weights are not sums: zeros beside them are not summands */
  for (int32_t g = 0; g < fit->v->group_count; g++) {
    if (!is_new_group(fit, &fit->v->groups[g])) continue;
    if (fit->replicas_differ) explain_partial(fit, &fit->v->groups[g]); /* a factor on all replicas is a scale */
    explain_summed(fit, &fit->v->groups[g]);
  }
}

/* --- over microbatches and uses -------------------------------------------------------------------------------- */

/* The summands that a rank has added. */
struct selection {
  bool own;            /* those of its own data-parallel rank */
  int32_t first, last; /* range of a data-parallel rank's microbatches, by their number there; last -1 = to the end */
  int32_t call;        /* the only use, -1 = all */
  int32_t left_out;    /* microbatch, -1 = none */
  int32_t other_than;  /* use that is left out, -1 = none */
};

static bool selects(const struct selection *s, const struct sf_diagnosis_related *r, int32_t dp_index) {
  if (s->own && r->dp != dp_index) return false;
  if (r->turn < s->first || (s->last >= 0 && r->turn > s->last)) return false;
  if (s->left_out >= 0 && r->microbatch == s->left_out) return false;
  if (s->other_than >= 0 && r->call == s->other_than) return false;
  return s->call < 0 || r->call == s->call;
}

static void predict_selected(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct selection *selection = ctx;
  const struct sf_tensor_view *v = fit->v;
  const int64_t count = v->shape.rows * v->shape.cols;
  memset(fit->logical, 0, (size_t)count * sizeof *fit->logical);
  for (int32_t k = 0; k < v->related_count; k++) {
    const struct sf_diagnosis_related *r = &v->related[k];
    if (r->relation != SF_RELATED_SUMMAND || !selects(selection, r, v->shards[i].dp)) continue;
    for (int64_t e = 0; e < count; e++) fit->logical[e] += (float)(r->weight * (double)r->x[e]);
  }
  sf_fit_gather(fit, i, local, fit->logical);
}

static void explain_own_data(struct sf_fit *fit, const struct selection *all) {
  struct selection s = *all;
  s.own = true;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_UNSYNCHRONISED, "not synchronised", "dp"}, sf_fit_left(fit, predict_selected, &s),
               "replicas are not synchronised over dp: each holds the gradient of its own data alone");
}

static void explain_some_microbatches(struct sf_fit *fit, const struct selection *all, int32_t local_count) {
  struct selection s = *all;
  s.last = 0;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "the first microbatch alone", NULL},
               sf_fit_left(fit, predict_selected, &s), "the sum over microbatches has only the first of the %d of each rank", local_count);
  s = *all;
  s.first = local_count - 1;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "the last microbatch alone", NULL},
               sf_fit_left(fit, predict_selected, &s), "the sum over microbatches has only the last of the %d of each rank", local_count);
  s = *all;
  s.last = local_count - 2;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "without the last microbatch", NULL},
               sf_fit_left(fit, predict_selected, &s), "the sum over microbatches lacks the last of the %d of each rank", local_count);
  for (int32_t m = 0; m < local_count * (int32_t)fit->v->data_ranks; m++) {
    s = *all;
    s.left_out = m;
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "without a microbatch", NULL},
                 sf_fit_left(fit, predict_selected, &s), "the sum over microbatches lacks microbatch %d", m);
  }
}

/* For a sum that was reduced before the last microbatches, whose gradients each rank of the group then added for itself. */
struct late {
  struct selection early; /* the summands that were reduced */
  const struct sf_view_group *group;
};

/* The group's sum contains the reduced part once for each rank, and the rest once; its difference from that counts as this rank's error. */
static void predict_late(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct late *late = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  const int64_t count = s->rows * s->cols;
  const double repeated = group_size(fit, i, late->group) - 1;
  float *total = sf_arena_alloc(fit->arena, (size_t)count * sizeof *total);
  if (total == NULL) {
    fit->status = SF_ENOMEM;
    return;
  }
  predict_selected(fit, i, local, &late->early);
  group_total(fit, i, late->group, total);
  for (int64_t k = 0; k < count; k++) {
    const double off = (double)total[k] - repeated * (double)local[k] - (double)s->x[k];
    local[k] = (float)((double)s->shard->data[k] - off);
  }
}

static void explain_late(struct sf_fit *fit, const struct selection *all, int32_t local_count) {
  for (int32_t first_late = 1; first_late < local_count && fit->replicas_differ; first_late++)
    for (int32_t g = 0; g < fit->v->group_count; g++) {
      struct late late = {*all, &fit->v->groups[g]};
      if (late.group->kind != SF_GROUP_DATA || !is_new_group(fit, late.group)) continue;
      late.early.last = first_late - 1;
      sf_fit_offer(
          fit, (struct sf_cause){SF_DIAGNOSIS_UNSYNCHRONISED, "not synchronised", late.group->name}, sf_fit_left(fit, predict_late, &late),
          "replicas are not synchronised over %s: reduced before the last %d of a rank's %d microbatches, which each has added for itself",
          late.group->name, local_count - first_late, local_count);
    }
}

/* --- weights of microbatches ------------------------------------------------------------------------------------- */

enum { SUMMANDS_MAX = 16, WEIGHTS_TEXT = 160 };

/* Every summand with a weight of its own. */
struct weighted {
  const struct sf_diagnosis_related *of[SUMMANDS_MAX];
  double weight[SUMMANDS_MAX];
  int32_t count;
};

static void predict_weighted(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct weighted *w = ctx;
  const int64_t count = fit->v->shape.rows * fit->v->shape.cols;
  memset(fit->logical, 0, (size_t)count * sizeof *fit->logical);
  for (int32_t k = 0; k < w->count; k++)
    for (int64_t e = 0; e < count; e++) fit->logical[e] += (float)(w->weight[k] * w->of[k]->weight * (double)w->of[k]->x[e]);
  sf_fit_gather(fit, i, local, fit->logical);
}

/* Solves the normal equations by Gaussian elimination; the last column of rows is the right-hand side. False where the summands are nearly
 * dependent, so that their weights mean nothing. */
static bool solve(double rows[SUMMANDS_MAX][SUMMANDS_MAX + 1], double *out, int32_t count) {
  static const double DEPENDENT = 1e-6;
  for (int32_t k = 0; k < count; k++) {
    int32_t pivot = k;
    const double was = fabs(rows[k][k]);
    for (int32_t r = k + 1; r < count; r++)
      if (fabs(rows[r][k]) > fabs(rows[pivot][k])) pivot = r;
    if (!(fabs(rows[pivot][k]) > DEPENDENT * was) || rows[pivot][k] == 0) return false;
    for (int32_t c = k; c <= count; c++) {
      const double swapped = rows[k][c];
      rows[k][c] = rows[pivot][c];
      rows[pivot][c] = swapped;
    }
    for (int32_t r = k + 1; r < count; r++)
      for (int32_t c = count; c >= k; c--) rows[r][c] -= rows[r][k] / rows[k][k] * rows[k][c];
  }
  for (int32_t k = count - 1; k >= 0; k--) {
    out[k] = rows[k][count];
    for (int32_t c = k + 1; c < count; c++) out[k] -= rows[k][c] * out[c];
    out[k] /= rows[k][k];
  }
  return true;
}

/* Finds the weights of the summands whose weighted sum comes nearest, by least squares, to what the ranks hold. */
static bool fit_weights(struct weighted *w, const struct sf_fit *fit) {
  double rows[SUMMANDS_MAX][SUMMANDS_MAX + 1] = {{0}};
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_view_shard *s = &fit->v->shards[i];
    for (int64_t k = 0; k < s->count; k++)
      for (int32_t a = 0; a < w->count; a++) {
        const double x = w->of[a]->weight * (double)w->of[a]->x[s->at[k]];
        for (int32_t b = 0; b < w->count; b++) rows[a][b] += x * w->of[b]->weight * (double)w->of[b]->x[s->at[k]];
        rows[a][w->count] += x * (double)s->data[k];
      }
  }
  return solve(rows, w->weight, w->count);
}

/* Explains a sum to which some microbatches were added several times. are_several: the weight has several uses. */
static void explain_weights(struct sf_fit *fit, bool are_several) {
  struct weighted w = {.count = 0};
  char text[WEIGHTS_TEXT] = "";
  bool are_equal = true; /* then it is a factor */
  for (int32_t k = 0; k < fit->v->related_count; k++) {
    if (fit->v->related[k].relation != SF_RELATED_SUMMAND) continue;
    if (w.count == SUMMANDS_MAX) return;
    w.of[w.count++] = &fit->v->related[k];
  }
  if (fit->replicas_differ || w.count < 2 || fit->v->shape.rows * fit->v->shape.cols < 4 * w.count || !fit_weights(&w, fit)) return;
  for (int32_t k = 0; k < w.count; k++) {
    const size_t length = strlen(text);
    w.weight[k] = fabs(round(w.weight[k])) > 0 ? round(w.weight[k]) : 0; /* no -0 */
    if (w.weight[k] < 0 || w.weight[k] > w.count + fit->v->data_ranks) return;
    if (w.weight[k] != 1)
      snprintf(text + length, sizeof text - length, "%s microbatch %d%s%s%s %.0f times", length > 0 ? "," : "", w.of[k]->microbatch,
               are_several ? " (use as " : "", are_several ? w.of[k]->name : "", are_several ? ")" : "", w.weight[k]);
    are_equal &= w.weight[k] == w.weight[0];
  }
  if (are_equal) return;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_REPEATED_TERM, "microbatches added several times", NULL},
               sf_fit_left(fit, predict_weighted, &w), "the sum over microbatches has%s", text);
}

/* Whether it is the first summand of its use of the weight. */
static bool is_first_of_use(const struct sf_fit *fit, int32_t k) {
  const struct sf_diagnosis_related *r = fit->v->related;
  if (r[k].relation != SF_RELATED_SUMMAND) return false;
  for (int32_t i = 0; i < k; i++)
    if (r[i].relation == SF_RELATED_SUMMAND && r[i].call == r[k].call) return false;
  return true;
}

static int32_t count_uses(const struct sf_fit *fit) {
  int32_t count = 0;
  for (int32_t k = 0; k < fit->v->related_count; k++) count += is_first_of_use(fit, k);
  return count;
}

/* Explains the gradient of a weight that has several uses: of one of them alone, or without one of them. */
static void explain_uses(struct sf_fit *fit, const struct selection *all, int32_t uses) {
  for (int32_t k = 0; k < fit->v->related_count; k++) {
    const struct sf_diagnosis_related *r = &fit->v->related[k];
    if (!is_first_of_use(fit, k)) continue;
    struct selection alone = *all, without = *all;
    alone.call = without.other_than = r->call;
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "one use of the weight alone", r->name},
                 sf_fit_left(fit, predict_selected, &alone),
                 "the weight has the gradient of its use as %s alone: not summed over its %d uses", r->name, uses);
    if (uses > 2)
      sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_REDUCTION, "without one use of the weight", r->name},
                   sf_fit_left(fit, predict_selected, &without), "the weight's gradient lacks that of its use as %s", r->name);
  }
}

void sf_explain_microbatches(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  if (!has_related(fit, SF_RELATED_SUMMAND)) return;
  const struct selection all = {.last = -1, .call = -1, .left_out = -1, .other_than = -1};
  const int32_t local_count = (int32_t)v->microbatches;
  if (v->data_ranks > 1) explain_own_data(fit, &all);
  if (local_count > 1) explain_some_microbatches(fit, &all, local_count);
  explain_late(fit, &all, local_count);
  const int32_t uses = count_uses(fit);
  if (uses > 1) explain_uses(fit, &all, uses);
  explain_weights(fit, uses > 1);
}
