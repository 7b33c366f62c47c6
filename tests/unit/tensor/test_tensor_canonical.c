#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/tensor/shard_map.h"
#include "tests/shard_copy.h"

#include <string.h>

static struct sf_case make_case(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tp, bool sp) {
  struct sf_case c;
  sf_case_init(&c);
  c.model.heads = heads;
  c.model.kv_heads = kv_heads;
  c.model.head_dim = head_dim;
  c.layout.tp = tp;
  c.layout.sp = sp;
  return c;
}

/* Runs of one rank, written by hand from the order in harness/docs/model.md: per group the query heads, key, value. len 0 ends the list. */
struct qkv_row {
  int64_t heads, kv_heads, tp, tp_index;
  struct {
    int64_t start, len;
  } runs[3];
};

static void test_canonical_dim_qkv_matches_hand_written_tables(void **state) {
  (void)state;
  static const struct qkv_row table[] = {
      /* 4 heads, 2 groups of [q q k v] x 2 columns = 8 columns each */
      {4, 2, 1, 0, {{0, 16}}},
      {4, 2, 2, 0, {{0, 8}}},
      {4, 2, 2, 1, {{8, 8}}},
      {4, 2, 4, 0, {{0, 2}, {4, 4}}},
      {4, 2, 4, 1, {{2, 6}}},
      {4, 2, 4, 2, {{8, 2}, {12, 4}}},
      {4, 2, 4, 3, {{10, 6}}},
      /* 4 heads, 4 groups of [q k v]: tp < kv_heads holds whole groups */
      {4, 4, 2, 0, {{0, 12}}},
      {4, 4, 2, 1, {{12, 12}}},
      {4, 4, 4, 3, {{18, 6}}},
      /* multi-query, 8 heads: [q x 8, k, v] */
      {8, 1, 1, 0, {{0, 20}}},
      {8, 1, 2, 0, {{0, 8}, {16, 4}}},
      {8, 1, 2, 1, {{8, 12}}},
      {8, 1, 8, 0, {{0, 2}, {16, 4}}},
      {8, 1, 8, 5, {{10, 2}, {16, 4}}},
      {8, 1, 8, 7, {{14, 6}}},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    const struct qkv_row *row = &table[i];
    const struct sf_case c = make_case(row->heads, row->kv_heads, 2, row->tp, false);
    struct sf_dim_map expected = {0};
    for (int k = 0; k < 3; k++) sf_dim_map_append(&expected, row->runs[k].start, row->runs[k].len, false);
    const struct sf_shard_map want = {.rows = expected};
    const struct sf_shard_map got = {.rows = sf_canonical_dim(&c, SF_CUT_QKV, (row->heads + 2 * row->kv_heads) * 2, row->tp_index, 0)};
    if (!shard_map_equal(&want, &got))
      fail_msg("row %zu: %d runs, first %d+%d", i, (int)got.rows.count, (int)got.rows.runs[0].start, (int)got.rows.runs[0].len);
  }
}

/* How many ranks of tp and cp hold each index. */
static void count_holders(int *holders, const struct sf_case *c, enum sf_cut cut, int64_t size) {
  memset(holders, 0, (size_t)size * sizeof *holders);
  for (int64_t rank = 0; rank < c->layout.tp * c->layout.cp; rank++) {
    const struct sf_dim_map dim = sf_canonical_dim(c, cut, size, rank % c->layout.tp, rank / c->layout.tp);
    const struct sf_shard_map map = {.rows = dim, .cols = sf_dim_map_whole(1)};
    assert_true(sf_shard_map_valid(&map, (struct sf_shape){size, 1}));
    for (int32_t i = 0; i < dim.count; i++) {
      assert_false(dim.runs[i].partial);
      for (int64_t k = 0; k < dim.runs[i].len; k++) holders[dim.runs[i].start + k]++;
    }
  }
}

static void test_canonical_dim_plain_cuts_cover_with_right_multiplicity(void **state) {
  (void)state;
  int holders[64];
  for (int64_t tp = 1; tp <= 8; tp *= 2) {
    for (int sp = 0; sp <= 1; sp++) {
      const struct sf_case c = make_case(8, 8, 2, tp, sp != 0);
      const struct {
        enum sf_cut cut;
        int multiplicity;
      } table[] = {{SF_CUT_NONE, (int)tp}, {SF_CUT_EVEN, 1}, {SF_CUT_GATE_UP, 1}, {SF_CUT_SEQUENCE, sp != 0 ? 1 : (int)tp}};
      for (size_t i = 0; i < 4; i++) {
        count_holders(holders, &c, table[i].cut, 64);
        for (int k = 0; k < 64; k++) assert_int_equal(holders[k], table[i].multiplicity);
      }
    }
  }
}

static void test_canonical_dim_token_cuts_are_zig_zag(void **state) {
  (void)state;
  const struct {
    int64_t cp, tp;
    bool sp;
    enum sf_cut cut;
    int64_t cp_index, tp_index;
    struct sf_run runs[2]; /* of 24 tokens */
  } table[] = {
      {1, 2, true, SF_CUT_TOKENS, 0, 1, {{0, 24, 0}}},
      {2, 2, true, SF_CUT_TOKENS, 0, 1, {{0, 6, 0}, {18, 6, 0}}},
      {2, 2, false, SF_CUT_SEQUENCE, 1, 1, {{6, 12, 0}}}, /* the two chunks adjoin */
      {2, 2, true, SF_CUT_SEQUENCE, 0, 0, {{0, 6, 0}}},
      {2, 2, true, SF_CUT_SEQUENCE, 0, 1, {{18, 6, 0}}},
      {2, 3, true, SF_CUT_SEQUENCE, 0, 1, {{4, 2, 0}, {18, 2, 0}}},
      {3, 1, false, SF_CUT_SEQUENCE, 1, 0, {{4, 4, 0}, {16, 4, 0}}},
      {3, 1, false, SF_CUT_TOKENS, 2, 0, {{8, 8, 0}}},
      {3, 2, false, SF_CUT_EVEN, 2, 1, {{12, 12, 0}}},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    struct sf_case c = make_case(12, 12, 2, table[i].tp, table[i].sp);
    c.layout.cp = table[i].cp;
    const struct sf_dim_map dim = sf_canonical_dim(&c, table[i].cut, 24, table[i].tp_index, table[i].cp_index);
    assert_int_equal(dim.count, table[i].runs[1].len > 0 ? 2 : 1);
    for (int32_t k = 0; k < dim.count; k++) {
      assert_int_equal(dim.runs[k].start, table[i].runs[k].start);
      assert_int_equal(dim.runs[k].len, table[i].runs[k].len);
    }
  }
}

static void test_canonical_dim_with_context_parallelism_covers_with_right_multiplicity(void **state) {
  (void)state;
  int holders[96];
  for (int64_t cp = 2; cp <= 4; cp++)
    for (int64_t tp = 1; tp <= 2; tp++) {
      struct sf_case c = make_case(8, 8, 2, tp, tp > 1);
      c.layout.cp = cp;
      const struct {
        enum sf_cut cut;
        int64_t multiplicity;
      } table[] = {{SF_CUT_TOKENS, tp}, {SF_CUT_SEQUENCE, 1}, {SF_CUT_EVEN, cp}, {SF_CUT_NONE, tp * cp}};
      for (size_t i = 0; i < 4; i++) {
        count_holders(holders, &c, table[i].cut, 96);
        for (int k = 0; k < 96; k++) assert_int_equal(holders[k], table[i].multiplicity);
      }
    }
}

static void test_canonical_dim_qkv_covers_with_right_multiplicity(void **state) {
  (void)state;
  int holders[128];
  for (int64_t kv_heads = 1; kv_heads <= 8; kv_heads *= 2) {
    for (int64_t tp = 1; tp <= 8; tp *= 2) {
      const struct sf_case c = make_case(8, kv_heads, 4, tp, false);
      const int64_t query_columns = 8 / kv_heads * 4, group = query_columns + 8;
      count_holders(holders, &c, SF_CUT_QKV, group * kv_heads);
      for (int64_t i = 0; i < group * kv_heads; i++) {
        const int64_t expected = i % group < query_columns || tp <= kv_heads ? 1 : tp / kv_heads;
        assert_int_equal(holders[i], expected);
      }
    }
  }
}

static void test_canonical_dim_gate_up_holds_the_same_columns_of_both_halves(void **state) {
  (void)state;
  const struct sf_case c = make_case(4, 4, 2, 4, false);
  const struct sf_dim_map dim = sf_canonical_dim(&c, SF_CUT_GATE_UP, 32, 2, 0);
  assert_int_equal(dim.count, 2);
  assert_int_equal(dim.runs[0].start, 8);
  assert_int_equal(dim.runs[0].len, 4);
  assert_int_equal(dim.runs[1].start, 24);
  assert_int_equal(dim.runs[1].len, 4);
}

static void test_canonical_map_cuts_rows_and_columns_apart(void **state) {
  (void)state;
  const struct sf_case c = make_case(4, 4, 2, 2, true);
  const struct sf_shard_map map = sf_canonical_map(&c, (struct sf_shape){8, 12}, SF_CUT_SEQUENCE, SF_CUT_NONE, 1, 0);
  assert_int_equal(map.rows.runs[0].start, 4);
  assert_int_equal(sf_dim_map_length(&map.rows), 4);
  assert_int_equal(sf_dim_map_length(&map.cols), 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_canonical_dim_qkv_matches_hand_written_tables),
      cmocka_unit_test(test_canonical_dim_plain_cuts_cover_with_right_multiplicity),
      cmocka_unit_test(test_canonical_dim_token_cuts_are_zig_zag),
      cmocka_unit_test(test_canonical_dim_with_context_parallelism_covers_with_right_multiplicity),
      cmocka_unit_test(test_canonical_dim_qkv_covers_with_right_multiplicity),
      cmocka_unit_test(test_canonical_dim_gate_up_holds_the_same_columns_of_both_halves),
      cmocka_unit_test(test_canonical_map_cuts_rows_and_columns_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
