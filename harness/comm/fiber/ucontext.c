/* The switch between fibers on machines without our assembly. It is slower: swapcontext also saves the signal mask, by a system call. */
#include "harness/comm/sim_fiber.h"

#include <stdint.h>
#include <ucontext.h>

struct start {
  ucontext_t context;
  void (*entry)(void *);
  void *arg;
};

/* makecontext passes ints only. */
static void enter(unsigned high, unsigned low) {
  const struct start *start = (const struct start *)(uintptr_t)((uint64_t)high << 32 | low);
  start->entry(start->arg);
}

void *sf_fiber_machine_prepare(char *stack_low, size_t stack_bytes, void (*entry)(void *), void *arg) {
  const uintptr_t at = ((uintptr_t)stack_low + stack_bytes - sizeof(struct start)) & ~(uintptr_t)63;
  struct start *start = (struct start *)at;
  start->entry = entry;
  start->arg = arg;
  if (getcontext(&start->context) != 0) __builtin_trap();
  start->context.uc_stack.ss_sp = stack_low;
  start->context.uc_stack.ss_size = at - (uintptr_t)stack_low;
  start->context.uc_link = NULL;
  makecontext(&start->context, (void (*)(void))enter, 2, (unsigned)((uint64_t)at >> 32), (unsigned)at);
  return &start->context;
}

/* The context of a suspended fiber lies in this frame, which stays as long as the fiber is suspended. */
void sf_fiber_machine_switch(void **save, void *load) {
  ucontext_t here;
  *save = &here;
  if (swapcontext(&here, load) != 0) __builtin_trap();
}
