/* Diagnosis: each explanation is planted exactly, with a little noise on top, and must be the one that is given. */
#include "tests/shard_copy.h"
#include "tests/unit/oracles/diagnose_bench.h"

/* --- sums ------------------------------------------------------------------------------------------------------ */

/* Splits x into one summand for each rank of an axis. */
static void split_over(struct bench *b, enum sf_axis axis, int32_t size) {
  static float rest[ELEMENTS_MAX], part[ELEMENTS_MAX];
  memcpy(rest, b->x, sizeof rest);
  for (int32_t index = 0; index < size; index++) {
    for (int64_t i = 0; i < elements(b); i++) {
      part[i] = index + 1 < size ? (float)draw(20 + (uint64_t)index, i) : rest[i];
      rest[i] -= part[i];
    }
    for (int32_t rank = 0; rank < b->mesh.world; rank++)
      if (sf_mesh_coord(&b->mesh, rank).at[axis] == index) shard_gather(b->data[rank], part, b->p.spec.shape, &b->shards[rank].map);
  }
}

static void test_diagnose_partial_sums_over_tp_are_missing_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 2, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  split_over(&b, SF_AXIS_TP, 2);
  diagnose_says(&b, SF_DIAGNOSIS_MISSING_REDUCTION, "partial sum over tp");
}

static void test_diagnose_partial_sums_over_dp_are_missing_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 4, 6, 8, SF_CUT_EVEN, SF_CUT_NONE);
  split_over(&b, SF_AXIS_DP, 4);
  diagnose_says(&b, SF_DIAGNOSIS_MISSING_REDUCTION, "partial sum over dp");
}

static void test_diagnose_partial_sums_over_two_axes_name_both(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 2, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  float rest[48];
  memcpy(rest, b.x, sizeof rest);
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < 48; i++) {
      b.data[rank][i] = rank < 3 ? (float)draw(30 + (uint64_t)rank, i) : rest[i];
      rest[i] -= b.data[rank][i];
    }
  diagnose_says(&b, SF_DIAGNOSIS_MISSING_REDUCTION, "partial sum over tp x dp");
}

static void test_diagnose_own_slice_of_a_contraction_is_missing_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  for (int32_t tp = 0; tp < 2; tp++) {
    struct sf_diagnosis_related *own = relate(&b, SF_RELATED_VARIANT, 40 + (uint64_t)tp);
    *own = (struct sf_diagnosis_related){
        SF_RELATED_VARIANT, SF_DIAGNOSIS_MISSING_REDUCTION, "holds its own slice of the contraction", .names_rank = true, .x = own->x,
        .rank = tp};
    shard_gather(b.data[tp], own->x, b.p.spec.shape, &b.shards[tp].map);
  }
  diagnose_says(&b, SF_DIAGNOSIS_MISSING_REDUCTION, "rank 0 holds its own slice of the contraction");
}

/* Two ranks that cut the rows: one element of the second rank is off by much, its neighbour by as much as rounding explains. */
static void test_diagnose_problem_numbers_tell_the_worst_element(void **state) {
  (void)state;
  static struct bench b;
  struct sf_diagnosis diagnosis;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_EVEN, SF_CUT_NONE);
  const int64_t at = 1 * 6 + 4; /* row 1 of the rank's 4 */
  const float right = b.data[1][at], neighbour = b.data[1][at + 1];
  b.data[1][at] = right + 0.5f;
  b.data[1][at + 1] = neighbour + 1e-9f;
  assert_int_equal(sf_diagnose_problem(&diagnosis, &b.p), SF_OK);
  const struct sf_numbers *n = &diagnosis.numbers;
  assert_int_equal(n->worst.row, 5);
  assert_int_equal(n->worst.col, 4);
  assert_int_equal(n->worst_rank, 1);
  assert_int_equal(n->worst_local.row, 1);
  assert_int_equal(n->worst_local.col, 4);
  assert_true(n->wanted == (double)right && n->got == (double)(right + 0.5f) && n->allowed > 0 && n->allowed < 0.01);
  assert_int_equal(n->elements.wrong, 1);
  assert_int_equal(n->elements.all, 48);
  assert_int_equal(n->rows.wrong, 1);
  assert_int_equal(n->rows.all, 8);
  assert_int_equal(n->cols.wrong, 1);
  assert_int_equal(n->cols.all, 6);
  assert_string_equal(n->part_name, "");
  assert_true(fabs(n->error - 0.5) < 1e-6 && fabs(n->mean_got - n->mean - 0.5 / 48) < 1e-6);
}

/* The gradient of expert 2 of 4 is doubled; a NaN is worse than any number. */
static void test_diagnose_problem_numbers_count_experts(void **state) {
  (void)state;
  static struct bench b;
  struct sf_diagnosis diagnosis;
  bench_open(&b, 1, 1, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  b.p.spec.row_cut = SF_CUT_EXPERTS;
  b.c.moe.experts = 4;
  for (int64_t i = 4 * 6; i < 6 * 6; i++) b.data[0][i] *= 2;
  b.data[0][5 * 6 + 1] = NAN;
  assert_int_equal(sf_diagnose_problem(&diagnosis, &b.p), SF_OK);
  const struct sf_numbers *n = &diagnosis.numbers;
  assert_string_equal(n->part_name, "experts");
  assert_int_equal(n->parts.wrong, 1);
  assert_int_equal(n->parts.all, 4);
  assert_int_equal(n->rows.wrong, 2);
  assert_int_equal(n->elements.wrong, 12);
  assert_int_equal(n->worst.row, 5);
  assert_int_equal(n->worst.col, 1);
  assert_true(isnan(n->got));
}

static void test_diagnose_replicas_summed_are_extra_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < elements(&b); i++) b.data[rank][i] *= 4;
  diagnose_says(&b, SF_DIAGNOSIS_EXTRA_REDUCTION, "over tp once too often");
}

static void test_diagnose_pieces_summed_are_extra_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 6, 8, SF_CUT_NONE, SF_CUT_EVEN);
  for (int64_t i = 0; i < local_count(&b, 0); i++) b.data[0][i] = b.data[1][i] = b.data[0][i] + b.data[1][i];
  diagnose_says(&b, SF_DIAGNOSIS_EXTRA_REDUCTION, "over tp once too often");
}

static void test_diagnose_equal_summands_scattered_are_extra_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] *= 4;
  diagnose_says(&b, SF_DIAGNOSIS_EXTRA_REDUCTION, "4 = tp times");
}

/* x becomes the sum of `microbatches` summands of the step. */
static void sum_microbatches(struct bench *b) {
  b->p.id.kind = SF_KIND_MAIN_GRAD;
  memset(b->x, 0, sizeof b->x);
  for (int32_t m = 0; m < (int32_t)b->c.train.microbatches; m++) {
    struct sf_diagnosis_related *r = relate(b, SF_RELATED_SUMMAND, 50 + (uint64_t)m);
    r->microbatch = m;
    r->dp = m % (int32_t)b->c.layout.dp;
    r->turn = m / (int32_t)b->c.layout.dp;
    for (int64_t i = 0; i < elements(b); i++) b->x[i] += r->x[i];
  }
  shards_fill(b);
}

static void test_diagnose_own_data_alone_is_unsynchronised(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 2, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  sum_microbatches(&b);
  for (int32_t dp = 0; dp < 2; dp++)
    for (int64_t i = 0; i < elements(&b); i++) b.data[dp][i] = b.extra[dp][i] + b.extra[dp + 2][i];
  diagnose_says(&b, SF_DIAGNOSIS_UNSYNCHRONISED, "own data");
}

static void test_diagnose_first_microbatches_alone_are_missing_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 2, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  sum_microbatches(&b);
  for (int32_t dp = 0; dp < 2; dp++)
    for (int64_t i = 0; i < elements(&b); i++) b.data[dp][i] = b.extra[0][i] + b.extra[1][i];
  diagnose_says(&b, SF_DIAGNOSIS_MISSING_REDUCTION, "only the first of the 2");
}

/* The gradient of a weight that is used at so many places. */
static void bench_open_with_uses(struct bench *b, int32_t uses) {
  static const char *const names[] = {"embedding", "output layer", "embedding of the prediction 1 ahead"};
  bench_open(b, 1, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  b->c.train.microbatches = 1;
  b->p.id.kind = SF_KIND_MAIN_GRAD;
  memset(b->x, 0, sizeof b->x);
  for (int32_t use = 0; use < uses; use++) {
    struct sf_diagnosis_related *r = relate(b, SF_RELATED_SUMMAND, 60 + (uint64_t)use);
    r->call = use;
    snprintf(r->name, sizeof r->name, "%s", names[use]);
    for (int64_t i = 0; i < elements(b); i++) b->x[i] += r->x[i];
  }
}

static void test_diagnose_one_use_of_a_weight_alone_is_missing_reduction(void **state) {
  (void)state;
  static struct bench b;
  for (int32_t uses = 2; uses <= 3; uses++) {
    bench_open_with_uses(&b, uses);
    for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = b.extra[1][i];
    diagnose_says(&b, SF_DIAGNOSIS_MISSING_REDUCTION, "output layer alone");
  }
}

static void test_diagnose_one_use_of_a_weight_left_out_is_missing_reduction(void **state) {
  (void)state;
  static struct bench b;
  bench_open_with_uses(&b, 3);
  for (int64_t i = 0; i < elements(&b); i++) b.data[0][i] = b.extra[0][i] + b.extra[1][i];
  diagnose_says(&b, SF_DIAGNOSIS_MISSING_REDUCTION, "lacks that of its use as embedding of the prediction 1 ahead");
}

static void test_diagnose_one_replica_that_went_another_way_is_unsynchronised(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 2, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  for (int64_t i = 0; i < elements(&b); i++) b.data[3][i] += (float)draw(70, i);
  diagnose_says(&b, SF_DIAGNOSIS_UNSYNCHRONISED, "rank 3");
}

/* --- values ---------------------------------------------------------------------------------------------------- */

static void scale(struct bench *b, double factor) {
  for (int32_t rank = 0; rank < b->p.shard_count; rank++)
    for (int64_t i = 0; i < local_count(b, rank); i++) b->data[rank][i] = (float)(factor * (double)b->data[rank][i]);
}

static void test_diagnose_factors_are_named_by_the_cases_sizes(void **state) {
  (void)state;
  static struct bench b;
  static const struct {
    double factor;
    const char *words;
  } rows[] = {{3, "by 3 = dp;"},   {1.0 / 3, "by 0.333333 = 1 / dp;"}, {6, "microbatches"}, {2, "microbatches of a rank"}, {-1, "the sign"},
              {1.2345, "no ratio"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench_open(&b, 1, 3, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
    b.p.id.kind = SF_KIND_MAIN_GRAD;
    scale(&b, rows[i].factor);
    diagnose_says(&b, SF_DIAGNOSIS_SCALE, rows[i].words);
  }
  for (int k = 0; k < 2; k++) { /* scores alone are divided by the root of the head size */
    bench_open(&b, 1, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
    b.c.model.head_dim = 25;
    b.p.of_scores = k == 0;
    scale(&b, 5);
    diagnose_says(&b, SF_DIAGNOSIS_SCALE, k == 0 ? "the root of the head size" : "no ratio");
  }
}

static void test_diagnose_ratio_of_token_counts_is_named(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 1, 6, 8, SF_CUT_NONE, SF_CUT_NONE);
  b.c.model.seq = 37;
  float mask[37];
  double kept = 0;
  sf_data_microbatch(NULL, NULL, mask, &b.c, 0, 0);
  for (int t = 0; t < 37; t++) kept += (double)mask[t];
  b.p.kept = kept;
  scale(&b, (double)sf_data_step_tokens(&b.c, 0) / (kept * 2));
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "mean token count over the microbatch's own");
}

static void test_diagnose_bias_of_every_rank_is_repeated_term(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  relate(&b, SF_RELATED_TERM, 80)->shape.rows = 1;
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] += 3 * b.extra[0][i % 6];
  diagnose_says(&b, SF_DIAGNOSIS_REPEATED_TERM, "added 4 times, once by each rank of tp");
}

static void test_diagnose_term_left_out_is_missing_term(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_NONE, SF_CUT_EVEN);
  relate(&b, SF_RELATED_TERM, 81);
  for (int32_t rank = 0; rank < 2; rank++) {
    float part[48];
    shard_gather(part, b.extra[0], b.p.spec.shape, &b.shards[rank].map);
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] -= part[i];
  }
  diagnose_says(&b, SF_DIAGNOSIS_MISSING_TERM, "is not added");
}

static void test_diagnose_another_tensors_value_is_stale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  relate(&b, SF_RELATED_STALE, 82);
  shard_gather(b.data[1], b.extra[0], b.p.spec.shape, &b.shards[1].map); /* on one rank of two */
  diagnose_says(&b, SF_DIAGNOSIS_STALE, "that of the other");
}

static void test_diagnose_another_layers_value_is_shifted(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 1, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  relate(&b, SF_RELATED_STALE, 83)->cls = SF_DIAGNOSIS_SHIFTED;
  memcpy(b.data[0], b.extra[0], sizeof b.data[0]);
  diagnose_says(&b, SF_DIAGNOSIS_SHIFTED, "that of the other");
}

static void test_diagnose_zeros_are_stale(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  memset(b.data, 0, sizeof b.data);
  diagnose_says(&b, SF_DIAGNOSIS_STALE, "zeros");
}

static void test_diagnose_bf16_in_place_of_fp32_is_low_precision(void **state) {
  (void)state;
  static struct bench b;
  struct sf_diagnosis d;
  bench_open(&b, 2, 1, 8, 64, SF_CUT_NONE, SF_CUT_EVEN);
  for (int32_t rank = 0; rank < 2; rank++) sf_round_array(b.data[rank], local_count(&b, rank), SF_BF16);
  assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
  assert_int_equal(d.cls, SF_DIAGNOSIS_LOW_PRECISION);
  assert_non_null(strstr(d.text, "grid"));
  for (int32_t rank = 0; rank < 2; rank++) /* two summands, each stored in bf16 */
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] += (float)(0x1p-10 * draw(84, i));
  diagnose_says(&b, SF_DIAGNOSIS_LOW_PRECISION, "sums stored in bf16");
  b.p.id.kind = SF_KIND_PARAM_DELTA; /* weight decay that lacks is as small */
  assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
  assert_int_not_equal(d.cls, SF_DIAGNOSIS_LOW_PRECISION);
}

/* --- places ---------------------------------------------------------------------------------------------------- */

static void test_diagnose_exchanged_pieces_are_permuted(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  for (int64_t i = 0; i < local_count(&b, 0); i++) {
    const float kept = b.data[1][i];
    b.data[1][i] = b.data[2][i];
    b.data[2][i] = kept;
  }
  diagnose_says(&b, SF_DIAGNOSIS_PERMUTED, "rank 1 holds the piece of rank 2");
}

static void test_diagnose_piece_held_twice_is_neighbour(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  memcpy(b.data[2], b.data[1], sizeof b.data[2]);
  diagnose_says(&b, SF_DIAGNOSIS_NEIGHBOUR, "rank 2 holds the piece of rank 1");
}

static void test_diagnose_moved_rows_are_shifted(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 12, 6, SF_CUT_NONE, SF_CUT_EVEN);
  for (int32_t rank = 0; rank < 2; rank++) {
    memmove(b.data[rank] + 2 * 3, b.data[rank], 10 * 3 * sizeof(float));
    for (int64_t i = 0; i < 2 * 3; i++) b.data[rank][i] = (float)draw(90, i);
  }
  diagnose_says(&b, SF_DIAGNOSIS_SHIFTED, "rows are shifted by 2");
}

static void test_diagnose_moved_elements_of_a_vector_are_shifted(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 1, 1, 32, SF_CUT_NONE, SF_CUT_NONE);
  memmove(b.data[0], b.data[0] + 1, 31 * sizeof(float));
  diagnose_says(&b, SF_DIAGNOSIS_SHIFTED, "elements are shifted by -1");
}

static void test_diagnose_rows_and_columns_exchanged_are_transposed(void **state) {
  (void)state;
  for (int pieces = 0; pieces < 2; pieces++) {
    static struct bench b;
    bench_open(&b, 2, 1, 8, 6, SF_CUT_EVEN, SF_CUT_NONE);
    float other[48];
    for (int64_t i = 0; i < 48; i++) other[i] = b.x[i % 8 * 6 + i / 8];
    for (int32_t rank = 0; rank < 2; rank++) {
      float own[24];
      memcpy(own, b.data[rank], sizeof own); /* 4 x 6 */
      for (int64_t i = 0; i < 24; i++) b.data[rank][i] = pieces ? own[i % 4 * 6 + i / 4] : other[24 * rank + i];
    }
    diagnose_says(&b, SF_DIAGNOSIS_TRANSPOSED, pieces ? "each rank's piece is transposed" : "the matrix is transposed");
  }
}

static void test_diagnose_contiguous_cut_of_gate_and_up_is_fused_order(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 16, 5, SF_CUT_GATE_UP, SF_CUT_NONE);
  for (int32_t rank = 0; rank < 2; rank++) memcpy(b.data[rank], b.x + rank * 8 * 5, 8 * 5 * sizeof(float));
  diagnose_says(&b, SF_DIAGNOSIS_FUSED_ORDER, "are cut into contiguous pieces, where each rank needs a piece of each part: gate and up");
}

static void test_diagnose_gate_and_up_exchanged_is_fused_order(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 1, 1, 16, 5, SF_CUT_GATE_UP, SF_CUT_NONE);
  memcpy(b.data[0], b.x + 8 * 5, 8 * 5 * sizeof(float));
  memcpy(b.data[0] + 8 * 5, b.x, 8 * 5 * sizeof(float));
  diagnose_says(&b, SF_DIAGNOSIS_FUSED_ORDER, "exchanged");
}

/* Logical columns q0 q1 k v, q2 q3 k' v' (two each); the loader reads them as q0 q1 q2 q3, k k', v v'. */
static void test_diagnose_qkv_part_by_part_is_fused_order(void **state) {
  (void)state;
  static struct bench b;
  static const int64_t order[8] = {0, 1, 4, 5, 2, 6, 3, 7};
  bench_open(&b, 1, 1, 7, 16, SF_CUT_NONE, SF_CUT_QKV);
  for (int64_t r = 0; r < 7; r++)
    for (int64_t k = 0; k < 16; k++) b.data[0][r * 16 + k] = b.x[r * 16 + order[k / 2] * 2 + k % 2];
  diagnose_says(&b, SF_DIAGNOSIS_FUSED_ORDER, "part by part");
}

/* --- where ----------------------------------------------------------------------------------------------------- */

static void test_diagnose_wrong_rows_are_part(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 12, 6, SF_CUT_NONE, SF_CUT_EVEN);
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < 3; i++) b.data[rank][4 * 3 + i] += (float)draw(91, i), b.data[rank][9 * 3 + i] += (float)draw(92, i);
  diagnose_says(&b, SF_DIAGNOSIS_PART, "only rows 4, 9 of 12");
}

static void test_diagnose_rows_and_ranks_of_nan_are_part(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 12, 6, SF_CUT_NONE, SF_CUT_EVEN);
  for (int32_t rank = 0; rank < 2; rank++) b.data[rank][4 * 3] = -NAN, b.data[rank][9 * 3 + 1] = INFINITY;
  diagnose_says(&b, SF_DIAGNOSIS_PART, "only rows 4, 9 of 12");
  bench_open(&b, 4, 1, 12, 8, SF_CUT_NONE, SF_CUT_EVEN);
  for (int64_t i = 0; i < local_count(&b, 2); i++) b.data[2][i] = -NAN;
  const struct sf_diagnosis d = diagnose(&b);
  assert_int_equal(d.cls, SF_DIAGNOSIS_PART);
  assert_non_null(strstr(d.text, "only rank 2 is wrong"));
  assert_false(signbit(d.numbers.got));
  assert_false(signbit(d.numbers.mean_got));
}

static void test_diagnose_wrong_queries_are_part(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 7, 16, SF_CUT_NONE, SF_CUT_QKV);
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t r = 0; r < 7; r++)
      for (int64_t k = 0; k < 4; k++) b.data[rank][r * 8 + k] += (float)draw(93, r * 4 + k);
  diagnose_says(&b, SF_DIAGNOSIS_PART, "only the query part");
}

static void test_diagnose_wrong_rank_is_part(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 4, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  for (int64_t i = 0; i < local_count(&b, 2); i++) b.data[2][i] += (float)draw(94, i);
  diagnose_says(&b, SF_DIAGNOSIS_PART, "only rank 2");
}

static void test_diagnose_scattered_zeros_are_part(void **state) {
  (void)state;
  static struct bench b;
  struct sf_diagnosis d;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_NONE, SF_CUT_EVEN);
  for (int64_t r = 0; r < 8; r++) memset(b.data[r % 2] + r * 3, 0, 3 * sizeof(float));
  assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
  assert_int_equal(d.cls, SF_DIAGNOSIS_PART);
  assert_non_null(strstr(d.text, "zeros stand in rows 0-7, in 24 of 48"));
}

/* Each row has a level of its own: an error far below the tensor's noise is still explained, and not by anything that leaves it there. */
/* Shards come in any order. */
static void test_diagnose_two_wrong_ranks_of_two_in_descending_order_are_no_part(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] = (float)draw(210 + (uint64_t)rank, i);
  const struct sf_diagnosis_shard first = b.shards[0];
  b.shards[0] = b.shards[1];
  b.shards[1] = first;
  struct sf_diagnosis d;
  assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
  if (d.cls != SF_DIAGNOSIS_UNKNOWN) fail_msg("%s: %s", sf_diagnosis_class_name(d.cls), d.text);
}

static void test_diagnose_error_of_a_small_row_keeps_to_row_levels(void **state) {
  (void)state;
  static struct bench b;
  double levels[8];
  bench_open(&b, 1, 1, 8, 6, SF_CUT_NONE, SF_CUT_NONE);
  for (int64_t r = 0; r < 8; r++) levels[r] = r == 5 ? 1e-3 * b.p.view.noise : b.p.view.noise;
  b.p.view.row_noise = levels;
  for (int64_t i = 0; i < 6; i++) b.data[0][5 * 6 + i] += (float)(0.5 * b.p.view.noise * draw(95, i));
  struct sf_diagnosis d;
  assert_int_equal(sf_diagnose_problem(&d, &b.p), SF_OK);
  assert_int_equal(d.cls, SF_DIAGNOSIS_PART);
  assert_non_null(strstr(d.text, "only row 5 of 8 is wrong"));
}

static void test_diagnose_unlike_anything_is_unknown(void **state) {
  (void)state;
  static struct bench b;
  bench_open(&b, 2, 2, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  for (int32_t rank = 0; rank < 4; rank++)
    for (int64_t i = 0; i < local_count(&b, rank); i++) b.data[rank][i] = (float)draw(200 + (uint64_t)rank % 2, i);
  diagnose_says(&b, SF_DIAGNOSIS_UNKNOWN, "no simple cause");
}

static void test_diagnose_without_memory_fails_cleanly(void **state) {
  (void)state;
  static struct bench b;
  struct sf_diagnosis d;
  bench_open(&b, 2, 1, 8, 6, SF_CUT_SEQUENCE, SF_CUT_NONE);
  scale(&b, 3);
  for (int64_t k = 1;; k++) {
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_diagnose_problem(&d, &b.p);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (!failed) break;
    assert_int_equal(status, SF_ENOMEM);
  }
  diagnose_says(&b, SF_DIAGNOSIS_SCALE, "3");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_diagnose_partial_sums_over_tp_are_missing_reduction),
      cmocka_unit_test(test_diagnose_partial_sums_over_dp_are_missing_reduction),
      cmocka_unit_test(test_diagnose_partial_sums_over_two_axes_name_both),
      cmocka_unit_test(test_diagnose_own_slice_of_a_contraction_is_missing_reduction),
      cmocka_unit_test(test_diagnose_problem_numbers_tell_the_worst_element),
      cmocka_unit_test(test_diagnose_problem_numbers_count_experts),
      cmocka_unit_test(test_diagnose_replicas_summed_are_extra_reduction),
      cmocka_unit_test(test_diagnose_pieces_summed_are_extra_reduction),
      cmocka_unit_test(test_diagnose_equal_summands_scattered_are_extra_reduction),
      cmocka_unit_test(test_diagnose_own_data_alone_is_unsynchronised),
      cmocka_unit_test(test_diagnose_first_microbatches_alone_are_missing_reduction),
      cmocka_unit_test(test_diagnose_one_use_of_a_weight_alone_is_missing_reduction),
      cmocka_unit_test(test_diagnose_one_use_of_a_weight_left_out_is_missing_reduction),
      cmocka_unit_test(test_diagnose_one_replica_that_went_another_way_is_unsynchronised),
      cmocka_unit_test(test_diagnose_factors_are_named_by_the_cases_sizes),
      cmocka_unit_test(test_diagnose_ratio_of_token_counts_is_named),
      cmocka_unit_test(test_diagnose_bias_of_every_rank_is_repeated_term),
      cmocka_unit_test(test_diagnose_term_left_out_is_missing_term),
      cmocka_unit_test(test_diagnose_another_tensors_value_is_stale),
      cmocka_unit_test(test_diagnose_another_layers_value_is_shifted),
      cmocka_unit_test(test_diagnose_zeros_are_stale),
      cmocka_unit_test(test_diagnose_bf16_in_place_of_fp32_is_low_precision),
      cmocka_unit_test(test_diagnose_exchanged_pieces_are_permuted),
      cmocka_unit_test(test_diagnose_piece_held_twice_is_neighbour),
      cmocka_unit_test(test_diagnose_moved_rows_are_shifted),
      cmocka_unit_test(test_diagnose_moved_elements_of_a_vector_are_shifted),
      cmocka_unit_test(test_diagnose_rows_and_columns_exchanged_are_transposed),
      cmocka_unit_test(test_diagnose_contiguous_cut_of_gate_and_up_is_fused_order),
      cmocka_unit_test(test_diagnose_gate_and_up_exchanged_is_fused_order),
      cmocka_unit_test(test_diagnose_qkv_part_by_part_is_fused_order),
      cmocka_unit_test(test_diagnose_wrong_rows_are_part),
      cmocka_unit_test(test_diagnose_rows_and_ranks_of_nan_are_part),
      cmocka_unit_test(test_diagnose_wrong_queries_are_part),
      cmocka_unit_test(test_diagnose_wrong_rank_is_part),
      cmocka_unit_test(test_diagnose_scattered_zeros_are_part),
      cmocka_unit_test(test_diagnose_error_of_a_small_row_keeps_to_row_levels),
      cmocka_unit_test(test_diagnose_two_wrong_ranks_of_two_in_descending_order_are_no_part),
      cmocka_unit_test(test_diagnose_unlike_anything_is_unknown),
      cmocka_unit_test(test_diagnose_without_memory_fails_cleanly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
