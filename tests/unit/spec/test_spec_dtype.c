#include "harness/spec/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

struct format {
  enum sf_dtype dtype;
  const char *golden;
  uint16_t nan; /* every NaN, as in the golden file */
  int values, digests;
};
static const struct format FORMATS[] = {{SF_BF16, "corpus/golden/bf16_casts.csv", 0x7fc0, 204, 6},
                                        {SF_F16, "corpus/golden/f16_casts.csv", 0x7e00, 300, 10},
                                        {SF_F8E4M3, "corpus/golden/f8_e4m3_casts.csv", 0x7f, 514, 5},
                                        {SF_F8E5M2, "corpus/golden/f8_e5m2_casts.csv", 0x7f, 502, 5}};
enum { FORMAT_COUNT = sizeof FORMATS / sizeof FORMATS[0], PACKED_COUNT = 2 };

/* Packed result of rounding. */
static uint16_t cast(const struct format *format, uint32_t bits) {
  const float rounded = sf_round(float_of(bits), format->dtype);
  uint16_t packed;
  float back;
  if (sf_dtype_is_f8(format->dtype)) {
    packed = sf_f8_bits(rounded, format->dtype);
    back = sf_f8_value((uint8_t)packed, format->dtype);
  } else {
    sf_pack(&packed, &rounded, 1, format->dtype);
    sf_unpack(&back, &packed, 1, format->dtype);
  }
  if (!isnan(rounded)) assert_int_equal(bits_of(back), bits_of(rounded)); /* it lies on the grid */
  else assert_true(isnan(back));
  return isnan(rounded) ? format->nan : packed;
}

static uint64_t digest(const struct format *format, uint32_t low) {
  uint64_t fnv = UINT64_C(0xcbf29ce484222325);
  for (uint32_t high = 0; high < 65536; high++) {
    const uint16_t result = cast(format, high << 16 | low);
    fnv = (fnv ^ (result & 0xffu)) * UINT64_C(0x100000001b3);
    if (!sf_dtype_is_f8(format->dtype)) fnv = (fnv ^ (uint64_t)(result >> 8)) * UINT64_C(0x100000001b3);
  }
  return fnv;
}

static void compare_with_pytorch(const struct format *format) {
  FILE *file = fopen(format->golden, "r");
  assert_non_null(file);
  char row[16];
  unsigned long long from, to;
  int values = 0, digests = 0;
  assert_int_equal(fscanf(file, "%*[^\n]"), 0);
  while (fscanf(file, " %15[a-z],%llx,%llx", row, &from, &to) == 3) {
    const bool whole = strcmp(row, "digest") == 0;
    const uint64_t found = whole ? digest(format, (uint32_t)from) : cast(format, (uint32_t)from);
    if (found != to) fail_msg("%s %s %llx: %llx, PyTorch has %llx", format->golden, row, from, (unsigned long long)found, to);
    if (whole) digests++;
    else values++;
  }
  fclose(file);
  assert_int_equal(values, format->values);
  assert_int_equal(digests, format->digests);
}

static void test_round_agrees_with_pytorch(void **state) {
  (void)state;
  for (int i = 0; i < FORMAT_COUNT; i++) compare_with_pytorch(&FORMATS[i]);
}

#ifdef __FLT16_MAX__
/* All signs, exponents and bits down to the tie, each with what may stand below it: what is left out differs in nothing that rounding sees.
 */
static void test_f16_round_agrees_with_the_compiler_for_all_classes_of_values(void **state) {
  (void)state;
  static const uint32_t lows[] = {0x000, 0x001, 0x7ff, 0x800, 0x801, 0xfff};
  for (uint32_t high = 0; high < 1u << 20; high++)
    for (int i = 0; i < 6; i++) {
      const float value = float_of(high << 12 | lows[i]), wanted = (float)(_Float16)value, found = sf_f16_round(value);
      if (isnan(wanted) ? !isnan(found) : bits_of(found) != bits_of(wanted))
        fail_msg("%a: %a, the compiler has %a", (double)value, (double)found, (double)wanted);
    }
}
#endif

static void test_bf16_round_of_nan_stays_nan_for_all_payloads(void **state) {
  (void)state;
  for (uint32_t payload = 1; payload < 0x800000u; payload += 127)
    for (uint32_t sign = 0; sign <= 1; sign++) {
      const float rounded = sf_bf16_round(float_of(sign << 31 | 0x7f800000u | payload));
      assert_true(isnan(rounded));
      assert_int_equal(bits_of(rounded) >> 31, sign);
      assert_true(bits_of(rounded) & 0x00400000u);
    }
}

static void test_bf16_round_of_a_grid_value_is_that_value(void **state) {
  (void)state;
  for (uint32_t high = 0; high < 65536; high++) {
    const float value = float_of(high << 16);
    if (!isnan(value)) assert_int_equal(bits_of(sf_bf16_round(value)), high << 16);
  }
}

/* Of the 2^16 draws exactly as many go up as the lower bits say, so that the mean over them is the value: each sign, exponent and upper
 * fraction, with lower bits at both ends, in the middle and between. */
static void test_bf16_round_stochastic_over_all_draws_is_the_value_on_average(void **state) {
  (void)state;
  static const uint32_t lows[] = {0x0000, 0x0001, 0x00ff, 0x0100, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
  for (uint32_t high = 0; high < 65536; high += high % 128 < 3 ? 1 : 41)
    for (int i = 0; i < 9; i++) {
      const uint32_t bits = high << 16 | lows[i];
      if ((bits & 0x7f800000u) == 0x7f800000u) continue;
      uint32_t up = 0;
      for (uint32_t random = 0; random < 65536; random++) {
        const uint32_t rounded = bits_of(sf_bf16_round_stochastic(float_of(bits), (uint16_t)random));
        assert_true(rounded == high << 16 || rounded == (high + 1) << 16);
        up += rounded != high << 16;
      }
      assert_int_equal(up, lows[i]);
    }
}

static void test_bf16_round_stochastic_of_special_values_keeps_them(void **state) {
  (void)state;
  for (uint32_t random = 0; random < 65536; random += 255) {
    for (uint32_t high = 0; high < 65536; high++) {
      const float value = float_of(high << 16);
      if (!isnan(value)) assert_int_equal(bits_of(sf_bf16_round_stochastic(value, (uint16_t)random)), high << 16);
    }
    for (uint32_t payload = 1; payload < 0x800000u; payload += 65521) {
      const float rounded = sf_bf16_round_stochastic(float_of(0xff800000u | payload), (uint16_t)random);
      assert_true(isnan(rounded) && bits_of(rounded) >> 31 == 1 && (bits_of(rounded) & 0x0040ffffu) == 0x00400000u);
    }
  }
}

static void test_round_in_fp32_changes_nothing(void **state) {
  (void)state;
  const float value = float_of(0x3f800001u);
  float array[2] = {value, value};
  assert_int_equal(bits_of(sf_round(value, SF_F32)), 0x3f800001u);
  assert_int_equal(bits_of(sf_round(value, SF_BF16)), 0x3f800000u);
  sf_round_array(array, 2, SF_F32);
  assert_int_equal(bits_of(array[1]), 0x3f800001u);
}

static void test_round_array_rounds_each_value_and_no_more(void **state) {
  (void)state;
  float array[4] = {1.00390625f, 1.01171875f, -1.00390625f, 1.001f};
  sf_round_array(array, 3, SF_BF16);
  assert_true(array[0] == 1.0f && array[1] == 1.015625f && array[2] == -1.0f); /* ties to even */
  assert_true(array[3] == 1.001f);
}

static void test_pack_of_what_was_unpacked_gives_the_same_bits(void **state) {
  (void)state;
  static float values[65536];
  static uint16_t all[65536], packed[65536];
  for (uint32_t i = 0; i < 65536; i++) all[i] = (uint16_t)i;
  for (int f = 0; f < PACKED_COUNT; f++) {
    sf_unpack(values, all, 65536, FORMATS[f].dtype);
    sf_pack(packed, values, 65536, FORMATS[f].dtype);
    assert_memory_equal(packed, all, sizeof all);
    for (uint32_t i = 0; i < 65536; i++) /* a NaN is made quiet */
      if (!isnan(values[i])) assert_int_equal(bits_of(sf_round(values[i], FORMATS[f].dtype)), bits_of(values[i]));
  }
  sf_unpack(values, all, 65536, SF_F16);
  assert_true(values[0x0001] == 0x1p-24f && values[0x03ff] == 1023 * 0x1p-24f && values[0x0400] == 0x1p-14f);
  assert_true(values[0x3c00] == 1 && values[0x7bff] == 65504 && values[0xfc00] == -INFINITY && isnan(values[0x7c01]));
}

static void test_round_array_rounds_fp16_like_single_values(void **state) {
  (void)state;
  float array[8] = {65519.0f, 65520.0f, -1e9f, 0x1p-25f, 0x1.000002p-25f, -0x1.8p-24f, 1.00048828125f, NAN};
  sf_round_array(array, 8, SF_F16);
  assert_true(array[0] == 65504 && array[1] == INFINITY && array[2] == -INFINITY);
  assert_true(array[3] == 0 && array[4] == 0x1p-24f && array[5] == -0x1p-23f && array[6] == 1 && isnan(array[7]));
}

/* The byte of each value gives the value back; bytes of E4M3 follow the format's definition: sign, 4 bits of exponent, 3 of fraction. */
static void test_f8_bytes_of_all_values_give_the_same_bytes(void **state) {
  (void)state;
  for (int packed = 0; packed < 256; packed++) {
    const int exponent = packed >> 3 & 15, fraction = packed & 7;
    const double size = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10), sign = packed < 128 ? 1 : -1;
    const float value = sf_f8_value((uint8_t)packed, SF_F8E4M3), wide = sf_f8_value((uint8_t)packed, SF_F8E5M2);
    if ((packed & 0x7f) == 0x7f)
      assert_true(isnan(value));
    else
      assert_true((double)value == sign * size && !!signbit(value) == (packed >> 7));
    if ((packed & 0x7f) < 0x7c) assert_true(sf_f8_round(wide, SF_F8E5M2) == wide);
    assert_int_equal(sf_f8_bits(value, SF_F8E4M3), packed);
    if ((packed & 0x7f) <= 0x7c) assert_int_equal(sf_f8_bits(wide, SF_F8E5M2), packed);
    else assert_true(isnan(wide));
  }
}

static void test_f8_round_saturates(void **state) {
  (void)state;
  float array[4] = {464.0f, -INFINITY, 1e30f, -0x1p-30f};
  sf_round_array(array, 4, SF_F8E4M3);
  assert_true(array[0] == 448 && array[1] == -448 && array[2] == 448 && array[3] == 0 && signbit(array[3]));
  assert_true(sf_round(61440.0f, SF_F8E5M2) == 57344 && sf_round(-INFINITY, SF_F8E5M2) == -57344 && isnan(sf_round(NAN, SF_F8E5M2)));
}

static void test_dtype_tables_say_sizes_and_roundoff(void **state) {
  (void)state;
  static const struct { enum sf_dtype dtype; const char *name; size_t held, wire; int roundoff_exponent; } ROWS[] = {
      {SF_F32, "fp32", sizeof(float), 4, -24}, {SF_BF16, "bf16", sizeof(float), 2, -8},
      {SF_F16, "fp16", sizeof(float), 2, -11}, {SF_F64, "fp64", sizeof(double), 8, -53},
      {SF_F8E4M3, "fp8_e4m3", sizeof(float), 1, -4}, {SF_F8E5M2, "fp8_e5m2", sizeof(float), 1, -3}};
  assert_int_equal(sizeof ROWS / sizeof ROWS[0], SF_DTYPE_COUNT);
  for (int i = 0; i < SF_DTYPE_COUNT; i++) {
    assert_string_equal(sf_dtype_name(ROWS[i].dtype), ROWS[i].name);
    assert_int_equal(sf_dtype_held_bytes(ROWS[i].dtype), ROWS[i].held);
    assert_int_equal(sf_dtype_wire_bytes(ROWS[i].dtype), ROWS[i].wire);
    assert_true(sf_dtype_unit_roundoff(ROWS[i].dtype) == ldexp(1.0, ROWS[i].roundoff_exponent));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_agrees_with_pytorch),
      cmocka_unit_test(test_f8_bytes_of_all_values_give_the_same_bytes),
      cmocka_unit_test(test_f8_round_saturates),
#ifdef __FLT16_MAX__
      cmocka_unit_test(test_f16_round_agrees_with_the_compiler_for_all_classes_of_values),
#endif
      cmocka_unit_test(test_bf16_round_of_nan_stays_nan_for_all_payloads),
      cmocka_unit_test(test_bf16_round_of_a_grid_value_is_that_value),
      cmocka_unit_test(test_bf16_round_stochastic_over_all_draws_is_the_value_on_average),
      cmocka_unit_test(test_bf16_round_stochastic_of_special_values_keeps_them),
      cmocka_unit_test(test_round_in_fp32_changes_nothing),
      cmocka_unit_test(test_round_array_rounds_each_value_and_no_more),
      cmocka_unit_test(test_pack_of_what_was_unpacked_gives_the_same_bits),
      cmocka_unit_test(test_round_array_rounds_fp16_like_single_values),
      cmocka_unit_test(test_dtype_tables_say_sizes_and_roundoff),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
