#include "tests/unit/check/trace_fixture.h"

#include "harness/base/pcg.h"
#include "harness/check/piece.h"

enum { ELEMENTS_MAX = 4096 };

/* What a piece holds, element by element: local index and sum of each logical element, -1 where it is not held. */
struct plain {
  int64_t local[ELEMENTS_MAX], sum[ELEMENTS_MAX], count, box;
};

static void plain_walk(struct plain *out, const struct sf_piece_source *source, int32_t d, int64_t logical, int64_t sum) {
  if (d == source->dim_count) {
    const int64_t at = out->box++, local = source->flat ? at - source->first : at;
    if (source->flat && (local < 0 || local >= source->count)) return;
    out->local[logical] = local;
    out->sum[logical] = sum;
    out->count++;
    return;
  }
  for (int32_t i = 0; i < source->dims[d].count; i++) {
    const struct sf_index_run *run = &source->dims[d].runs[i];
    for (int64_t k = 0; k < run->len; k++)
      plain_walk(out, source, d + 1, logical * source->shape[d] + run->start + k, run->sum > sum ? run->sum : sum);
  }
}

static void plain_create(struct plain *out, const struct sf_piece_source *source) {
  *out = (struct plain){.count = 0};
  for (int64_t i = 0; i < ELEMENTS_MAX; i++) out->local[i] = -1;
  plain_walk(out, source, 0, 0, 0);
}

/* Segments of [begin, end) against the plain table, for each sum. */
static void check_range(const struct sf_piece *piece, const struct plain *plain, int64_t begin, int64_t end) {
  static struct sf_segment segments[ELEMENTS_MAX];
  for (int64_t sum = 0; sum < 4; sum++) {
    int64_t expected = 0, seen = 0, last = -1;
    for (int64_t i = begin; i < end; i++) expected += plain->local[i] >= 0 && plain->sum[i] == sum;
    const int64_t count = sf_piece_segments(segments, piece, sum, begin, end);
    for (int64_t s = 0; s < count; s++) {
      assert_true(segments[s].count > 0 && segments[s].logical > last && segments[s].logical >= begin);
      for (int64_t k = 0; k < segments[s].count; k++) {
        const int64_t element = segments[s].logical + k;
        assert_true(element < end);
        assert_int_equal(plain->local[element], segments[s].local + k);
        assert_int_equal(plain->sum[element], sum);
        last = element;
        seen++;
      }
    }
    assert_int_equal(seen, expected);
  }
}

/* A list of some indices of a dimension, in any order of runs. */
static struct sf_index_dim draw_dim(struct sf_pcg *pcg, int64_t size, struct sf_index_run *runs) {
  struct sf_index_dim dim = {.size = size, .runs = runs};
  if (sf_pcg_below(pcg, 3) == 0) {
    runs[dim.count++] = (struct sf_index_run){.len = size};
    return dim;
  }
  for (int64_t at = 0; at < size;) {
    const int64_t len = 1 + (int64_t)sf_pcg_below(pcg, 4);
    const int64_t fits = len < size - at ? len : size - at;
    if (sf_pcg_below(pcg, 3) > 0)
      runs[dim.count++] = (struct sf_index_run){at, fits, 0, sf_pcg_below(pcg, 4) == 0 ? (int64_t)sf_pcg_below(pcg, 3) : 0};
    at += fits;
  }
  if (sf_pcg_below(pcg, 2) == 0 && dim.count > 1) {
    const struct sf_index_run first = runs[0];
    runs[0] = runs[dim.count - 1];
    runs[dim.count - 1] = first;
  }
  return dim;
}

static void test_piece_segments_random_maps_agree_with_plain_enumeration(void **state) {
  (void)state;
  static struct plain plain;
  static struct sf_index_run runs[4][64];
  struct sf_pcg pcg = sf_pcg_create(7, 1);
  int64_t flat_seen = 0, held = 0;

  for (int trial = 0; trial < 3000; trial++) {
    struct sf_arena *arena = sf_arena_create(1 << 14, true);
    struct sf_index_dim dims[4];
    int64_t shape[4] = {0}, elements = 1;
    struct sf_st_entry entry = {.dtype = SF_F32};
    struct sf_piece_source source = {
        .rank = 3, .dim_count = 1 + (int32_t)sf_pcg_below(&pcg, 4), .shape = shape, .dims = dims, .entry = &entry};
    for (int32_t d = 0; d < source.dim_count; d++) {
      shape[d] = 1 + (int64_t)sf_pcg_below(&pcg, 8);
      elements *= shape[d];
      dims[d] = draw_dim(&pcg, shape[d], runs[d]);
    }
    plain_create(&plain, &source);
    entry.dim_count = source.dim_count;
    entry.count = plain.count;
    for (int32_t d = 0; d < source.dim_count; d++)
      for (int32_t i = 0; i < dims[d].count; i++) entry.dims[d] += dims[d].runs[i].len;
    if (plain.box > 0 && sf_pcg_below(&pcg, 2) == 0) {
      source.flat = true;
      source.first = (int64_t)sf_pcg_below(&pcg, (uint64_t)plain.box);
      source.count = (int64_t)sf_pcg_below(&pcg, (uint64_t)(plain.box - source.first) + 1);
      plain_create(&plain, &source);
      entry.dim_count = 1;
      entry.dims[0] = entry.count = plain.count;
      flat_seen++;
    }
    struct sf_piece *piece = NULL;
    const char *reason = "";
    if (sf_piece_create(&piece, &source, arena, &reason) != SF_OK) fail_msg("trial %d: %s", trial, reason);
    assert_false(piece->overlaps);
    assert_int_equal(piece->count, plain.count);
    check_range(piece, &plain, 0, elements);
    for (int k = 0; k < 4; k++) {
      const int64_t begin = (int64_t)sf_pcg_below(&pcg, (uint64_t)elements);
      check_range(piece, &plain, begin, begin + 1 + (int64_t)sf_pcg_below(&pcg, (uint64_t)(elements - begin)));
    }
    held += plain.count;
    sf_arena_destroy(arena);
  }
  assert_true(flat_seen > 500 && held > 10000);
}

static void test_piece_create_wrong_lists_are_refused_with_a_reason(void **state) {
  (void)state;
  const struct {
    struct sf_index_run run;
    bool flat;
    int64_t first, count, data;
    const char *reason;
  } table[] = {
      {{-1, 2, 0, 0}, false, 0, 0, 2, "leaves the shape"},
      {{7, 2, 0, 0}, false, 0, 0, 2, "leaves the shape"},
      {{0, -1, 0, 0}, false, 0, 0, 2, "leaves the shape"},
      {{0, INT64_MAX, 0, 0}, false, 0, 0, 2, "leaves the shape"},
      {{INT64_MAX, 1, 0, 0}, false, 0, 0, 2, "leaves the shape"},
      {{0, 4, 0, 0}, false, 0, 0, 3, "differ in shape"},
      {{0, 4, 0, 0}, true, 3, 2, 2, "leaves the box"},
      {{0, 4, 0, 0}, true, -1, 2, 2, "leaves the box"},
      {{0, 4, 0, 0}, true, 1, INT64_MAX, 2, "leaves the box"},
      {{0, 4, 0, 0}, true, 1, 2, 3, "differ in size"},
      {{0, 4, 0, -1}, false, 0, 0, 4, "leaves the shape"},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    struct sf_arena *arena = sf_arena_create(1 << 12, true);
    struct sf_index_run run = table[i].run;
    const struct sf_index_dim dim = {.count = 1, .runs = &run};
    const int64_t shape = 8;
    const struct sf_st_entry entry = {.dtype = SF_F32, .dim_count = 1, .dims = {table[i].data}, .count = table[i].data};
    const struct sf_piece_source source = {.dim_count = 1,
                                           .shape = &shape,
                                           .dims = &dim,
                                           .flat = table[i].flat,
                                           .first = table[i].first,
                                           .count = table[i].count,
                                           .entry = &entry};
    struct sf_piece *piece = NULL;
    const char *reason = "";
    assert_int_equal(sf_piece_create(&piece, &source, arena, &reason), SF_EINPUT);
    if (strstr(reason, table[i].reason) == NULL) fail_msg("row %zu: %s", i, reason);
    assert_null(piece);
    sf_arena_destroy(arena);
  }
}

static void test_piece_create_index_named_twice_overlaps(void **state) {
  (void)state;
  struct sf_arena *arena = sf_arena_create(1 << 12, true);
  struct sf_index_run runs[2] = {{2, 3, 0, 0}, {0, 3, 0, 0}};
  const struct sf_index_dim dim = {.count = 2, .runs = runs};
  const int64_t shape = 8;
  const struct sf_st_entry entry = {.dtype = SF_F32, .dim_count = 1, .dims = {6}, .count = 6};
  const struct sf_piece_source source = {.dim_count = 1, .shape = &shape, .dims = &dim, .entry = &entry};
  struct sf_piece *piece = NULL;
  const char *reason = "";
  assert_int_equal(sf_piece_create(&piece, &source, arena, &reason), SF_OK);
  assert_true(piece->overlaps);
  sf_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_piece_segments_random_maps_agree_with_plain_enumeration),
      cmocka_unit_test(test_piece_create_wrong_lists_are_refused_with_a_reason),
      cmocka_unit_test(test_piece_create_index_named_twice_overlaps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
