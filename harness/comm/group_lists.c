#include "harness/comm/group_lists.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <string.h>

enum { LISTS_BLOCK_BYTES = 1 << 14, TABLE_FIRST = 64 };

/* Which group: the mesh (a hash), its axes, and its first member. */
struct group_name {
  uint64_t mesh;
  unsigned axes;
  int32_t first;
};

struct entry {
  struct group_name name;
  struct sf_group group; /* size 0: the entry is free; index: of whoever asked last */
};

struct sf_group_lists {
  struct sf_arena *arena; /* the lists */
  struct entry *entries;  /* open addressing */
  uint64_t mask, count;
};

enum sf_status sf_group_lists_create(struct sf_group_lists **out) {
  struct sf_group_lists *lists = sf_alloc(sizeof *lists);
  if (lists == NULL) return SF_ENOMEM;
  lists->mask = TABLE_FIRST - 1;
  lists->entries = sf_alloc(TABLE_FIRST * sizeof *lists->entries);
  lists->arena = sf_arena_create(LISTS_BLOCK_BYTES, false);
  if (lists->entries == NULL || lists->arena == NULL) {
    sf_group_lists_destroy(lists);
    return SF_ENOMEM;
  }
  *out = lists;
  return SF_OK;
}

void sf_group_lists_destroy(struct sf_group_lists *lists) {
  if (lists == NULL) return;
  sf_arena_destroy(lists->arena);
  sf_free(lists->entries);
  sf_free(lists);
}

void sf_group_lists_reset(struct sf_group_lists *lists) {
  sf_arena_reset(lists->arena);
  memset(lists->entries, 0, (size_t)(lists->mask + 1) * sizeof *lists->entries);
  lists->count = 0;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* The group's entry, or the free one where it belongs. */
static struct entry *entry_of(struct entry *entries, uint64_t mask, const struct group_name *name) {
  uint64_t at = sf_hash_u64(sf_hash_u64(name->mesh, name->axes), (uint64_t)name->first) & mask;
  for (; entries[at].group.size != 0; at = (at + 1) & mask) {
    const struct group_name *other = &entries[at].name;
    if (other->mesh == name->mesh && other->axes == name->axes && other->first == name->first) break;
  }
  return &entries[at];
}

static enum sf_status grow(struct sf_group_lists *lists) {
  const uint64_t mask = 2 * lists->mask + 1;
  struct entry *entries = sf_alloc((size_t)(mask + 1) * sizeof *entries);
  if (entries == NULL) return SF_ENOMEM;
  for (uint64_t i = 0; i <= lists->mask; i++)
    if (lists->entries[i].group.size != 0) *entry_of(entries, mask, &lists->entries[i].name) = lists->entries[i];
  sf_free(lists->entries);
  lists->entries = entries;
  lists->mask = mask;
  return SF_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* A rank's group on one of its two meshes. experts: NULL, or the layout whose expert mesh it is. */
struct wanted {
  const struct sf_mesh *mesh;
  const struct sf_layout *experts;
  int32_t rank;
  struct group_name name;
  struct sf_group_place place;
};

static enum sf_status group_make(struct sf_group *out, struct sf_group_lists *lists, const struct wanted *wanted) {
  int32_t *ranks = sf_arena_alloc(lists->arena, (size_t)wanted->place.size * sizeof *ranks), index = 0;
  if (ranks == NULL) return SF_ENOMEM;
  const int32_t size = wanted->experts != NULL
                           ? sf_mesh_expert_group(wanted->experts, wanted->rank, wanted->name.axes, ranks, &index)
                           : sf_mesh_group(wanted->mesh, wanted->rank, wanted->name.axes, ranks, &index);
  SF_ASSERT_EQ(size, wanted->place.size);
  SF_ASSERT_EQ(index, wanted->place.index);
  *out = sf_group_create(ranks, size, index);
  return SF_OK;
}

static enum sf_status find(struct sf_group *out, struct sf_group_lists *lists, const struct wanted *wanted) {
  if (4 * (lists->count + 1) > 3 * (lists->mask + 1) && grow(lists) != SF_OK) return SF_ENOMEM;
  struct entry *entry = entry_of(lists->entries, lists->mask, &wanted->name);
  if (entry->group.size == 0) {
    if (group_make(&entry->group, lists, wanted) != SF_OK) return SF_ENOMEM;
    entry->name = wanted->name;
    lists->count++;
  }
  *out = entry->group;
  out->index = wanted->place.index;
  return SF_OK;
}

enum sf_status sf_group_lists_find(struct sf_group *out, struct sf_group_lists *lists, const struct sf_mesh *mesh, int32_t rank,
                                   unsigned axes) {
  struct wanted wanted = {.mesh = mesh, .rank = rank, .place = sf_mesh_group_place(mesh, rank, axes)};
  wanted.name = (struct group_name){sf_hash_bytes(0, mesh, sizeof *mesh), axes, wanted.place.first};
  return find(out, lists, &wanted);
}

enum sf_status sf_group_lists_find_expert(struct sf_group *out, struct sf_group_lists *lists, const struct sf_layout *layout, int32_t rank,
                                          unsigned axes) {
  const struct sf_mesh mesh = sf_mesh_from_layout(layout);
  struct wanted wanted = {.mesh = &mesh, .experts = layout, .rank = rank, .place = sf_mesh_expert_group_place(layout, rank, axes)};
  const uint64_t parts = (uint64_t)layout->etp << 32 | (uint64_t)layout->ep;
  wanted.name = (struct group_name){sf_hash_u64(sf_hash_bytes(0, &mesh, sizeof mesh), parts), axes, wanted.place.first};
  return find(out, lists, &wanted);
}
