/* Shrinks a framework's case: sets choices back to the plainest, many at once, then in pairs, then one by one, then nearer to the plainest.
 * A choice only ever goes down, so this ends in any order. */
#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/run/framework/framework_case.h"

#include <string.h>

struct shrinking {
  const struct sf_choice_space space;
  struct sf_choices now;
  int64_t seed, budget;
  bool (*still_fails)(void *ctx, const struct sf_case *c);
  void *ctx;
  struct sf_case *best;
  struct sf_shrink_report *report;
  uint64_t *tried; /* hashes of the cases that were run */
  enum sf_status status;
};

static bool out_of_budget(const struct shrinking *s) { return s->status != SF_OK || s->report->evaluations >= s->budget; }

static bool is_new(struct shrinking *s, const struct sf_case *c) {
  const uint64_t hash = sf_hash_string(sf_hash_u64(0, (uint64_t)c->seed), c->fields);
  for (int64_t i = 0; i < s->report->evaluations; i++)
    if (s->tried[i] == hash) return false;
  s->tried[s->report->evaluations] = hash;
  return true;
}

/* Runs the choices if they are allowed and were not run; keeps them if they still fail. */
static bool try_choices(struct shrinking *s, const struct sf_choices *choices, int64_t seed) {
  struct sf_case c;
  if (out_of_budget(s) || !sf_choices_allowed(choices, &s->space)) return false;
  s->status = sf_framework_case_put(&c, choices, s->space.description, seed, NULL);
  if (s->status != SF_OK || !is_new(s, &c)) return false;
  s->report->evaluations++;
  if (!s->still_fails(s->ctx, &c)) return false;
  s->report->accepted++;
  s->now = *choices;
  s->seed = seed;
  *s->best = c;
  return true;
}

/* Fields that are not plain; those of the layout come first, since ranks cost most. */
static int32_t open_fields(int32_t *out, const struct shrinking *s) {
  const struct sf_description *description = s->space.description;
  int32_t count = 0;
  for (int layout = 1; layout >= 0; layout--) {
    for (int32_t i = 0; i < sf_description_field_count(description); i++) {
      if (s->now.at[i] > 0 && sf_description_field_is_layout(description, i) == (layout == 1)) out[count++] = i;
    }
  }
  return count;
}

/* Sets groups of `size` neighbours back at once. */
static bool reset_groups(struct shrinking *s, int32_t size) {
  int32_t fields[SF_DESCRIPTION_FIELDS_MAX];
  bool any = false;
  const int32_t count = open_fields(fields, s);
  for (int32_t first = 0; first < count; first += size) {
    struct sf_choices next = s->now;
    for (int32_t i = first; i < first + size && i < count; i++) next.at[fields[i]] = 0;
    any |= try_choices(s, &next, s->seed);
  }
  return any;
}

/* Sets two fields back together, because a rule may tie one to the other. */
static bool reset_pairs(struct shrinking *s) {
  int32_t fields[SF_DESCRIPTION_FIELDS_MAX];
  const int32_t count = open_fields(fields, s);
  for (int32_t i = 0; i < count; i++) {
    for (int32_t k = i + 1; k < count; k++) {
      struct sf_choices one = s->now, other = s->now, both = s->now;
      one.at[fields[i]] = both.at[fields[i]] = 0;
      other.at[fields[k]] = both.at[fields[k]] = 0;
      if (sf_choices_allowed(&one, &s->space) && sf_choices_allowed(&other, &s->space)) continue; /* each was tried alone */
      if (try_choices(s, &both, s->seed)) return true;
    }
  }
  return false;
}

/* Moves choices nearer to the plainest: half way, then by one. */
static bool lower_choices(struct shrinking *s) {
  int32_t fields[SF_DESCRIPTION_FIELDS_MAX];
  bool any = false;
  const int32_t count = open_fields(fields, s);
  for (int32_t i = 0; i < count; i++) {
    for (int32_t at = s->now.at[fields[i]]; at > 1; at = s->now.at[fields[i]]) {
      struct sf_choices next = s->now;
      next.at[fields[i]] = at / 2;
      if (try_choices(s, &next, s->seed)) any = true;
      if (s->now.at[fields[i]] < at) continue;
      next.at[fields[i]] = at - 1;
      if (!try_choices(s, &next, s->seed)) break;
      any = true;
    }
  }
  return any;
}

static void shrink(struct shrinking *s) {
  const struct sf_choices plain = {{0}};
  bool progress = true;
  while (progress && !out_of_budget(s)) {
    int32_t fields[SF_DESCRIPTION_FIELDS_MAX];
    struct sf_choices next = s->now;
    for (int32_t i = 0; i < sf_description_field_count(s->space.description); i++) {
      if (!sf_description_field_is_layout(s->space.description, i)) next.at[i] = plain.at[i];
    }
    progress = try_choices(s, &next, s->seed);
    for (int32_t size = (open_fields(fields, s) + 1) / 2; size >= 1; size /= 2) progress |= reset_groups(s, size);
    progress |= lower_choices(s);
    progress |= reset_pairs(s);
    if (s->seed != 0) progress |= try_choices(s, &s->now, 0);
  }
  s->report->minimal = !out_of_budget(s);
}

enum sf_status sf_framework_shrink(struct sf_case *out, const struct sf_case *in, const struct sf_description *description,
                                   bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                                   struct sf_shrink_report *report) {
  struct shrinking s = {.space = {.description = description, .ranks_max = (int32_t)sf_case_ranks(in)},
                        .seed = in->seed,
                        .budget = budget,
                        .still_fails = still_fails,
                        .ctx = ctx,
                        .best = out,
                        .report = report};
  struct sf_error error;
  memset(report, 0, sizeof *report);
  *out = *in;
  s.tried = sf_alloc((size_t)(budget + 1) * sizeof *s.tried);
  json_t *object = json_loads(in->fields, 0, NULL);
  s.status = s.tried && object ? sf_choices_of_case(&s.now, description, object, &error) : SF_ENOMEM;
  json_decref(object);
  if (s.status == SF_OK) shrink(&s);
  sf_free(s.tried);
  return s.status;
}
