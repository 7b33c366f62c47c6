#include "harness/spec/case.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <string.h>

void sf_case_init(struct sf_case *c) {
  static const char order[] = "tp-cp-ep-dp-pp", target[] = "builtin";
  memset(c, 0, sizeof *c);
  for (int i = 0; i < sf_case_field_count; i++)
    if (sf_case_fields[i].type != SF_FIELD_TEXT) sf_case_field_put(c, &sf_case_fields[i], sf_case_fields[i].smallest);
  memcpy(c->layout.order, order, sizeof order);
  memcpy(c->reload.layout.order, order, sizeof order);
  memcpy(c->target, target, sizeof target);
}

int64_t sf_case_ranks(const struct sf_case *c) { return c->layout.tp * c->layout.cp * c->layout.dp * c->layout.pp; }

struct sf_case sf_case_after_reload(const struct sf_case *c) {
  SF_ASSERT_LT(0, c->reload.after_step);
  struct sf_case smallest, after = *c;
  sf_case_init(&smallest);
  after.layout = c->reload.layout;
  after.reload = smallest.reload;
  return after;
}

/* The logical part: what is computed. A field of any other name is logical, so that a forgotten new one costs a shared
 * reference and not a wrong one. */
static bool is_logical(const struct sf_field *field) {
  const bool is_layout = strncmp(field->path, "layout.", 7) == 0 || strncmp(field->path, "reload.", 7) == 0;
  return !is_layout && strcmp(field->path, "schedule") != 0 && field->type != SF_FIELD_TEXT;
}

uint64_t sf_case_logical_hash(const struct sf_case *c) {
  uint64_t hash = SF_CASE_SCHEMA;
  for (int i = 0; i < sf_case_field_count; i++)
    if (is_logical(&sf_case_fields[i])) hash = sf_hash_u64(hash, (uint64_t)sf_case_field_get(c, &sf_case_fields[i]));
  return hash;
}

int64_t sf_case_stage_count(const struct sf_case *c) { return c->layout.pp * c->layout.vpp; }

void sf_case_stage_layers(const struct sf_case *c, int64_t stage, int64_t *first, int64_t *count) {
  const int64_t stages = sf_case_stage_count(c), head = c->layout.pp_first_layers, tail = c->layout.pp_last_layers;
  SF_ASSERT(stage >= 0 && stage < stages);
  const int64_t shared_by = stages - (head > 0) - (tail > 0);
  const int64_t share = shared_by > 0 ? (c->model.layers - head - tail) / shared_by : 0;
  const int64_t head_layers = head > 0 ? head : share;
  if (stage == 0) {
    *first = 0;
    *count = stages == 1 ? c->model.layers : head_layers;
  } else {
    *first = head_layers + (stage - 1) * share;
    *count = stage == stages - 1 && tail > 0 ? tail : share;
  }
}
