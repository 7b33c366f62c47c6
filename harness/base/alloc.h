/* Every heap allocation of the project goes through here, so that tests can fail the k-th one. To be called from one thread. */
#ifndef SF_BASE_ALLOC_H
#define SF_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL when memory is out, or when the test hook below says so. sf_alloc zeroes. */
void *sf_alloc(size_t size_bytes);
void *sf_realloc(void *old, size_t size_bytes); /* new bytes are not zeroed; old stays valid on failure */
/* items with room for one more behind the first `count`, which is zeroed; NULL on no memory: then items stays as it is. For arrays that
 * grow by this alone, one item at a time: it asks for memory whenever count has reached a power of two. */
void *sf_grown(void *items, int64_t count, size_t item_bytes);
char *sf_strdup(const char *text);              /* to be freed by sf_free */
void sf_free(void *memory);                     /* what the three above gave; takes NULL */

/* Makes the `countdown`-th allocation from now (1 = the next) return NULL, once; 0 switches off. For tests.
 * An arena counts when it asks for a block, not at each piece: give it small blocks to fail in the middle. */
void sf_alloc_fail_at(int64_t countdown);
bool sf_alloc_did_fail(void); /* whether the allocation that the last sf_alloc_fail_at chose was asked for */
/* Allocations that failed since the program began, real ones too: for callers of libraries that swallow a failure. */
uint64_t sf_alloc_failures(void);

/* Where else memory may come from. alloc gives NULL when there is none; release takes what alloc gave. */
struct sf_memory {
  void *(*alloc)(void *context, size_t size_bytes);
  void (*release)(void *context, void *memory);
  void *context;
};

/* Arena: memory that is released all at once. Grows by blocks; memory is 64-byte aligned. */
struct sf_arena;

/* Fills memory with the float NaN 0x7fa5a5a5, so that reading before writing, or after giving back, shows. */
void sf_poison(void *memory, size_t size_bytes);
/* poison: fill what is handed out (sf_poison). NULL on no memory. */
struct sf_arena *sf_arena_create(size_t block_bytes, bool poison);
/* The same with blocks from `memory`, which must outlive the arena; NULL: from the heap. */
struct sf_arena *sf_arena_create_in(const struct sf_memory *memory, size_t block_bytes, bool poison);
void *sf_arena_alloc(struct sf_arena *arena, size_t size_bytes); /* NULL on no memory; never zeroed */
/* Everything handed out becomes invalid; the blocks are kept for reuse. */
void sf_arena_reset(struct sf_arena *arena);
/* A moment of an arena's life. sf_arena_rewind gives back everything handed out since the mark, and drops later marks: marks nest like a
 * stack. */
struct sf_arena_mark { void *block; size_t used; };
struct sf_arena_mark sf_arena_mark(const struct sf_arena *arena);        /* valid until a rewind to an earlier mark, or a reset */
void sf_arena_rewind(struct sf_arena *arena, struct sf_arena_mark mark); /* what was handed out since becomes invalid */
/* The most that was handed out at once, rounding to 64 included. */
size_t sf_arena_peak_bytes(const struct sf_arena *arena);
void sf_arena_destroy(struct sf_arena *arena); /* takes NULL */

#endif
