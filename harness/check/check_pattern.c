/* The pattern over the tensors of a trace: what their names and their pieces say of them. */
#include "harness/check/check_internal.h"

#include "harness/base/alloc.h"

#include <string.h>

struct source {
  const struct sf_trace_set *candidate;
  const struct sf_trace_group *tp; /* NULL: the trace names none, or it is of one rank */
  const struct sf_piece **seen;    /* scratch, by rank: the first piece of the group whose lowest rank this is */
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

/* Whether ranks of one group of tp hold different parts. */
static bool is_cut(const struct source *source, const struct sf_trace_tensor *tensor) {
  memset(source->seen, 0, (size_t)source->candidate->ranks * sizeof *source->seen);
  for (const struct sf_piece *piece = tensor->pieces; piece; piece = piece->next) {
    const struct sf_piece **first = &source->seen[source->tp->of_rank[piece->rank]];
    if (!*first) *first = piece;
    if (!is_alike(*first, piece)) return true;
  }
  return false;
}

static void describe_param(struct sf_pattern_tensor *out, const struct source *source, const struct sf_trace_tensor *tensor) {
  char *dot = strrchr(out->cls, '.');
  const struct sf_trace_tensor *held = sf_trace_set_find(source->candidate, tensor->text);
  out->is_bias = strcmp(dot ? dot + 1 : out->cls, "bias") == 0;
  *(dot ? dot : out->cls) = '\0'; /* what is left is the module's name */
  if (!source->tp || !held) return;
  out->is_cut = is_cut(source, held);
  out->is_whole = !out->is_cut;
}

static enum sf_status describe(struct sf_pattern_tensor *out, const struct source *source, const struct sf_check_result *result) {
  const struct sf_trace_name *name = &result->tensor->name;
  *out = (struct sf_pattern_tensor){.is_wrong = result->flagged, .kind = name->kind, .step = name->step, .microbatch = name->microbatch};
  out->layer = sf_trace_name_layer(name);
  out->is_expert = strstr(result->tensor->text, ".experts.") != NULL;
  const enum sf_status status = sf_trace_name_module(out->cls, sizeof out->cls, name);
  if (sf_kind_is_of_param(name->kind)) describe_param(out, source, result->tensor);
  const char *dot = strrchr(out->cls, '.');
  out->is_norm = strstr(dot ? dot : out->cls, "norm") != NULL;
  return status;
}

enum sf_status sf_check_pattern(struct sf_checking *checking) {
  struct sf_check_report *report = &checking->report;
  const struct sf_trace_set *candidate = checking->candidate;
  int32_t count = 0, first = 0;
  report->pattern[0] = '\0';
  if (report->findings < 2 || report->culprit_count == 0) return SF_OK;
  struct source source = {.candidate = candidate, .seen = sf_alloc((size_t)candidate->ranks * sizeof *source.seen)};
  for (int32_t i = 0; i < candidate->group_count; i++)
    if (strcmp(candidate->groups[i].name, "tp") == 0 && candidate->groups[i].size > 1) source.tp = &candidate->groups[i];
  struct sf_pattern_tensor *tensors = sf_alloc((size_t)report->result_count * sizeof *tensors);
  enum sf_status status = tensors && source.seen ? SF_OK : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && i < report->result_count; i++) {
    const struct sf_check_result *result = &report->results[i];
    if (!result->judged && !result->flagged) continue;
    if (i == report->culprits[0].result) first = count;
    status = describe(&tensors[count++], &source, result);
  }
  if (status == SF_OK) sf_pattern_say(report->pattern, tensors, count, first);
  sf_free(tensors);
  sf_free(source.seen);
  return status == SF_OK ? SF_OK : sf_error_set(checking->error, status, "%s: out of memory", candidate->path);
}
