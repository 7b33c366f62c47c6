#include "oracles/diagnose/pattern.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- the rules ------------------------------------------------------------------------------------------------- */

typedef const struct sf_pattern_tensor *tensor;

struct rule {
  const char *words; /* behind the kind; %s: the class of first's module, %d: first's number */
  bool (*holds)(tensor t, tensor first);
  int64_t (*number)(tensor first);
};

static bool always(tensor t, tensor first) { return (void)t, (void)first, true; }
static bool is_whole(tensor t, tensor first) { return (void)first, t->is_whole; }
static bool is_cut(tensor t, tensor first) { return (void)first, t->is_cut && !t->is_expert; }
static bool is_expert(tensor t, tensor first) { return (void)first, t->is_expert; }
static bool is_norm(tensor t, tensor first) { return (void)first, t->is_norm; }
static bool is_bias(tensor t, tensor first) { return (void)first, t->is_bias; }
static bool in_layer(tensor t, tensor first) { return t->layer >= 0 && t->layer == first->layer; }
static bool of_class(tensor t, tensor first) { return *t->cls && strcmp(t->cls, first->cls) == 0; }

static bool from_step(tensor t, tensor first) { return t->step >= first->step; }
static bool in_step(tensor t, tensor first) { return t->step == first->step; }
static bool in_microbatch(tensor t, tensor first) { return t->microbatch == first->microbatch; }

static int64_t layer_of(tensor t) { return t->layer; }
static int64_t step_of(tensor t) { return t->step; }
static int64_t microbatch_of(tensor t) { return t->microbatch; }

static const struct rule places[] = {
    {"", always, NULL},
    {" of parameters that every rank of tp holds whole", is_whole, NULL},
    {" of parameters that tp cuts", is_cut, NULL},
    {" of experts", is_expert, NULL},
    {" of norms", is_norm, NULL},
    {" of biases", is_bias, NULL},
    {" of layer %d", in_layer, layer_of},
    {" of %s", of_class, NULL},
};

static const struct rule times[] = {
    {"", always, NULL},
    {" from step %d on", from_step, step_of},
    {" in step %d", in_step, step_of},
    {" of microbatch %d", in_microbatch, microbatch_of},
};

/* --- which one holds ------------------------------------------------------------------------------------------- */

struct run {
  const struct sf_pattern_tensor *tensors;
  int32_t count;
  tensor first; /* the wrong one of its kind in the earliest step */
};

struct count {
  int32_t wrong, right;
};

/* False where a rule takes a right tensor for wrong or the other way round, or fewer than two are wrong. */
static bool fits(struct count *out, const struct run *run, const struct rule *place, const struct rule *time) {
  *out = (struct count){0, 0};
  for (int32_t i = 0; i < run->count; i++) {
    tensor t = &run->tensors[i];
    if (t->kind != run->first->kind) continue;
    if (t->is_wrong != (place->holds(t, run->first) && time->holds(t, run->first))) return false;
    out->wrong += t->is_wrong;
    out->right += !t->is_wrong;
  }
  return out->wrong > 1;
}

static void append(char out[SF_PATTERN_TEXT], const struct rule *rule, tensor first) {
  const size_t length = strlen(out);
  const char *mark = strchr(rule->words, '%');
  char number[24] = "";
  if (rule->number) snprintf(number, sizeof number, "%" PRId64, rule->number(first));
  snprintf(out + length, SF_PATTERN_TEXT - length, "%.*s%s%s", mark ? (int)(mark - rule->words) : (int)strlen(rule->words), rule->words,
           !mark          ? ""
           : rule->number ? number
                          : first->cls,
           mark ? mark + 2 : "");
}

static void say(char out[SF_PATTERN_TEXT], tensor first, const struct rule *place, const struct rule *time, const struct count *count) {
  static const char *const kinds[SF_KIND_COUNT] = {
      [SF_KIND_PARAM] = "parameters",          [SF_KIND_ACT] = "activations",          [SF_KIND_ACT_GRAD] = "gradients of activations",
      [SF_KIND_WGRAD] = "weight gradients",    [SF_KIND_MAIN_GRAD] = "main gradients", [SF_KIND_PARAM_DELTA] = "parameter changes",
      [SF_KIND_SCALAR] = "numbers of the step"};
  if (count->wrong == 2)
    snprintf(out, SF_PATTERN_TEXT, "both %s", kinds[first->kind]);
  else
    snprintf(out, SF_PATTERN_TEXT, "all %d %s", count->wrong, kinds[first->kind]);
  append(out, place, first);
  append(out, time, first);
  const size_t length = strlen(out);
  if (count->right == 0)
    snprintf(out + length, SF_PATTERN_TEXT - length, " are wrong");
  else if (count->right == 1)
    snprintf(out + length, SF_PATTERN_TEXT - length, " are wrong, and the other one is not");
  else
    snprintf(out + length, SF_PATTERN_TEXT - length, " are wrong, and none of the other %d", count->right);
}

void sf_pattern_say(char out[SF_PATTERN_TEXT], const struct sf_pattern_tensor *tensors, int32_t count, int32_t first) {
  enum { PLACES = sizeof places / sizeof places[0], TIMES = sizeof times / sizeof times[0] };
  struct run run = {tensors, count, &tensors[first]};
  for (int32_t i = 0; i < count; i++)
    if (tensors[i].is_wrong && tensors[i].kind == run.first->kind && tensors[i].step < run.first->step) run.first = &tensors[i];
  out[0] = '\0';
  for (int rules = 0; rules <= 2; rules++) /* the fewest words first */
    for (int place = 0; place < PLACES; place++)
      for (int time = 0; time < TIMES; time++) {
        struct count counted;
        if ((place > 0) + (time > 0) != rules || !fits(&counted, &run, &places[place], &times[time])) continue;
        say(out, run.first, &places[place], &times[time], &counted);
        return;
      }
}
