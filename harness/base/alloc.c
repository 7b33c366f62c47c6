#include "harness/base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* The one mutable global of the project: the test hook has to reach allocations made by any room. Its fields change only
 * while a test has switched it on. */
static struct { int64_t countdown; bool did_fail; } fault;

static bool fault_fires(void) {
  if (fault.countdown == 0) return false;
  if (--fault.countdown > 0) return false;
  fault.did_fail = true;
  return true;
}

void sf_alloc_fail_at(int64_t countdown) {
  fault.countdown = countdown;
  fault.did_fail = false;
}

bool sf_alloc_did_fail(void) { return fault.did_fail; }

void *sf_alloc(size_t size_bytes) {
  if (fault_fires()) return NULL;
  return calloc(1, size_bytes > 0 ? size_bytes : 1);
}

void *sf_realloc(void *old, size_t size_bytes) {
  if (fault_fires()) return NULL;
  return realloc(old, size_bytes > 0 ? size_bytes : 1);
}

char *sf_strdup(const char *text) {
  const size_t size_bytes = strlen(text) + 1;
  char *copy = sf_alloc(size_bytes);
  if (copy != NULL) memcpy(copy, text, size_bytes);
  return copy;
}

void sf_free(void *memory) { free(memory); }
