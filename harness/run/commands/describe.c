#include "harness/run/commands/describe.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/run/opfuzz/op_report.h"
#include "harness/run/trial/case_size.h"
#include "harness/spec/mesh.h"
#include "harness/tensor/shard_map.h"
#include "targets/builtin/faults/plants.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_SHOWN = 16, GROUPS_SHOWN = 16, FIRST_GROUPS_SHOWN = 8 };

static void describe_model(struct sf_text *out, const struct sf_case *c) {
  const struct sf_model *m = &c->model;
  sf_text_append(
      out, "model      %" PRId64 " layers, hidden %" PRId64 ", %" PRId64 " heads of %" PRId64 " (%" PRId64 " key/value), ffn %" PRId64,
      m->layers, m->hidden, m->heads, m->head_dim, m->kv_heads, m->ffn);
  sf_text_append(out, ", vocabulary %" PRId64 " padded to %" PRId64 ", norm %s, activation %s, positions %s%s%s%s\n", m->vocab,
                 m->vocab_padded, sf_case_choice(c, "model.norm"), sf_case_choice(c, "model.activation"),
                 sf_case_choice(c, "model.positions"), m->bias ? ", biases" : "", m->tied ? ", tied" : "", m->adapter ? ", adapter" : "");
  if (c->moe.experts > 0)
    sf_text_append(out, "experts    %" PRId64 " of ffn %" PRId64 ", %" PRId64 " a token, router %s, scope %s\n", c->moe.experts, c->moe.ffn,
                   c->moe.topk, sf_case_choice(c, "moe.router"), sf_case_choice(c, "moe.scope"));
}

static void describe_training(struct sf_text *out, const struct sf_case *c) {
  const bool fp8 = c->precision.compute == SF_COMPUTE_FP8;
  sf_text_append(out,
                 "training   %" PRId64 " steps of %" PRId64 " microbatches of %" PRId64 " sequences of %" PRId64
                 " tokens, loss %s, %s%s%s, mode %s\n",
                 c->train.steps, c->train.microbatches, c->train.microbatch_size, c->model.seq, sf_case_choice(c, "train.loss_norm"),
                 sf_case_choice(c, "precision.compute"), fp8 ? " with scaling " : "", fp8 ? sf_case_choice(c, "precision.fp8_recipe") : "",
                 sf_case_choice(c, "mode"));
  sf_text_append(out, "data       tokens %s, mask %s, weights %s, activations %s, gradients %s\n", sf_case_choice(c, "data.tokens"),
                 sf_case_choice(c, "data.mask"), sf_case_choice(c, "data.weights"), sf_case_choice(c, "data.acts"),
                 sf_case_choice(c, "data.grads"));
}

/* The number of leading entries that have the same distance. */
static int32_t run_length(const int32_t *numbers, int32_t count) {
  int32_t length = count < 2 ? count : 2;
  while (length < count && numbers[length] - numbers[length - 1] == numbers[1] - numbers[0]) length++;
  return length;
}

/* "{0-7}", "{0, 8, ... 2040}", "{0, 1, 4, 5}": ascending numbers, with their runs cut short. */
static void append_set(struct sf_text *out, const int32_t *numbers, int32_t count) {
  enum { RANGE_MIN = 3, STRIDE_MIN = 5 };
  sf_text_append(out, " {");
  for (int32_t i = 0; i < count;) {
    const int32_t *at = &numbers[i], length = run_length(at, count - i), step = length > 1 ? at[1] - at[0] : 0, last = at[length - 1];
    if (i > 0) sf_text_append(out, ", ");
    if (step == 1 && length >= RANGE_MIN) {
      sf_text_append(out, "%d-%d", at[0], last);
      i += length;
    } else if (length >= STRIDE_MIN) {
      sf_text_append(out, "%d, %d, ... %d", at[0], at[1], last);
      i += length;
    } else {
      sf_text_append(out, "%d", at[0]);
      i++;
    }
  }
  sf_text_append(out, "}");
}

/* The ranks of a layout, for their groups on the mesh or on the experts' mesh. */
struct grouping {
  const struct sf_layout *layout;
  struct sf_mesh mesh;
  bool of_experts;
  int32_t *ranks; /* room for every rank */
  bool *seen;     /* one for each rank */
};

static int32_t group_of(const struct grouping *g, int32_t rank, enum sf_axis axis) {
  int32_t index;
  return g->of_experts ? sf_mesh_expert_group(g->layout, rank, SF_AXES(axis), g->ranks, &index)
                       : sf_mesh_group(&g->mesh, rank, SF_AXES(axis), g->ranks, &index);
}

/* All groups where they are few, else the first ones and the last. */
static void describe_groups(struct sf_text *out, const struct grouping *g, const char *name, enum sf_axis axis) {
  const int32_t world = g->mesh.world, most = group_of(g, 0, axis), groups = world / most;
  if (most == 1) return;
  sf_text_append(out, "%s groups  %d of %d ranks each:", name, groups, most);
  memset(g->seen, 0, (size_t)world * sizeof *g->seen);
  for (int32_t rank = 0, number = 0; rank < world; rank++) {
    if (g->seen[rank]) continue;
    const int32_t size = group_of(g, rank, axis);
    for (int32_t i = 0; i < size; i++) g->seen[g->ranks[i]] = true;
    const bool is_cut = groups > GROUPS_SHOWN && ++number > FIRST_GROUPS_SHOWN;
    if (is_cut && number == groups) sf_text_append(out, " ...");
    if (!is_cut || number == groups) append_set(out, g->ranks, size);
  }
  sf_text_append(out, "\n");
}

static bool stage_holds(const struct sf_case *c, const struct sf_module *module, int64_t stage) {
  int64_t first, count;
  const bool is_first = stage == 0, is_last = stage == sf_case_stage_count(c) - 1;
  sf_case_stage_layers(c, stage, &first, &count);
  if (module->layer >= 0 && module->layer < c->model.layers) return module->layer >= first && module->layer < first + count;
  if (module->cls == SF_MODULE_WORD_EMBEDDINGS) return is_first || (is_last && (c->model.tied || c->model.mtp_depth > 0));
  return module->cls == SF_MODULE_EMBEDDING ? is_first : is_last;
}

/* Any of the rank's model chunks. */
static bool rank_holds(const struct sf_case *c, const struct sf_module *module, int64_t pp_index) {
  bool holds = false;
  for (int64_t stage = pp_index; stage < sf_case_stage_count(c); stage += c->layout.pp) holds = holds || stage_holds(c, module, stage);
  return holds;
}

static void describe_layers(struct sf_text *out, const struct sf_case *c, int64_t pp_index) {
  for (int64_t stage = pp_index; stage < sf_case_stage_count(c); stage += c->layout.pp) {
    int64_t first, count;
    sf_case_stage_layers(c, stage, &first, &count);
    sf_text_append(out, "%s%" PRId64 "..%" PRId64, stage == pp_index ? "" : " and ", first, first + count - 1);
  }
}

static void describe_rank(struct sf_text *out, const struct sf_case *c, const struct sf_catalog *catalog, const struct sf_mesh *mesh,
                          int32_t rank) {
  const struct sf_coord coord = sf_mesh_coord(mesh, rank);
  int64_t elements = 0;
  char cp[24] = "";
  if (c->layout.cp > 1) snprintf(cp, sizeof cp, " cp %d", coord.at[SF_AXIS_CP]);
  for (int32_t i = 0; i < catalog->param_count; i++) {
    const struct sf_param *p = &catalog->params[i];
    if (!rank_holds(c, &catalog->modules[p->module], coord.at[SF_AXIS_PP])) continue;
    const struct sf_shard_map map = sf_canonical_map_of_rank(c, p->shape, p->row_cut, p->col_cut, rank);
    elements += sf_dim_map_length(&map.rows) * sf_dim_map_length(&map.cols);
  }
  sf_text_append(out, "rank %-5d tp %d%s dp %d pp %d  layers ", rank, coord.at[SF_AXIS_TP], cp, coord.at[SF_AXIS_DP], coord.at[SF_AXIS_PP]);
  describe_layers(out, c, coord.at[SF_AXIS_PP]);
  sf_text_append(out, "  %" PRId64 " parameters, %.1f MiB of weights, gradients and Adam state\n", elements,
                 (double)elements * 20 / (1 << 20));
}

/* Shapes on rank 0: what every other rank holds differs only in place, but for key/value heads that are replicated. */
static void describe_params(struct sf_text *out, const struct sf_case *c, const struct sf_catalog *catalog) {
  sf_text_append(out, "parameters (global shape, and on rank 0; layer 0 stands for all)\n");
  for (int32_t i = 0; i < catalog->param_count; i++) {
    const struct sf_param *p = &catalog->params[i];
    if (catalog->modules[p->module].layer > 0) continue;
    const struct sf_shard_map map = sf_canonical_map_of_rank(c, p->shape, p->row_cut, p->col_cut, 0);
    sf_text_append(out, "  %-56s %6" PRId64 " x %-6" PRId64 " %6" PRId64 " x %-6" PRId64 "%s\n", p->name, p->shape.rows, p->shape.cols,
                   sf_dim_map_length(&map.rows), sf_dim_map_length(&map.cols), p->frozen ? " frozen" : "");
  }
}

static void describe_layout(struct sf_text *out, const char *title, const struct sf_case *c) {
  const struct sf_layout *layout = &c->layout;
  const struct sf_mesh mesh = sf_mesh_from_layout(layout);
  char cp[40] = "", experts[48] = "";
  if (c->moe.experts > 0) snprintf(experts, sizeof experts, ", ep %" PRId64 ", etp %" PRId64, layout->ep, layout->etp);
  if (layout->cp > 1) snprintf(cp, sizeof cp, ", cp %d (%s)", mesh.size[SF_AXIS_CP], sf_case_choice(c, "layout.cp_comm"));
  sf_text_append(out, "%s %d ranks: tp %d%s, dp %d, pp %d%s, order %s%s\n", title, mesh.world, mesh.size[SF_AXIS_TP], cp,
                 mesh.size[SF_AXIS_DP], mesh.size[SF_AXIS_PP], experts, layout->order, layout->sp ? ", sequence parallel" : "");
}

static void describe_size(struct sf_text *out, const struct sf_case *c, const struct sf_catalog *catalog) {
  const struct sf_case_size size = sf_case_size(catalog, c);
  const double gib = (double)(1 << 30);
  sf_text_append(out, "memory     about %.3g GiB: %.3g of the ranks, %.3g of the reference, %.3g of the traces of both\n",
                 sf_case_size_total(size) / gib, size.ranks / gib, size.reference / gib, size.trace / gib);
}

static void append_minimal(struct sf_text *out, const struct sf_plant_minimal *minimal, const char *before) {
  if (minimal->ranks > 0)
    sf_text_append(out, "%s%" PRId64 " rank%s, %" PRId64 " layer%s%s%s", before, minimal->ranks, sf_plural(minimal->ranks), minimal->layers,
                   sf_plural(minimal->layers), *minimal->fields ? ", " : "", minimal->fields);
}

/* What the table of planted bugs says of the case. */
static void describe_plant(struct sf_text *out, const struct sf_case *c) {
  const struct sf_plant *plant = sf_plant_find(c->plant);
  if (plant == NULL) return;
  sf_text_append(out, "plant      %s, which this case %s show; smallest: ", plant->id, sf_plant_is_triggered(plant, c) ? "can" : "cannot");
  append_minimal(out, &plant->minimal, "");
  append_minimal(out, &plant->also, "; or ");
  sf_text_append(out, "\n");
}

static void describe_mesh(struct sf_text *out, struct grouping *g, bool has_experts) {
  static const enum sf_axis axes[] = {SF_AXIS_TP, SF_AXIS_CP, SF_AXIS_DP, SF_AXIS_PP}, expert_axes[] = {SF_AXIS_TP, SF_AXIS_EP, SF_AXIS_DP};
  static const char *const expert_names[] = {"etp", "ep", "edp"};
  for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) describe_groups(out, g, sf_axis_name(axes[i]), axes[i]);
  g->of_experts = true;
  for (size_t i = 0; has_experts && i < sizeof expert_axes / sizeof expert_axes[0]; i++)
    describe_groups(out, g, expert_names[i], expert_axes[i]);
}

/* Groups and ranks of the case's first layout. ranks, seen: one for each rank. */
static void describe_ranks(struct sf_text *out, const struct sf_case *c, const struct sf_catalog *catalog, int32_t *ranks, bool *seen) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  struct grouping g = {.layout = &c->layout, .mesh = mesh, .ranks = ranks, .seen = seen};
  describe_mesh(out, &g, c->moe.experts > 0);
  for (int32_t rank = 0; rank < mesh.world && rank < RANKS_SHOWN; rank++) describe_rank(out, c, catalog, &mesh, rank);
  if (mesh.world > RANKS_SHOWN) sf_text_append(out, "and %d more ranks\n", mesh.world - RANKS_SHOWN);
}

static void describe_reload(struct sf_text *out, const struct sf_case *c, const struct sf_catalog *catalog, int32_t *ranks, bool *seen) {
  const struct sf_case second = sf_case_after_reload(c);
  sf_text_append(out, "saved after %" PRId64 " of %" PRId64 " steps and loaded with another layout\n", c->reload.after_step,
                 c->train.steps);
  describe_layout(out, "loaded    ", &second);
  describe_ranks(out, &second, catalog, ranks, seen);
}

enum sf_status sf_describe_case(struct sf_text *out, const struct sf_case *c, struct sf_error *error) {
  enum sf_status status = sf_case_validate(c, error);
  if (status != SF_OK) return status;
  if (sf_case_is_operation(c)) return sf_op_describe(out, c, error);
  if (sf_case_is_framework(c)) {
    sf_line_append(out, "target     %s (its worker knows what the fields mean)\nfields     %s\nlayout     %" PRId64 " ranks\n", c->target,
                   c->fields, sf_case_ranks(c));
    return out->failed ? SF_ENOMEM : SF_OK;
  }
  struct sf_catalog *catalog = NULL;
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  int32_t *ranks = sf_alloc((size_t)mesh.world * sizeof *ranks);
  bool *seen = sf_alloc((size_t)mesh.world * sizeof *seen);
  status = sf_catalog_create(&catalog, c);
  if (!ranks || !seen) status = SF_ENOMEM;
  if (status == SF_OK) {
    describe_model(out, c);
    describe_training(out, c);
    describe_plant(out, c);
    describe_size(out, c, catalog);
    describe_layout(out, "layout    ", c);
    describe_ranks(out, c, catalog, ranks, seen);
    if (c->reload.after_step > 0) describe_reload(out, c, catalog, ranks, seen);
    describe_params(out, c, catalog);
  }
  sf_catalog_destroy(catalog);
  sf_free(ranks);
  sf_free(seen);
  if (status == SF_OK && out->failed) status = SF_ENOMEM;
  return status == SF_ENOMEM ? sf_error_set(error, status, "out of memory") : status;
}
