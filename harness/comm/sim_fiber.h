/* Fibers of the simulated world: a stack with a guard page below it, and the switch between two of them.
 *
 * The floating-point control word is not switched: nothing in the tree changes it, and a plugin's is put away while it is in a
 * function of ours. */
#ifndef SF_COMM_SIM_FIBER_H
#define SF_COMM_SIM_FIBER_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct sf_fiber {
  void *stack_pointer; /* of the suspended fiber */
  char *stack_low;     /* lowest usable byte, above the guard page; NULL for the thread's own stack */
  size_t stack_bytes;
  void *fake_stack; /* AddressSanitizer's */
  unsigned valgrind_id;
};

/* Maps (or keeps, if large enough) the stack. Failure: SF_ENOMEM, the fiber has no stack then. */
enum sf_status sf_fiber_map(struct sf_fiber *fiber, size_t stack_bytes) SF_MUST_USE;
void sf_fiber_unmap(struct sf_fiber *fiber); /* takes one without a stack */
/* The next switch to the fiber calls entry(arg), which must never return. What the stack held is dropped. stagger: fibers whose hot frames
 * lie at different offsets do not fight for the same cache sets; any number. */
void sf_fiber_prepare(struct sf_fiber *fiber, void (*entry)(void *), void *arg, size_t stagger);
/* Suspends `from`, which is running, and goes on in `to`. leaving: `from` will not be resumed before it is prepared again. */
void sf_fiber_switch(struct sf_fiber *from, struct sf_fiber *to, bool leaving);
/* To be called first in a fiber's entry: completes the switch. starter: the thread's own fiber. */
void sf_fiber_entered(struct sf_fiber *self, struct sf_fiber *starter);

/* One file of fiber/ implements these two for the machine. prepare returns what a switch to the fiber loads to call entry(arg) on that
 * stack; switch suspends the caller, leaves in *save what resumes it, and resumes what `load` says. */
void *sf_fiber_machine_prepare(char *stack_low, size_t stack_bytes, void (*entry)(void *), void *arg);
void sf_fiber_machine_switch(void **save, void *load);

#endif
