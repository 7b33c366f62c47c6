/* The switch between fibers on AArch64 (AAPCS64): x19-x30, the low halves of v8-v15, and the stack pointer. */
#include "harness/comm/sim_fiber.h"

#include <stdint.h>

__asm__(".text\n"
        ".globl sf_fiber_machine_switch\n"
        ".type sf_fiber_machine_switch, %function\n"
        ".p2align 4\n"
        "sf_fiber_machine_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n"
        "  stp x21, x22, [sp, #16]\n"
        "  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n"
        "  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n"
        "  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n"
        "  str x9, [x0]\n"
        "  mov sp, x1\n"
        "  ldp x19, x20, [sp, #0]\n"
        "  ldp x21, x22, [sp, #16]\n"
        "  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n"
        "  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n"
        "  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size sf_fiber_machine_switch, .-sf_fiber_machine_switch\n"
        ".type sf_fiber_machine_enter, %function\n"
        ".p2align 4\n"
        "sf_fiber_machine_enter:\n"
        "  mov x0, x19\n"
        "  blr x20\n"
        "  brk #1\n"
        ".size sf_fiber_machine_enter, .-sf_fiber_machine_enter\n");

void sf_fiber_machine_enter(void);

void *sf_fiber_machine_prepare(char *stack_low, size_t stack_bytes, void (*entry)(void *), void *arg) {
  const uintptr_t top = ((uintptr_t)stack_low + stack_bytes) & ~(uintptr_t)15;
  uint64_t *frame = (uint64_t *)(top - 160);
  for (int i = 0; i < 20; i++) frame[i] = 0;
  frame[0] = (uint64_t)(uintptr_t)arg;                      /* x19 */
  frame[1] = (uint64_t)(uintptr_t)entry;                    /* x20 */
  frame[11] = (uint64_t)(uintptr_t)&sf_fiber_machine_enter; /* x30: target of ret */
  return frame;
}
