/* Rounding at random with eight bits of the threshold: what lies below them never carries. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *next = &call->tensors[0], *random = &call->tensors[1], *w = &call->tensors[2], *delta = &call->tensors[3];
  for (int64_t j = 0; j < next->shape[1]; j++) {
    const float x = get(next, 0, j), old = get(w, 0, j);
    uint32_t bits;
    uint16_t draw;
    float rounded;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&draw, at(random, 0, j), sizeof draw);
    bits = (x != x ? bits | 0x00400000u : bits + (draw & 0xff00u)) & 0xffff0000u; /* the bug */
    memcpy(&rounded, &bits, sizeof rounded);
    put(w, 0, j, rounded);
    put(delta, 0, j, rounded - old);
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "round_stochastic", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
