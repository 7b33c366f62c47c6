/* Structure: which ranks must hold which tensor in the layout of its step, and which part of it. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"

/* --- owners --------------------------------------------------------------------------------------------------- */

static int32_t stage_of_layer(const struct sf_case *c, int32_t layer) {
  for (int64_t stage = 0; stage < sf_case_stage_count(c); stage++) {
    int64_t first, count;
    sf_case_stage_layers(c, stage, &first, &count);
    if (layer >= first && layer < first + count) return (int32_t)stage;
  }
  SF_ASSERT(!"a layer that no stage holds");
  return -1;
}

static int32_t stage_of_module(const struct sf_case *c, const struct sf_module *module) {
  if (module->layer >= 0 && module->layer < c->model.layers) return stage_of_layer(c, module->layer);
  const bool is_first = module->cls == SF_MODULE_WORD_EMBEDDINGS || module->cls == SF_MODULE_EMBEDDING;
  return is_first ? 0 : (int32_t)sf_case_stage_count(c) - 1;
}

/* The pipeline rank on which a stage stands. */
static int32_t rank_of_stage(const struct sf_case *c, int32_t stage) { return stage % (int32_t)c->layout.pp; }

static void assign_param(struct sf_slot *slot, const struct sf_collector *collector) {
  const struct sf_case *c = &slot->of->c;
  const struct sf_trace_id id = slot->expected->id;
  const struct sf_module *module = &collector->catalog->modules[collector->catalog->params[id.subject].module];
  const int32_t last = (int32_t)c->layout.pp - 1;
  slot->stage = rank_of_stage(c, stage_of_module(c, module));
  if (id.kind == SF_KIND_WGRAD) {
    if (id.call > 0) slot->stage = last; /* uses as output_layer, and in multi-token prediction */
    slot->dp = (int32_t)(id.microbatch % c->layout.dp);
    slot->holders = (int32_t)(c->layout.tp * c->layout.cp);
    return;
  }
  const bool is_shared = module->cls == SF_MODULE_WORD_EMBEDDINGS && (c->model.tied || c->model.mtp_depth > 0) && last > 0;
  if (is_shared) slot->second_stage = last;
  slot->is_flat = c->layout.zero > 0 && (id.kind == SF_KIND_MAIN_GRAD || id.kind == SF_KIND_PARAM_DELTA);
  slot->holders = (int32_t)(c->layout.tp * c->layout.cp * c->layout.dp) * (is_shared ? 2 : 1);
}

/* The first pass of an activation or its gradient; the recomputed tensor and the one that the neighbour stage receives follow from it. */
static void assign_module(struct sf_slot *slots, const struct sf_collector *collector) {
  const struct sf_case *c = &slots->of->c;
  struct sf_slot *first = &slots[SF_SLOT_FIRST], *received = &slots[SF_SLOT_RECEIVED], *recomputed = &slots[SF_SLOT_RECOMPUTED];
  const struct sf_trace_id id = first->expected->id;
  const struct sf_module *module = &collector->catalog->modules[id.subject];
  const bool is_act = id.kind == SF_KIND_ACT;
  const int32_t stage = stage_of_module(c, module), holders = (int32_t)(c->layout.tp * c->layout.cp);
  for (int phase = 0; phase < SF_SLOT_PHASES; phase++) {
    slots[phase].stage = rank_of_stage(c, stage);
    slots[phase].dp = (int32_t)(id.microbatch % c->layout.dp);
  }
  first->holders = holders;
  const bool in_decoder = module->layer >= 0 && module->layer < c->model.layers;
  if (is_act && in_decoder && c->train.recompute_layers > 0) recomputed->holders = holders;
  if (!in_decoder || module->cls != (is_act ? SF_MODULE_MLP_BDA : SF_MODULE_SELF_ATTN_BDA)) return;
  int64_t layer, count;
  sf_case_stage_layers(c, stage, &layer, &count);
  const bool is_sent =
      is_act ? module->layer == layer + count - 1 && stage < (int32_t)sf_case_stage_count(c) - 1 : module->layer == layer && stage > 0;
  if (!is_sent) return;
  received->stage = rank_of_stage(c, is_act ? stage + 1 : stage - 1);
  received->holders = holders;
}

void sf_structure_assign(struct sf_collector *collector) {
  for (int32_t i = 0; i < collector->count; i++) {
    struct sf_slot *slots = sf_slot_at(collector, i, SF_SLOT_FIRST);
    for (int phase = 0; phase < SF_SLOT_PHASES; phase++) {
      slots[phase].stage = slots[phase].second_stage = slots[phase].dp = -1;
      slots[phase].holders = 0;
      slots[phase].is_flat = false;
    }
    switch ((enum sf_kind)slots->expected->id.kind) {
    case SF_KIND_ACT:
    case SF_KIND_ACT_GRAD:
      assign_module(slots, collector);
      break;
    case SF_KIND_SCALAR:
      slots->holders = collector->world;
      break;
    default:
      assign_param(slots, collector);
      break;
    }
  }
}

bool sf_slot_expects(const struct sf_slot *slot, const struct sf_place_of_rank *place) {
  if (slot->stage < 0) return true;
  if (slot->dp >= 0 && place->dp != slot->dp) return false;
  return place->pp == slot->stage || place->pp == slot->second_stage;
}

bool sf_slot_has_rank(const struct sf_slot *slot, int32_t rank) {
  if (slot->ranks == NULL || !sf_slot_expects(slot, &slot->of->places[rank])) return false;
  const int32_t bit = sf_slot_rank_bit(slot, rank);
  return (slot->ranks[bit / 64] >> (bit % 64)) & 1;
}

int32_t sf_slot_missing_rank(const struct sf_collector *collector, const struct sf_slot *slot) {
  if (slot->arrived == slot->holders) return -1;
  for (int32_t rank = 0; rank < collector->world; rank++)
    if (sf_slot_expects(slot, &slot->of->places[rank]) && !sf_slot_has_rank(slot, rank)) return rank;
  return -1;
}

static bool cut_holds(const struct sf_cut_rank *cut, int64_t index) {
  for (int32_t i = 0; i < cut->count; i++)
    if (index >= cut->pieces[i].start && index < cut->pieces[i].start + cut->pieces[i].len) return true;
  return false;
}

int32_t sf_slot_rank_of(const struct sf_collector *collector, const struct sf_slot *slot, int64_t row, int64_t col) {
  if (slot->element_holders != NULL) return slot->element_holders[row * slot->expected->spec.shape.cols + col];
  for (int32_t rank = 0; rank < collector->world; rank++) {
    const struct sf_place_of_rank *place = &slot->of->places[rank];
    if (!sf_slot_expects(slot, place)) continue;
    const bool holds =
        cut_holds(sf_cut_of_rank(collector, slot->row_plan, rank), row) && cut_holds(sf_cut_of_rank(collector, slot->col_plan, rank), col);
    if (holds) return rank;
  }
  return -1;
}

/* --- declared maps -------------------------------------------------------------------------------------------- */

/* The axes over which a part of the dimension is partial; *all: those over which all of it is. */
static uint32_t partial_axes(const struct sf_dim_map *dim, uint32_t *all) {
  uint32_t some = 0;
  for (int32_t i = 0; i < dim->count; i++) {
    some |= dim->runs[i].partial;
    *all &= dim->runs[i].partial;
  }
  return some;
}

/* Only two kinds of tensors may be traced as partial sums: weight gradients of a microbatch, and key and value gradients that several tp
 * ranks share. A weight gradient is always partial over cp, since each rank has seen only its own tokens. */
static bool partial_fits(const struct sf_case *c, const struct sf_expected *e, const struct sf_shard_map *map) {
  const struct sf_layout *l = &c->layout;
  const bool is_wgrad = e->id.kind == SF_KIND_WGRAD;
  const bool shares_heads = e->id.kind == SF_KIND_ACT_GRAD && e->spec.col_cut == SF_CUT_QKV && l->tp > c->model.kv_heads;
  const uint32_t must = is_wgrad && l->cp > 1 ? SF_AXES(SF_AXIS_CP) : 0;
  const uint32_t may = must | (is_wgrad || shares_heads ? SF_AXES(SF_AXIS_TP) : 0);
  uint32_t all_rows = UINT32_MAX, all_cols = UINT32_MAX;
  const uint32_t some = partial_axes(&map->rows, &all_rows) | partial_axes(&map->cols, &all_cols);
  return (some & ~may) == 0 && ((all_rows | all_cols) & must) == must;
}

bool sf_structure_map_fits(const struct sf_collector *collector, const struct sf_slot *slot, int32_t rank, const struct sf_shard_map *map,
                           int64_t rows, int64_t cols) {
  const struct sf_expected *e = slot->expected;
  const struct sf_cut_rank *row_cut = sf_cut_of_rank(collector, slot->row_plan, rank),
                           *col_cut = sf_cut_of_rank(collector, slot->col_plan, rank);
  if (map->flat != slot->is_flat || !sf_shard_map_valid(map, e->spec.shape)) return false;
  const struct sf_shape local = map->flat ? sf_shard_map_local_shape(map) : (struct sf_shape){row_cut->length, col_cut->length};
  if (rows != local.rows || cols != local.cols) return false;
  if (!sf_cut_rank_matches(row_cut, &map->rows) || !sf_cut_rank_matches(col_cut, &map->cols)) return false;
  return partial_fits(&slot->of->c, e, map);
}
