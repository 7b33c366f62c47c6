/* The pattern over the tensors of a trace: what their names and their pieces say of them. */
#include "harness/check/check_internal.h"

#include <string.h>

struct source {
  const struct sf_check_report *report;
  const struct sf_trace_set *candidate;
  const struct sf_trace_group *tp; /* NULL: the trace names none, or it is of one rank */
};

static bool is_alike(const struct sf_piece *a, const struct sf_piece *b) {
  bool alike = a->flat == b->flat && a->dim_count == b->dim_count && (!a->flat || (a->first == b->first && a->count == b->count));
  for (int32_t d = 0; alike && d < a->dim_count; d++) {
    const struct sf_index_dim *x = &a->dims[d], *y = &b->dims[d];
    alike = x->size == y->size && x->count == y->count;
    for (int32_t run = 0; alike && run < x->count; run++)
      alike = x->runs[run].start == y->runs[run].start && x->runs[run].len == y->runs[run].len;
  }
  return alike;
}

/* Whether ranks of one group hold different parts. */
static bool is_cut(const struct sf_trace_tensor *tensor, const struct sf_trace_group *group) {
  for (const struct sf_piece *a = tensor->pieces; a; a = a->next)
    for (const struct sf_piece *b = a->next; b; b = b->next)
      if (group->of_rank[a->rank] == group->of_rank[b->rank] && !is_alike(a, b)) return true;
  return false;
}

/* The last part of a dotted name, of which *length bytes are left. */
static const char *last_part(const char *name, size_t length) {
  const char *last = name;
  for (const char *dot = name; (dot = memchr(dot, '.', length - (size_t)(dot - name))) != NULL; dot++) last = dot + 1;
  return last;
}

static void describe_param(struct sf_pattern_tensor *out, const struct source *source, const struct sf_trace_tensor *tensor) {
  const char *own = last_part(out->cls, strlen(out->cls));
  const struct sf_trace_tensor *held = sf_trace_set_find(source->candidate, tensor->text);
  out->is_bias = strcmp(own, "bias") == 0;
  out->cls[own > out->cls ? own - out->cls - 1 : 0] = '\0';
  if (!source->tp || !held) return;
  out->is_cut = is_cut(held, source->tp);
  out->is_whole = !out->is_cut;
}

static bool describe(struct sf_pattern_tensor *out, const void *of, int32_t which) {
  const struct source *source = of;
  const struct sf_check_result *result = &source->report->results[which];
  const struct sf_trace_name *name = &result->tensor->name;
  *out = (struct sf_pattern_tensor){.is_wrong = result->flagged, .kind = name->kind, .step = name->step, .microbatch = name->microbatch};
  out->layer = sf_trace_name_layer(name);
  if (sf_trace_name_module(out->cls, sizeof out->cls, name) != SF_OK) return false;
  const bool of_param =
      name->kind == SF_KIND_PARAM || name->kind == SF_KIND_WGRAD || name->kind == SF_KIND_MAIN_GRAD || name->kind == SF_KIND_PARAM_DELTA;
  out->is_expert = strstr(result->tensor->text, ".experts.") != NULL;
  if (of_param) describe_param(out, source, result->tensor);
  out->is_norm = strstr(last_part(out->cls, strlen(out->cls)), "norm") != NULL;
  return result->judged || result->flagged;
}

void sf_check_pattern(struct sf_checking *checking) {
  struct sf_check_report *report = &checking->report;
  struct source source = {.report = report, .candidate = checking->candidate};
  for (int32_t i = 0; i < source.candidate->group_count; i++)
    if (strcmp(source.candidate->groups[i].name, "tp") == 0 && source.candidate->groups[i].size > 1)
      source.tp = &source.candidate->groups[i];
  report->pattern[0] = '\0';
  if (report->findings < 2 || report->culprit_count == 0) return;
  sf_pattern_say(report->pattern, &(struct sf_pattern_source){&source, report->result_count, describe}, report->culprits[0].result);
}
