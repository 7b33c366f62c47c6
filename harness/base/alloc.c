#include "harness/base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* A mutable global, against the rule: the test hook has to reach allocations made by any room. */
static struct {
  int64_t countdown;
  bool did_fail;
  uint64_t failures;
} fault;

static bool fault_fires(void) {
  if (fault.countdown == 0 || --fault.countdown > 0) return false;
  fault.did_fail = true;
  return true;
}

static void *counted(void *memory) {
  if (memory == NULL) fault.failures++;
  return memory;
}

void sf_alloc_fail_at(int64_t countdown) {
  fault.countdown = countdown;
  fault.did_fail = false;
}

bool sf_alloc_did_fail(void) { return fault.did_fail; }
uint64_t sf_alloc_failures(void) { return fault.failures; }

/* Sizes that cannot be are refused here, because sanitizers take asking for them as a bug. */
static bool refused(size_t size_bytes) { return fault_fires() || size_bytes > PTRDIFF_MAX; }

void *sf_alloc(size_t size_bytes) { return counted(refused(size_bytes) ? NULL : calloc(1, size_bytes > 0 ? size_bytes : 1)); }

void *sf_realloc(void *old, size_t size_bytes) {
  return counted(refused(size_bytes) ? NULL : realloc(old, size_bytes > 0 ? size_bytes : 1));
}

void *sf_grown(void *items, int64_t count, size_t item_bytes) {
  const bool is_full = (count & (count - 1)) == 0;
  char *grown = is_full ? sf_realloc(items, (size_t)(count > 0 ? 2 * count : 1) * item_bytes) : items;
  if (grown != NULL) memset(grown + (size_t)count * item_bytes, 0, item_bytes);
  return grown;
}

char *sf_strdup(const char *text) {
  const size_t size_bytes = strlen(text) + 1;
  char *copy = sf_alloc(size_bytes);
  if (copy != NULL) memcpy(copy, text, size_bytes);
  return copy;
}

void sf_free(void *memory) { free(memory); }
