/* Feasibility: whether the ranges that are left to the places still hold a valid case. The rules are those of harness/spec/case_rules.c. */
#include "generators/codec_internal.h"

#include "harness/base/assert.h"

#include <string.h>

void sf_bounds_init(struct sf_bounds *bounds, const struct sf_space *space) {
  memset(bounds, 0, sizeof *bounds);
  bounds->space = space;
  bounds->max_ranks = space->max_ranks;
  bounds->may_train_nothing = space->is_set[SF_WALK_FROZEN] && space->is_set[SF_WALK_TIED] && space->is_set[SF_WALK_ADAPTER];
  bounds->at[SF_WALK_SWARM] = (struct sf_range){0, 2};
  for (int place = SF_WALK_SWARM + 1; place < SF_WALK_COUNT; place++) {
    const struct sf_field *field = &sf_case_fields[space->field[place]];
    const int64_t most = sf_walk_first((enum sf_walk)place) == SF_WALK_ORDER ? SF_ORDER_COUNT - 1 : field->max;
    bounds->at[place] = space->is_set[place] ? space->set[place] : (struct sf_range){field->min, most};
  }
}

void sf_bounds_init_around(struct sf_bounds *bounds, const struct sf_space *space, const struct sf_case *c) {
  sf_bounds_init(bounds, space);
  if (sf_case_ranks(c) > bounds->max_ranks) bounds->max_ranks = sf_case_ranks(c);
  if (c->train.frozen == SF_FROZEN_ALL && c->model.tied && !c->model.adapter) bounds->may_train_nothing = true;
}

bool sf_bounds_solve(struct sf_bounds *bounds) {
  struct sf_range ranges[SF_SPACE_FIELDS_MAX] = {{0, 0}};
  for (int place = SF_WALK_SWARM + 1; place < SF_WALK_COUNT; place++) ranges[bounds->space->field[place]] = bounds->at[place];
  ranges[sf_case_row_limit(SF_LIMIT_RANKS)] = (struct sf_range){bounds->max_ranks, bounds->max_ranks};
  for (int format = 0; format < SF_COMPUTE_COUNT; format++) {
    const int64_t is_left = !(bounds->space->formats_left_out >> format & 1);
    ranges[sf_case_row_limit(SF_LIMIT_FORMATS) + format] = (struct sf_range){is_left, is_left};
  }
  ranges[sf_case_row_limit(SF_LIMIT_UNTRAINED)] = (struct sf_range){bounds->may_train_nothing, bounds->may_train_nothing};
  sf_solver_init(&bounds->solver, sf_case_rules(), ranges);
  return bounds->solver.feasible;
}

bool sf_bounds_allow(struct sf_bounds *bounds, enum sf_walk place, struct sf_range range) {
  if (place == SF_WALK_SWARM) return true;
  return sf_solver_allows(&bounds->solver, bounds->space->field[place], range);
}

bool sf_bounds_narrow(struct sf_bounds *bounds, enum sf_walk place, struct sf_range range) {
  bounds->at[place] = range;
  if (place == SF_WALK_SWARM) return true;
  return sf_solver_narrow(&bounds->solver, bounds->space->field[place], range);
}
