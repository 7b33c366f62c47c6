/* The step. It is not compared with the reference: scalars, parameter changes and parameters are recomputed in fp64 from the tensors that
 * the candidate itself traced. Adam divides by the root of its second moment, so rounding of a gradient near zero may change an update's
 * sign, and clean runs could be off from the reference by any amount. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "harness/tensor/rounding_bits.h"
#include "oracles/noise/norms.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CHUNK = 2048, STEPS_MAX = SF_STEPS_MAX + 1 };

static const char INPUTS_MISSING[] = "inputs missing";
static const double CLIP_EPSILON = 1e-6, ADAM_EPSILON = 1e-8; /* part of the logical function */

/* The tensors of the steps by (step, subject). An entry is NULL when the reference has no such tensor. */
struct step_index {
  int32_t steps, param_count, microbatches;
  const struct sf_slot **params;     /* [steps + 1][param_count] */
  const struct sf_slot **main_grads; /* [steps][param_count] */
  const struct sf_slot **deltas;     /* [steps][param_count] */
  const struct sf_slot **scalars;    /* [steps + 1][SF_SCALAR_COUNT] */
  const struct sf_slot **losses;     /* [steps][microbatches]: per-token losses */
};

static const struct sf_slot **slots_table(struct sf_arena *arena, int64_t count) {
  const struct sf_slot **table = sf_arena_alloc(arena, (size_t)count * sizeof *table);
  if (table != NULL) memset(table, 0, (size_t)count * sizeof *table);
  return table;
}

static void index_slot(struct step_index *index, const struct sf_catalog *catalog, const struct sf_slot *slot) {
  const struct sf_trace_id id = slot->expected->id;
  switch ((enum sf_kind)id.kind) {
  case SF_KIND_PARAM:
    index->params[id.step * index->param_count + id.subject] = slot;
    break;
  case SF_KIND_MAIN_GRAD:
    index->main_grads[id.step * index->param_count + id.subject] = slot;
    break;
  case SF_KIND_PARAM_DELTA:
    index->deltas[id.step * index->param_count + id.subject] = slot;
    break;
  case SF_KIND_SCALAR:
    index->scalars[id.step * SF_SCALAR_COUNT + id.subject] = slot;
    break;
  case SF_KIND_ACT:
    if (catalog->modules[id.subject].cls == SF_MODULE_LOSS) index->losses[id.step * index->microbatches + id.microbatch] = slot;
    break;
  default:
    break;
  }
}

static bool index_create(struct step_index *index, const struct sf_collector *collector) {
  const struct sf_train *train = &collector->c.train;
  struct sf_arena *arena = collector->of_judgement;
  const int64_t steps = train->steps, params = collector->catalog->param_count;
  SF_ASSERT_LT(steps, STEPS_MAX);
  index->steps = (int32_t)steps;
  index->param_count = (int32_t)params;
  index->microbatches = (int32_t)train->microbatches;
  index->params = slots_table(arena, (steps + 1) * params);
  index->main_grads = slots_table(arena, steps * params);
  index->deltas = slots_table(arena, steps * params);
  index->scalars = slots_table(arena, (steps + 1) * SF_SCALAR_COUNT);
  index->losses = slots_table(arena, steps * train->microbatches);
  if (!index->params || !index->main_grads || !index->deltas || !index->scalars || !index->losses) return false;
  for (int32_t i = 0; i < collector->count; i++) index_slot(index, collector->catalog, sf_slot_at(collector, i, SF_SLOT_FIRST));
  return true;
}

static const float *whole(const struct sf_slot *slot) { return slot != NULL && sf_slot_is_whole(slot) ? slot->merged : NULL; }

/* --- reports -------------------------------------------------------------------------------------------------- */

/* Judges a recomputed tensor: its error against its bound. Returns the finding, whose text the caller writes, or NULL when there is nothing
 * (more) to say. */
static struct sf_finding *report(struct sf_judging *judging, const struct sf_slot *slot, enum sf_finding_class cls, double error,
                                 double bound) {
  struct sf_tensor_result *result = sf_judging_result(judging, slot);
  result->fro_ratio = error == 0 ? 0 : error / bound;
  if (error <= bound) return NULL;
  if (sf_overflow_explains(judging, slot)) {
    result->judged = false;
    result->why_not = "overflow";
    return NULL;
  }
  if (!isfinite(slot->expected->norm)) {
    result->judged = false;
    result->why_not = "reference not finite";
    return NULL;
  }
  result->flagged = true;
  if (sf_judging_nonfinite(judging, slot, slot->expected)) return NULL;
  struct sf_finding *finding = sf_judging_add(judging, slot, cls);
  finding->error = error, finding->noise = bound, finding->ratio = result->fro_ratio;
  return finding;
}

/* For a tensor that cannot be checked, usually because an input of the recomputation is missing or could not be placed. */
static void report_unchecked(struct sf_judging *judging, const struct sf_slot *slot, const char *why_not) {
  struct sf_tensor_result *result = sf_judging_result(judging, slot);
  result->judged = false;
  result->why_not = why_not;
}

static void report_scalar(struct sf_judging *judging, const struct sf_slot *slot, double expected, double bound, const char *from) {
  const double value = (double)slot->merged[0];
  struct sf_finding *finding = report(judging, slot, SF_CLASS_TOLERANCE, fabs(value - expected), bound);
  if (finding != NULL)
    sf_finding_say(finding, "%s is %.9g; recomputed from %s: %.9g", sf_scalar_name((enum sf_scalar)slot->expected->id.subject), value, from,
                   expected);
}

/* --- scalars -------------------------------------------------------------------------------------------------- */

/* Adds one microbatch's weighted losses. magnitude: the sum of their absolute values, which rounding is relative to: in isolated mode
 * losses have either sign and may cancel. */
static bool add_losses(const struct sf_judging *judging, const struct sf_slot *slot, double *sum, double *magnitude) {
  const struct sf_collector *collector = judging->collector;
  const struct sf_case *c = &collector->c;
  const int64_t tokens = c->model.seq * c->train.microbatch_size;
  const struct sf_trace_id id = slot->expected->id;
  struct sf_arena *arena = collector->of_judgement;
  const struct sf_arena_mark mark = sf_arena_mark(arena);
  float *mask = sf_arena_alloc(arena, (size_t)tokens * sizeof *mask), *losses = sf_arena_alloc(arena, (size_t)tokens * sizeof *losses);
  if (mask == NULL || losses == NULL) return false;
  sf_data_microbatch(NULL, NULL, mask, c, id.step, id.microbatch);
  if (c->mode == SF_MODE_ISOLATED) {
    const struct sf_fill fill = sf_fill_for_trace(collector->catalog, id);
    sf_fill_range(losses, &fill, 0, tokens);
  } else {
    memcpy(losses, slot->merged, (size_t)tokens * sizeof *losses);
  }
  double kept = 0, own = 0, own_magnitude = 0;
  for (int64_t t = 0; t < tokens; t++) {
    kept += (double)mask[t];
    if (mask[t] == 0) continue;
    own += (double)mask[t] * (double)losses[t];
    own_magnitude += (double)mask[t] * fabs((double)losses[t]);
  }
  sf_arena_rewind(arena, mark);
  const double share = c->train.loss_norm == SF_LOSS_PER_TOKEN ? 1.0 : 1.0 / (kept * (double)c->train.microbatches);
  *sum += share * own;
  *magnitude += share * own_magnitude;
  return true;
}

static void judge_loss(struct sf_judging *judging, const struct step_index *index, int32_t step, const struct sf_slot *slot) {
  const struct sf_case *c = &judging->collector->c;
  double sum = 0, magnitude = 0;
  for (int32_t m = 0; m < index->microbatches; m++) {
    const struct sf_slot *losses = index->losses[step * index->microbatches + m];
    if (losses == NULL || (c->mode == SF_MODE_E2E && whole(losses) == NULL)) {
      report_unchecked(judging, slot, INPUTS_MISSING);
      return;
    }
    if (!add_losses(judging, losses, &sum, &magnitude)) {
      judging->status = SF_ENOMEM;
      return;
    }
  }
  const double count = c->train.loss_norm == SF_LOSS_PER_TOKEN ? (double)sf_data_step_tokens(c, step) : 1.0;
  report_scalar(judging, slot, sum / count, sf_factors.loss_rel * magnitude / count, "its per-token losses");
}

static void judge_tokens(struct sf_judging *judging, const struct sf_slot *slot) {
  const double value = (double)slot->merged[0], expected = (double)slot->expected->x[0];
  struct sf_finding *finding = report(judging, slot, SF_CLASS_EXACT, fabs(value - expected), 0);
  if (finding != NULL) sf_finding_say(finding, "counts %.9g tokens; the masks keep %.9g", value, expected);
}

static bool is_skipped(const struct step_index *index, int32_t step) {
  const float *overflow = whole(index->scalars[step * SF_SCALAR_COUNT + SF_SCALAR_OVERFLOW]);
  return overflow != NULL && overflow[0] != 0;
}

/* The scale of a step follows from the overflows of the steps before. */
static void judge_loss_scale(struct sf_judging *judging, const struct step_index *index, int32_t step, const struct sf_slot *slot) {
  const struct sf_precision *precision = &judging->collector->c.precision;
  double expected = ldexp(1, (int)precision->loss_scale_log2);
  for (int64_t s = 0, good = 0; s < step && precision->loss_scale_window > 0; s++) {
    const bool skipped = is_skipped(index, (int32_t)s);
    good = skipped ? 0 : good + 1;
    if (skipped) expected /= 2;
    if (good == precision->loss_scale_window) expected *= 2, good = 0;
  }
  const double value = (double)slot->merged[0];
  struct sf_finding *finding = report(judging, slot, SF_CLASS_EXACT, fabs(value - expected), 0);
  if (finding != NULL) sf_finding_say(finding, "loss scale is %.9g; the overflows before make it %.9g", value, expected);
}

/* Judges the overflow flag by the candidate's own main gradients. */
static void judge_overflow(struct sf_judging *judging, const struct step_index *index, int32_t step, const struct sf_slot *slot) {
  double expected = 0;
  for (int32_t p = 0; p < index->param_count; p++) {
    const struct sf_slot *grad = index->main_grads[step * index->param_count + p];
    if (grad == NULL) continue; /* frozen */
    if (whole(grad) == NULL) {
      report_unchecked(judging, slot, INPUTS_MISSING);
      return;
    }
    const struct sf_shape shape = grad->expected->spec.shape;
    if (sf_first_nonfinite(grad->merged, NULL, shape.rows * shape.cols) >= 0) expected = 1;
  }
  const double value = (double)slot->merged[0], reference = (double)slot->expected->x[0];
  /* End to end the reference may overflow elsewhere; its own main gradients are judged. */
  const bool is_other = judging->collector->c.mode == SF_MODE_ISOLATED && value != reference;
  struct sf_finding *finding = report(judging, slot, SF_CLASS_EXACT, value != expected || is_other, 0);
  if (finding != NULL)
    sf_finding_say(finding, "overflow flag is %g; its main gradients make it %g, the reference has %g", value, expected, reference);
}

static void judge_grad_norm(struct sf_judging *judging, const struct step_index *index, int32_t step, const struct sf_slot *slot) {
  if (is_skipped(index, step)) {
    report_scalar(judging, slot, 0, 0, "a step that is skipped");
    return;
  }
  double squares = 0;
  for (int32_t p = 0; p < index->param_count; p++) {
    const struct sf_slot *grad = index->main_grads[step * index->param_count + p];
    if (grad == NULL) continue; /* frozen */
    if (whole(grad) == NULL) {
      report_unchecked(judging, slot, INPUTS_MISSING);
      return;
    }
    const struct sf_shape shape = grad->expected->spec.shape;
    squares += sf_sum_squares(grad->merged, shape.rows * shape.cols);
  }
  const double norm = sqrt(squares);
  report_scalar(judging, slot, norm, sf_factors.norm_rel * norm, "its main gradients");
}

static void judge_clip(struct sf_judging *judging, const struct step_index *index, int32_t step, const struct sf_slot *slot) {
  const struct sf_train *train = &judging->collector->c.train;
  const float *norm = whole(index->scalars[step * SF_SCALAR_COUNT + SF_SCALAR_GRAD_NORM]);
  double expected = 1;
  if (train->clip_milli > 0 && !is_skipped(index, step)) {
    if (norm == NULL) {
      report_unchecked(judging, slot, INPUTS_MISSING);
      return;
    }
    const double factor = (double)train->clip_milli / 1000.0 / ((double)norm[0] + CLIP_EPSILON);
    expected = factor < 1 ? factor : 1;
  }
  /* A norm near fp32's largest number makes the clip factor a subnormal number, which is rounded to a multiple of 2^-149. */
  report_scalar(judging, slot, expected, sf_factors.norm_rel * expected + 0x1p-149, "its gradient norm");
}

static void judge_scalars(struct sf_judging *judging, const struct step_index *index, int32_t step) {
  const struct sf_slot **scalars = &index->scalars[step * SF_SCALAR_COUNT];
  if (whole(scalars[SF_SCALAR_LOSS])) judge_loss(judging, index, step, scalars[SF_SCALAR_LOSS]);
  if (whole(scalars[SF_SCALAR_TOKENS])) judge_tokens(judging, scalars[SF_SCALAR_TOKENS]);
  if (whole(scalars[SF_SCALAR_LOSS_SCALE])) judge_loss_scale(judging, index, step, scalars[SF_SCALAR_LOSS_SCALE]);
  if (whole(scalars[SF_SCALAR_OVERFLOW])) judge_overflow(judging, index, step, scalars[SF_SCALAR_OVERFLOW]);
  if (whole(scalars[SF_SCALAR_GRAD_NORM])) judge_grad_norm(judging, index, step, scalars[SF_SCALAR_GRAD_NORM]);
  if (whole(scalars[SF_SCALAR_CLIP])) judge_clip(judging, index, step, scalars[SF_SCALAR_CLIP]);
}

/* --- parameters and their changes ----------------------------------------------------------------------------- */

/* The tensors that one parameter's step is judged from; NULL for a missing one. */
struct param_step {
  const float *grad, *delta, *param_after;
  bool is_master_known; /* the fp32 weight at the step's start */
  bool is_skipped;      /* by loss scaling: nothing may change */
  bool is_judged;       /* the change can be recomputed: gradients of all steps so far, clip factor, change and master are there */
  double clip, bias1, bias2;
  double delta_squares, adam_squares, master_squares; /* sums over the parameter, of the change's error, of Adam's change, of the master */
  double param_excess, param_error, param_bound;      /* param_after: largest error over what one rounding allows, and both */
  int64_t param_at;
  int64_t wrong_count; /* stochastic rounding: number of elements whose change is not one of the possible ones */
};

/* The facts of a parameter that do not change over its steps. is_stochastic: the weight in bf16 is the master, and each sum is rounded with
 * the element's random bits. */
struct param_job {
  const struct sf_collector *collector;
  int32_t param, steps;
  bool is_stochastic;
  bool frozen, is_reloaded; /* is_reloaded: fresh masters are loaded at each step's start (isolated mode) */
  enum sf_dtype dtype;
  double lr, beta1, beta2, weight_decay;
  struct param_step step[STEPS_MAX];
};

struct param_chunk {
  double master[CHUNK], m[CHUNK], v[CHUNK], m_size[CHUNK]; /* m_size: of the terms of m, which may cancel; with is_stochastic only */
  float filled[CHUNK];
  uint16_t random[CHUNK];
};

static void chunk_load_master(struct param_chunk *chunk, const struct param_job *job, int32_t step, int64_t first, int64_t count) {
  const struct sf_fill fill = sf_fill_for_param(job->collector->catalog, job->param, step);
  sf_fill_range(chunk->filled, &fill, first, count);
  if (job->is_stochastic) sf_round_array(chunk->filled, count, job->dtype);
  for (int64_t i = 0; i < count; i++) chunk->master[i] = (double)chunk->filled[i];
}

/* One step of Adam in fp64 against the candidate's change. */
static void chunk_adam(struct param_chunk *chunk, const struct param_job *job, struct param_step *step, int64_t first, int64_t count) {
  double delta_squares = 0, adam_squares = 0, master_squares = 0;
  const double beta1 = job->beta1, beta2 = job->beta2, lr = job->lr, decay = job->weight_decay, clip = step->clip;
  const double scale1 = 1 / step->bias1, scale2 = 1 / step->bias2;
  const float *grad = step->grad + first, *delta = step->delta + first;
  double *restrict m = chunk->m, *restrict v = chunk->v;
  const double *restrict master = chunk->master;
#pragma omp simd reduction(+ : delta_squares, adam_squares, master_squares)
  for (int64_t i = 0; i < count; i++) {
    const double g = clip * (double)grad[i];
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    const double direction = m[i] * scale1 / (sqrt(v[i] * scale2) + ADAM_EPSILON);
    const double adam = -lr * (direction + decay * master[i]);
    const double error = (double)delta[i] - adam;
    delta_squares += error * error;
    adam_squares += adam * adam;
    master_squares += master[i] * master[i];
  }
  step->delta_squares += delta_squares;
  step->adam_squares += adam_squares;
  step->master_squares += master_squares;
}

/* The distance of x from [low, high]; NaN when one of them is NaN, or when x differs from an infinity that it must equal. */
static double outside(float x, float low, float high) {
  if (x >= low && x <= high) return 0;
  return x > high ? (double)x - (double)high : (double)low - (double)x;
}

/* One step of Adam with stochastic rounding. The candidate's sum lies within a small distance of the one in fp64. Rounded with the
 * element's bits, both ends of that range give the same number, or two neighbours if a threshold lies between. delta_squares: squared
 * distances from that. */
static void chunk_adam_stochastic(struct param_chunk *chunk, const struct param_job *job, int32_t s, struct param_step *step, int64_t first,
                                  int64_t count) {
  const double beta1 = job->beta1, beta2 = job->beta2, lr = job->lr, decay = job->weight_decay;
  sf_rounding_bits_range(chunk->random, sf_rounding_key(job->collector->catalog, job->param, s), first, count);
  for (int64_t i = 0; i < count; i++) {
    const double g = step->clip * (double)step->grad[first + i], master = chunk->master[i];
    chunk->m[i] = beta1 * chunk->m[i] + (1 - beta1) * g;
    chunk->m_size[i] = beta1 * chunk->m_size[i] + (1 - beta1) * fabs(g);
    chunk->v[i] = beta2 * chunk->v[i] + (1 - beta2) * g * g;
    const double root = sqrt(chunk->v[i] / step->bias2) + ADAM_EPSILON;
    const double adam = -lr * (chunk->m[i] / step->bias1 / root + decay * master), sum = master + adam;
    const double size = lr * (chunk->m_size[i] / step->bias1 / root + decay * fabs(master));
    const double near = sf_factors.adam_rel * size + 2 * sf_dtype_unit_roundoff(SF_F32) * fabs(sum) + (double)FLT_MIN;
    const float low = sf_bf16_round_stochastic((float)(sum - near), chunk->random[i]);
    const float high = sf_bf16_round_stochastic((float)(sum + near), chunk->random[i]);
    const float delta = step->delta[first + i];
    const double error = outside(delta, (float)((double)low - master), (float)((double)high - master));
    step->wrong_count += !(error == 0);
    step->delta_squares += error * error;
    step->adam_squares += adam * adam;
    step->master_squares += master * master;
  }
}

/* The model's weight after the step is its master rounded once, or the master itself (stochastic rounding). The change itself was rounded
 * to fp32, and we follow the master by adding changes, so each change adds one fp32 rounding. */
static void chunk_check_param(const struct param_chunk *chunk, const struct param_job *job, int32_t s, struct param_step *step,
                              int64_t first, int64_t count) {
  const double unit = job->is_stochastic ? 0 : sf_dtype_unit_roundoff(job->dtype);
  const double slack = job->frozen ? 0 : sf_dtype_unit_roundoff(SF_F32) * (job->is_stochastic ? 1 : 2 + s);
  const double least = sf_larger(sf_dtype_least_error(job->dtype), (double)FLT_MIN);
  const float *after = step->param_after + first, *delta = step->delta != NULL ? step->delta + first : NULL;
  const double *restrict master = chunk->master;
  double ratio[CHUNK], worst = 0;
  int64_t nan_count = 0;
  if (step->param_excess != step->param_excess) return; /* a NaN is kept */
#pragma omp simd reduction(max : worst) reduction(+ : nan_count)
  for (int64_t i = 0; i < count; i++) {
    const double change = delta != NULL ? (double)delta[i] : 0, now = master[i] + change;
    const double error = fabs((double)after[i] - now);
    ratio[i] = error / (unit * fabs(now) + slack * (fabs(master[i]) + fabs(change)) + least);
    worst = ratio[i] > worst ? ratio[i] : worst;
    nan_count += ratio[i] != ratio[i];
  }
  if (nan_count == 0 && worst <= step->param_excess) return;
  for (int64_t i = 0; i < count; i++) {
    if (nan_count > 0 ? ratio[i] == ratio[i] : ratio[i] < worst) continue;
    const double change = delta != NULL ? (double)delta[i] : 0;
    step->param_excess = ratio[i];
    step->param_error = fabs((double)after[i] - (master[i] + change));
    step->param_bound = step->param_error / ratio[i];
    step->param_at = first + i;
    return;
  }
}

/* End to end the next step's master is this one plus the change. In fp32 the weight is the master, which forgets the rounding of
 * changes. */
static void chunk_advance(struct param_chunk *chunk, const struct param_job *job, const struct param_step *step, int64_t first,
                          int64_t count) {
  const bool is_exact = (job->dtype == SF_F32 || job->is_stochastic) && step->param_after != NULL;
  for (int64_t i = 0; i < count; i++) {
    if (is_exact)
      chunk->master[i] = (double)step->param_after[first + i];
    else if (step->delta != NULL)
      chunk->master[i] += (double)step->delta[first + i];
  }
}

static void chunk_run(struct param_chunk *chunk, struct param_job *job, int64_t first, int64_t count) {
  memset(chunk->m, 0, (size_t)count * sizeof *chunk->m);
  memset(chunk->v, 0, (size_t)count * sizeof *chunk->v);
  memset(chunk->m_size, 0, (size_t)count * sizeof *chunk->m_size);
  for (int32_t s = 0; s < job->steps; s++) {
    struct param_step *step = &job->step[s];
    if (!step->is_master_known) return; /* later steps do not know it either */
    if (s == 0 || job->is_reloaded) chunk_load_master(chunk, job, s, first, count);
    if (step->is_judged && step->is_skipped)
      step->delta_squares += sf_sum_squares(step->delta + first, count);
    else if (step->is_judged && job->is_stochastic)
      chunk_adam_stochastic(chunk, job, s, step, first, count);
    else if (step->is_judged)
      chunk_adam(chunk, job, step, first, count);
    if (step->param_after != NULL && (job->frozen || step->delta != NULL)) chunk_check_param(chunk, job, s, step, first, count);
    if (!job->is_reloaded) chunk_advance(chunk, job, step, first, count);
  }
}

/* --- one parameter -------------------------------------------------------------------------------------------- */

static void job_create(struct param_job *job, const struct sf_collector *collector, const struct step_index *index, int32_t param) {
  const struct sf_train *train = &collector->c.train;
  const struct sf_param *p = &collector->catalog->params[param];
  *job = (struct param_job){.collector = collector, .param = param, .steps = index->steps, .frozen = p->frozen};
  job->is_reloaded = collector->c.mode == SF_MODE_ISOLATED;
  job->dtype = sf_case_storage(&collector->c);
  job->is_stochastic = collector->c.precision.stochastic;
  job->lr = (double)train->lr_micro * 1e-6;
  job->beta1 = (double)train->beta1_milli / 1000.0;
  job->beta2 = (double)train->beta2_milli / 1000.0;
  job->weight_decay = p->decayed ? (double)train->weight_decay_milli / 1000.0 : 0;
  bool are_moments_known = !p->frozen, is_master_known = true;
  int32_t applied = 0;
  for (int32_t s = 0; s < index->steps; s++) {
    struct param_step *step = &job->step[s];
    const float *clip = whole(index->scalars[s * SF_SCALAR_COUNT + SF_SCALAR_CLIP]);
    step->grad = whole(index->main_grads[s * index->param_count + param]);
    step->delta = whole(index->deltas[s * index->param_count + param]);
    step->param_after = whole(index->params[(s + 1) * index->param_count + param]);
    step->clip = clip != NULL ? (double)clip[0] : 1;
    step->is_skipped = is_skipped(index, s);
    applied += !step->is_skipped;
    step->bias1 = 1 - pow(job->beta1, applied);
    step->bias2 = 1 - pow(job->beta2, applied);
    are_moments_known = are_moments_known && step->grad != NULL && clip != NULL;
    step->is_master_known = is_master_known;
    step->is_judged = is_master_known && are_moments_known && step->delta != NULL;
    const bool is_followed =
        p->frozen || step->delta != NULL || (step->param_after != NULL && (job->dtype == SF_F32 || job->is_stochastic));
    is_master_known = job->is_reloaded || (is_master_known && is_followed);
  }
}

static void judge_initial(struct sf_judging *judging, const struct sf_slot *slot) {
  const struct sf_shape shape = slot->expected->spec.shape;
  const int64_t count = shape.rows * shape.cols;
  int64_t differing = 0, first = -1;
  double largest = 0;
  if (memcmp(slot->merged, slot->expected->x, (size_t)count * sizeof *slot->merged) != 0) {
    for (int64_t i = 0; i < count; i++) {
      if (memcmp(slot->merged + i, slot->expected->x + i, sizeof *slot->merged) == 0) continue;
      if (differing++ == 0) first = i;
      largest = sf_larger(largest, fabs((double)slot->merged[i] - (double)slot->expected->x[i]));
    }
  }
  /* A zero of the wrong sign counts as different, although its difference is zero. */
  struct sf_finding *finding = report(judging, slot, SF_CLASS_EXACT, differing > 0 ? sf_larger(largest, DBL_MIN) : 0, 0);
  if (finding == NULL) return;
  finding->row = first / shape.cols;
  sf_finding_say(finding, "%" PRId64 " of %" PRId64 " elements are not those that were to be loaded", differing, count);
}

/* For gradients near fp32's least numbers: the clipped gradient, its share and the old moment are each rounded to a multiple of 2^-149, and
 * Adam divides them by no more than epsilon. */
static double subnormal_change(const struct param_job *job, const struct param_step *step, int64_t count) {
  return job->lr * 4 * 0x1p-149 / (step->bias1 * ADAM_EPSILON) * sqrt((double)count);
}

static void report_delta(struct sf_judging *judging, const struct sf_slot *slot, const struct param_job *job,
                         const struct param_step *step) {
  if (step->is_skipped) {
    struct sf_finding *finding = report(judging, slot, SF_CLASS_EXACT, sqrt(step->delta_squares), 0);
    if (finding != NULL) sf_finding_say(finding, "the weight changes by %.3g in a step that is skipped", finding->error);
    return;
  }
  const double adam = sqrt(step->adam_squares), master = sqrt(step->master_squares);
  if (job->is_stochastic) {
    struct sf_finding *finding = report(judging, slot, SF_CLASS_TOLERANCE, sqrt(step->delta_squares), 0);
    if (finding != NULL)
      sf_finding_say(finding,
                     "%" PRId64 " elements changed to another number than weight + Adam's change (of %.3g) rounded with their random bits",
                     step->wrong_count, adam);
    return;
  }
  const struct sf_shape shape = slot->expected->spec.shape;
  const double bound =
      sf_factors.adam_rel * adam + sf_dtype_unit_roundoff(SF_F32) * master + subnormal_change(job, step, shape.rows * shape.cols);
  struct sf_finding *finding = report(judging, slot, SF_CLASS_TOLERANCE, sqrt(step->delta_squares), bound);
  if (finding != NULL)
    sf_finding_say(finding, "the change of the weight has an error of norm %.3g; Adam makes a change of norm %.3g from its gradients",
                   finding->error, adam);
}

static void report_param(struct sf_judging *judging, const struct sf_slot *slot, const struct param_step *step) {
  struct sf_finding *finding = report(judging, slot, SF_CLASS_EXACT, step->param_excess, 1);
  if (finding == NULL) return;
  finding->error = step->param_error, finding->noise = step->param_bound;
  finding->row = step->param_at / slot->expected->spec.shape.cols;
  sf_finding_say(finding, "the weight differs by %.3g from the master weight plus its change; one rounding explains at most %.2g",
                 finding->error, finding->noise);
}

static void judge_param(struct sf_judging *judging, const struct step_index *index, struct param_chunk *chunk, int32_t param) {
  struct param_job job;
  job_create(&job, judging->collector, index, param);
  const struct sf_shape shape = judging->collector->catalog->params[param].shape;
  const int64_t count = shape.rows * shape.cols;
  for (int64_t first = 0; first < count; first += CHUNK) chunk_run(chunk, &job, first, count - first < CHUNK ? count - first : CHUNK);
  if (whole(index->params[param]) != NULL) judge_initial(judging, index->params[param]);
  for (int32_t s = 0; s < index->steps; s++) {
    const struct param_step *step = &job.step[s];
    const struct sf_slot *delta = index->deltas[s * index->param_count + param],
                         *after = index->params[(s + 1) * index->param_count + param];
    if (step->is_judged && s >= sf_expectations_overflow_step(judging->collector->expectations))
      report_unchecked(judging, delta, "overflow");
    else if (step->is_judged)
      report_delta(judging, delta, &job, step);
    else if (step->delta != NULL)
      report_unchecked(judging, delta, INPUTS_MISSING);
    if (step->param_after == NULL) continue;
    if (step->is_master_known && (job.frozen || step->delta != NULL))
      report_param(judging, after, step);
    else
      report_unchecked(judging, after, INPUTS_MISSING);
  }
}

void sf_judge_steps(struct sf_judging *judging) {
  struct step_index index;
  struct param_chunk *chunk = sf_arena_alloc(judging->collector->of_judgement, sizeof *chunk);
  if (chunk == NULL || !index_create(&index, judging->collector)) {
    judging->status = SF_ENOMEM;
    return;
  }
  for (int32_t p = 0; p < index.param_count; p++) judge_param(judging, &index, chunk, p);
  for (int32_t s = 0; s <= index.steps; s++) judge_scalars(judging, &index, s);
}
