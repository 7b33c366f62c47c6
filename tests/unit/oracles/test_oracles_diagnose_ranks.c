/* Diagnosis of what single ranks did: pieces, factors and mistakes of their own, reductions at the wrong time or over the wrong ranks. */
#include "tests/unit/oracles/diagnose_bench.h"

static void test_diagnose_factor_of_each_rank_is_scale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  static const float factors[4] = {1, 0.75f, 1.5f, 1};
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] *= factors[rank];
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "rank 2's by 1.5");
}

static void test_diagnose_factor_of_one_replica_is_no_scale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  for (int64_t i = 0; i < local_count(&b, 1); i++) b.data[1][i] *= 0.75f;
  diagnose_says(&b, SF_DIAGNOSIS_UNSYNCHRONISED, "rank 1 went another way");
}

/* Both ranks of tp gather rows of a part from ranks of another replica, which has another microbatch. */
static void test_diagnose_pieces_of_another_replica_are_neighbour(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 2, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  const struct sf_diagnosis_related *other = relate(&b, SF_RELATED_STALE, 77);
  b.p.shard_count = 2; /* of the first replica */
  memcpy(b.data[0] + 24, other->x, 24 * sizeof(float));
  memcpy(b.data[1], b.x + 24, 24 * sizeof(float));
  memcpy(b.data[1] + 24, other->x + 24, 24 * sizeof(float));
  diagnose_says(&b, SF_DIAGNOSIS_NEIGHBOUR, "rank 0's rows from 4 on are rows from 0 on of the other");
}

/* The same piece of all rows, whatever it is like, is a stale value. */
static void test_diagnose_all_pieces_of_another_microbatch_are_stale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  const struct sf_diagnosis_related *other = relate(&b, SF_RELATED_STALE, 77);
  for (int32_t rank = 0; rank < 2; rank++) memcpy(b.data[rank], other->x, 48 * sizeof(float));
  diagnose_says(&b, SF_DIAGNOSIS_STALE, "that of the other");
}

static void test_diagnose_reduced_before_the_last_microbatch_is_unsynchronised(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 2, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  b.p.id.kind = SF_KIND_MAIN_GRAD;
  memset(b.x, 0, sizeof b.x);
  for (int32_t m = 0; m < 4; m++) {
    struct sf_diagnosis_related *r = relate(&b, SF_RELATED_SUMMAND, 50 + (uint64_t)m);
    r->microbatch = m;
    for (int64_t i = 0; i < elements(&b); i++) b.x[i] += r->x[i];
  }
  /* Microbatches 0 and 1 are the ranks' first ones: summed over both ranks. 2 and 3 stay where they are. */
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < elements(&b); i++) b.data[rank][i] = b.related[0].x[i] + b.related[1].x[i] + b.related[2 + rank].x[i];
  diagnose_says(&b, SF_DIAGNOSIS_UNSYNCHRONISED, "before the last 1 of a rank's 2 microbatches");
}

static void test_diagnose_different_parts_summed_over_dp_are_extra_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 2, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  b.p.id.kind = SF_KIND_MAIN_GRAD;
  for (int32_t rank = 0; rank < 2; rank++) b.shards[rank].map.rows = sf_dim_map_part(6, 2, rank);
  for (int64_t i = 0; i < 24; i++) b.data[0][i] = b.data[1][i] = b.x[i] + b.x[24 + i];
  diagnose_says(&b, SF_DIAGNOSIS_EXTRA_REDUCTION, "over dp once too often");
}

static void test_diagnose_zeros_of_a_weights_replica_are_stale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  b.p.id.kind = SF_KIND_PARAM;
  memset(b.data[1], 0, sizeof b.data[1]);
  struct sf_diagnosis d;
  assert_int_equal(sf_diagnose(&d, &b.p), SF_OK);
  assert_int_equal(d.cls, SF_DIAGNOSIS_STALE);
  b.p.id.kind = SF_KIND_MAIN_GRAD; /* where a summand of zeros is as good */
  assert_int_equal(sf_diagnose(&d, &b.p), SF_OK);
  assert_int_equal(d.cls, SF_DIAGNOSIS_MISSING_REDUCTION);
}

/* Entries for single ranks go before the one for all others; a rank that has none is right. */
static void test_diagnose_variant_is_what_its_ranks_say(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  for (int32_t i = 0; i < 4; i++) {
    struct sf_diagnosis_related *r = relate(&b, SF_RELATED_VARIANT, 60 + (uint64_t)i);
    r->cls = SF_DIAGNOSIS_UNSYNCHRONISED;
    r->variant = i < 2 ? 0 : 1;
    r->rank = i == 1 || i == 2 ? i : -1; /* variant 0: all but rank 1; variant 1: rank 2 and all others */
    snprintf(r->name, sizeof r->name, "mistake %d", r->variant);
  }
  for (int32_t rank = 0; rank < 4; rank++) memcpy(b.data[rank], b.related[rank == 1 ? 1 : 0].x, 48 * sizeof(float));
  diagnose_says(&b, SF_DIAGNOSIS_UNSYNCHRONISED, "mistake 0");
  b.related[0].rank = 0;
  memcpy(b.data[2], b.x, 48 * sizeof(float));
  memcpy(b.data[3], b.x, 48 * sizeof(float));
  diagnose_says(&b, SF_DIAGNOSIS_UNSYNCHRONISED, "mistake 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_diagnose_factor_of_each_rank_is_scale),
      cmocka_unit_test(test_diagnose_factor_of_one_replica_is_no_scale),
      cmocka_unit_test(test_diagnose_pieces_of_another_replica_are_neighbour),
      cmocka_unit_test(test_diagnose_all_pieces_of_another_microbatch_are_stale),
      cmocka_unit_test(test_diagnose_reduced_before_the_last_microbatch_is_unsynchronised),
      cmocka_unit_test(test_diagnose_different_parts_summed_over_dp_are_extra_reduction),
      cmocka_unit_test(test_diagnose_zeros_of_a_weights_replica_are_stale),
      cmocka_unit_test(test_diagnose_variant_is_what_its_ranks_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
