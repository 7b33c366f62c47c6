#include "harness/run/trial/pattern.h"

#include <stdio.h>
#include <string.h>

/* A judged tensor. */
struct tensor {
  struct sf_trace_id id;
  const struct sf_module *module;
  const struct sf_param *param; /* NULL: it is none's */
};

struct ctx {
  const struct sf_case *c;
  const struct sf_catalog *catalog;
  const struct sf_judgement *judgement;
  struct tensor first; /* the wrong one of the first step */
};

static struct tensor tensor_of(const struct sf_catalog *catalog, struct sf_trace_id id) {
  const bool of_param =
      id.kind == SF_KIND_PARAM || id.kind == SF_KIND_WGRAD || id.kind == SF_KIND_MAIN_GRAD || id.kind == SF_KIND_PARAM_DELTA;
  struct tensor t = {.id = id, .param = of_param ? &catalog->params[id.subject] : NULL};
  if (of_param) t.module = &catalog->modules[t.param->module];
  if (id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD) t.module = &catalog->modules[id.subject];
  return t;
}

/* --- the rules ------------------------------------------------------------------------------------------------- */

struct rule {
  const char *words; /* behind the kind; %s: of a class of modules its name, %d: a number */
  bool (*holds)(const struct tensor *t, const struct tensor *first);
  bool (*applies)(const struct sf_case *c, const struct tensor *first); /* whether it can tell tensors of this case apart */
};

static bool always(const struct tensor *t, const struct tensor *first) { return (void)t, (void)first, true; }
static bool applies_always(const struct sf_case *c, const struct tensor *first) { return (void)c, (void)first, true; }

static bool is_expert(const struct tensor *t, const struct tensor *first) {
  return (void)first, sf_cut_is_expert(t->param->row_cut) || sf_cut_is_expert(t->param->col_cut);
}
static bool is_whole(const struct tensor *t, const struct tensor *first) {
  return (void)first, t->param->row_cut == SF_CUT_NONE && t->param->col_cut == SF_CUT_NONE;
}
static bool is_cut(const struct tensor *t, const struct tensor *first) { return !is_whole(t, first) && !is_expert(t, first); }
static bool is_norm(const struct tensor *t, const struct tensor *first) { return (void)first, sf_module_is(t->module->cls, SF_TRAIT_NORM); }
static bool is_bias(const struct tensor *t, const struct tensor *first) {
  const size_t length = strlen(t->param->name);
  return (void)first, length > 5 && strcmp(t->param->name + length - 5, ".bias") == 0;
}
static bool in_layer(const struct tensor *t, const struct tensor *first) { return t->module->layer == first->module->layer; }
static bool of_class(const struct tensor *t, const struct tensor *first) { return t->module->cls == first->module->cls; }

static bool has_tp(const struct sf_case *c, const struct tensor *first) { return first->param && c->layout.tp > 1; }
static bool has_experts(const struct sf_case *c, const struct tensor *first) { return first->param && c->moe.experts > 0; }
static bool has_param(const struct sf_case *c, const struct tensor *first) { return (void)c, first->param != NULL; }
static bool has_module(const struct sf_case *c, const struct tensor *first) { return (void)c, first->module != NULL; }
static bool has_layers(const struct sf_case *c, const struct tensor *first) {
  return c->model.layers > 1 && first->module && first->module->layer >= 0;
}

static const struct rule places[] = {
    {"", always, applies_always},
    {" of parameters that every rank of tp holds whole", is_whole, has_tp},
    {" of parameters that tp cuts", is_cut, has_tp},
    {" of experts", is_expert, has_experts},
    {" of norms", is_norm, has_module},
    {" of biases", is_bias, has_param},
    {" of layer %d", in_layer, has_layers},
    {" of %s", of_class, has_module},
};

static bool from_step(const struct tensor *t, const struct tensor *first) { return t->id.step >= first->id.step; }
static bool in_step(const struct tensor *t, const struct tensor *first) { return t->id.step == first->id.step; }
static bool in_microbatch(const struct tensor *t, const struct tensor *first) { return t->id.microbatch == first->id.microbatch; }
static bool has_steps(const struct sf_case *c, const struct tensor *first) { return (void)first, c->train.steps > 1; }
static bool has_microbatches(const struct sf_case *c, const struct tensor *first) {
  const bool of_one = first->id.kind == SF_KIND_ACT || first->id.kind == SF_KIND_ACT_GRAD || first->id.kind == SF_KIND_WGRAD;
  return of_one && c->train.microbatches > 1;
}

static const struct rule times[] = {
    {"", always, applies_always},
    {" from step %d on", from_step, has_steps},
    {" in step %d", in_step, has_steps},
    {" of microbatch %d", in_microbatch, has_microbatches},
};

/* --- which one holds ------------------------------------------------------------------------------------------- */

static bool is_wrong(const struct sf_judgement *judgement, struct sf_trace_id id) {
  const uint64_t key = sf_trace_key(id);
  for (int32_t i = 0; i < judgement->finding_count; i++)
    if (sf_trace_key(judgement->findings[i].id) == key) return true;
  return false;
}

/* Counts the tensors that are wrong, and the others; false where a rule takes a right one for wrong or the other way round. */
static bool fits(const struct ctx *ctx, const struct rule *place, const struct rule *time, int32_t *wrong, int32_t *right) {
  *wrong = *right = 0;
  for (int32_t i = 0; i < ctx->judgement->result_count; i++) {
    const struct sf_tensor_result *result = &ctx->judgement->results[i];
    const bool bad = is_wrong(ctx->judgement, result->id);
    if (result->id.kind != ctx->first.id.kind || (!result->judged && !bad)) continue;
    const struct tensor t = tensor_of(ctx->catalog, result->id);
    if (bad != (place->holds(&t, &ctx->first) && time->holds(&t, &ctx->first))) return false;
    *wrong += bad;
    *right += !bad;
  }
  return *wrong > 1;
}

static void append(char out[SF_PATTERN_TEXT], const char *words, const char *name, int32_t number) {
  const size_t length = strlen(out);
  const char *mark = strchr(words, '%');
  if (!mark)
    snprintf(out + length, SF_PATTERN_TEXT - length, "%s", words);
  else if (mark[1] == 's')
    snprintf(out + length, SF_PATTERN_TEXT - length, "%.*s%s%s", (int)(mark - words), words, name, mark + 2);
  else
    snprintf(out + length, SF_PATTERN_TEXT - length, "%.*s%d%s", (int)(mark - words), words, number, mark + 2);
}

static void say(char out[SF_PATTERN_TEXT], const struct ctx *ctx, const struct rule *place, const struct rule *time, int32_t wrong,
                int32_t right) {
  static const char *const kinds[SF_KIND_COUNT] = {
      [SF_KIND_PARAM] = "parameters",          [SF_KIND_ACT] = "activations",          [SF_KIND_ACT_GRAD] = "gradients of activations",
      [SF_KIND_WGRAD] = "weight gradients",    [SF_KIND_MAIN_GRAD] = "main gradients", [SF_KIND_PARAM_DELTA] = "parameter changes",
      [SF_KIND_SCALAR] = "numbers of the step"};
  const struct tensor *first = &ctx->first;
  if (wrong == 2)
    snprintf(out, SF_PATTERN_TEXT, "both %s", kinds[first->id.kind]);
  else
    snprintf(out, SF_PATTERN_TEXT, "all %d %s", wrong, kinds[first->id.kind]);
  append(out, place->words, first->module ? sf_modules[first->module->cls].name : "", first->module ? first->module->layer : 0);
  append(out, time->words, "", time->holds == in_microbatch ? first->id.microbatch : first->id.step);
  const size_t length = strlen(out);
  if (right == 0)
    snprintf(out + length, SF_PATTERN_TEXT - length, " are wrong");
  else
    snprintf(out + length, SF_PATTERN_TEXT - length, " are wrong, and none of the other %d", right);
}

void sf_pattern_of(char out[SF_PATTERN_TEXT], const struct sf_case *c, const struct sf_catalog *catalog,
                   const struct sf_judgement *judgement) {
  enum { PLACES = sizeof places / sizeof places[0], TIMES = sizeof times / sizeof times[0] };
  struct ctx ctx = {c, catalog, judgement, {.module = NULL}};
  out[0] = '\0';
  if (judgement->finding_count < 2) return;
  struct sf_trace_id id = judgement->findings[0].id;
  for (int32_t i = 1; i < judgement->finding_count; i++) {
    const struct sf_trace_id other = judgement->findings[i].id;
    if (other.kind == id.kind && other.step < id.step) id = other;
  }
  ctx.first = tensor_of(catalog, id);
  for (int rules = 0; rules <= 2; rules++) /* the fewest words first */
    for (int place = 0; place < PLACES; place++)
      for (int time = 0; time < TIMES; time++) {
        int32_t wrong = 0, right = 0;
        if ((place > 0) + (time > 0) != rules || !places[place].applies(c, &ctx.first) || !times[time].applies(c, &ctx.first)) continue;
        if (!fits(&ctx, &places[place], &times[time], &wrong, &right)) continue;
        say(out, &ctx, &places[place], &times[time], wrong, right);
        return;
      }
}
