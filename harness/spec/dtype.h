/* Number formats and their rounding.
 *
 * On the host a tensor of format fp32 or bf16 is held as an array of `float`; a bf16 tensor's values lie on the bf16
 * grid. "Storing" a value means rounding it to the grid. Only fp64 is held as `double`. What moves bytes (MPI, files)
 * packs a bf16 value into two. */
#ifndef SF_SPEC_DTYPE_H
#define SF_SPEC_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum sf_dtype { SF_F32, SF_BF16, SF_F64, SF_DTYPE_COUNT };

const char *sf_dtype_name(enum sf_dtype dtype);          /* "fp32", "bf16", "fp64" */
size_t sf_dtype_held_bytes(enum sf_dtype dtype);          /* of one element in host memory: 4, 4, 8 */
size_t sf_dtype_wire_bytes(enum sf_dtype dtype);          /* of one element on a wire or in a file: 4, 2, 8 */
double sf_dtype_unit_roundoff(enum sf_dtype dtype);       /* 2^-24, 2^-8, 2^-53 */

/* Nearest bf16 value, ties to even; NaN stays a (quiet) NaN, overflow gives infinity, subnormals are kept. */
static inline float sf_bf16_round(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  const uint32_t quiet = (bits | 0x00400000u) & 0xffff0000u;
  bits = nan ? quiet : rounded;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

static inline float sf_round(float x, enum sf_dtype dtype) { return dtype == SF_BF16 ? sf_bf16_round(x) : x; }

/* Rounds count floats in place; a no-op for fp32. */
void sf_round_array(float *values, int64_t count, enum sf_dtype dtype);
/* bf16 values held as floats <-> two bytes each. */
void sf_bf16_pack(uint16_t *out, const float *values, int64_t count);
void sf_bf16_unpack(float *out, const uint16_t *packed, int64_t count);

#endif
