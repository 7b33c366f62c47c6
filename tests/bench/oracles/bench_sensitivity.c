/* How surely a corrupted tensor is flagged. A clean case is run; then it runs again once per (kind, corruption) with one of its judged
 * tensors replaced, at the trace point and on every rank that holds a part of it, by a corrupted copy of what the clean run had there:
 * ranks stay consistent with each other, so that only the comparison can tell. Corruptions:
 *   scale       the whole tensor times 1 + d       small       times 1 + 0.4 d
 *   row         one row (element of a vector) doubled
 *   swap        two rows (elements) exchanged      neighbour   one tp shard replaced by the next one's values
 *   microbatch  a main gradient without one microbatch's share
 *   rank        a main gradient without the share of one data-parallel rank
 * A drawn row, swap or shard must move some row (the vector) by more than that row's noise level, else it is drawn again, up to 16 times;
 * redraws and tensors without such a place are counted. Scaling is never redrawn.
 * Beside that every judged tensor of the clean runs that has a noise level is compared once more, times 1 + d, with all draws ("scaled"):
 * what a corrupted run would say of it, for a thousandth of the time. With --ladder 1 that is done for every d from 2^-26 to 1/4: the
 * curves of harness/docs/tolerance.md. */
#include "tests/bench/bench_common.h"

#include "harness/base/hash.h"
#include "harness/run/trial/engine_internal.h"
#include "oracles/judge/collector.h"
#include "oracles/noise/norms.h"
#include "tests/shard_copy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES_MAX = 16, LADDER_STEPS = 25, LADDER_LEAST = -26 /* binary exponent of the first d */ };
static const double scale_by[SF_BENCH_CONDITIONS] = {1e-5, 1e-3, 5e-2, 5e-2, 5e-2, 5e-2, 5e-2, 5e-2};
static const double weak_below = 0.99; /* share of a module's corruptions: it is named */
static const double small_share = 0.4;
enum corruption { SCALE, SMALL, ROW, SWAP, NEIGHBOUR, MICROBATCH, RANK, CORRUPTIONS };
static const char *const corruption_names[CORRUPTIONS] = {"scale", "small", "row", "swap", "neighbour", "microbatch", "rank"};

struct args {
  int64_t cases, seed, jobs, show, modules, runs, ladder;
  struct sf_texts presets, sets;
};

struct context {
  struct sf_campaign_options draws;
  int64_t show;
  bool by_module; /* a kind's module is drawn first, then one of its tensors */
  bool runs;      /* corrupted runs, beside the scaled tensors */
  bool ladder;    /* scaled tensors by every d of the ladder, too */
};

struct count {
  int64_t trials, flagged, at_tensor; /* at_tensor: the first finding is the corrupted tensor itself */
  int64_t redrawn, no_place;
};
struct result {
  struct count counts[SF_BENCH_CONDITIONS][SF_KIND_COUNT][CORRUPTIONS];
  struct share {
    int64_t trials, flagged;
  } modules[SF_BENCH_CONDITIONS][SF_KIND_COUNT][SF_MODULE_CLASS_COUNT], scaled[SF_BENCH_CONDITIONS][SF_KIND_COUNT][SF_MODULE_CLASS_COUNT];
  struct share ladder[SF_BENCH_CONDITIONS][LADDER_STEPS];
  int64_t unclean, failed;
};

/* One corrupted run: what the tensor becomes. */
struct tamper {
  const struct sf_engine *engine;
  struct sf_trace_id id;
  struct sf_trace_spec spec;
  const float *values; /* logical tensor */
};

static bool is_same_tensor(struct sf_trace_id a, struct sf_trace_id b) {
  const bool passes = a.pass == b.pass || (a.kind == SF_KIND_ACT && b.pass == SF_PASS_RECOMPUTE);
  return passes && a.step == b.step && a.microbatch == b.microbatch && a.kind == b.kind && a.call == b.call && a.subject == b.subject;
}

/* Axes over which another rank carries the value of what is partial, as when isolated mode overwrites: the lowest tp and cp index does. */
static uint32_t carried_elsewhere(const struct tamper *tamper, int32_t rank) {
  const struct sf_case *c = tamper->engine->c;
  const bool qkv = tamper->spec.row_cut == SF_CUT_QKV || tamper->spec.col_cut == SF_CUT_QKV;
  const int64_t holders = !qkv ? c->layout.tp : c->layout.tp > c->model.kv_heads ? c->layout.tp / c->model.kv_heads : 1;
  const struct sf_coord at = sf_mesh_coord(&tamper->engine->mesh, rank);
  return (at.at[SF_AXIS_TP] % holders != 0 ? SF_AXES(SF_AXIS_TP) : 0) | (at.at[SF_AXIS_CP] != 0 ? SF_AXES(SF_AXIS_CP) : 0);
}

static uint32_t partial_at(const struct sf_dim_map *dim, int64_t local) {
  for (int32_t i = 0; i < dim->count; local -= dim->runs[i++].len)
    if (local < dim->runs[i].len) return dim->runs[i].partial;
  return 0;
}

static void on_trace_point(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                           int64_t cols) {
  const struct tamper *tamper = ctx;
  if (!is_same_tensor(tamper->id, id) || !sf_shard_map_valid(map, tamper->spec.shape)) return;
  shard_gather(data, tamper->values, tamper->spec.shape, map);
  const uint32_t elsewhere = carried_elsewhere(tamper, rank);
  if (elsewhere == 0) return;
  for (int64_t r = 0; r < rows; r++) {
    const uint32_t row = partial_at(&map->rows, r);
    for (int64_t j = 0; j < cols; j++)
      if ((row | partial_at(&map->cols, j)) & elsewhere) data[r * cols + j] = 0;
  }
}

/* --- corruptions ---------------------------------------------------------------------------------------------- */

struct draw {
  uint64_t state;
};
static int64_t draw_below(struct draw *draw, int64_t bound) {
  draw->state = sf_mix64(draw->state + 1);
  return (int64_t)(draw->state % (uint64_t)bound);
}

/* Rows of the tensor, elements of a vector. */
static void parts_of(struct sf_shape shape, int64_t *count, int64_t *width) {
  *count = shape.rows > 1 ? shape.rows : shape.cols;
  *width = shape.rows > 1 ? shape.cols : 1;
}

/* What a place of the tensor's mesh, tp x cp or ep x etp, holds of a dimension. */
static struct sf_dim_map held(const struct sf_case *c, enum sf_cut cut, int64_t size, int64_t tp, int64_t at) {
  return cut == SF_CUT_NONE ? sf_dim_map_whole(size) : sf_canonical_dim(c, cut, size, at % tp, at / tp);
}

static bool replace_by_neighbour(float *values, const float *clean, const struct sf_case *c, const struct sf_trace_spec *spec,
                                 struct draw *draw) {
  const bool experts = sf_cut_is_expert(spec->row_cut) || sf_cut_is_expert(spec->col_cut);
  const int64_t tp = experts ? c->layout.ep * c->layout.etp : c->layout.tp, ranks = experts ? tp : tp * c->layout.cp,
                at = draw_below(draw, ranks), next = (at + 1) % ranks;
  const struct sf_shard_map to = {.rows = held(c, spec->row_cut, spec->shape.rows, tp, at),
                                  .cols = held(c, spec->col_cut, spec->shape.cols, tp, at)};
  const struct sf_shard_map from = {.rows = held(c, spec->row_cut, spec->shape.rows, tp, next),
                                    .cols = held(c, spec->col_cut, spec->shape.cols, tp, next)};
  const int64_t rows = sf_dim_map_length(&from.rows), cols = sf_dim_map_length(&from.cols);
  if (shard_map_equal(&to, &from) || rows != sf_dim_map_length(&to.rows) || cols != sf_dim_map_length(&to.cols)) return false;
  float *local = malloc((size_t)(rows * cols) * sizeof *local);
  if (!local) sf_bench_die("out of memory");
  shard_gather(local, clean, spec->shape, &from);
  shard_scatter(values, local, spec->shape, &to);
  free(local);
  return true;
}

struct subject {
  struct sf_trace_id id;
  struct sf_trace_spec spec;
  const struct sf_expected *expected; /* what the clean tensor was compared with */
  float *clean, *values;
  /* Of a main gradient: the shares of its microbatches and of its data-parallel ranks, as it has them. share_count: of either; 0: none */
  float *shares[2];
  int64_t share_count[2];
};

/* False when there is only one. */
static bool take_share_out(float *values, const struct subject *subject, enum corruption corruption, struct draw *draw) {
  const int which = corruption == RANK;
  const int64_t elements = subject->spec.shape.rows * subject->spec.shape.cols, count = subject->share_count[which];
  if (count < 2) return false;
  const float *share = subject->shares[which] + draw_below(draw, count) * elements;
  for (int64_t i = 0; i < elements; i++) values[i] -= share[i];
  return true;
}

/* False when the tensor has no place for it. */
static bool corrupt(const struct subject *subject, enum corruption corruption, double d, const struct sf_case *c, struct draw *draw) {
  const struct sf_trace_spec *spec = &subject->spec;
  const float *clean = subject->clean;
  float *values = subject->values;
  const int64_t count = spec->shape.rows * spec->shape.cols;
  int64_t parts, width;
  parts_of(spec->shape, &parts, &width);
  memcpy(values, clean, (size_t)count * sizeof *values);
  if (corruption == SCALE || corruption == SMALL) {
    const double by = 1 + (corruption == SCALE ? d : small_share * d);
    for (int64_t i = 0; i < count; i++) values[i] = (float)((double)clean[i] * by);
  } else if (corruption == MICROBATCH || corruption == RANK) {
    if (!take_share_out(values, subject, corruption, draw)) return false;
  } else if (corruption == ROW) {
    float *row = values + draw_below(draw, parts) * width;
    for (int64_t j = 0; j < width; j++) row[j] *= 2;
  } else if (corruption == SWAP) {
    if (parts < 2) return false;
    const int64_t a = draw_below(draw, parts), b = (a + 1 + draw_below(draw, parts - 1)) % parts;
    memcpy(values + a * width, clean + b * width, (size_t)width * sizeof *values);
    memcpy(values + b * width, clean + a * width, (size_t)width * sizeof *values);
  } else if (!replace_by_neighbour(values, clean, c, spec, draw)) {
    return false;
  }
  sf_round_array(values, count, spec->promised);
  return true;
}

/* Whether some row (the vector as a whole) moved by more than its noise level. */
static bool moves_enough(const struct subject *subject) {
  const struct sf_expected *e = subject->expected;
  const float *values = subject->values, *clean = subject->clean;
  const struct sf_shape shape = e->spec.shape;
  if (!sf_kind_has_noise((enum sf_kind)e->id.kind)) return memcmp(values, clean, (size_t)(shape.rows * shape.cols) * sizeof *values) != 0;
  double *scratch = malloc((size_t)shape.rows * sizeof *scratch);
  float *moved = malloc((size_t)(shape.rows * shape.cols) * sizeof *moved);
  if (!scratch || !moved) sf_bench_die("out of memory");
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) moved[i] = e->x[i] + (values[i] - clean[i]);
  struct sf_comparison comparison;
  sf_compare(&comparison, e, moved, SF_LEVEL_FULL, scratch);
  free(scratch);
  free(moved);
  return !(comparison.row_ratio <= 1) || !(comparison.fro_ratio <= 1);
}

/* --- scaled tensors -------------------------------------------------------------------------------------------- */

static void show_scaled(const struct sf_case *c, const struct sf_catalog *catalog, const struct sf_expected *e) {
  char id[160];
  sf_trace_id_text(id, sizeof id, catalog, e->id);
  fprintf(stderr, "scaled unseen: %s seed %" PRId64 " %s (norm %.3g, noise %.3g; acts %s, grads %s)\n",
          sf_bench_condition_names[sf_bench_condition_of(c)], c->seed, id, e->norm, sf_tensor_noise(e, SF_LEVEL_FULL),
          sf_case_field_find("data.acts")->names[c->data.acts], sf_case_field_find("data.grads")->names[c->data.grads]);
}

static bool scaled_is_flagged(const struct sf_expected *e, const float *clean, double d) {
  const struct sf_shape shape = e->spec.shape;
  const int64_t count = shape.rows * shape.cols;
  double *scratch = malloc((size_t)shape.rows * sizeof *scratch);
  float *values = malloc((size_t)count * sizeof *values);
  if (!scratch || !values) sf_bench_die("out of memory");
  for (int64_t i = 0; i < count; i++) values[i] = (float)((double)clean[i] * (1 + d));
  sf_round_array(values, count, e->spec.promised);
  struct sf_comparison comparison;
  sf_compare(&comparison, e, values, SF_LEVEL_SURE, scratch);
  free(scratch);
  free(values);
  return comparison.flagged;
}

static void climb(struct share ladder[LADDER_STEPS], const struct sf_expected *e, const float *clean) {
  for (int step = 0; step < LADDER_STEPS; step++) {
    ladder[step].trials++;
    ladder[step].flagged += scaled_is_flagged(e, clean, ldexp(1, LADDER_LEAST + step));
  }
}

static void scale_all(struct result *result, struct sf_engine *engine, const struct sf_case *c, const struct context *context) {
  const struct sf_judgement *judgement = sf_engine_judgement(engine);
  const int condition = (int)sf_bench_condition_of(c);
  if (sf_expectations_raise(sf_bench_compared_with(engine), SF_LEVEL_SURE, NULL, 0) != SF_OK) sf_bench_die("out of memory");
  for (int32_t i = 0; i < judgement->result_count; i++) {
    const struct sf_expected *e = sf_expectations_at(sf_bench_compared_with(engine), judgement->results[i].expected->ordinal);
    if (!judgement->results[i].judged || !sf_kind_has_noise((enum sf_kind)e->id.kind) || e->exact) continue;
    const float *clean = sf_collector_tensor(engine->collector, e->id);
    if (!clean) continue;
    const enum sf_module_class module = sf_engine_catalog(engine)->modules[e->spec.module].cls;
    const bool flagged = scaled_is_flagged(e, clean, scale_by[condition]);
    result->scaled[condition][e->id.kind][module].trials++;
    result->scaled[condition][e->id.kind][module].flagged += flagged;
    if (!flagged && context->show) show_scaled(c, sf_engine_catalog(engine), e);
    if (context->ladder) climb(result->ladder[condition], e, clean);
  }
}

/* --- trials --------------------------------------------------------------------------------------------------- */

static void try_corruption(struct result *result, struct sf_engine *engine, const struct sf_case *c, const struct subject *subject,
                           enum corruption corruption, int condition, struct draw *draw, bool show) {
  struct count *count = &result->counts[condition][subject->id.kind][corruption];
  bool placed = false;
  for (int i = 0; i < TRIES_MAX && !placed; i++) {
    if (!corrupt(subject, corruption, scale_by[condition], c, draw)) break;
    placed = corruption == SCALE || corruption == SMALL || moves_enough(subject);
    count->redrawn += !placed;
  }
  if (!placed) {
    count->no_place++;
    return;
  }
  struct tamper tamper = {engine, subject->id, subject->spec, subject->values};
  struct sf_outcome outcome;
  sf_engine_set_tamper(engine, on_trace_point, &tamper);
  sf_engine_run(engine, c, NULL, &outcome);
  sf_engine_set_tamper(engine, NULL, NULL);
  result->failed += outcome.status != SF_OK;
  const bool flagged = outcome.status == SF_OK && outcome.verdict == SF_VERDICT_FINDING;
  const struct sf_judgement *judgement = sf_engine_judgement(engine);
  count->trials++;
  count->flagged += flagged;
  const enum sf_module_class module = sf_engine_catalog(engine)->modules[subject->spec.module].cls;
  result->modules[condition][subject->id.kind][module].trials++;
  result->modules[condition][subject->id.kind][module].flagged += flagged;
  count->at_tensor += flagged && judgement->finding_count > 0 && is_same_tensor(subject->id, judgement->findings[0].id);
  if (flagged || !show) return;
  char id[160];
  sf_trace_id_text(id, sizeof id, sf_engine_catalog(engine), subject->id);
  fprintf(stderr, "missed: %s %s seed %" PRId64 " %s (norm %.3g, noise %.3g; acts %s, grads %s)\n", sf_bench_condition_names[condition],
          corruption_names[corruption], c->seed, id, subject->expected->norm, sf_tensor_noise(subject->expected, SF_LEVEL_FULL),
          sf_case_field_find("data.acts")->names[c->data.acts], sf_case_field_find("data.grads")->names[c->data.grads]);
}

static bool is_candidate(const struct sf_tensor_result *result, enum sf_kind kind, const struct sf_catalog *catalog, int module) {
  if (!result->judged || result->id.kind != kind) return false;
  return module < 0 || (int)catalog->modules[result->expected->spec.module].cls == module;
}

static int64_t count_candidates(struct sf_engine *engine, enum sf_kind kind, int module) {
  const struct sf_judgement *judgement = sf_engine_judgement(engine);
  int64_t count = 0;
  for (int32_t i = 0; i < judgement->result_count; i++)
    count += is_candidate(&judgement->results[i], kind, sf_engine_catalog(engine), module);
  return count;
}

/* Any of the classes that have a judged tensor of the kind; -1 when none has. */
static int draw_module(struct sf_engine *engine, enum sf_kind kind, struct draw *draw) {
  int classes[SF_MODULE_CLASS_COUNT], count = 0;
  for (int module = 0; module < SF_MODULE_CLASS_COUNT; module++)
    if (count_candidates(engine, kind, module) > 0) classes[count++] = module;
  return count > 0 ? classes[draw_below(draw, count)] : -1;
}

/* What the next run does not free. */
static const struct sf_expected *copied(const struct sf_expected *e) {
  struct sf_expected *out = malloc(sizeof *out);
  const int64_t rows = e->spec.shape.rows;
  float *x = malloc((size_t)(rows * e->spec.shape.cols) * sizeof *x), *row_floor = malloc((size_t)rows * sizeof *row_floor);
  double *doubles = malloc((size_t)((SF_LEVEL_COUNT + 2) * rows) * sizeof *doubles);
  if (!out || !x || !row_floor || !doubles) sf_bench_die("out of memory");
  *out = *e;
  out->x = memcpy(x, e->x, (size_t)(rows * e->spec.shape.cols) * sizeof *x);
  out->row_norm = memcpy(doubles, e->row_norm, (size_t)rows * sizeof *doubles);
  for (int level = 0; level < SF_LEVEL_COUNT; level++)
    if (e->row_noise[level])
      out->row_noise[level] = memcpy(doubles + (level + 1) * rows, e->row_noise[level], (size_t)rows * sizeof *doubles);
  if (e->parts_row_noise)
    out->parts_row_noise = memcpy(doubles + (SF_LEVEL_COUNT + 1) * rows, e->parts_row_noise, (size_t)rows * sizeof *doubles);
  out->row_floor = e->row_floor ? memcpy(row_floor, e->row_floor, (size_t)rows * sizeof *row_floor) : NULL;
  if (!e->row_floor) free(row_floor);
  return out;
}
static void subject_free(struct subject *subject) {
  struct sf_expected *e = (struct sf_expected *)(uintptr_t)subject->expected;
  free(e->x), free(e->row_norm), free(e->row_floor), free(e);
  free(subject->clean), free(subject->values), free(subject->shares[0]), free(subject->shares[1]);
}

/* What each microbatch and each data-parallel rank gave of a main gradient: sums of the candidate's gradients, over what the whole sum was
 * divided by. */
static void draw_shares(struct subject *out, struct sf_engine *engine) {
  const struct sf_collector *collector = engine->collector;
  const int64_t elements = out->spec.shape.rows * out->spec.shape.cols;
  const struct sf_slot *main = sf_slot_find(collector, out->id);
  const int64_t counts[2] = {collector->c.train.microbatches, main->of->c.layout.dp}; /* the layout may be that after reloading */
  double sum = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < elements; i++)
    if (fabsf(out->clean[i]) > fabsf(out->clean[at])) at = i;
  for (int which = 0; which < 2; which++) {
    out->shares[which] = calloc((size_t)(counts[which] * elements), sizeof *out->shares[which]);
    if (!out->shares[which]) sf_bench_die("out of memory");
  }
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
    const struct sf_trace_id id = slot->expected->id;
    if (id.kind != SF_KIND_WGRAD || id.step != out->id.step || id.subject != out->id.subject) continue;
    if (!sf_slot_is_whole(slot)) return;
    sum += (double)slot->merged[at];
    const int64_t of[2] = {id.microbatch, slot->dp > 0 ? slot->dp : 0};
    for (int which = 0; which < 2; which++)
      for (int64_t k = 0; k < elements; k++) out->shares[which][of[which] * elements + k] += slot->merged[k];
  }
  if (sum == 0 || out->clean[at] == 0) return;
  const float divisor = (float)(sum / (double)out->clean[at]);
  for (int which = 0; which < 2; which++) {
    for (int64_t k = 0; k < counts[which] * elements; k++) out->shares[which][k] /= divisor;
    out->share_count[which] = counts[which];
  }
}

/* A judged tensor of the kind, drawn from the clean judgement; false when there is none. */
static bool draw_subject(struct subject *out, struct sf_engine *engine, enum sf_kind kind, bool by_module, struct draw *draw) {
  *out = (struct subject){0};
  const struct sf_judgement *judgement = sf_engine_judgement(engine);
  const int module = by_module ? draw_module(engine, kind, draw) : -1;
  const int64_t judged = count_candidates(engine, kind, module);
  if (judged == 0) return false;
  int64_t left = draw_below(draw, judged);
  const struct sf_tensor_result *chosen = judgement->results;
  for (;; chosen++)
    if (is_candidate(chosen, kind, sf_engine_catalog(engine), module) && left-- == 0) break;
  const float *merged = sf_collector_tensor(engine->collector, chosen->id);
  if (!merged) return false;
  out->id = chosen->id;
  out->spec = chosen->expected->spec;
  const bool by_distance = sf_kind_has_noise(kind); /* other kinds are recomputed from the candidate's own tensors */
  out->expected = copied(by_distance ? sf_expectations_at(sf_bench_compared_with(engine), chosen->expected->ordinal) : chosen->expected);
  const size_t size_bytes = (size_t)(out->spec.shape.rows * out->spec.shape.cols) * sizeof *out->clean;
  out->clean = malloc(size_bytes);
  out->values = malloc(size_bytes);
  if (!out->clean || !out->values) sf_bench_die("out of memory");
  memcpy(out->clean, merged, size_bytes);
  if (kind == SF_KIND_MAIN_GRAD) draw_shares(out, engine);
  return true;
}

static void run_case(struct result *result, struct sf_engine *engine, const struct context *context, int64_t index) {
  struct sf_case c;
  struct sf_outcome outcome;
  sf_bench_case(&c, &context->draws, index);
  sf_engine_run(engine, &c, NULL, &outcome);
  if (outcome.status != SF_OK || (outcome.verdict != SF_VERDICT_PASS && outcome.verdict != SF_VERDICT_INCONCLUSIVE)) {
    result->unclean++;
    return;
  }
  const int condition = (int)sf_bench_condition_of(&c);
  struct draw draw = {sf_hash_u64(context->draws.seed, (uint64_t)index)};
  struct subject subjects[SF_KIND_COUNT];
  bool has[SF_KIND_COUNT];
  scale_all(result, engine, &c, context);
  if (!context->runs) return;
  for (int kind = 0; kind < SF_KIND_COUNT; kind++)
    has[kind] = kind != SF_KIND_PARAM && draw_subject(&subjects[kind], engine, (enum sf_kind)kind, context->by_module, &draw);
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    for (int corruption = 0; has[kind] && corruption < CORRUPTIONS; corruption++)
      try_corruption(result, engine, &c, &subjects[kind], (enum corruption)corruption, condition, &draw, context->show != 0);
    if (has[kind]) subject_free(&subjects[kind]);
  }
}

static void work(struct sf_bench_worker *worker) {
  struct sf_engine *engine = sf_bench_engine(false, false);
  int64_t first, last;
  while (sf_bench_next(worker, &first, &last))
    for (int64_t i = first; i < last; i++) run_case(worker->result, engine, worker->ctx, i);
  sf_engine_destroy(engine);
}

/* --- report --------------------------------------------------------------------------------------------------- */

static void merge(void *into, const void *from) { sf_bench_add_counts(into, from, sizeof(struct result)); }

static void count_out(struct sf_json_out *json, const struct count *count, const char *key) {
  if (count->trials + count->no_place == 0) return;
  sf_json_out_object(json, key);
  sf_json_out_int(json, "trials", count->trials);
  sf_json_out_real(json, "flagged_share", count->trials ? (double)count->flagged / (double)count->trials : 0);
  sf_json_out_real(json, "at_tensor_share", count->trials ? (double)count->at_tensor / (double)count->trials : 0);
  sf_json_out_int(json, "redrawn", count->redrawn);
  sf_json_out_int(json, "no_place", count->no_place);
  sf_json_out_end(json);
}

static void scaled_out(struct sf_json_out *json, const struct share *modules) {
  int64_t trials = 0, flagged = 0;
  for (int module = 0; module < SF_MODULE_CLASS_COUNT; module++) trials += modules[module].trials, flagged += modules[module].flagged;
  if (trials == 0) return;
  sf_json_out_object(json, "scaled");
  sf_json_out_int(json, "tensors", trials);
  sf_json_out_real(json, "flagged_share", (double)flagged / (double)trials);
  sf_json_out_end(json);
}

static void ladder_out(struct sf_json_out *json, const struct share ladder[LADDER_STEPS]) {
  if (ladder[0].trials == 0) return;
  sf_json_out_int(json, "ladder_tensors", ladder[0].trials);
  sf_json_out_array(json, "ladder");
  for (int step = 0; step < LADDER_STEPS; step++) {
    sf_json_out_object(json, NULL);
    sf_json_out_real(json, "d", ldexp(1, LADDER_LEAST + step));
    sf_json_out_real(json, "flagged_share", (double)ladder[step].flagged / (double)ladder[step].trials);
    sf_json_out_end(json);
  }
  sf_json_out_end(json);
}

/* (kind, module) pairs of which less than 99 % were flagged. */
static void weak_modules_out(struct sf_json_out *json, const char *key, const struct share shares[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT]) {
  sf_json_out_array(json, key);
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    for (int module = 0; module < SF_MODULE_CLASS_COUNT; module++) {
      const int64_t trials = shares[kind][module].trials, flagged = shares[kind][module].flagged;
      if ((double)flagged >= weak_below * (double)trials) continue;
      sf_json_out_object(json, NULL);
      sf_json_out_text(json, "kind", sf_kind_name((enum sf_kind)kind));
      sf_json_out_text(json, "module", sf_modules[module].name);
      sf_json_out_int(json, "trials", trials);
      sf_json_out_int(json, "flagged", flagged);
      sf_json_out_end(json);
    }
  }
  sf_json_out_end(json);
}

static void condition_out(struct sf_json_out *json, const struct result *total, int condition) {
  sf_json_out_object(json, sf_bench_condition_names[condition]);
  sf_json_out_real(json, "d", scale_by[condition]);
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    if (kind == SF_KIND_PARAM) continue;
    struct count all = {0};
    sf_json_out_object(json, sf_kind_name((enum sf_kind)kind));
    for (int corruption = 0; corruption < CORRUPTIONS; corruption++) {
      const struct count *count = &total->counts[condition][kind][corruption];
      count_out(json, count, corruption_names[corruption]);
      all.trials += count->trials, all.flagged += count->flagged, all.at_tensor += count->at_tensor;
      all.redrawn += count->redrawn, all.no_place += count->no_place;
    }
    count_out(json, &all, "all");
    scaled_out(json, total->scaled[condition][kind]);
    sf_json_out_end(json);
  }
  ladder_out(json, total->ladder[condition]);
  weak_modules_out(json, "weak_modules", total->modules[condition]);
  weak_modules_out(json, "weak_modules_scaled", total->scaled[condition]);
  sf_json_out_end(json);
}

static const struct sf_option options[] = {
    SF_BENCH_WORK_OPTIONS(struct args, 1, 10000000, "Clean cases; each gives up to 24 corrupted runs.",
                          "Seed of the campaign and of the corruptions."),
    SF_BENCH_NUMBER_AT(struct args, show, 0, 1, "1: names each missed corruption on stderr."),
    SF_BENCH_NUMBER_AT(struct args, runs, 0, 1, "0: no corrupted runs, scaled tensors alone."),
    SF_BENCH_NUMBER_AT(struct args, ladder, 0, 1, "1: scaled tensors by every d from 2^-26 to 1/4, too."),
    SF_BENCH_NUMBER_AT(struct args, modules, 0, 1, "1: a kind's modules are drawn alike, however many tensors each has."),
    SF_BENCH_SPACE_OPTIONS(struct args, SF_OPTION_TEXTS, presets),
};
static const struct sf_command command = {.name = "bench_sensitivity",
                                          .help = "Corrupts one tensor of clean runs and counts how often that is flagged.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.cases = 400, .seed = 1, .jobs = 2, .runs = 1};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  static struct context context;
  static struct result total;
  sf_bench_draws(&context.draws, (uint64_t)args.seed, 1, &args.presets, &args.sets);
  context.show = args.show;
  context.by_module = args.modules != 0;
  context.runs = args.runs != 0;
  context.ladder = args.ladder != 0;
  const double start = sf_engine_now();
  sf_bench_fork_merge(&total, args.jobs, sizeof total, args.cases, 4, work, &context, merge);
  struct sf_json_out *json = sf_bench_report("bench_sensitivity", argc, argv);
  sf_json_out_int(json, "cases", args.cases);
  sf_json_out_int(json, "unclean_cases_left_out", total.unclean);
  sf_json_out_int(json, "failed", total.failed);
  for (int condition = 0; condition < SF_BENCH_CONDITIONS; condition++) condition_out(json, &total, condition);
  sf_json_out_real(json, "seconds", sf_engine_now() - start);
  return sf_bench_end(json, total.failed > 0);
}
