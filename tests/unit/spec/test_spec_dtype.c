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

/* Packed result of rounding; every NaN as 0x7fc0, as in the golden file. */
static uint16_t cast(uint32_t bits) {
  const float rounded = sf_bf16_round(float_of(bits));
  uint16_t packed;
  assert_int_equal(bits_of(rounded) & 0xffffu, 0);
  sf_bf16_pack(&packed, &rounded, 1);
  return isnan(rounded) ? 0x7fc0 : packed;
}

static uint64_t digest(uint32_t low) {
  uint64_t fnv = UINT64_C(0xcbf29ce484222325);
  for (uint32_t high = 0; high < 65536; high++) {
    const uint16_t result = cast(high << 16 | low);
    fnv = (fnv ^ (result & 0xffu)) * UINT64_C(0x100000001b3);
    fnv = (fnv ^ (uint64_t)(result >> 8)) * UINT64_C(0x100000001b3);
  }
  return fnv;
}

static void test_bf16_round_agrees_with_pytorch(void **state) {
  (void)state;
  FILE *file = fopen("corpus/golden/bf16_casts.csv", "r");
  assert_non_null(file);
  char row[16];
  unsigned long long from, to;
  int values = 0, digests = 0;
  assert_int_equal(fscanf(file, "%*[^\n]"), 0);
  while (fscanf(file, " %15[a-z],%llx,%llx", row, &from, &to) == 3) {
    const bool whole = strcmp(row, "digest") == 0;
    const uint64_t found = whole ? digest((uint32_t)from) : cast((uint32_t)from);
    if (found != to) fail_msg("%s %llx: %llx, PyTorch has %llx", row, from, (unsigned long long)found, to);
    if (whole) digests++;
    else values++;
  }
  fclose(file);
  assert_int_equal(values, 204);
  assert_int_equal(digests, 6);
}

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

static void test_bf16_pack_then_unpack_gives_the_same_bits(void **state) {
  (void)state;
  static float values[65536], back[65536];
  static uint16_t packed[65536];
  for (uint32_t high = 0; high < 65536; high++) values[high] = float_of(high << 16);
  sf_bf16_pack(packed, values, 65536);
  sf_bf16_unpack(back, packed, 65536);
  for (uint32_t high = 0; high < 65536; high++) assert_int_equal(packed[high], high);
  assert_memory_equal(values, back, sizeof values);
}

static void test_dtype_tables_say_sizes_and_roundoff(void **state) {
  (void)state;
  static const struct { enum sf_dtype dtype; const char *name; size_t held, wire; int roundoff_exponent; } ROWS[] = {
      {SF_F32, "fp32", sizeof(float), 4, -24}, {SF_BF16, "bf16", sizeof(float), 2, -8}, {SF_F64, "fp64", sizeof(double), 8, -53}};
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
      cmocka_unit_test(test_bf16_round_agrees_with_pytorch),
      cmocka_unit_test(test_bf16_round_of_nan_stays_nan_for_all_payloads),
      cmocka_unit_test(test_bf16_round_of_a_grid_value_is_that_value),
      cmocka_unit_test(test_round_in_fp32_changes_nothing),
      cmocka_unit_test(test_round_array_rounds_each_value_and_no_more),
      cmocka_unit_test(test_bf16_pack_then_unpack_gives_the_same_bits),
      cmocka_unit_test(test_dtype_tables_say_sizes_and_roundoff),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
