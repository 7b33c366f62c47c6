/* The view of a problem of the built-in layers: places by maps, groups by the mesh, names of factors by the case. */
#include "oracles/diagnose/diagnose.h"

#include "harness/base/assert.h"
#include "harness/tensor/consistent.h"

#include <math.h>
#include <stdio.h>

enum { VIEW_BLOCK_BYTES = 1 << 18, SIZES_MAX = 104 };

struct posing {
  const struct sf_diagnosis_problem *p;
  struct sf_arena *arena;
  struct sf_tensor_view view;
  struct sf_view_size sizes[SIZES_MAX];
  struct sf_coord *at; /* one for each shard */
};

/* --- shards ------------------------------------------------------------------------------------------------------ */

/* Parameters of experts lie on the expert mesh (TP etp, EP ep, DP edp); outputs of experts are cut as all tokens are. */
static bool is_on_expert_mesh(const struct sf_diagnosis_problem *p) {
  return p->meshes == SF_MESH_EXPERTS && p->id.kind != SF_KIND_ACT && p->id.kind != SF_KIND_ACT_GRAD;
}

/* The rank's coordinates; zeros for the merged tensor, which has no rank. */
static struct sf_coord coord_of(const struct sf_diagnosis_problem *p, int32_t rank) {
  if (rank < 0) return (struct sf_coord){{0}};
  const struct sf_mesh mesh = sf_mesh_from_layout(&p->c->layout);
  struct sf_coord coord = sf_mesh_coord(&mesh, rank);
  if (!is_on_expert_mesh(p)) return coord;
  const struct sf_expert_place place = sf_mesh_expert_place(&p->c->layout, rank);
  coord.at[SF_AXIS_TP] = place.etp;
  coord.at[SF_AXIS_EP] = place.ep;
  coord.at[SF_AXIS_DP] = place.edp;
  coord.at[SF_AXIS_CP] = 0;
  return coord;
}

static enum sf_status add_shards(struct posing *posing) {
  const struct sf_diagnosis_problem *p = posing->p;
  const int64_t cols = p->spec.shape.cols;
  struct sf_view_shard *shards = sf_arena_alloc(posing->arena, (size_t)(p->shard_count + 1) * sizeof *shards);
  posing->at = sf_arena_alloc(posing->arena, (size_t)(p->shard_count + 1) * sizeof *posing->at);
  for (int32_t i = 0; i < p->shard_count && shards != NULL && posing->at != NULL; i++) {
    const struct sf_diagnosis_shard *from = &p->shards[i];
    const int64_t count = sf_shard_map_box_count(&from->map);
    const struct sf_coord *coord = &posing->at[i];
    int64_t *at = sf_arena_alloc(posing->arena, (size_t)(count + 1) * sizeof *at);
    if (at == NULL) return SF_ENOMEM;
    posing->at[i] = coord_of(p, from->rank);
    shards[i] = (struct sf_view_shard){from->rank, coord->at[SF_AXIS_TP], coord->at[SF_AXIS_DP], count, at, from->data};
    const struct sf_dim_map *rows = &from->map.rows, *columns = &from->map.cols;
    for (int32_t a = 0; a < rows->count; a++)
      for (int64_t r = rows->runs[a].start; r < rows->runs[a].start + rows->runs[a].len; r++)
        for (int32_t b = 0; b < columns->count; b++)
          for (int64_t k = 0; k < columns->runs[b].len; k++) *at++ = r * cols + columns->runs[b].start + k;
  }
  posing->view.shards = shards;
  posing->view.shard_count = p->shard_count;
  return shards != NULL && posing->at != NULL ? SF_OK : SF_ENOMEM;
}

/* --- groups ------------------------------------------------------------------------------------------------------ */

/* Whether the coordinates differ only on the axes of the mask. */
static bool same_group(const struct sf_coord *a, const struct sf_coord *b, unsigned axes) {
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++)
    if (!(axes >> axis & 1u) && a->at[axis] != b->at[axis]) return false;
  return true;
}

/* "tp", "tp x dp"; for experts "etp", "ep x edp". */
static void name_group(struct sf_view_group *group, const struct sf_diagnosis_problem *p, unsigned axes) {
  size_t length = 0;
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++) {
    if (!(axes >> axis & 1u) || length >= sizeof group->name) continue;
    const bool other = is_on_expert_mesh(p) && (axis == SF_AXIS_TP || axis == SF_AXIS_DP);
    length += (size_t)snprintf(group->name + length, sizeof group->name - length, "%s%s%s", length > 0 ? " x " : "", other ? "e" : "",
                               sf_axis_name((enum sf_axis)axis));
  }
}

/* Adds a group for each set of axes: its ranks have the same coordinates on all other axes. */
static enum sf_status add_groups(struct posing *posing) {
  const struct sf_diagnosis_problem *p = posing->p;
  struct sf_view_group *groups = sf_arena_alloc(posing->arena, (SF_AXES_ALL + 1) * sizeof *groups);
  if (groups == NULL) return SF_ENOMEM;
  posing->view.groups = groups;
  for (unsigned axes = 1; axes <= SF_AXES_ALL && p->shard_count > 1; axes++) {
    int32_t *of_rank = sf_arena_alloc(posing->arena, (size_t)sf_case_ranks(p->c) * sizeof *of_rank);
    if (of_rank == NULL) return SF_ENOMEM;
    for (int32_t i = 0; i < p->shard_count; i++) {
      int32_t first = 0;
      while (!same_group(&posing->at[first], &posing->at[i], axes)) first++;
      of_rank[p->shards[i].rank] = first;
    }
    struct sf_view_group *group = &groups[posing->view.group_count++];
    *group = (struct sf_view_group){.of_rank = of_rank};
    group->kind = axes == SF_AXES(SF_AXIS_TP)                                  ? SF_GROUP_TENSOR
                  : (axes & ~(SF_AXES(SF_AXIS_CP) | SF_AXES(SF_AXIS_DP))) == 0 ? SF_GROUP_DATA
                                                                               : SF_GROUP_OTHER;
    name_group(group, p, axes);
  }
  return SF_OK;
}

/* --- what factors may be ------------------------------------------------------------------------------------------ */

static void add_size(struct posing *posing, int32_t tier, double value, const char *name, const char *inverse) {
  SF_ASSERT(posing->view.size_count < SIZES_MAX);
  if (value > 0 && value != 1 && isfinite(value))
    posing->sizes[posing->view.size_count++] = (struct sf_view_size){tier, value, name, inverse};
}

static void add_product(struct posing *posing, int64_t a, int64_t b, const char *name) {
  if (a > 1 && b > 1) add_size(posing, 0, (double)(a * b), name, NULL);
}

static void add_ratio(struct posing *posing, int64_t over, int64_t under, const char *name, const char *inverse) {
  if (over > 1 && under > 1) add_size(posing, 1, (double)over / (double)under, name, inverse); /* else it is a single size */
}

static void add_axes(struct posing *posing) {
  const struct sf_diagnosis_problem *p = posing->p;
  const struct sf_layout *l = &p->c->layout;
  const int64_t edp = l->tp * l->cp * l->dp / (l->etp * l->ep);
  if (p->meshes & SF_MESH_EXPERTS) {
    add_size(posing, 0, (double)l->etp, "etp", NULL);
    add_size(posing, 0, (double)l->ep, "ep", NULL);
    add_size(posing, 0, (double)edp, "edp", NULL);
    add_product(posing, l->etp, l->ep, "(etp x ep)");
    add_product(posing, l->ep, edp, "(ep x edp)");
    add_product(posing, l->etp, edp, "(etp x edp)");
  }
  if (p->meshes & SF_MESH_DENSE) {
    add_size(posing, 0, (double)l->tp, "tp", NULL);
    add_size(posing, 0, (double)l->cp, "cp", NULL);
    add_size(posing, 0, (double)l->dp, "dp", NULL);
    add_product(posing, l->dp, l->cp, "(dp x cp)");
    add_product(posing, l->tp, l->cp, "(tp x cp)");
    add_product(posing, l->tp, l->dp, "(tp x dp)");
  }
  if (p->meshes & SF_MESH_STAGES) add_size(posing, 0, (double)l->pp, "pp", NULL);
  if (p->id.kind != SF_KIND_ACT && p->id.kind != SF_KIND_PARAM) { /* forward activations and parameters are not sums over microbatches */
    add_size(posing, 0, (double)p->c->train.microbatches, "the number of microbatches", NULL);
    if (l->dp > 1) add_size(posing, 0, (double)p->c->train.microbatches / (double)l->dp, "the number of microbatches of a rank", NULL);
  }
  if (p->id.kind == SF_KIND_ACT || p->id.kind == SF_KIND_ACT_GRAD || p->id.kind == SF_KIND_WGRAD)
    add_size(posing, 0, 1 - (double)p->c->train.dropout_milli / 1000.0, "the share that dropout keeps", NULL);
  if (!(p->meshes & SF_MESH_EXPERTS)) return;
  add_ratio(posing, l->etp, l->tp, "etp / tp", "tp / etp");
  add_ratio(posing, l->dp * l->cp, edp, "(dp x cp) / edp", "edp / (dp x cp)");
}

static void add_counts(struct posing *posing) {
  const struct sf_diagnosis_problem *p = posing->p;
  const struct sf_case *c = p->c;
  const double step = (double)sf_data_step_tokens(c, p->id.step), own = p->kept, m = (double)c->train.microbatches;
  const double all = (double)(c->model.seq * c->train.microbatch_size);
  add_size(posing, 2, step / (own * m), "(the step's mean token count over the microbatch's own)", NULL);
  add_size(posing, 3, step / own, "(the step's token count over the microbatch's own)", NULL);
  for (int64_t depth = 0; depth < c->model.mtp_depth; depth++)
    add_size(posing, 3, (double)sf_data_step_tokens_ahead(c, p->id.step, depth) / step,
             "(the tokens of multi-token prediction over those of the main loss)", NULL);
  double so_far = 0;
  for (int64_t s = 0; s <= p->id.step; s++) so_far += (double)sf_data_step_tokens(c, s);
  add_size(posing, 4, so_far / step, "(the tokens of all steps so far over the step's)", NULL);
  add_size(posing, 4, step, "the step's token count", NULL);
  add_size(posing, 5, own, "the microbatch's token count", NULL);
  add_size(posing, 6, all, "the microbatch's tokens, masked ones too", NULL);
  add_size(posing, 7, all / own, "(the microbatch's tokens over those that its mask keeps)", NULL);
  add_size(posing, 8, all * m / step, "(the step's tokens over those that the masks keep)", NULL);
  if (p->of_scores) add_size(posing, 9, sqrt((double)c->model.head_dim), "the root of the head size", NULL);
  if (c->precision.loss_scale_log2 > 0) add_size(posing, 9, exp2((double)c->precision.loss_scale_log2), "the loss scale", NULL);
  if (p->id.kind == SF_KIND_PARAM)
    add_size(posing, 9, 1 - (double)c->train.lr_micro * 1e-6 * (double)c->train.weight_decay_milli / 1000.0,
             "(1 - the learning rate x the weight decay)", NULL);
  for (int32_t i = 0; i < p->more_size_count; i++) {
    const struct sf_view_size *more = &p->more_sizes[i];
    add_size(posing, more->tier, more->value, more->name, more->inverse);
  }
  add_size(posing, 9, (double)c->model.layers, "the number of layers", NULL);
  add_size(posing, 9, (double)c->train.microbatch_size, "the number of sequences of a microbatch", NULL);
  add_size(posing, 9, (double)c->model.mtp_depth, "the number of predicted tokens", NULL);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* Heads of what attention puts out or takes one by one, experts of their weights. */
static void add_parts(struct posing *posing) {
  const struct sf_diagnosis_problem *p = posing->p;
  const bool rows_are_experts = sf_cut_is_expert(p->spec.row_cut), is_by_experts = rows_are_experts || sf_cut_is_expert(p->spec.col_cut);
  const struct sf_model *m = &p->c->model;
  struct sf_tensor_view *view = &posing->view;
  const int64_t rows = p->spec.shape.rows, cols = p->spec.shape.cols;
  if (is_by_experts) {
    view->part_name = "experts";
    view->parts_of_rows = rows_are_experts;
    view->part_size = (rows_are_experts ? rows : cols) / p->c->moe.experts;
  } else if (p->of_attention && p->spec.col_cut == SF_CUT_EVEN && cols == m->heads * m->head_dim) {
    view->part_name = "heads";
    view->part_size = m->head_dim;
  } else if (p->of_attention && p->spec.row_cut == SF_CUT_EVEN && rows == m->heads * m->head_dim) {
    view->part_name = "heads";
    view->parts_of_rows = true;
    view->part_size = m->head_dim;
  }
}

static void add_facts(struct posing *posing) {
  const struct sf_diagnosis_problem *p = posing->p;
  const struct sf_layout *l = &p->c->layout;
  const struct sf_model *m = &p->c->model;
  const bool of_experts = p->meshes == SF_MESH_EXPERTS;
  struct sf_tensor_view *view = &posing->view;
  view->kind = (enum sf_kind)p->id.kind;
  view->shape = p->spec.shape;
  view->promised = p->spec.promised;
  view->tp_name = of_experts ? "etp" : "tp";
  view->tp_size = of_experts ? l->etp : l->tp;
  view->row_parts = l->tp;
  view->data_ranks = l->dp;
  view->microbatches = p->c->train.microbatches / l->dp;
  view->fused = (struct sf_view_fused){p->spec.row_cut, p->spec.col_cut, m->heads, m->kv_heads, m->head_dim};
  view->sizes = posing->sizes;
}

enum sf_status sf_diagnose_problem(struct sf_diagnosis *out, const struct sf_diagnosis_problem *problem) {
  struct posing posing = {.p = problem, .view = problem->view, .arena = sf_arena_create(VIEW_BLOCK_BYTES, false)};
  if (posing.arena == NULL) return SF_ENOMEM;
  add_facts(&posing);
  add_parts(&posing);
  add_axes(&posing);
  add_counts(&posing);
  enum sf_status status = add_shards(&posing);
  if (status == SF_OK) status = add_groups(&posing);
  if (status == SF_OK && problem->picture) sf_picture_of_view(problem->picture, &posing.view);
  if (status == SF_OK) status = sf_diagnose(out, &posing.view);
  sf_arena_destroy(posing.arena);
  return status;
}
