/* Decides whether the ranges that the fields still have contain a valid case. The rules are those of harness/spec/case_rules.c. */
#include "generators/codec_internal.h"

#include "harness/base/assert.h"

#include <string.h>

void sf_bounds_init(struct sf_bounds *bounds, const struct sf_space *space) {
  memset(bounds, 0, sizeof *bounds);
  bounds->space = space;
  bounds->max_ranks = space->max_ranks;
  bounds->may_train_nothing = space->is_set[SF_CASE_FROZEN] && space->is_set[SF_CASE_TIED] && space->is_set[SF_CASE_ADAPTER];
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    const int64_t most = sf_layout_first((enum sf_case_field)i) == SF_CASE_ORDER ? SF_ORDER_COUNT - 1 : field->max;
    bounds->at[i] = space->is_set[i] ? space->set[i] : (struct sf_range){field->min, most};
  }
}

void sf_bounds_init_around(struct sf_bounds *bounds, const struct sf_space *space, const struct sf_case *c) {
  sf_bounds_init(bounds, space);
  if (sf_case_ranks(c) > bounds->max_ranks) bounds->max_ranks = sf_case_ranks(c);
  if (c->train.frozen == SF_FROZEN_ALL && c->model.tied && !c->model.adapter) bounds->may_train_nothing = true;
}

bool sf_bounds_solve(struct sf_bounds *bounds) {
  struct sf_range ranges[SF_SPACE_FIELDS_MAX] = {{0, 0}};
  for (int field = 0; field < SF_CASE_DRAWN; field++) ranges[field] = bounds->at[field];
  ranges[sf_case_row_limit(SF_LIMIT_RANKS)] = (struct sf_range){bounds->max_ranks, bounds->max_ranks};
  for (int format = 0; format < SF_COMPUTE_COUNT; format++) {
    const int64_t is_left = !(bounds->space->formats_left_out >> format & 1);
    ranges[sf_case_row_limit(SF_LIMIT_FORMATS) + format] = (struct sf_range){is_left, is_left};
  }
  ranges[sf_case_row_limit(SF_LIMIT_UNTRAINED)] = (struct sf_range){bounds->may_train_nothing, bounds->may_train_nothing};
  sf_solver_init(&bounds->solver, sf_case_rules(), ranges);
  return bounds->solver.feasible;
}

bool sf_bounds_allow(struct sf_bounds *bounds, enum sf_case_field field, struct sf_range range) {
  return sf_solver_allows(&bounds->solver, field, range);
}

bool sf_bounds_narrow(struct sf_bounds *bounds, enum sf_case_field field, struct sf_range range) {
  bounds->at[field] = range;
  return sf_solver_narrow(&bounds->solver, field, range);
}
