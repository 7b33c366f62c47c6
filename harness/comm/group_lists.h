/* Groups of the ranks of one process, each list of ranks held once: in a world of thousands of simulated ranks their own copies would take
 * more memory than the model. */
#ifndef SF_COMM_GROUP_LISTS_H
#define SF_COMM_GROUP_LISTS_H

#include "harness/comm/comm.h"
#include "harness/spec/mesh.h"

struct sf_group_lists;

/* SF_ENOMEM. destroy takes NULL. */
enum sf_status sf_group_lists_create(struct sf_group_lists **out) SF_MUST_USE;
void sf_group_lists_destroy(struct sf_group_lists *lists);
/* Forgets all groups; their lists must not be used any more. */
void sf_group_lists_reset(struct sf_group_lists *lists);

/* The ranks of the mesh that differ from `rank` in these axes alone (sf_mesh_group). The list lives until the next reset. SF_ENOMEM. */
enum sf_status sf_group_lists_find(struct sf_group *out, struct sf_group_lists *lists, const struct sf_mesh *mesh, int32_t rank,
                                   unsigned axes) SF_MUST_USE;
/* The same on the layout's expert mesh (sf_mesh_expert_group). */
enum sf_status sf_group_lists_find_expert(struct sf_group *out, struct sf_group_lists *lists, const struct sf_layout *layout, int32_t rank,
                                          unsigned axes) SF_MUST_USE;

#endif
