#include "harness/run/trial/pattern.h"

#include <stdio.h>
#include <string.h>

struct source {
  const struct sf_case *c;
  const struct sf_catalog *catalog;
  const struct sf_judgement *judgement;
};

static bool is_wrong(const struct sf_judgement *judgement, struct sf_trace_id id) {
  const uint64_t key = sf_trace_key(id);
  for (int32_t i = 0; i < judgement->finding_count; i++)
    if (sf_trace_key(judgement->findings[i].id) == key) return true;
  return false;
}

static void describe_param(struct sf_pattern_tensor *out, const struct sf_case *c, const struct sf_param *param) {
  const bool cut = param->row_cut != SF_CUT_NONE || param->col_cut != SF_CUT_NONE;
  const size_t length = strlen(param->name);
  out->is_expert = sf_cut_is_expert(param->row_cut) || sf_cut_is_expert(param->col_cut);
  out->is_whole = c->layout.tp > 1 && !cut;
  out->is_cut = c->layout.tp > 1 && cut;
  out->is_bias = length > 5 && strcmp(param->name + length - 5, ".bias") == 0;
}

static void describe_id(struct sf_pattern_tensor *out, const struct source *source, struct sf_trace_id id) {
  const bool of_param =
      id.kind == SF_KIND_PARAM || id.kind == SF_KIND_WGRAD || id.kind == SF_KIND_MAIN_GRAD || id.kind == SF_KIND_PARAM_DELTA;
  const bool of_module = id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD;
  *out = (struct sf_pattern_tensor){.kind = id.kind, .step = id.step, .layer = -1};
  if (of_module || id.kind == SF_KIND_WGRAD) out->microbatch = id.microbatch;
  if (of_param) describe_param(out, source->c, &source->catalog->params[id.subject]);
  if (!of_param && !of_module) return;
  const struct sf_module *module = &source->catalog->modules[of_param ? source->catalog->params[id.subject].module : id.subject];
  if (source->c->model.layers > 1) out->layer = module->layer;
  out->is_norm = sf_module_is(module->cls, SF_TRAIT_NORM);
  snprintf(out->cls, sizeof out->cls, "%s", sf_modules[module->cls].name);
}

static bool describe(struct sf_pattern_tensor *out, const void *of, int32_t which) {
  const struct source *source = of;
  const struct sf_tensor_result *result = &source->judgement->results[which];
  describe_id(out, source, result->id);
  out->is_wrong = is_wrong(source->judgement, result->id);
  return result->judged || out->is_wrong;
}

void sf_pattern_of(char out[SF_PATTERN_TEXT], const struct sf_case *c, const struct sf_catalog *catalog,
                   const struct sf_judgement *judgement) {
  const struct source source = {c, catalog, judgement};
  const uint64_t first = judgement->finding_count > 1 ? sf_trace_key(judgement->findings[0].id) : 0;
  out[0] = '\0';
  for (int32_t i = 0; judgement->finding_count > 1 && i < judgement->result_count; i++) {
    if (sf_trace_key(judgement->results[i].id) != first) continue;
    sf_pattern_say(out, &(struct sf_pattern_source){&source, judgement->result_count, describe}, i);
    return;
  }
}
