/* Passes for a framework's case. Choices go back to the plainest, many at once, then one by one, then nearer to it, then pairs. Whatever
 * the order is, a choice only ever goes down, so that shrinking ends. */
#include "harness/run/framework/framework_case.h"

struct place {
  struct sf_choice_space space;
  struct sf_choices now;
  int32_t open[SF_DESCRIPTION_FIELDS_MAX], open_count; /* fields that are not plain: of the layout first, since ranks cost most */
};

static void find_open(struct place *at) {
  const struct sf_description *description = at->space.description;
  for (int layout = 1; layout >= 0; layout--) {
    for (int32_t i = 0; i < sf_description_field_count(description); i++) {
      if (at->now.at[i] > 0 && sf_description_field_is_layout(description, i) == (layout == 1)) at->open[at->open_count++] = i;
    }
  }
}

/* Each turns `next`, the choices as they are, into those of its step; leaves them where the step has nothing to do. False: no such step. */
typedef bool pass_function(struct sf_choices *next, const struct place *at, int64_t step);

static bool pass_function_fields(struct sf_choices *next, const struct place *at, int64_t step) {
  const struct sf_description *description = at->space.description;
  for (int32_t i = 0; i < sf_description_field_count(description); i++)
    if (!sf_description_field_is_layout(description, i)) next->at[i] = 0;
  return step == 0;
}

/* Each half of the fields, each quarter, ... each single field. */
static bool pass_groups(struct sf_choices *next, const struct place *at, int64_t step) {
  int64_t chunks = 2, first = 0;
  while (step >= first + chunks) {
    if (chunks >= at->open_count) return false;
    first += chunks;
    chunks *= 2;
  }
  const int64_t begin = (step - first) * at->open_count / chunks, end = (step - first + 1) * at->open_count / chunks;
  for (int64_t i = begin; i < end; i++) next->at[at->open[i]] = 0;
  return true;
}

/* Nearer to plain: half way, one less. */
static bool pass_lower(struct sf_choices *next, const struct place *at, int64_t step) {
  if (step >= 2 * at->open_count) return false;
  int32_t *choice = &next->at[at->open[step / 2]];
  if (*choice > 1) *choice = step % 2 == 0 ? *choice / 2 : *choice - 1;
  return true;
}

/* A field that a rule binds to another one goes with it alone. */
static bool pass_pairs(struct sf_choices *next, const struct place *at, int64_t step) {
  if (step >= (int64_t)at->open_count * at->open_count) return false;
  const int32_t i = at->open[step / at->open_count], k = at->open[step % at->open_count];
  struct sf_choices one = at->now, other = at->now;
  one.at[i] = other.at[k] = 0;
  if (sf_choices_allowed(&one, &at->space) && sf_choices_allowed(&other, &at->space)) return true; /* were tried by themselves */
  next->at[i] = next->at[k] = 0;
  return true;
}

static bool pass_seed(struct sf_choices *next, const struct place *at, int64_t step) {
  (void)next, (void)at;
  return step == 0;
}

static pass_function *const passes[] = {pass_function_fields, pass_groups, pass_lower, pass_pairs, pass_seed};

static bool candidate(const void *ctx, struct sf_case *out, bool *usable, const struct sf_case *in, int pass, int64_t step) {
  struct place at = {.space = {.description = ctx, .ranks_max = (int32_t)sf_case_ranks(in)}};
  json_t *object = json_loads(in->fields, 0, NULL);
  const bool is_read = object && sf_choices_of_case(&at.now, ctx, object, NULL) == SF_OK;
  json_decref(object);
  *usable = false;
  if (!is_read) return false;
  find_open(&at);
  struct sf_choices next = at.now;
  if (!passes[pass](&next, &at, step)) return false;
  const int64_t seed = passes[pass] == pass_seed ? 0 : in->seed;
  *usable = sf_choices_allowed(&next, &at.space) && sf_framework_case_put(out, &next, ctx, seed, NULL) == SF_OK;
  return true;
}

struct sf_shrink_passes sf_framework_shrink_passes(const struct sf_description *description) {
  return (struct sf_shrink_passes){.count = sizeof passes / sizeof passes[0], .candidate = candidate, .ctx = description};
}
