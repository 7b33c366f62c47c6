#include "harness/base/hash.h"
#include "harness/base/pcg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* --- hashes ------------------------------------------------------------------------------------------------------- */

static void test_mix64_is_the_finaliser_of_splitmix64(void **state) {
  (void)state;
  /* The first two outputs of splitmix64 seeded with 0. */
  const uint64_t gamma = UINT64_C(0x9e3779b97f4a7c15);
  assert_int_equal(sf_mix64(gamma), UINT64_C(0xe220a8397b1dcdaf));
  assert_int_equal(sf_mix64(2 * gamma), UINT64_C(0x6e789e6aa1b965f4));
}

static void test_hash_bytes_is_fnv1a_chained(void **state) {
  (void)state;
  /* Published FNV-1a values of "" and "foobar". */
  assert_int_equal(sf_hash_bytes(7, "", 0), sf_hash_u64(7, UINT64_C(0xcbf29ce484222325)));
  assert_int_equal(sf_hash_bytes(7, "foobar", 6), sf_hash_u64(7, UINT64_C(0x85944171f73967e8)));
  assert_int_equal(sf_hash_string(9, "foobar"), sf_hash_bytes(9, "foobar", 6));
}

static void test_hash_u64_depends_on_order(void **state) {
  (void)state;
  assert_int_not_equal(sf_hash_u64(sf_hash_u64(0, 1), 2), sf_hash_u64(sf_hash_u64(0, 2), 1));
}

/* --- PCG ---------------------------------------------------------------------------------------------------------- */

/* Expected numbers:
 * python3 -c "
 * import numpy as np
 * S = (0x0123456789abcdef << 64) | 0xfedcba9876543210; I = (0x5851f42d4c957f2d << 64) | 0x14057b7ef767814f
 * def pcg(s, i):
 *   b = np.random.PCG64DXSM()
 *   b.state = {'bit_generator': 'PCG64DXSM', 'state': {'state': s, 'inc': i}, 'has_uint32': 0, 'uinteger': 0}
 *   return b
 * M = 2**128 - 1
 * for s, i in ((0, 1), (S, I), (M, M)): print([hex(int(x)) for x in pcg(s, i).random_raw(6)])
 * r = pcg(0, 1).random_raw(1000); print(hex(int(r[999])), hex(int(np.bitwise_xor.reduce(r))))
 * for b in (2**63 + 1, 3 * 2**62, 2**64 - 1, 10**12):
 *   print([hex(int(x)) for x in np.random.Generator(pcg(S, I)).integers(0, b, size=5, dtype=np.uint64)])" */
static const struct sf_pcg STATES[] = {
    {.state = 0, .increment = 1},
    {.state = (unsigned __int128)UINT64_C(0x0123456789abcdef) << 64 | UINT64_C(0xfedcba9876543210),
     .increment = (unsigned __int128)UINT64_C(0x5851f42d4c957f2d) << 64 | UINT64_C(0x14057b7ef767814f)},
    {.state = ~(unsigned __int128)0, .increment = ~(unsigned __int128)0},
};

static void test_pcg_next_gives_the_numbers_of_numpy(void **state) {
  (void)state;
  static const uint64_t EXPECTED[3][6] = {
      {0, 0, 0, UINT64_C(0x5238ea76d1f0df4a), UINT64_C(0x1a3c4747022e48a4), UINT64_C(0x340b0228e6afc056)},
      {UINT64_C(0xa5c2f45958c644a2), UINT64_C(0xd0903e4c1d97f138), UINT64_C(0x41d5d04452fde70e), UINT64_C(0xd36342dda726e612),
       UINT64_C(0x91067ada23415da7), UINT64_C(0x54b9d038b7d4aac6)},
      {UINT64_C(0xe4dd58b4ffffe4de), UINT64_C(0x82b98f3423f20f6), UINT64_C(0x7b3bf90f2550ab72), UINT64_C(0xc2c3ebc193c20fa2),
       UINT64_C(0xf4e19fff9187d354), UINT64_C(0x8c1c8d5cfdfad299)},
  };
  for (int row = 0; row < 3; row++) {
    struct sf_pcg pcg = STATES[row];
    for (int i = 0; i < 6; i++) assert_int_equal(sf_pcg_next(&pcg), EXPECTED[row][i]);
  }
}

static void test_pcg_next_after_a_thousand_draws_still_agrees_with_numpy(void **state) {
  (void)state;
  struct sf_pcg pcg = STATES[0];
  uint64_t all = 0, last = 0;
  for (int i = 0; i < 1000; i++) all ^= last = sf_pcg_next(&pcg);
  assert_int_equal(last, UINT64_C(0xfd827c0947e56c17));
  assert_int_equal(all, UINT64_C(0x709b1c409bcf0a1f));
}

static void test_pcg_below_large_bounds_gives_the_numbers_of_numpy(void **state) {
  (void)state;
  /* The first two bounds reject draws. */
  static const struct { uint64_t bound, expected[5]; } ROWS[] = {
      {UINT64_C(0x8000000000000001),
       {UINT64_C(0x52e17a2cac632251), UINT64_C(0x68481f260ecbf89c), UINT64_C(0x69b1a16ed3937309), UINT64_C(0x56faef501ce48d37),
        UINT64_C(0x7d57a2aa9d0f50d8)}},
      {UINT64_C(0xc000000000000000),
       {UINT64_C(0x7c5237430294b379), UINT64_C(0x31605c333e3e6d4a), UINT64_C(0x9e8a72263d5d2c8d), UINT64_C(0x6cc4dc239a71063d),
        UINT64_C(0x3f8b5c2a89df8014)}},
      {UINT64_C(0xffffffffffffffff),
       {UINT64_C(0xa5c2f45958c644a1), UINT64_C(0xd0903e4c1d97f137), UINT64_C(0x41d5d04452fde70d), UINT64_C(0xd36342dda726e611),
        UINT64_C(0x91067ada23415da6)}},
      {UINT64_C(1000000000000),
       {UINT64_C(0x96c25dc456), UINT64_C(0xbdaff66293), UINT64_C(0x3be0744150), UINT64_C(0xc0418b186f), UINT64_C(0x83e65635aa)}},
  };
  for (size_t row = 0; row < sizeof ROWS / sizeof ROWS[0]; row++) {
    struct sf_pcg pcg = STATES[1];
    for (int i = 0; i < 5; i++) assert_int_equal(sf_pcg_below(&pcg, ROWS[row].bound), ROWS[row].expected[i]);
  }
}

static void test_pcg_below_small_bounds_reaches_each_value_equally(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(1, 2);
  int counts[6] = {0};
  for (int i = 0; i < 60000; i++) {
    assert_int_equal(sf_pcg_below(&pcg, 1), 0);
    const uint64_t value = sf_pcg_below(&pcg, 6);
    assert_true(value < 6);
    counts[value]++;
  }
  for (int i = 0; i < 6; i++) assert_in_range(counts[i], 9600, 10400); /* 4.4 standard deviations; the stream is fixed */
}

static void test_pcg_create_of_neighbouring_seeds_gives_unrelated_streams(void **state) {
  (void)state;
  uint64_t seen[64];
  int count = 0;
  for (uint64_t seed = 0; seed < 8; seed++)
    for (uint64_t stream = 0; stream < 8; stream++) {
      struct sf_pcg pcg = sf_pcg_create(seed, stream);
      assert_int_equal((uint64_t)pcg.increment & 1u, 1);
      seen[count] = sf_pcg_next(&pcg);
      for (int i = 0; i < count; i++) {
        const int differing = __builtin_popcountll(seen[i] ^ seen[count]);
        assert_in_range(differing, 10, 54);
      }
      count++;
    }
}

static void test_pcg_create_with_swapped_seeds_gives_another_stream(void **state) {
  (void)state;
  struct sf_pcg one = sf_pcg_create(3, 4), other = sf_pcg_create(4, 3), same = sf_pcg_create(3, 4);
  const uint64_t first = sf_pcg_next(&one);
  assert_int_not_equal(first, sf_pcg_next(&other));
  assert_int_equal(first, sf_pcg_next(&same));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mix64_is_the_finaliser_of_splitmix64),
      cmocka_unit_test(test_hash_bytes_is_fnv1a_chained),
      cmocka_unit_test(test_hash_u64_depends_on_order),
      cmocka_unit_test(test_pcg_next_gives_the_numbers_of_numpy),
      cmocka_unit_test(test_pcg_next_after_a_thousand_draws_still_agrees_with_numpy),
      cmocka_unit_test(test_pcg_below_large_bounds_gives_the_numbers_of_numpy),
      cmocka_unit_test(test_pcg_below_small_bounds_reaches_each_value_equally),
      cmocka_unit_test(test_pcg_create_of_neighbouring_seeds_gives_unrelated_streams),
      cmocka_unit_test(test_pcg_create_with_swapped_seeds_gives_another_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
