/* Rank <-> coordinate arithmetic of a layout, and groups of ranks. Checked against tables made with Megatron Core's RankGenerator. */
#ifndef SF_SPEC_MESH_H
#define SF_SPEC_MESH_H

#include "harness/spec/case.h"

#define SF_AXIS_MAP(X) X(TP, "tp") X(CP, "cp") X(EP, "ep") X(DP, "dp") X(PP, "pp")
enum sf_axis {
#define X(name, text) SF_AXIS_##name,
  SF_AXIS_MAP(X)
#undef X
  SF_AXIS_COUNT
};
#define SF_AXES(axis) (1u << (axis))
#define SF_AXES_ALL ((1u << SF_AXIS_COUNT) - 1u)
const char *sf_axis_name(enum sf_axis axis); /* "tp" .. */

struct sf_mesh {
  int32_t world;
  int32_t size[SF_AXIS_COUNT];
  enum sf_axis order[SF_AXIS_COUNT]; /* fastest first */
};

struct sf_coord { int32_t at[SF_AXIS_COUNT]; };

/* The dense mesh tp x cp x dp x pp in the layout's order (ep has size 1 there). */
struct sf_mesh sf_mesh_from_layout(const struct sf_layout *layout);
/* The dense mesh in the order tp-cp-ep-dp-pp, which is Megatron's, whatever the layout's order. */
struct sf_mesh sf_mesh_default_order(const struct sf_layout *layout);

/* Parses "tp-cp-ep-dp-pp" (each axis once). SF_EINPUT with a reason otherwise. */
enum sf_status sf_mesh_parse_order(enum sf_axis order[SF_AXIS_COUNT], const char *text, struct sf_error *error) SF_MUST_USE;

/* Rank in [0, world) to coordinates, and back; they assert that rank and coordinates lie in the mesh. */
struct sf_coord sf_mesh_coord(const struct sf_mesh *mesh, int32_t rank);
int32_t sf_mesh_rank(const struct sf_mesh *mesh, const struct sf_coord *coord);

/* The ranks that share `rank`'s coordinates on every axis outside `axes`, in increasing order of the coordinates inside
 * (fastest axis of the mesh first). Writes at most `world` ranks; returns their number; *index = place of `rank`. */
int32_t sf_mesh_group(const struct sf_mesh *mesh, int32_t rank, unsigned axes, int32_t *ranks, int32_t *index);
struct sf_group_place { int32_t size, index, first; }; /* index: the rank's own; first: the rank of the first member */
/* Where the rank stands in that group, without a list of it. */
struct sf_group_place sf_mesh_group_place(const struct sf_mesh *mesh, int32_t rank, unsigned axes);

/* --- the expert mesh etp x ep x edp x pp over the same ranks ----------------------------------------------------- */

/* The ranks of a pipeline stage, in the dense mesh's order, are numbered again: etp stands where the order has tp, ep where it has ep, edp
 * = tp cp dp / (etp ep) where it has dp. Where pp is the slowest axis, this is the mesh that Megatron makes of the same order. */
struct sf_expert_place { int32_t etp, ep, edp; };
/* Where the rank stands on that mesh; its pp coordinate is that of the dense mesh. */
struct sf_expert_place sf_mesh_expert_place(const struct sf_layout *layout, int32_t rank);
/* As sf_mesh_group, on the expert mesh: of axes TP means etp, EP ep, DP edp, PP pp. */
int32_t sf_mesh_expert_group(const struct sf_layout *layout, int32_t rank, unsigned axes, int32_t *ranks, int32_t *index);
/* The same of that group. */
struct sf_group_place sf_mesh_expert_group_place(const struct sf_layout *layout, int32_t rank, unsigned axes);

#endif
