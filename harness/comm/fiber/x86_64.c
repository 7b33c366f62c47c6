/* The switch between fibers on x86-64 (System V): the six registers a call preserves, and the stack pointer. */
#include "harness/comm/sim_fiber.h"

#include <stdint.h>

__asm__(".text\n"
        ".globl sf_fiber_machine_switch\n"
        ".type sf_fiber_machine_switch, @function\n"
        ".p2align 4\n"
        "sf_fiber_machine_switch:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size sf_fiber_machine_switch, .-sf_fiber_machine_switch\n"
        ".type sf_fiber_machine_enter, @function\n"
        ".p2align 4\n"
        "sf_fiber_machine_enter:\n"
        "  .cfi_startproc\n"
        "  .cfi_undefined rip\n" /* debuggers stop unwinding here */
        "  movq %r12, %rdi\n"
        "  call *%r13\n"
        "  ud2\n"
        "  .cfi_endproc\n"
        ".size sf_fiber_machine_enter, .-sf_fiber_machine_enter\n");

void sf_fiber_machine_enter(void);

void *sf_fiber_machine_prepare(char *stack_low, size_t stack_bytes, void (*entry)(void *), void *arg) {
  const uintptr_t top = ((uintptr_t)stack_low + stack_bytes) & ~(uintptr_t)15;
  uint64_t *frame = (uint64_t *)top - 9;
  frame[0] = frame[1] = 0;                                 /* r15, r14 */
  frame[2] = (uint64_t)(uintptr_t)entry;                   /* r13 */
  frame[3] = (uint64_t)(uintptr_t)arg;                     /* r12 */
  frame[4] = frame[5] = 0;                                 /* rbx, rbp */
  frame[6] = (uint64_t)(uintptr_t)&sf_fiber_machine_enter; /* popped by ret, which leaves the stack at a multiple of 16 */
  frame[7] = frame[8] = 0;
  return frame;
}
