#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/pcg.h"
#include "harness/tensor/shard_map.h"

#include <stdlib.h>
#include <string.h>

static int64_t random_below(struct sf_pcg *pcg, int64_t bound) { return (int64_t)sf_pcg_below(pcg, (uint64_t)bound); }

/* Disjoint runs in random order over `size` indices, some partial. */
static struct sf_dim_map random_dim(struct sf_pcg *pcg, int64_t size) {
  struct sf_run runs[6];
  int32_t count = 0;
  int64_t at = random_below(pcg, 3);
  while (at < size && count < 6) {
    const int64_t len = 1 + random_below(pcg, 5);
    runs[count++] = (struct sf_run){at, at + len <= size ? len : size - at, random_below(pcg, 4) == 0};
    at += len + random_below(pcg, 4);
  }
  struct sf_dim_map dim = {0};
  while (count > 0) {
    const int32_t pick = (int32_t)random_below(pcg, count);
    sf_dim_map_append(&dim, runs[pick].start, runs[pick].len, runs[pick].partial);
    runs[pick] = runs[--count];
  }
  return dim;
}

/* Logical index and partial flag of every local index. */
static int64_t list_indices(int64_t *indices, bool *partial, const struct sf_dim_map *dim) {
  int64_t count = 0;
  for (int32_t i = 0; i < dim->count; i++) {
    for (int64_t k = 0; k < dim->runs[i].len; k++) {
      indices[count] = dim->runs[i].start + k;
      partial[count++] = dim->runs[i].partial;
    }
  }
  return count;
}

static void test_append_adjoining_run_merges(void **state) {
  (void)state;
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, 4, 2, false);
  sf_dim_map_append(&dim, 6, 3, false);
  assert_int_equal(dim.count, 1);
  assert_int_equal(dim.runs[0].len, 5);
  sf_dim_map_append(&dim, 9, 1, true);
  sf_dim_map_append(&dim, 0, 0, false);
  assert_int_equal(dim.count, 2);
  sf_dim_map_append(&dim, 0, 4, true);
  assert_int_equal(dim.count, 3);
  assert_int_equal(sf_dim_map_length(&dim), 10);
}

static void test_set_partial_mixed_runs_merge(void **state) {
  (void)state;
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, 0, 2, false);
  sf_dim_map_append(&dim, 2, 2, true);
  assert_int_equal(dim.count, 2);
  sf_dim_map_set_partial(&dim, true);
  assert_int_equal(dim.count, 1);
  assert_true(dim.runs[0].partial);
  assert_int_equal(dim.runs[0].len, 4);
}

static void test_part_all_parts_tile_the_dimension(void **state) {
  (void)state;
  for (int64_t parts = 1; parts <= 8; parts++) {
    struct sf_dim_map all = {0};
    for (int64_t i = 0; i < parts; i++) {
      const struct sf_dim_map part = sf_dim_map_part(840, parts, i);
      assert_int_equal(sf_dim_map_length(&part), 840 / parts);
      sf_dim_map_append(&all, part.runs[0].start, part.runs[0].len, false);
    }
    assert_int_equal(all.count, 1);
    assert_int_equal(sf_dim_map_length(&all), 840);
  }
}

static void test_compose_random_maps_matches_index_by_index(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(11, 1);
  for (int round = 0; round < 2000; round++) {
    const struct sf_dim_map outer = random_dim(&pcg, 8 + random_below(&pcg, 40));
    const struct sf_dim_map inner = random_dim(&pcg, sf_dim_map_length(&outer));
    const struct sf_dim_map both = sf_dim_map_compose(&outer, &inner);
    int64_t outer_at[64], inner_at[64], both_at[64];
    bool outer_partial[64], inner_partial[64], both_partial[64];
    list_indices(outer_at, outer_partial, &outer);
    const int64_t count = list_indices(inner_at, inner_partial, &inner);
    assert_int_equal(list_indices(both_at, both_partial, &both), count);
    for (int64_t i = 0; i < count; i++) {
      assert_int_equal(both_at[i], outer_at[inner_at[i]]);
      assert_int_equal(both_partial[i], inner_partial[i] || outer_partial[inner_at[i]]);
    }
  }
}

static void test_compose_split_of_a_zigzag_piece_is_a_run_list(void **state) {
  (void)state;
  struct sf_dim_map zigzag = {0};
  sf_dim_map_append(&zigzag, 4, 4, false);
  sf_dim_map_append(&zigzag, 24, 4, false);
  const struct sf_dim_map second = sf_dim_map_part(8, 4, 1), across = {.count = 1, .runs = {{3, 2, true}}};
  const struct sf_dim_map piece = sf_dim_map_compose(&zigzag, &second), seam = sf_dim_map_compose(&zigzag, &across);
  assert_int_equal(piece.count, 1);
  assert_int_equal(piece.runs[0].start, 6);
  assert_int_equal(seam.count, 2);
  assert_int_equal(seam.runs[0].start, 7);
  assert_int_equal(seam.runs[1].start, 24);
  assert_true(seam.runs[1].partial);
}

static void test_valid_table_of_maps_matches(void **state) {
  (void)state;
  const struct {
    struct sf_run a, b;
    int32_t count;
    bool valid;
  } table[] = {
      {{0, 8, false}, {0, 0, false}, 1, true},          {{4, 4, false}, {0, 4, false}, 2, true},  {{0, 4, false}, {3, 1, true}, 2, false},
      {{3, 1, false}, {0, 8, false}, 2, false},         {{0, 9, false}, {0, 0, false}, 1, false}, {{-1, 2, false}, {0, 0, false}, 1, false},
      {{2, 0, false}, {0, 0, false}, 1, false},         {{8, 1, false}, {0, 0, false}, 1, false}, {{0, 0, false}, {0, 0, false}, 0, true},
      {{INT64_MAX, 1, false}, {0, 0, false}, 1, false},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    const struct sf_dim_map dim = {.count = table[i].count, .runs = {table[i].a, table[i].b}};
    const struct sf_shard_map rows = {.rows = dim, .cols = sf_dim_map_whole(8)}, cols = {.rows = sf_dim_map_whole(8), .cols = dim};
    if (sf_shard_map_valid(&rows, (struct sf_shape){8, 8}) != table[i].valid) fail_msg("row %zu", i);
    if (sf_shard_map_valid(&cols, (struct sf_shape){8, 8}) != table[i].valid) fail_msg("column %zu", i);
  }
}

static void test_flat_range_outside_the_box_is_not_valid(void **state) {
  (void)state;
  const struct sf_shape shape = {4, 6};
  const struct sf_shard_map whole = sf_shard_map_whole(shape), empty = sf_shard_map_flat(&whole, 24, 0);
  assert_true(sf_shard_map_valid(&empty, shape));
  assert_int_equal(sf_shard_map_local_shape(&empty).cols, 0);
  static const int64_t bad[][2] = {{-1, 3}, {0, 25}, {24, 1}, {25, 0}, {3, -1}, {INT64_MAX, 1}, {1, INT64_MAX}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct sf_shard_map map = whole;
    map.flat = true, map.first = bad[i][0], map.count = bad[i][1];
    assert_false(sf_shard_map_valid(&map, shape));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_append_adjoining_run_merges),
      cmocka_unit_test(test_set_partial_mixed_runs_merge),
      cmocka_unit_test(test_part_all_parts_tile_the_dimension),
      cmocka_unit_test(test_compose_random_maps_matches_index_by_index),
      cmocka_unit_test(test_compose_split_of_a_zigzag_piece_is_a_run_list),
      cmocka_unit_test(test_valid_table_of_maps_matches),
      cmocka_unit_test(test_flat_range_outside_the_box_is_not_valid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
