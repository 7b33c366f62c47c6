/* Diagnosis of what single ranks did: pieces, factors and mistakes of their own, reductions at the wrong time or over the wrong ranks. */
#include "tests/unit/oracles/diagnose_bench.h"

static void test_diagnose_factor_of_each_rank_is_scale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  static const float factors[4] = {1, 0.75f, 1.75f, 1};
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] *= factors[rank];
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "a factor of each rank's own: rank 2's by 1.75");
}

/* Counts of 4, 6, 2 and 4 in place of 4, their mean; the second time of a term alone. */
static void test_diagnose_division_by_own_counts_is_a_mean_of_means(void **state) {
  (void)state;
  static const float counts[4] = {4, 6, 2, 4};
  for (int of_term = 0; of_term < 2; of_term++) {
    static struct bench b;
    bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
    struct sf_diagnosis_related *without = of_term ? relate(&b, SF_RELATED_SUPPOSED, 84) : NULL;
    if (of_term) snprintf(without->without, sizeof without->without, "the loss");
    for (int32_t rank = 0; rank < 4; rank++) {
      float base[48] = {0};
      if (of_term) shard_gather(base, b.extra[0], b.p.spec.shape, &b.shards[rank].map);
      for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] = base[i] + 4 / counts[rank] * (b.data[rank][i] - base[i]);
    }
    diagnose_says(&b, SF_DIAGNOSIS_SCALE,
                  of_term
                      ? "what the loss adds is a mean of means over tp: each rank divides by a count of its own; rank 2's is scaled by 2"
                      : "the value is a mean of means over tp: each rank divides by a count of its own; rank 2's is scaled by 2");
  }
}

static void test_diagnose_scaled_term_is_scale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  snprintf(relate(&b, SF_RELATED_SUPPOSED, 85)->without, sizeof b.related[0].without, "the loss");
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] = 0.5f * (b.x[i] + b.extra[0][i]);
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "what the loss adds is scaled by 0.5 = 1 / tp;");
}

static void test_diagnose_constant_is_offset(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] += 1.3862944f;
  diagnose_says(&b, SF_DIAGNOSIS_OFFSET, "1.38629 is added to every element, the log of tp;");
  shards_fill(&b);
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] += 1.1f;
  diagnose_says(&b, SF_DIAGNOSIS_OFFSET, "1.1 is added to every element;");
  bench_open(&b, 4, 1, 1, 1, SF_CUT_NONE, SF_CUT_NONE); /* some number fits one element, however many ranks hold it */
  for (int32_t rank = 0; rank < 4; rank++) b.data[rank][0] += 1.1f;
  diagnose_says(&b, SF_DIAGNOSIS_UNKNOWN, "no simple cause");
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
    r->dp = m % 2;
    r->turn = m / 2;
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
  assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
  assert_int_equal(d.cls, SF_DIAGNOSIS_STALE);
  b.p.id.kind = SF_KIND_MAIN_GRAD; /* where a summand of zeros is as good */
  assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
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

/* Nothing tells axes of one size apart, and an axis that the tensor is neither cut nor replicated along is no reason. */
static void test_diagnose_factor_names_every_axis_that_it_may_be(void **state) {
  (void)state;
  static struct bench b;
  static const struct {
    const char *layout;
    unsigned meshes;
    enum sf_kind kind;
    double factor;
    enum sf_diagnosis_class cls;
    const char *words;
  } rows[] = {
      {"tp=2 dp=2", SF_MESH_DENSE, SF_KIND_MAIN_GRAD, 2, SF_DIAGNOSIS_SCALE, "by 2 = tp or dp or the number of microbatches of a rank;"},
      {"tp=2 dp=2", SF_MESH_DENSE, SF_KIND_ACT, 2, SF_DIAGNOSIS_SCALE, "by 2 = tp or dp;"},
      {"cp=2 dp=3", SF_MESH_DENSE, SF_KIND_MAIN_GRAD, 1.0 / 6, SF_DIAGNOSIS_SCALE,
       "by 0.166667 = 1 / (dp x cp) or 1 / the number of microbatches;"},
      {"dp=3 pp=2", SF_MESH_DENSE, SF_KIND_ACT, 2, SF_DIAGNOSIS_SCALE, "by 2;"},
      {"dp=3 pp=2", SF_MESH_DENSE | SF_MESH_STAGES, SF_KIND_ACT, 2, SF_DIAGNOSIS_SCALE, "by 2 = pp;"},
      {"dp=6 ep=3 pp=2", SF_MESH_EXPERTS, SF_KIND_ACT, 3, SF_DIAGNOSIS_SCALE, "by 3 = ep;"},
      {"dp=6 ep=3 pp=2", SF_MESH_EXPERTS, SF_KIND_ACT, 2, SF_DIAGNOSIS_SCALE, "by 2 = edp;"},
      {"dp=4 etp=2 ep=2", SF_MESH_EXPERTS, SF_KIND_ACT, 2, SF_DIAGNOSIS_SCALE, "by 2 = etp or ep;"},
      {"dp=4 etp=4", SF_MESH_EXPERTS, SF_KIND_ACT, 4, SF_DIAGNOSIS_EXTRA_REDUCTION, "equal values of the ranks of etp"},
      {"tp=2 dp=3 etp=6", SF_MESH_EXPERTS, SF_KIND_ACT, 3, SF_DIAGNOSIS_SCALE, "by 3 = etp / tp;"},
      {"tp=2 dp=3 etp=6", SF_MESH_EXPERTS, SF_KIND_ACT, 1.0 / 3, SF_DIAGNOSIS_SCALE, "by 0.333333 = tp / etp;"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char layout[64], *rest = NULL;
    snprintf(layout, sizeof layout, "%s", rows[i].layout);
    bench_open(&b, 1, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE); /* one rank's shard: its factor is all that is looked at */
    for (char *word = strtok_r(layout, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
      char path[32];
      snprintf(path, sizeof path, "layout.%.*s", (int)strcspn(word, "="), word);
      assert_int_equal(sf_case_field_parse(&b.c, path, strchr(word, '=') + 1, NULL), SF_OK);
    }
    b.c.train.microbatches = 2 * b.c.layout.dp;
    b.p.meshes = rows[i].meshes;
    b.p.id.kind = (uint8_t)rows[i].kind;
    for (int64_t k = 0; k < elements(&b); k++) b.data[0][k] = (float)(rows[i].factor * (double)b.data[0][k]);
    diagnose_says(&b, rows[i].cls, rows[i].words);
  }
}

/* The error of one number, or of a few, has the size of bf16's rounding by chance. */
static void test_diagnose_of_few_elements_is_never_low_precision(void **state) {
  (void)state;
  static struct bench b;
  for (int64_t cols = 1; cols <= 24; cols++) {
    struct sf_diagnosis d;
    bench_open(&b, 1, 1, 1, cols, SF_CUT_NONE, SF_CUT_NONE);
    for (int64_t i = 0; i < cols; i++) b.data[0][i] *= 1.0f + (i % 2 == 0 ? 0x1p-10f : -0x1p-10f);
    assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
    if (d.cls == SF_DIAGNOSIS_LOW_PRECISION) fail_msg("%d elements: %s", (int)cols, d.text);
    bench_open(&b, 1, 1, 1, cols, SF_CUT_NONE, SF_CUT_NONE);
    sf_round_array(b.data[0], cols, SF_BF16);
    assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
    if ((d.cls == SF_DIAGNOSIS_LOW_PRECISION) != (cols >= 8)) fail_msg("%d elements on the grid: %s", (int)cols, d.text);
  }
}

/* x becomes the sum of summands of the step on one device. */
static void sum_up(struct bench *b, int32_t count) {
  b->p.id.kind = SF_KIND_MAIN_GRAD;
  memset(b->x, 0, sizeof b->x);
  for (int32_t m = 0; m < count; m++) {
    struct sf_diagnosis_related *r = relate(b, SF_RELATED_SUMMAND, 50 + (uint64_t)m);
    r->microbatch = r->turn = m;
    for (int64_t i = 0; i < elements(b); i++) b->x[i] += r->x[i];
  }
  shards_fill(b);
}

static void test_diagnose_microbatches_that_count_several_times_are_repeated_terms(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  b.c.train.microbatches = 3;
  sum_up(&b, 3);
  for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = 3 * b.related[0].x[i] + 2 * b.related[1].x[i] + b.related[2].x[i];
  diagnose_says(&b, SF_DIAGNOSIS_REPEATED_TERM, "the sum over microbatches has microbatch 0 3 times, microbatch 1 2 times;");
  for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = 2 * b.x[i];
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "scaled by 2");
  for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = 3 * b.related[0].x[i] + 1.4f * b.related[1].x[i] + b.related[2].x[i];
  assert_int_not_equal(diagnose(&b).cls, SF_DIAGNOSIS_REPEATED_TERM);
}

static void test_diagnose_another_value_below_is_a_buffer_that_was_not_cleared(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 6, 8, SF_CUT_EVEN, SF_CUT_NONE);
  b.p.id.kind = SF_KIND_MAIN_GRAD;
  const struct sf_diagnosis_related *other = relate(&b, SF_RELATED_STALE, 77);
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] = b.x[rank * 24 + i] + other->x[rank * 24 + i];
  diagnose_says(&b, SF_DIAGNOSIS_STALE, "the value of the other is added to it: a buffer that was not cleared");
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] = b.x[rank * 24 + i] + 0.1f * other->x[rank * 24 + i];
  diagnose_says(&b, SF_DIAGNOSIS_STALE, "0.1 times the value of the other is added to it");
}

/* Columns q0 q1 k v, q2 q3 k' v', two each. */
static void test_diagnose_scaled_parts_and_lines_are_scale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 7, 16, SF_CUT_NONE, SF_CUT_NONE);
  b.p.spec.col_cut = SF_CUT_QKV;
  b.p.shard_count = 1;
  for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = b.x[i] * (i % 8 == 4 || i % 8 == 5 ? 0.5f : 1);
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "only the key part is scaled by 0.5 = 1 / tp;");
  b.p.spec.col_cut = SF_CUT_NONE;
  for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = b.x[i] * (i / 16 == 3 ? 2 : 1);
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "only row 3 of 7 is scaled by 2 = tp;");
  for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = b.x[i] * (i / 16 == 3 ? 1.37f : 1);
  assert_int_equal(diagnose(&b).cls, SF_DIAGNOSIS_PART);
}

static void test_diagnose_rows_with_factors_of_their_own_are_scale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 7, 16, SF_CUT_NONE, SF_CUT_EVEN);
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] *= 1 + 0.1f * (float)(i / 8);
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "each row is scaled by a factor of its own: row 6 by 1.6;");
  shards_fill(&b);
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] += (float)draw(3, i);
  assert_int_equal(diagnose(&b).cls, SF_DIAGNOSIS_UNKNOWN);
}

/* Four heads of two columns. */
static void test_diagnose_wrong_lines_are_named_as_heads(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 1, 7, 8, SF_CUT_NONE, SF_CUT_EVEN);
  b.p.of_attention = true;
  for (int64_t i = 0; i < elements(&b); i++)
    if (i % 8 / 2 == 1 || i % 8 / 2 == 2) b.data[0][i] = (float)draw(5, i);
  diagnose_says(&b, SF_DIAGNOSIS_PART, "only heads 1-2 of 4 are wrong");
  shards_fill(&b);
  for (int64_t i = 0; i < elements(&b); i++)
    if (i % 8 == 5 || i % 8 == 4) b.data[0][i] *= 0.5f;
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "only head 2 of 4 is scaled by 0.5;");
}

static void test_diagnose_one_element_off_by_little_is_not_low_precision(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 1, 8, 16, SF_CUT_NONE, SF_CUT_NONE);
  double squares = 0;
  for (int64_t i = 0; i < elements(&b); i++) squares += (double)b.x[i] * (double)b.x[i];
  b.data[0][17] += (float)(3e-4 * sqrt(squares));
  const struct sf_diagnosis d = diagnose(&b);
  if (d.cls == SF_DIAGNOSIS_LOW_PRECISION) fail_msg("%s", d.text);
}

/* 7 times a part of a norm explains the norm as well as anything, but no size of the case is 7. */
static void test_diagnose_norm_is_a_repeated_term_only_by_a_size_of_the_case(void **state) {
  (void)state;
  static struct bench b;
  for (int times = 1; times < 8; times += 3) {
    bench_open(&b, 4, 1, 1, 1, SF_CUT_NONE, SF_CUT_NONE);
    b.p.id.kind = SF_KIND_SCALAR;
    b.p.shard_count = 1;
    b.p.view.is_norm = true;
    struct sf_diagnosis_related *term = relate(&b, SF_RELATED_TERM, 70);
    b.x[0] = 3;
    b.p.view.noise = 1e-6;
    b.extra[0][0] = 0.7f;
    term->x = b.extra[0];
    b.data[0][0] = (float)sqrt(9 + times * (double)b.extra[0][0]);
    const struct sf_diagnosis d = diagnose(&b);
    if ((d.cls == SF_DIAGNOSIS_REPEATED_TERM) != (times == 1)) fail_msg("%d times: %s", times + 1, d.text);
  }
}

/* The last element of a buffer that is reduced in place is left out. In bf16 so few elements would fit by chance. */
static void test_diagnose_one_element_that_was_not_summed_is_missing_reduction(void **state) {
  (void)state;
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
    static struct bench b;
    bench_open(&b, 2, 1, 1, 8, SF_CUT_NONE, SF_CUT_NONE);
    if (is_bf16) b.p.spec.promised = SF_BF16;
    b.data[0][7] = 0.625f * b.x[7];
    b.data[1][7] = 0.375f * b.x[7];
    diagnose_says(&b, is_bf16 ? SF_DIAGNOSIS_PART : SF_DIAGNOSIS_MISSING_REDUCTION,
                  is_bf16 ? "only column 7 of 8"
                          : "the shards summed over tp give the reference: a missing all-reduce; only column 7 of 8 is wrong");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_diagnose_factor_of_each_rank_is_scale),
      cmocka_unit_test(test_diagnose_division_by_own_counts_is_a_mean_of_means),
      cmocka_unit_test(test_diagnose_scaled_term_is_scale),
      cmocka_unit_test(test_diagnose_constant_is_offset),
      cmocka_unit_test(test_diagnose_factor_of_one_replica_is_no_scale),
      cmocka_unit_test(test_diagnose_pieces_of_another_replica_are_neighbour),
      cmocka_unit_test(test_diagnose_all_pieces_of_another_microbatch_are_stale),
      cmocka_unit_test(test_diagnose_reduced_before_the_last_microbatch_is_unsynchronised),
      cmocka_unit_test(test_diagnose_different_parts_summed_over_dp_are_extra_reduction),
      cmocka_unit_test(test_diagnose_zeros_of_a_weights_replica_are_stale),
      cmocka_unit_test(test_diagnose_factor_names_every_axis_that_it_may_be),
      cmocka_unit_test(test_diagnose_of_few_elements_is_never_low_precision),
      cmocka_unit_test(test_diagnose_variant_is_what_its_ranks_say),
      cmocka_unit_test(test_diagnose_microbatches_that_count_several_times_are_repeated_terms),
      cmocka_unit_test(test_diagnose_another_value_below_is_a_buffer_that_was_not_cleared),
      cmocka_unit_test(test_diagnose_scaled_parts_and_lines_are_scale),
      cmocka_unit_test(test_diagnose_rows_with_factors_of_their_own_are_scale),
      cmocka_unit_test(test_diagnose_wrong_lines_are_named_as_heads),
      cmocka_unit_test(test_diagnose_one_element_off_by_little_is_not_low_precision),
      cmocka_unit_test(test_diagnose_norm_is_a_repeated_term_only_by_a_size_of_the_case),
      cmocka_unit_test(test_diagnose_one_element_that_was_not_summed_is_missing_reduction),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
