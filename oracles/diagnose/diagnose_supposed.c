/* Suppositions: runs the reference with one mistake after the other, to see which of them makes what the candidate has. A mistake is
 * another value of one field of the case (a window that is not applied), data or weights of another step or microbatch, or a module whose
 * output is left out, counted twice, or passed by. */
#include "oracles/diagnose/diagnose_supposing.h"
#include "oracles/noise/norms.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Cases up to so many multiplications a run are run again: shrunk ones. */
static const double WORK_MAX = 5e7;

static double work_of(const struct sf_collector *collector) {
  const struct sf_case *c = &collector->c;
  double weights = 0;
  for (int32_t p = 0; p < collector->catalog->param_count; p++)
    weights += (double)(collector->catalog->params[p].shape.rows * collector->catalog->params[p].shape.cols);
  return 3 * weights * (double)(c->model.seq * c->train.microbatch_size * c->train.microbatches * c->train.steps);
}

/* Whether x explains much of what is wrong: at half of the wrong elements it is far nearer to what the candidate has than the reference
 * is. */
static bool is_promising(const struct sf_slot *slot, const float *x) {
  const struct sf_expected *e = slot->expected;
  const int64_t count = e->spec.shape.rows * e->spec.shape.cols;
  const double roundings = e->spec.promised == SF_F32 ? 64 : 1; /* in fp32 the numbers on the way are rounded too */
  const double least = roundings * sf_dtype_unit_roundoff(e->spec.promised) * e->norm / sqrt((double)count);
  int64_t wrong = 0, explained = 0;
  if (!sf_slot_is_whole(slot)) return true;
  for (int64_t i = 0; i < count; i++) {
    const double was = fabs((double)slot->merged[i] - (double)e->x[i]), left = fabs((double)slot->merged[i] - (double)x[i]);
    if (!(was > least)) continue;
    wrong++;
    explained += left < was / 4;
  }
  return 2 * explained >= wrong;
}

bool sf_suppose(const struct sf_supposing *s, const struct sf_case *c, const struct sf_supposed *supposed,
                const struct sf_wording *wording) {
  const struct sf_expected *own = s->slot->expected;
  const size_t size_bytes = (size_t)(own->spec.shape.rows * own->spec.shape.cols) * sizeof *own->x;
  bool is_same_model = false;
  if (s->list->status != SF_OK || s->list->count == SF_RELATED_MAX) return false;
  float *x = sf_related_alloc(s->list, size_bytes);
  if (x == NULL) return false;
  s->list->status = sf_expectations_suppose(x, &is_same_model, s->expectations, c, supposed, own->id);
  if (s->list->status != SF_OK || !is_same_model || memcmp(x, own->x, size_bytes) == 0) return false;
  if (*wording->without == '\0' && wording->variant == 0 && !is_promising(s->slot, x)) return true;
  struct sf_diagnosis_related *r =
      sf_related_add(s->list, wording->variant > 0 ? SF_RELATED_VARIANT : SF_RELATED_SUPPOSED, own->spec.shape, x, wording->name);
  if (r == NULL) return true;
  r->variant = wording->variant;
  r->weight = wording->factor;
  r->rank = wording->variant > 0 ? wording->rank : -1;
  r->cls = wording->cls;
  r->cause = wording->cause;
  memcpy(r->without, wording->without, sizeof r->without);
  return true;
}

/* --- fields ------------------------------------------------------------------------------------------------------ */

/* Of the model and the training, as far as the reference reads them. Values that are given and the format of all tensors stay as they are.
 */
static bool is_supposed(const struct sf_field *field) {
  static const char *const left_out[] = {"precision.compute",     "model.seq",   "train.steps", "train.microbatches",
                                         "train.microbatch_size", "train.frozen"};
  static const char *const data[] = {"data.documents", "data.padding", "data.mask"};
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
    if (strcmp(field->path, left_out[i]) == 0) return false;
  for (size_t i = 0; i < sizeof data / sizeof *data; i++)
    if (strcmp(field->path, data[i]) == 0) return true;
  return strncmp(field->path, "model.", 6) == 0 || strncmp(field->path, "moe.", 4) == 0 || strncmp(field->path, "train.", 6) == 0 ||
         strncmp(field->path, "precision.", 10) == 0;
}

static void name_value(char *out, size_t out_size, const struct sf_field *field, int64_t value) {
  if (field->type == SF_FIELD_ENUM)
    snprintf(out, out_size, "%s", field->names[value]);
  else if (field->type == SF_FIELD_BOOL)
    snprintf(out, out_size, "%s", value != 0 ? "on" : "off");
  else
    snprintf(out, out_size, "%" PRId64, value);
}

static void suppose_value(const struct sf_supposing *s, const struct sf_field *field, int64_t value) {
  struct sf_case other = *s->c;
  char was[24], is[24];
  const int64_t own = sf_case_field_get(s->c, field);
  if (value == own || value < field->min || value > field->max) return;
  sf_case_field_put(&other, field, value);
  if (sf_case_validate(&other, NULL) != SF_OK) return;
  struct sf_wording wording = {.cls = SF_DIAGNOSIS_OTHER_SETTING, .cause = field->path};
  name_value(was, sizeof was, field, own);
  name_value(is, sizeof is, field, value);
  snprintf(wording.name, sizeof wording.name, "%s were %s: here it is %s", field->path, is, was);
  if (value == field->smallest) snprintf(wording.without, sizeof wording.without, "%s", field->path);
  sf_suppose(s, &other, NULL, &wording);
}

/* A choice other than the case's, and numbers and switches that have no effect. */
static void suppose_fields(const struct sf_supposing *s) {
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (!is_supposed(field)) continue;
    const int64_t own = sf_case_field_get(s->c, field);
    if (field->type == SF_FIELD_BOOL) suppose_value(s, field, !own);
    if (field->type == SF_FIELD_INT) suppose_value(s, field, field->smallest);
    for (int64_t value = 0; field->type == SF_FIELD_ENUM && field->names[value] != NULL; value++) suppose_value(s, field, value);
  }
}

/* Numbers that are one too small or too large. */
static void suppose_neighbours(const struct sf_supposing *s) {
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    const int64_t own = is_supposed(field) && field->type == SF_FIELD_INT ? sf_case_field_get(s->c, field) : 0;
    if (own == 0) continue;
    if (own - 1 != field->smallest) suppose_value(s, field, own - 1);
    suppose_value(s, field, own + 1);
  }
}

/* --- formulas ---------------------------------------------------------------------------------------------------- */

static void suppose_slips(const struct sf_supposing *s) {
  static const struct {
    const char *about, *text;
  } slips[SF_SLIP_COUNT] = {
#define X(name, about, text) [SF_SLIP_##name] = {about, text},
      SF_SLIP_MAP(X)
#undef X
  };
  for (int slip = SF_SLIP_NONE + 1; slip < SF_SLIP_COUNT; slip++) {
    const struct sf_supposed supposed = {.slip = (enum sf_slip)slip};
    struct sf_wording wording = {.cls = SF_DIAGNOSIS_OTHER_FORMULA, .cause = slips[slip].about};
    snprintf(wording.name, sizeof wording.name, "%s", slips[slip].text);
    sf_suppose(s, NULL, &supposed, &wording);
  }
}

/* --- data and weights -------------------------------------------------------------------------------------------- */

static const struct {
  uint32_t parts;
  const char *says, *other_step, *other_microbatch; /* says: behind "as if", before "of step 0" */
} readings[] = {
    {1 << SF_DATA_LABELS, "the labels were those", "labels of another step", "labels of another microbatch"},
    {1 << SF_DATA_MASK, "the loss mask was that", "loss mask of another step", "loss mask of another microbatch"},
    {1 << SF_DATA_LABELS | 1 << SF_DATA_MASK, "labels and loss mask were those", "labels of another step", "labels of another microbatch"},
    {1 << SF_DATA_TOKENS, "the tokens were those", "tokens of another step", "tokens of another microbatch"},
    {1 << SF_DATA_DOCUMENTS, "the documents were those", "documents of another step", "documents of another microbatch"},
    {1 << SF_DATA_PADDING, "the padding was that", "padding of another step", "padding of another microbatch"},
    {1 << SF_DATA_MEMORY, "the memory was that", "memory of another step", "memory of another microbatch"},
    {1 << SF_DATA_DROPOUT, "the dropout mask was that", "dropout mask of another step", "dropout mask of another microbatch"},
    {1 << SF_DATA_WEIGHTS, "the weights were those", "weights of another step", NULL},
};

static void suppose_moment(const struct sf_supposing *s, int64_t step, int64_t microbatch) {
  const struct sf_trace_id id = s->slot->expected->id;
  const bool other_step = step != id.step, is_later = step >= s->c->train.steps; /* the run ends before it: it has only data */
  for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
    const char *cause = other_step ? readings[i].other_step : readings[i].other_microbatch;
    if (cause == NULL || (is_later && readings[i].parts == 1 << SF_DATA_WEIGHTS)) continue;
    struct sf_wording wording = {.cls = SF_DIAGNOSIS_STALE, .cause = cause};
    snprintf(wording.name, sizeof wording.name, "%s of %s %" PRId64, readings[i].says, other_step ? "step" : "microbatch",
             other_step ? step : microbatch);
    const struct sf_supposed supposed = {.parts = readings[i].parts, .step = step, .microbatch = microbatch};
    sf_suppose(s, NULL, &supposed, &wording);
  }
  for (int kind = 0; kind < 2 && !is_later; kind++) {
    const bool of_grads = kind == 1;
    struct sf_wording wording = {.cls = SF_DIAGNOSIS_STALE,
                                 .cause = of_grads ? "gradients of another microbatch" : "inputs of another microbatch"};
    if (other_step) wording.cause = of_grads ? "gradients of another step" : "inputs of another step";
    snprintf(wording.name, sizeof wording.name, "%s of %s %" PRId64,
             of_grads ? "the gradient that it reads was that" : "its inputs were those", other_step ? "step" : "microbatch",
             other_step ? step : microbatch);
    const struct sf_supposed supposed = {
        .step = step, .microbatch = microbatch, .reads = true, .kind = of_grads ? SF_KIND_ACT_GRAD : SF_KIND_ACT, .module = -1};
    sf_suppose(s, NULL, &supposed, &wording);
  }
}

static void suppose_moments(const struct sf_supposing *s) {
  enum { MOMENTS_MAX = 8 };
  const struct sf_trace_id id = s->slot->expected->id;
  for (int64_t m = 0; m < s->c->train.microbatches && m < MOMENTS_MAX; m++)
    if (m != id.microbatch) suppose_moment(s, id.step, m);
  for (int64_t step = 0; step <= s->c->train.steps && step < MOMENTS_MAX; step++)
    if (step != id.step) suppose_moment(s, step, id.microbatch);
}

static void suppose_first_sequence(const struct sf_supposing *s) {
  const struct sf_supposed supposed = {.of_first_sequence = true};
  const struct sf_wording wording = {.cls = SF_DIAGNOSIS_NEIGHBOUR,
                                     .cause = "documents and padding of the first sequence",
                                     .name = "documents and padding of the first sequence were those of every one"};
  if (s->c->train.microbatch_size > 1) sf_suppose(s, NULL, &supposed, &wording);
}

/* "mlp.router", or "layer 1's mlp.router" where that is another layer than the tensor's. */
static void name_module(char out[48], const struct sf_supposing *s, int32_t module) {
  const struct sf_module *modules = s->list->collector->catalog->modules;
  const int32_t layer = modules[s->slot->expected->spec.module].layer, at = modules[module].layer;
  const char *name = sf_modules[modules[module].cls].name;
  if (at < 0 || at == layer)
    snprintf(out, 48, "%.47s", name);
  else
    snprintf(out, 48, "layer %d's %.32s", at, name);
}

/* The dropout mask of another module. */
static void suppose_dropouts(const struct sf_supposing *s) {
  const struct sf_catalog *catalog = s->list->collector->catalog;
  for (int32_t i = 0; i < catalog->module_count && s->c->train.dropout_milli > 0; i++) {
    const struct sf_module *module = &catalog->modules[i];
    if (i == s->slot->expected->spec.module || !sf_module_is(module->cls, SF_TRAIT_RESIDUAL_ADD)) continue;
    const struct sf_supposed supposed = {.has_dropout_of = true, .dropout_of = i};
    struct sf_wording wording = {.cls = SF_DIAGNOSIS_STALE, .cause = "dropout mask of another module"};
    char name[48];
    name_module(name, s, i);
    snprintf(wording.name, sizeof wording.name, "the dropout mask was that of %s", name);
    sf_suppose(s, NULL, &supposed, &wording);
  }
}

/* Labels and masks of another depth of multi-token prediction; -1 is the main loss. */
static void suppose_depths(const struct sf_supposing *s) {
  static const struct {
    uint32_t parts;
    const char *says;
  } data[] = {{1 << SF_DATA_LABELS | 1 << SF_DATA_MASK, "labels and mask were those"},
              {1 << SF_DATA_LABELS, "the labels were those"},
              {1 << SF_DATA_MASK, "the mask was that"}};
  for (int64_t depth = -1; depth < s->c->model.mtp_depth && s->c->model.mtp_depth > 0; depth++)
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
      const struct sf_supposed supposed = {.has_depth = true, .depth = depth, .parts = data[i].parts};
      struct sf_wording wording = {.cls = SF_DIAGNOSIS_STALE, .cause = "labels of another depth"};
      if (depth < 0)
        snprintf(wording.name, sizeof wording.name, "%s of the main loss, not shifted", data[i].says);
      else
        snprintf(wording.name, sizeof wording.name, "%s of depth %" PRId64 " of multi-token prediction", data[i].says, depth);
      sf_suppose(s, NULL, &supposed, &wording);
    }
}

/* --- modules ----------------------------------------------------------------------------------------------------- */

static bool has_shape_of(const struct sf_catalog *catalog, struct sf_trace_id a, struct sf_trace_id b) {
  struct sf_trace_spec of_a, of_b;
  return sf_trace_spec(&of_a, catalog, a) && sf_trace_spec(&of_b, catalog, b) && of_a.shape.rows == of_b.shape.rows &&
         of_a.shape.cols == of_b.shape.cols;
}

/* The modules whose tensors may stand for each other: of the layer at hand and its neighbours, the ends, the layers beside them, and
 * multi-token prediction. */
static bool is_near(const struct sf_supposing *s, int32_t module) {
  const struct sf_module *modules = s->list->collector->catalog->modules;
  const int32_t layer = modules[s->slot->expected->spec.module].layer, at = modules[module].layer, layers = (int32_t)s->c->model.layers;
  const bool is_beside_end = at == 0 || at == layers - 1;
  return at < 0 || at >= layers || (at >= layer - 1 && at <= layer + 1) || (layer < 0 && is_beside_end);
}

/* The tensor reads another module's output, or the gradient that it hands back, in place of this module's. */
static void suppose_others(const struct sf_supposing *s, struct sf_supposed supposed, struct sf_trace_id id, const char *what) {
  const struct sf_catalog *catalog = s->list->collector->catalog;
  char name[48], other_name[48];
  supposed.times = 1;
  name_module(name, s, supposed.module);
  for (int32_t other = 0; other < catalog->module_count; other++) {
    struct sf_trace_id of_other = id;
    of_other.subject = other;
    if (other == supposed.module || !is_near(s, other) || !has_shape_of(catalog, id, of_other)) continue;
    struct sf_wording wording = {.cls = SF_DIAGNOSIS_STALE, .cause = sf_modules[catalog->modules[supposed.module].cls].name};
    supposed.from = other;
    name_module(other_name, s, other);
    snprintf(wording.name, sizeof wording.name, "%s %s stood in place of that of %s", what, other_name, name);
    sf_suppose(s, NULL, &supposed, &wording);
  }
}

/* A module's output, or the gradient that it hands back, is left out or counted twice, or another one stands in its place. */
static void suppose_module(const struct sf_supposing *s, int32_t module, enum sf_kind kind) {
  const bool of_grads = kind == SF_KIND_ACT_GRAD;
  const char *what = of_grads ? "the gradient of" : "the output of";
  struct sf_trace_id id = s->slot->expected->id;
  id.kind = (uint8_t)kind;
  id.pass = of_grads ? SF_PASS_BWD : SF_PASS_FWD;
  id.call = 0;
  id.subject = module;
  char name[48];
  name_module(name, s, module);
  struct sf_supposed supposed = {.reads = true, .kind = kind, .module = module, .from = module, .times = 0};
  struct sf_wording wording = {.cls = SF_DIAGNOSIS_MISSING_TERM,
                               .cause = sf_modules[s->list->collector->catalog->modules[module].cls].name};
  snprintf(wording.name, sizeof wording.name, "%s %s were left out", what, name);
  snprintf(wording.without, sizeof wording.without, "%s %.32s", what, name);
  if (!sf_suppose(s, NULL, &supposed, &wording)) return; /* the tensor does not depend on it */
  supposed.times = 2;
  *wording.without = '\0';
  wording.cls = SF_DIAGNOSIS_REPEATED_TERM;
  snprintf(wording.name, sizeof wording.name, "%s %s were taken twice", what, name);
  sf_suppose(s, NULL, &supposed, &wording);
  suppose_others(s, supposed, id, what);
  char whole[72];
  snprintf(whole, sizeof whole, "%s %s", what, name);
  sf_suppose_reading(s, module, id, whole);
}

static void suppose_modules(const struct sf_supposing *s) {
  const int32_t own = s->slot->expected->spec.module;
  for (int32_t i = 0; i < s->list->collector->catalog->module_count; i++) {
    if (i == own || !is_near(s, i)) continue;
    suppose_module(s, i, SF_KIND_ACT);
    if (s->slot->expected->id.kind != SF_KIND_ACT) suppose_module(s, i, SF_KIND_ACT_GRAD);
  }
}

void sf_supposed_collect(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const enum sf_kind kind = (enum sf_kind)slot->expected->id.kind;
  if (!sf_kind_has_noise(kind) || (collector->c.mode != SF_MODE_ISOLATED && !collector->is_anchored)) return;
  if (!(work_of(collector) <= WORK_MAX)) return;
  const struct sf_supposing s = {list, slot, collector->expectations, &sf_expectations_catalog(collector->expectations)->logical};
  /* Of several that make the very same tensor the first is said, so what needs the layout, which is as small as can be, goes first. */
  sf_suppose_own_part(&s);
  sf_suppose_positions(&s);
  sf_suppose_data_order(&s);
  sf_suppose_groups(&s);
  suppose_fields(&s);
  suppose_slips(&s);
  suppose_moments(&s);
  suppose_first_sequence(&s);
  suppose_depths(&s);
  suppose_dropouts(&s);
  suppose_neighbours(&s);
  sf_suppose_score_scale(&s);
  suppose_modules(&s);
  sf_suppose_weights(&s);
}
