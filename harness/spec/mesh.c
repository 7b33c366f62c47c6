#include "harness/spec/mesh.h"

#include "harness/base/assert.h"

#include <string.h>

static const char *const AXIS_NAMES[] = {
#define X(name, text) text,
    SF_AXIS_MAP(X)
#undef X
};

const char *sf_axis_name(enum sf_axis axis) {
  SF_ASSERT_LT((unsigned)axis, SF_AXIS_COUNT);
  return AXIS_NAMES[axis];
}

static int axis_from_name(const char *name, size_t length) {
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++)
    if (strlen(AXIS_NAMES[axis]) == length && memcmp(AXIS_NAMES[axis], name, length) == 0) return axis;
  return -1;
}

enum sf_status sf_mesh_parse_order(enum sf_axis order[SF_AXIS_COUNT], const char *text, struct sf_error *error) {
  enum sf_axis parsed[SF_AXIS_COUNT];
  unsigned seen = 0;
  const char *at = text;
  for (int place = 0; place < SF_AXIS_COUNT; place++) {
    const size_t length = strcspn(at, "-");
    const int axis = axis_from_name(at, length);
    if (axis < 0) return sf_error_set(error, SF_EINPUT, "\"%.40s\" does not name tp, cp, ep, dp and pp once each", text);
    if (seen & SF_AXES(axis)) return sf_error_set(error, SF_EINPUT, "%s is there twice", AXIS_NAMES[axis]);
    seen |= SF_AXES(axis);
    parsed[place] = (enum sf_axis)axis;
    at += length;
    const bool last = place == SF_AXIS_COUNT - 1;
    if (last ? *at != '\0' : *at != '-')
      return sf_error_set(error, SF_EINPUT, "\"%.40s\" does not name tp, cp, ep, dp and pp once each", text);
    at++;
  }
  memcpy(order, parsed, sizeof parsed);
  return SF_OK;
}

static struct sf_mesh mesh_create(const struct sf_layout *layout, const char *order) {
  struct sf_mesh mesh = {.world = (int32_t)(layout->tp * layout->cp * layout->dp * layout->pp)};
  mesh.size[SF_AXIS_TP] = (int32_t)layout->tp;
  mesh.size[SF_AXIS_CP] = (int32_t)layout->cp;
  mesh.size[SF_AXIS_EP] = 1;
  mesh.size[SF_AXIS_DP] = (int32_t)layout->dp;
  mesh.size[SF_AXIS_PP] = (int32_t)layout->pp;
  const enum sf_status status = sf_mesh_parse_order(mesh.order, order, NULL);
  SF_ASSERT_EQ(status, SF_OK);
  return mesh;
}

struct sf_mesh sf_mesh_from_layout(const struct sf_layout *layout) { return mesh_create(layout, layout->order); }
struct sf_mesh sf_mesh_default_order(const struct sf_layout *layout) { return mesh_create(layout, "tp-cp-ep-dp-pp"); }

struct sf_coord sf_mesh_coord(const struct sf_mesh *mesh, int32_t rank) {
  SF_ASSERT(rank >= 0 && rank < mesh->world);
  struct sf_coord coord;
  for (int place = 0; place < SF_AXIS_COUNT; place++) {
    const enum sf_axis axis = mesh->order[place];
    coord.at[axis] = rank % mesh->size[axis];
    rank /= mesh->size[axis];
  }
  return coord;
}

int32_t sf_mesh_rank(const struct sf_mesh *mesh, const struct sf_coord *coord) {
  int32_t rank = 0;
  for (int place = SF_AXIS_COUNT - 1; place >= 0; place--) {
    const enum sf_axis axis = mesh->order[place];
    SF_ASSERT(coord->at[axis] >= 0 && coord->at[axis] < mesh->size[axis]);
    rank = rank * mesh->size[axis] + coord->at[axis];
  }
  return rank;
}

/* Fills in size and index of the place at `coord` among those that differ in these axes; the first of these is left in `coord`. */
static struct sf_group_place place_among(const struct sf_mesh *mesh, struct sf_coord *coord, unsigned axes) {
  struct sf_group_place place = {.size = 1};
  for (int at = 0; at < SF_AXIS_COUNT; at++) {
    const enum sf_axis axis = mesh->order[at];
    if (!(axes & SF_AXES(axis))) continue;
    place.index += coord->at[axis] * place.size;
    place.size *= mesh->size[axis];
    coord->at[axis] = 0;
  }
  return place;
}

struct sf_group_place sf_mesh_group_place(const struct sf_mesh *mesh, int32_t rank, unsigned axes) {
  struct sf_coord coord = sf_mesh_coord(mesh, rank);
  struct sf_group_place place = place_among(mesh, &coord, axes);
  place.first = sf_mesh_rank(mesh, &coord);
  return place;
}

int32_t sf_mesh_group(const struct sf_mesh *mesh, int32_t rank, unsigned axes, int32_t *ranks, int32_t *index) {
  struct sf_coord coord = sf_mesh_coord(mesh, rank);
  int32_t count = 1;
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++)
    if (axes & SF_AXES(axis)) count *= mesh->size[axis];
  for (int32_t member = 0; member < count; member++) {
    int32_t rest = member;
    for (int place = 0; place < SF_AXIS_COUNT; place++) {
      const enum sf_axis axis = mesh->order[place];
      if (!(axes & SF_AXES(axis))) continue;
      coord.at[axis] = rest % mesh->size[axis];
      rest /= mesh->size[axis];
    }
    ranks[member] = sf_mesh_rank(mesh, &coord);
    if (ranks[member] == rank) *index = member;
  }
  return count;
}

/* --- the expert mesh --------------------------------------------------------------------------------------------- */

/* A mesh of one stage's ranks, with the sizes that experts are cut by; without pp. */
static struct sf_mesh expert_stage(const struct sf_layout *layout, const struct sf_mesh *dense) {
  struct sf_mesh stage = *dense;
  stage.world /= stage.size[SF_AXIS_PP];
  SF_ASSERT_EQ(stage.world % (layout->etp * layout->ep), 0);
  stage.size[SF_AXIS_PP] = stage.size[SF_AXIS_CP] = 1;
  stage.size[SF_AXIS_TP] = (int32_t)layout->etp;
  stage.size[SF_AXIS_EP] = (int32_t)layout->ep;
  stage.size[SF_AXIS_DP] = (int32_t)(stage.world / (layout->etp * layout->ep));
  return stage;
}

static struct sf_mesh dense_stage(const struct sf_mesh *dense) {
  struct sf_mesh stage = *dense;
  stage.world /= stage.size[SF_AXIS_PP];
  stage.size[SF_AXIS_PP] = 1;
  return stage;
}

static struct sf_coord expert_coord(const struct sf_layout *layout, int32_t rank) {
  const struct sf_mesh dense = sf_mesh_from_layout(layout), stage = dense_stage(&dense), experts = expert_stage(layout, &dense);
  struct sf_coord at = sf_mesh_coord(&dense, rank);
  const int32_t pp = at.at[SF_AXIS_PP];
  at.at[SF_AXIS_PP] = 0;
  struct sf_coord place = sf_mesh_coord(&experts, sf_mesh_rank(&stage, &at));
  place.at[SF_AXIS_PP] = pp;
  return place;
}

static int32_t expert_rank(const struct sf_layout *layout, struct sf_coord place) {
  const struct sf_mesh dense = sf_mesh_from_layout(layout), stage = dense_stage(&dense), experts = expert_stage(layout, &dense);
  const int32_t pp = place.at[SF_AXIS_PP];
  place.at[SF_AXIS_PP] = 0;
  struct sf_coord at = sf_mesh_coord(&stage, sf_mesh_rank(&experts, &place));
  at.at[SF_AXIS_PP] = pp;
  return sf_mesh_rank(&dense, &at);
}

struct sf_expert_place sf_mesh_expert_place(const struct sf_layout *layout, int32_t rank) {
  const struct sf_coord at = expert_coord(layout, rank);
  return (struct sf_expert_place){at.at[SF_AXIS_TP], at.at[SF_AXIS_EP], at.at[SF_AXIS_DP]};
}

int32_t sf_mesh_expert_group(const struct sf_layout *layout, int32_t rank, unsigned axes, int32_t *ranks, int32_t *index) {
  const struct sf_mesh dense = sf_mesh_from_layout(layout);
  struct sf_mesh sizes = expert_stage(layout, &dense);
  struct sf_coord place = expert_coord(layout, rank);
  int32_t count = 1;
  sizes.size[SF_AXIS_PP] = dense.size[SF_AXIS_PP];
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++)
    if (axes & SF_AXES(axis)) count *= sizes.size[axis];
  for (int32_t member = 0; member < count; member++) {
    int32_t rest = member;
    for (int at = 0; at < SF_AXIS_COUNT; at++) {
      const enum sf_axis axis = sizes.order[at];
      if (!(axes & SF_AXES(axis))) continue;
      place.at[axis] = rest % sizes.size[axis];
      rest /= sizes.size[axis];
    }
    ranks[member] = expert_rank(layout, place);
    if (ranks[member] == rank) *index = member;
  }
  return count;
}

struct sf_group_place sf_mesh_expert_group_place(const struct sf_layout *layout, int32_t rank, unsigned axes) {
  const struct sf_mesh dense = sf_mesh_from_layout(layout);
  struct sf_mesh sizes = expert_stage(layout, &dense);
  struct sf_coord coord = expert_coord(layout, rank);
  sizes.size[SF_AXIS_PP] = dense.size[SF_AXIS_PP];
  struct sf_group_place place = place_among(&sizes, &coord, axes);
  place.first = expert_rank(layout, coord);
  return place;
}
