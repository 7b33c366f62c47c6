#include "harness/run/trial/pattern.h"

#include "harness/base/alloc.h"

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
  const bool of_param = sf_kind_is_of_param(id.kind);
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

void sf_pattern_of(char out[SF_PATTERN_TEXT], const struct sf_case *c, const struct sf_catalog *catalog,
                   const struct sf_judgement *judgement) {
  const struct source source = {c, catalog, judgement};
  int32_t count = 0, first = -1;
  out[0] = '\0';
  if (judgement->finding_count < 2) return;
  struct sf_pattern_tensor *tensors = sf_alloc((size_t)judgement->result_count * sizeof *tensors);
  for (int32_t i = 0; tensors && i < judgement->result_count; i++) {
    const struct sf_tensor_result *result = &judgement->results[i];
    const bool bad = is_wrong(judgement, result->id);
    if (!result->judged && !bad) continue;
    if (bad && first < 0 && sf_trace_key(result->id) == sf_trace_key(judgement->findings[0].id)) first = count;
    describe_id(&tensors[count], &source, result->id);
    tensors[count++].is_wrong = bad;
  }
  if (first >= 0) sf_pattern_say(out, tensors, count, first);
  sf_free(tensors);
}
