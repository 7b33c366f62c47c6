/* The problem behind a finding: the value that the tensor should have, how closely, and the other tensors of the case that may have
 * replaced it. */
#include "harness/tensor/consistent.h"
#include "oracles/diagnose/diagnose.h"
#include "oracles/diagnose/diagnose_related.h"
#include "oracles/judge/collector.h"
#include "oracles/noise/norms.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROBLEM_BLOCK_BYTES = 1 << 18 };

static bool dim_partial(const struct sf_dim_map *dim) {
  for (int32_t i = 0; i < dim->count; i++)
    if (dim->runs[i].partial) return true;
  return false;
}

/* If any map is partial, only the merged tensor can be compared, and no single shard. */
static bool any_partial(const struct sf_diagnosis_shard *shards, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    if (dim_partial(&shards[i].map.rows) || dim_partial(&shards[i].map.cols)) return true;
  return false;
}

/* --- what it should be ----------------------------------------------------------------------------------------- */

static const float *filled(struct sf_related_list *list, struct sf_trace_id id, struct sf_shape shape) {
  float *x = sf_related_alloc(list, (size_t)(shape.rows * shape.cols) * sizeof *x);
  if (x == NULL) return NULL;
  const struct sf_fill fill = sf_fill_for_trace(list->collector->catalog, id);
  sf_fill_range(x, &fill, 0, shape.rows * shape.cols);
  return x;
}

/* The value that the tensor should have; NULL: not known. Received tensors should be what was sent, recomputed ones what the first pass
 * gave. */
static const float *wanted(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_slot *first = slot - slot->phase + SF_SLOT_FIRST;
  if (slot->phase == SF_SLOT_FIRST) return slot->expected->x;
  if (slot->phase == SF_SLOT_RECEIVED && list->collector->c.mode == SF_MODE_ISOLATED)
    return filled(list, first->expected->id, slot->expected->spec.shape);
  return sf_slot_is_whole(first) ? first->merged : NULL;
}

static double noise_of(const struct sf_slot *slot, const struct sf_finding *finding, enum sf_level level) {
  const struct sf_expected *e = slot->expected;
  const double unit = sf_dtype_unit_roundoff(e->spec.promised);
  double noise = unit * e->norm;
  if (slot->phase == SF_SLOT_FIRST && sf_kind_has_noise((enum sf_kind)e->id.kind) && !e->exact) noise = sf_tensor_noise(e, level);
  /* Replicas may differ by far less than Adam's change may be off. */
  if (e->id.kind == SF_KIND_PARAM_DELTA) noise = finding->cls == SF_CLASS_CONFLICT ? 4 * unit * e->norm : sf_factors.adam_rel * e->norm;
  if (e->id.kind == SF_KIND_SCALAR) noise = sf_larger(finding->noise, sf_factors.norm_rel * e->norm);
  if (!isfinite(noise)) noise = unit * e->norm; /* a perturbed run was not finite */
  return isfinite(noise) && noise > (double)FLT_MIN ? noise : (double)FLT_MIN;
}

static const double *row_noise_of(struct sf_related_list *list, const struct sf_slot *slot, const struct sf_finding *finding,
                                  enum sf_level level) {
  const struct sf_expected *e = slot->expected;
  if (finding->row < 0 || finding->cls != SF_CLASS_TOLERANCE || e->spec.shape.rows < 2 || !sf_kind_has_noise((enum sf_kind)e->id.kind))
    return NULL;
  double *rows = sf_related_alloc(list, (size_t)e->spec.shape.rows * sizeof *rows);
  if (rows == NULL) return NULL;
  sf_row_noise(rows, e, level);
  for (int64_t r = 0; r < e->spec.shape.rows; r++) rows[r] = rows[r] > (double)FLT_MIN ? rows[r] : (double)FLT_MIN;
  return rows;
}

/* Masks are consistent data. */
static double kept_of(struct sf_related_list *list, struct sf_trace_id id) {
  const struct sf_case *c = &list->collector->c;
  const int64_t count = c->model.seq * c->train.microbatch_size;
  float *mask = sf_related_alloc(list, (size_t)count * sizeof *mask);
  double kept = 0;
  if (mask == NULL) return 0;
  sf_data_microbatch(NULL, NULL, mask, c, id.step, id.microbatch);
  for (int64_t t = 0; t < count; t++) kept += (double)mask[t];
  return kept;
}

/* --- findings about structure ---------------------------------------------------------------------------------- */

/* Whether the rank traces one layer's tensors instead of another's. *by: distance between the two layers. */
static bool layers_off(const struct sf_collector *collector, const struct sf_finding *finding, int32_t *by) {
  const struct sf_catalog *catalog = collector->catalog;
  const struct sf_slot *slot = sf_slot_find(collector, finding->id);
  if (slot == NULL || finding->rank < 0 || finding->module < 0 || catalog->modules[finding->module].layer < 0) return false;
  const struct sf_module *strange = &catalog->modules[finding->module];
  if (finding->cls != SF_CLASS_GAP && finding->cls != SF_CLASS_OVERLAP) return false;
  const bool traced = finding->cls == SF_CLASS_OVERLAP;
  /* Looks for the same tensor of the nearest layer where the opposite is true: it must be traced and is not, or the other way round. */
  int32_t nearest = 0;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_slot *other = sf_slot_at(collector, i, slot->phase);
    const struct sf_module *module = &catalog->modules[other->expected->spec.module];
    if (other->expected->id.kind != finding->id.kind || module->cls != strange->cls || module->layer == strange->layer) continue;
    if (other->expected->id.step != finding->id.step || other->expected->id.microbatch != finding->id.microbatch) continue;
    const bool expects = other->holders > 0 && sf_slot_expects(other, &other->of->places[finding->rank]),
               has = sf_slot_has_rank(other, finding->rank);
    const bool opposite = traced ? expects && !has : other->stranger_rank == finding->rank;
    const int32_t distance = traced ? strange->layer - module->layer : module->layer - strange->layer;
    if (opposite && (nearest == 0 || (distance < 0 ? -distance : distance) < (nearest < 0 ? -nearest : nearest))) nearest = distance;
  }
  *by = nearest;
  return nearest != 0;
}

static void diagnose_structure(struct sf_diagnosis *out, const struct sf_collector *collector, const struct sf_finding *finding) {
  int32_t by = 0;
  if (!layers_off(collector, finding, &by)) return;
  out->cls = SF_DIAGNOSIS_SHIFTED;
  snprintf(out->cause, sizeof out->cause, "shifted layers");
  snprintf(out->text, sizeof out->text, "rank %d's layers are shifted by %d: it has layer %d where it must have layer %d", finding->rank,
           by, collector->catalog->modules[finding->module].layer + (finding->cls == SF_CLASS_GAP ? by : 0),
           collector->catalog->modules[finding->module].layer - (finding->cls == SF_CLASS_GAP ? 0 : by));
}

/* --- the problem ----------------------------------------------------------------------------------------------- */

static const struct sf_module *module_of(const struct sf_catalog *catalog, struct sf_trace_id id, const struct sf_trace_spec *spec) {
  return &catalog->modules[sf_kind_is_of_param(id.kind) ? catalog->params[id.subject].module : spec->module];
}

static unsigned meshes_of(const struct sf_catalog *catalog, const struct sf_diagnosis_problem *p) {
  if (p->id.kind == SF_KIND_SCALAR) return SF_MESH_DENSE | SF_MESH_STAGES | (p->c->moe.experts > 0 ? SF_MESH_EXPERTS : 0);
  switch (module_of(catalog, p->id, &p->spec)->cls) {
  case SF_MODULE_EXPERTS_FC1:
  case SF_MODULE_EXPERTS_FC2:
    return SF_MESH_EXPERTS;
  case SF_MODULE_WORD_EMBEDDINGS:
  case SF_MODULE_OUTPUT_LAYER:
  case SF_MODULE_LOSS:
    return SF_MESH_DENSE | SF_MESH_STAGES;
  default:
    return SF_MESH_DENSE;
  }
}

static enum sf_status pose(struct sf_diagnosis *out, const struct sf_slot *slot, const struct sf_finding *finding,
                           const struct sf_diagnosis_shard *shards, int32_t shard_count, struct sf_related_list *list,
                           struct sf_picture *picture) {
  const enum sf_level reached = slot->expected->level, level = reached >= SF_LEVEL_FULL ? SF_LEVEL_FULL : reached;
  const struct sf_diagnosis_shard merged = {.rank = -1, .map = sf_shard_map_whole(slot->expected->spec.shape), .data = slot->merged};
  struct sf_diagnosis_problem p = {
      .c = &slot->of->c, .id = finding->id, .spec = slot->expected->spec, .shards = shards, .shard_count = shard_count, .picture = picture};
  if (any_partial(shards, shard_count)) {
    if (!sf_slot_is_whole(slot)) return SF_OK;
    p.shards = &merged;
    p.shard_count = 1;
  }
  p.view.x = wanted(list, slot);
  p.view.noise = noise_of(slot, finding, level);
  p.view.row_noise = row_noise_of(list, slot, finding, level);
  if (p.view.x == NULL) return list->status;
  const char *module = sf_modules[list->collector->catalog->modules[p.spec.module].cls].name;
  p.of_attention = strstr(module, "attention.") != NULL;
  p.of_scores = strstr(module, "attention.core_attention") != NULL;
  p.kept = kept_of(list, finding->id);
  p.meshes = meshes_of(list->collector->catalog, &p);
  sf_related_collect(list, slot);
  p.more_sizes = sf_amax_ratios(&p.more_size_count, list, slot->expected);
  p.view.is_norm = p.id.kind == SF_KIND_SCALAR && p.id.subject == SF_SCALAR_GRAD_NORM;
  p.view.related = list->at;
  p.view.related_count = list->count;
  if (list->status != SF_OK) return list->status;
  const double of_adam = sf_factors.adam_rel * slot->expected->norm;
  if (p.id.kind == SF_KIND_PARAM_DELTA && p.view.noise < of_adam) {
    /* Replicas may differ by far less than what Adam makes of a mistake can be predicted. */
    static const double FAR = 30; /* nearer than so many levels several mistakes fit */
    const double of_replicas = p.view.noise;
    p.view.noise = of_adam;
    const enum sf_status status = sf_diagnose_problem(out, &p);
    if (status != SF_OK || (sf_diagnosis_says_why(out) && out->cls != SF_DIAGNOSIS_UNSYNCHRONISED && out->whole > FAR)) return status;
    p.view.noise = of_replicas;
  }
  return sf_diagnose_problem(out, &p);
}

/* Assembles whole shards from the ranges of one place, since explanations need whole shards. Elements that no rank holds stay zero. *count:
 * shards, then places. */
static struct sf_diagnosis_shard *assembled(struct sf_related_list *list, const struct sf_slot *slot,
                                            const struct sf_diagnosis_shard *shards, int32_t *count) {
  struct sf_diagnosis_shard *places = sf_related_alloc(list, (size_t)*count * sizeof *places);
  int32_t place_count = 0;
  for (int32_t i = 0; i < *count && places != NULL; i++) {
    const struct sf_diagnosis_shard *s = &shards[i];
    const int64_t elements = sf_shard_map_box_count(&s->map);
    int32_t at = 0;
    while (at < place_count && !sf_flat_same_place(slot, places[at].rank, s->rank)) at++;
    if (at == place_count) {
      float *box = sf_related_alloc(list, (size_t)elements * sizeof *box);
      if (box == NULL) return NULL;
      memset(box, 0, (size_t)elements * sizeof *box);
      places[place_count] = *s;
      places[place_count].map.flat = false;
      places[place_count++].data = box;
    }
    memcpy((float *)(uintptr_t)places[at].data + s->map.first, s->data, (size_t)s->map.count * sizeof(float));
  }
  *count = place_count;
  return places;
}

/* The judgement's finding is the diagnosis: no distance says more, since noise hides the rounding. */
static void diagnose_bits(struct sf_diagnosis *out, const struct sf_finding *finding) {
  out->cls = SF_DIAGNOSIS_LOW_PRECISION;
  snprintf(out->cause, sizeof out->cause, "rounded to bf16"); /* as explain_precision has it */
  snprintf(out->text, sizeof out->text, "%s", finding->text);
}

/* Whether the class of a finding says all that can be said. */
static bool is_said_by_class(struct sf_diagnosis *out, const struct sf_collector *collector, const struct sf_finding *finding) {
  switch (finding->cls) {
  case SF_CLASS_GAP:
  case SF_CLASS_OVERLAP:
  case SF_CLASS_MAP:
    diagnose_structure(out, collector, finding);
    return true;
  case SF_CLASS_BITS:
    diagnose_bits(out, finding);
    return true;
  case SF_CLASS_ROUNDING:
    return true; /* below a noise level every simple mistake fits */
  default:
    return false;
  }
}

/* --- the picture -------------------------------------------------------------------------------------------------- */

/* Calls for each element that the shard holds, unless its map is wrong. */
static void draw_holder(struct sf_picture *picture, const struct sf_diagnosis_shard *shard) {
  const struct sf_dim_map *rows = &shard->map.rows, *cols = &shard->map.cols;
  if (!sf_shard_map_valid(&shard->map, picture->shape)) return;
  struct sf_picture_holder *holder = sf_picture_add_holder(picture, shard->rank, dim_partial(rows) || dim_partial(cols));
  int64_t number = 0;
  for (int32_t a = 0; a < rows->count && holder; a++)
    for (int64_t r = rows->runs[a].start; r < rows->runs[a].start + rows->runs[a].len; r++)
      for (int32_t b = 0; b < cols->count; b++)
        for (int64_t k = cols->runs[b].start; k < cols->runs[b].start + cols->runs[b].len; k++, number++)
          if (!shard->map.flat || (number >= shard->map.first && number < shard->map.first + shard->map.count))
            sf_picture_hold(picture, holder, r, k);
}

static void draw_holders(struct sf_picture *picture, struct sf_shape shape, const struct sf_diagnosis_shard *shards, int32_t count) {
  if (shape.rows < 1 || shape.cols < 1) return;
  sf_picture_begin(picture, shape);
  for (int32_t i = 0; i < count; i++) draw_holder(picture, &shards[i]);
}

enum sf_status sf_diagnose_finding(struct sf_diagnosis *out, struct sf_picture *picture, const struct sf_collector *collector,
                                   const struct sf_finding *finding, const struct sf_diagnosis_shard *shards, int32_t shard_count) {
  struct sf_diagnosis unused;
  *out = (struct sf_diagnosis){.cls = SF_DIAGNOSIS_UNKNOWN};
  const struct sf_slot *slot = sf_slot_find(collector, finding->id);
  if (slot == NULL) return SF_OK;
  const bool is_said = is_said_by_class(out, collector, finding);
  if (picture) draw_holders(picture, slot->expected->spec.shape, shards, shard_count);
  if ((is_said && !picture) || slot->unusable || shard_count == 0) return SF_OK;
  struct sf_related_list list = {.collector = collector, .arena = sf_arena_create(PROBLEM_BLOCK_BYTES, false)};
  if (list.arena == NULL) return SF_ENOMEM;
  if (shards[0].map.flat) shards = assembled(&list, slot, shards, &shard_count);
  struct sf_collector anchor;
  enum sf_status status = shards == NULL ? SF_ENOMEM : SF_OK;
  if (status == SF_OK && finding->anchored) {
    status = sf_collector_anchor(&anchor, collector, list.arena);
    list.collector = &anchor;
    if (status == SF_OK) slot = sf_slot_find(&anchor, finding->id);
  }
  if (status == SF_OK) status = pose(is_said ? &unused : out, slot, finding, shards, shard_count, &list, picture);
  sf_arena_destroy(list.arena);
  return status;
}
