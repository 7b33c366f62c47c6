/* What the sample plugins share: elements as floats, attributes by name, a declaration of one operation. Sample kernels are written for
 * clearness; the bug of each stands in one marked line. */
#ifndef SF_TESTS_PLUGINS_KERNEL_H
#define SF_TESTS_PLUGINS_KERNEL_H

#include "targets/plugin/include/shardfuzz/plugin.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline float bf16_round(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = x != x ? bits | 0x00400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  bits &= 0xffff0000u;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline char *at(const struct shardfuzz_tensor *t, int64_t row, int64_t col) {
  return (char *)t->data + t->byte_offset + (size_t)(row * t->strides[0] + col * t->strides[1]) * (t->dtype.bits / 8u);
}
static inline float get(const struct shardfuzz_tensor *t, int64_t row, int64_t col) {
  uint32_t bits = 0;
  uint16_t half;
  float x;
  if (t->dtype.bits == 32) {
    memcpy(&x, at(t, row, col), 4);
    return x;
  }
  memcpy(&half, at(t, row, col), 2);
  if (t->dtype.code == SHARDFUZZ_CODE_BFLOAT) {
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, 4);
    return x;
  }
  _Float16 narrow;
  memcpy(&narrow, &half, 2);
  return (float)narrow;
}
static inline void put(const struct shardfuzz_tensor *t, int64_t row, int64_t col, float x) {
  if (t->dtype.bits == 32) {
    memcpy(at(t, row, col), &x, 4);
  } else if (t->dtype.code == SHARDFUZZ_CODE_BFLOAT) {
    const float rounded = bf16_round(x);
    memcpy(at(t, row, col), (const char *)&rounded + 2, 2);
  } else {
    const _Float16 narrow = (_Float16)x;
    memcpy(at(t, row, col), &narrow, 2);
  }
}
static inline int32_t get_int(const struct shardfuzz_tensor *t, int64_t row, int64_t col) {
  int32_t x;
  memcpy(&x, at(t, row, col), 4);
  return x;
}

static inline const struct shardfuzz_attribute *attribute(const struct shardfuzz_call *call, const char *name) {
  for (int32_t i = 0; i < call->attribute_count; i++)
    if (strcmp(call->attributes[i].name, name) == 0) return &call->attributes[i];
  return NULL;
}
static inline int64_t whole(const struct shardfuzz_call *call, const char *name) { return attribute(call, name)->integer; }
static inline float real(const struct shardfuzz_call *call, const char *name) { return (float)attribute(call, name)->real; }

#define FORMATS (SHARDFUZZ_BIT(SHARDFUZZ_F32) | SHARDFUZZ_BIT(SHARDFUZZ_BF16) | SHARDFUZZ_BIT(SHARDFUZZ_F16))
#define TAKES_ALL (SHARDFUZZ_TAKES_STRIDED | SHARDFUZZ_TAKES_UNALIGNED | SHARDFUZZ_TAKES_IN_PLACE)
/* A plugin of the operations in `list`. */
#define PLUGIN(list)                                                                                                                       \
  const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {                                                                              \
    static const struct shardfuzz_plugin plugin = {.abi = SHARDFUZZ_PLUGIN_ABI,                                                            \
                                                   .size_bytes = sizeof plugin,                                                            \
                                                   .kind = SHARDFUZZ_KIND_OPERATIONS,                                                      \
                                                   .entry_count = sizeof list / sizeof list[0],                                            \
                                                   .name = "sample",                                                                       \
                                                   .entries = list,                                                                        \
                                                   .entry_bytes = sizeof list[0]};                                                         \
    return &plugin;                                                                                                                        \
  }

#endif
