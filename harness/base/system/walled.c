#include "harness/base/system/walled.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"

#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* Blocks above KEPT_BYTES go back to the system: what they are used for takes longer than mapping them. */
enum { CLASSES = 40, KEPT_BYTES = 4 << 20 };

struct sf_walled_pool {
  size_t page_bytes;
  struct sf_walled *taken, *free[CLASSES]; /* of page_bytes << class */
};

static const struct sf_walled_pool *watched; /* for handlers of signals */

struct sf_walled_pool *sf_walled_pool_create(void) {
  struct sf_walled_pool *pool = sf_alloc(sizeof *pool);
  if (pool) pool->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  return pool;
}

static void insert(struct sf_walled **head, struct sf_walled *block) {
  block->next = *head;
  block->link = head;
  if (*head) (*head)->link = &block->next;
  *head = block;
}

static void remove_from_list(struct sf_walled *block) {
  *block->link = block->next;
  if (block->next) block->next->link = block->link;
}

static void unmap(struct sf_walled *block) {
  munmap(block->begin - SF_WALL_BYTES, (size_t)(block->end - block->begin) + 2 * SF_WALL_BYTES);
  sf_free(block);
}

static void unmap_list(struct sf_walled *block) {
  while (block) {
    struct sf_walled *next = block->next;
    unmap(block);
    block = next;
  }
}

void sf_walled_pool_destroy(struct sf_walled_pool *pool) {
  if (!pool) return;
  if (watched == pool) watched = NULL;
  unmap_list(pool->taken);
  for (int i = 0; i < CLASSES; i++) unmap_list(pool->free[i]);
  sf_free(pool);
}

static int class_of(const struct sf_walled_pool *pool, size_t size_bytes) {
  int class = 0;
  while (pool->page_bytes << class < size_bytes) class++;
  return class;
}

static struct sf_walled *map(size_t size_bytes) {
  struct sf_walled *block = sf_alloc(sizeof *block);
  char *mapping =
      block ? mmap(NULL, size_bytes + 2 * SF_WALL_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;
  if (mapping != MAP_FAILED && mprotect(mapping + SF_WALL_BYTES, size_bytes, PROT_READ | PROT_WRITE) == 0) {
    block->begin = mapping + SF_WALL_BYTES;
    block->end = block->begin + size_bytes;
    return block;
  }
  if (mapping != MAP_FAILED) munmap(mapping, size_bytes + 2 * SF_WALL_BYTES);
  sf_free(block);
  return NULL;
}

struct sf_walled *sf_walled_take(struct sf_walled_pool *pool, size_t size_bytes, size_t offset) {
  const size_t behind = (0 - size_bytes - offset) % SF_WALLED_ALIGNMENT;
  if (size_bytes > (size_t)PTRDIFF_MAX / 4) return NULL;
  const int class = class_of(pool, size_bytes + behind);
  struct sf_walled *block = pool->free[class];
  if (block) remove_from_list(block);
  else block = map(pool->page_bytes << class);
  if (!block) return NULL;
  block->data = block->end - behind - size_bytes;
  block->size_bytes = size_bytes;
  block->what = NULL;
  block->number = -1;
  insert(&pool->taken, block);
  return block;
}

void sf_walled_give(struct sf_walled_pool *pool, struct sf_walled *block) {
  remove_from_list(block);
  const size_t size_bytes = (size_t)(block->end - block->begin);
  if (size_bytes > KEPT_BYTES) unmap(block);
  else insert(&pool->free[class_of(pool, size_bytes)], block);
}

void sf_walled_give_all(struct sf_walled_pool *pool) {
  while (pool->taken) sf_walled_give(pool, pool->taken);
}

/* Bytes between the address and the data; 0 inside and right behind it. */
static uintptr_t distance(const char *data, size_t size_bytes, uintptr_t address) {
  const uintptr_t first = (uintptr_t)data, end = first + size_bytes;
  return address < first ? first - address : address >= end ? address - end : 0;
}

const struct sf_walled *sf_walled_near(const struct sf_walled_pool *pool, const void *address) {
  const uintptr_t at = (uintptr_t)address;
  const struct sf_walled *nearest = NULL;
  for (const struct sf_walled *block = pool ? pool->taken : NULL; block; block = block->next) {
    if (at < (uintptr_t)block->begin - SF_WALL_BYTES || at >= (uintptr_t)block->end + SF_WALL_BYTES) continue;
    if (!nearest || distance(block->data, block->size_bytes, at) < distance(nearest->data, nearest->size_bytes, at)) nearest = block;
  }
  return nearest;
}

/* snprintf with numbers and texts alone takes no lock and no memory in the C libraries we know. */
void sf_walled_where(char *out, size_t size, const char *data, size_t size_bytes, const void *address) {
  const uintptr_t bytes = distance(data, size_bytes, (uintptr_t)address);
  if (bytes == 0) snprintf(out, size, "right behind");
  else
    snprintf(out, size, "%zu byte%s %s", (size_t)bytes, bytes == 1 ? "" : "s",
             (uintptr_t)address < (uintptr_t)data ? "in front of" : "behind");
}

const char *sf_access_name(enum sf_access access) {
  return access == SF_ACCESS_READ ? "reads" : access == SF_ACCESS_WRITE ? "writes" : "touches";
}

enum sf_access sf_walled_access(const void *context) {
#if defined(__x86_64__)
  const ucontext_t *machine = context;
  return machine->uc_mcontext.gregs[REG_ERR] & 2 ? SF_ACCESS_WRITE : SF_ACCESS_READ;
#elif defined(__aarch64__)
  /* Records of the frame, each with its number and size; the one with the syndrome says whether it was a write. */
  enum { ESR_RECORD = 0x45535201, WRITES = 1 << 6 };
  const ucontext_t *machine = context;
  const unsigned char *at = (const unsigned char *)machine->uc_mcontext.__reserved, *end = at + sizeof machine->uc_mcontext.__reserved;
  while (at + 16 <= end) {
    const struct {
      uint32_t number, size_bytes;
      uint64_t syndrome;
    } *record = (const void *)at;
    if (record->number == ESR_RECORD) return record->syndrome & WRITES ? SF_ACCESS_WRITE : SF_ACCESS_READ;
    if (record->number == 0 || record->size_bytes < 16) break;
    at += record->size_bytes;
  }
  return SF_ACCESS_UNKNOWN;
#else
  (void)context;
  return SF_ACCESS_UNKNOWN;
#endif
}

void sf_walled_watch(const struct sf_walled_pool *pool) { watched = pool; }

bool sf_walled_fault(char *out, size_t size, const siginfo_t *info, const void *context) {
  char where[48];
  const struct sf_walled *block = info->si_signo == SIGSEGV || info->si_signo == SIGBUS ? sf_walled_near(watched, info->si_addr) : NULL;
  if (!block) return false;
  sf_walled_where(where, sizeof where, block->data, block->size_bytes, info->si_addr);
  snprintf(out, size, "%s %s its %s", sf_access_name(sf_walled_access(context)), where, block->what ? block->what : "memory");
  return true;
}
