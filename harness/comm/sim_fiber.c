#include "harness/comm/sim_fiber.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef SF_SANITIZE
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(low, high) ((void)(low), (void)(high), 0u)
#define VALGRIND_STACK_DEREGISTER(id) ((void)(id))
#endif

enum sf_status sf_fiber_map(struct sf_fiber *fiber, size_t stack_bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t wanted = (stack_bytes + page - 1) / page * page;
  if (fiber->stack_low != NULL && fiber->stack_bytes >= wanted) return SF_OK;
  sf_fiber_unmap(fiber);
  char *map = mmap(NULL, wanted + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (map == MAP_FAILED) return SF_ENOMEM;
  if (mprotect(map, page, PROT_NONE) != 0) {
    munmap(map, wanted + page);
    return SF_ENOMEM;
  }
  fiber->stack_low = map + page;
  fiber->stack_bytes = wanted;
  fiber->valgrind_id = (unsigned)VALGRIND_STACK_REGISTER(fiber->stack_low, fiber->stack_low + wanted - 1);
  return SF_OK;
}

/* Frames of abandoned fibers leave their red zones in the shadow of the stack. */
static void forget_frames(const struct sf_fiber *fiber) {
#ifdef SF_SANITIZE
  __asan_unpoison_memory_region(fiber->stack_low, fiber->stack_bytes);
#else
  (void)fiber;
#endif
}

void sf_fiber_unmap(struct sf_fiber *fiber) {
  if (fiber->stack_low == NULL) return;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  forget_frames(fiber);
  VALGRIND_STACK_DEREGISTER(fiber->valgrind_id);
  munmap(fiber->stack_low - page, fiber->stack_bytes + page);
  *fiber = (struct sf_fiber){0};
}

void sf_fiber_prepare(struct sf_fiber *fiber, void (*entry)(void *), void *arg, size_t stagger) {
  forget_frames(fiber);
  const size_t offset = stagger % 8 * 512;
  fiber->fake_stack = NULL;
  fiber->stack_pointer = sf_fiber_machine_prepare(fiber->stack_low, fiber->stack_bytes - offset, entry, arg);
}

void sf_fiber_switch(struct sf_fiber *from, struct sf_fiber *to, bool leaving) {
#ifdef SF_SANITIZE
  __sanitizer_start_switch_fiber(leaving ? NULL : &from->fake_stack, to->stack_low, to->stack_bytes);
#else
  (void)leaving;
#endif
  sf_fiber_machine_switch(&from->stack_pointer, to->stack_pointer);
#ifdef SF_SANITIZE
  __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

void sf_fiber_entered(struct sf_fiber *self, struct sf_fiber *starter) {
#ifdef SF_SANITIZE
  const void *low;
  size_t bytes;
  __sanitizer_finish_switch_fiber(self->fake_stack, &low, &bytes);
  /* Only the first fiber of a run is entered from the thread's own stack; the others come from fibers. */
  if (starter->stack_low == NULL) {
    starter->stack_low = (char *)(uintptr_t)low;
    starter->stack_bytes = bytes;
  }
#else
  (void)self, (void)starter;
#endif
}
