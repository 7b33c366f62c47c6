/* Arena: a chain of blocks that is walked forward by allocation and backward by rewind. Blocks past the current one are
 * kept and used again. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"

#include <string.h>

enum { ARENA_ALIGN = 64, ARENA_GROWTH_MAX = 16 };

#ifdef SF_SANITIZE
#include <sanitizer/asan_interface.h>
/* What is not handed out is closed to AddressSanitizer, and a gap stands behind each piece, so that running over a
 * tensor's end or using it after a rewind is reported as it would be for malloc. */
enum { ARENA_GAP = ARENA_ALIGN };
static void region_close(void *at, size_t size_bytes) { __asan_poison_memory_region(at, size_bytes); }
static void region_open(void *at, size_t size_bytes) { __asan_unpoison_memory_region(at, size_bytes); }
#else
enum { ARENA_GAP = 0 };
static void region_close(void *at, size_t size_bytes) { (void)at, (void)size_bytes; }
static void region_open(void *at, size_t size_bytes) { (void)at, (void)size_bytes; }
#endif

struct block {
  struct block *next;
  unsigned char *data;   /* 64-byte aligned, inside this allocation */
  size_t capacity, used; /* multiples of 64 */
  size_t before;         /* bytes in use in the blocks before this one, while this one is current or earlier */
};

struct sf_arena {
  struct block *first, *current;
  const struct sf_memory *memory; /* NULL: the heap */
  size_t block_bytes, peak_bytes;
  bool poison;
};

static size_t round_up(size_t size_bytes) { return (size_bytes + (ARENA_ALIGN - 1)) & ~(size_t)(ARENA_ALIGN - 1); }

static struct block *block_create(const struct sf_memory *memory, size_t capacity) {
  const size_t size_bytes = sizeof(struct block) + ARENA_ALIGN + capacity;
  /* Not zeroed: that would cost as much as using it. */
  struct block *block = memory != NULL ? memory->alloc(memory->context, size_bytes) : sf_realloc(NULL, size_bytes);
  if (block == NULL) return NULL;
  *block = (struct block){0};
  const uintptr_t start = (uintptr_t)(block + 1);
  block->data = (unsigned char *)(block + 1) + (round_up(start) - start);
  block->capacity = capacity;
  region_close(block->data, capacity);
  return block;
}

static void block_destroy(const struct sf_memory *memory, struct block *block) {
  region_open(block->data, block->capacity);
  if (memory != NULL)
    memory->release(memory->context, block);
  else
    sf_free(block);
}

struct sf_arena *sf_arena_create(size_t block_bytes, bool poison) {
  return sf_arena_create_in(NULL, block_bytes, poison);
}

struct sf_arena *sf_arena_create_in(const struct sf_memory *memory, size_t block_bytes, bool poison) {
  struct sf_arena *arena = sf_alloc(sizeof *arena);
  if (arena == NULL) return NULL;
  arena->block_bytes = round_up(block_bytes > 0 ? block_bytes : 1);
  arena->poison = poison;
  arena->memory = memory;
  arena->first = arena->current = block_create(memory, arena->block_bytes);
  if (arena->first == NULL) {
    sf_free(arena);
    return NULL;
  }
  return arena;
}

void sf_arena_destroy(struct sf_arena *arena) {
  if (arena == NULL) return;
  for (struct block *block = arena->first, *next; block != NULL; block = next) {
    next = block->next;
    block_destroy(arena->memory, block);
  }
  sf_free(arena);
}

/* Makes a block with room for `needed` bytes the current one: a kept one, or a new one twice the size of the last, so that
 * the number of blocks stays small. It takes the place of kept ones that are too small: beside it they would pile up. */
static bool arena_advance(struct sf_arena *arena, size_t needed) {
  struct block *current = arena->current, *next;
  while ((next = current->next) != NULL && next->capacity < needed) {
    current->next = next->next;
    block_destroy(arena->memory, next);
  }
  if (next == NULL) {
    const size_t limit = arena->block_bytes * ARENA_GROWTH_MAX;
    size_t capacity = current->capacity < limit / 2 ? current->capacity * 2 : limit;
    if (capacity < needed) capacity = needed;
    struct block *block = block_create(arena->memory, capacity);
    if (block == NULL) return false;
    current->next = next = block;
  }
  next->used = 0;
  next->before = current->before + current->used;
  arena->current = next;
  return true;
}

void sf_poison(void *memory, size_t size_bytes) {
  unsigned char *at = memory;
  const uint32_t pattern = UINT32_C(0x7fa5a5a5);
  size_t done = 0;
  for (; done + sizeof pattern <= size_bytes; done += sizeof pattern) memcpy(at + done, &pattern, sizeof pattern);
  memcpy(at + done, &pattern, size_bytes - done);
}

void *sf_arena_alloc(struct sf_arena *arena, size_t size_bytes) {
  if (size_bytes > SIZE_MAX / 4) return NULL;
  const size_t needed = round_up(size_bytes > 0 ? size_bytes : 1) + ARENA_GAP;
  if (arena->current->capacity - arena->current->used < needed && !arena_advance(arena, needed)) return NULL;
  struct block *block = arena->current;
  unsigned char *memory = block->data + block->used;
  block->used += needed;
  if (block->before + block->used > arena->peak_bytes) arena->peak_bytes = block->before + block->used;
  region_open(memory, size_bytes);
  if (arena->poison) sf_poison(memory, size_bytes);
  return memory;
}

struct sf_arena_mark sf_arena_mark(const struct sf_arena *arena) {
  return (struct sf_arena_mark){.block = arena->current, .used = arena->current->used};
}

void sf_arena_rewind(struct sf_arena *arena, struct sf_arena_mark mark) {
  struct block *target = mark.block;
  for (struct block *block = target; block != NULL; block = block->next) {
    const size_t keep = block == target ? mark.used : 0;
    SF_ASSERT(keep <= block->used);
    region_close(block->data + keep, block->used - keep);
    block->used = keep;
    if (block == arena->current) break;
  }
  arena->current = target;
}

void sf_arena_reset(struct sf_arena *arena) { sf_arena_rewind(arena, (struct sf_arena_mark){.block = arena->first, .used = 0}); }

size_t sf_arena_peak_bytes(const struct sf_arena *arena) { return arena->peak_bytes; }
