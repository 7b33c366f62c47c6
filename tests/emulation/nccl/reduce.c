#include "tests/emulation/nccl/reduce.h"

#include "harness/spec/dtype.h"
#include "tests/emulation/nccl/emulated.h"

#include <math.h>

size_t element_bytes(int type) {
  if (type == NCCL_FLOAT16 || type == NCCL_BFLOAT16) return 2;
  if (type == NCCL_INT32 || type == NCCL_FLOAT32) return 4;
  if (type == NCCL_INT64 || type == NCCL_FLOAT64) return 8;
  sf_emulated_end("a type that the emulation does not have");
}

static double value_at(const char *part, size_t i, int type) {
  if (type == NCCL_FLOAT16) return (double)sf_f16_value(((const uint16_t *)part)[i]);
  if (type == NCCL_BFLOAT16) return (double)sf_bf16_value(((const uint16_t *)part)[i]);
  if (type == NCCL_FLOAT32) return (double)((const float *)part)[i];
  return ((const double *)part)[i];
}

/* A maximum drops a NaN, as a GPU's does. */
static double join(double a, double b, int type, int op) {
  if (op == NCCL_MAX) return fmax(a, b);
  if (op != NCCL_SUM) sf_emulated_end("an operation that the emulation does not have");
  if (type == NCCL_FLOAT64) return a + b;
  const float sum = (float)a + (float)b;
  return (double)(type == NCCL_FLOAT16 ? sf_f16_round(sum) : type == NCCL_BFLOAT16 ? sf_bf16_round(sum) : sum);
}

static int64_t join_integers(int64_t a, int64_t b, int op) { return op == NCCL_MAX ? (a > b ? a : b) : a + b; }

static void put(void *out, size_t i, double value, int type) {
  float single = (float)value;
  if (type == NCCL_FLOAT16) sf_pack((uint16_t *)out + i, &single, 1, SF_F16);
  else if (type == NCCL_BFLOAT16) sf_pack((uint16_t *)out + i, &single, 1, SF_BF16);
  else if (type == NCCL_FLOAT32) ((float *)out)[i] = single;
  else ((double *)out)[i] = value;
}

static void reduce_integers(void *out, char *const *parts, int members, size_t count, int type, int op) {
  for (size_t i = 0; i < count; i++) {
    int64_t all = 0;
    for (int m = 0; m < members; m++) {
      const int64_t x = type == NCCL_INT32 ? ((const int32_t *)parts[m])[i] : ((const int64_t *)parts[m])[i];
      all = m == 0 ? x : join_integers(all, x, op);
    }
    if (type == NCCL_INT32) ((int32_t *)out)[i] = (int32_t)all;
    else ((int64_t *)out)[i] = all;
  }
}

void reduce_parts(void *out, char *const *parts, int members, size_t count, int type, int op) {
  if (type == NCCL_INT32 || type == NCCL_INT64) {
    reduce_integers(out, parts, members, count, type, op);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    double all = value_at(parts[i % (size_t)members], i, type);
    for (int m = 1; m < members; m++) all = join(all, value_at(parts[(i + (size_t)m) % (size_t)members], i, type), type, op);
    put(out, i, all, type);
  }
}
