#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/pcg.h"
#include "harness/tensor/consistent.h"
#include "tests/shard_copy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* --- goldens: corpus/golden/make_consistent.py, a second implementation -------------------------------------------- */

static int check_golden_line(const char *line) {
  uint64_t a, b, c, want64;
  uint32_t want, scale, offset;
  unsigned dist;
  char dtype[8];
  if (sscanf(line, "key,%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64, &a, &b, &c, &want64) == 4) {
    assert_true(sf_fill_key((int64_t)a, b, c) == want64);
    return 0;
  }
  if (sscanf(line, "draw,%" SCNu64 ",%u,%" SCNu64 ",%" SCNx32, &a, &dist, &b, &want) == 4) {
    if (bits_of(sf_draw_value(a, (enum sf_value_dist)dist, b)) != want) fail_msg("%s", line);
    return 1;
  }
  if (sscanf(line, "fill,%" SCNu64 ",%u,%" SCNx32 ",%" SCNx32 ",%7[a-z0-9],%" SCNu64 ",%" SCNx32, &a, &dist, &scale, &offset, dtype, &b,
             &want) == 7) {
    const struct sf_fill fill = {.key = a,
                                 .dist = (enum sf_value_dist)dist,
                                 .scale = float_of(scale),
                                 .offset = float_of(offset),
                                 .dtype = strcmp(dtype, "bf16") == 0 ? SF_BF16 : SF_F32};
    float got;
    sf_fill_range(&got, &fill, (int64_t)b, 1);
    if (bits_of(got) != want) fail_msg("%s", line);
    return 2;
  }
  fail_msg("a line that is not understood: %s", line);
  return 3;
}

static void test_draw_value_golden_lines_match(void **state) {
  (void)state;
  int counts[3] = {0};
  char line[256];
  FILE *file = fopen("corpus/golden/consistent.csv", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file) != NULL) counts[check_golden_line(line)]++;
  fclose(file);
  assert_int_equal(counts[0], 4);
  assert_int_equal(counts[1], 810);
  assert_int_equal(counts[2], 1440);
}

/* --- distributions -------------------------------------------------------------------------------------------------- */

static void test_fill_range_moments_are_as_documented(void **state) {
  (void)state;
  static const struct {
    double mean, variance, largest;
  } table[SF_DIST_COUNT] = {
      [SF_DIST_NORMAL] = {0, 1.0027, 3.47},  [SF_DIST_UNIFORM] = {0, 1.0027, 1.7345},
      [SF_DIST_HEAVY] = {0, 1.0056, 22.75},  [SF_DIST_OUTLIERS] = {0, 4.9961 * 1.0027, 111.1},
      [SF_DIST_OFFSET] = {8, 1.0027, 11.47}, [SF_DIST_SPARSE] = {0, 0.897, 10.38},
  };
  enum { COUNT = 1 << 20 };
  float *values = malloc(COUNT * sizeof *values);
  for (int dist = 0; dist < SF_DIST_COUNT; dist++) {
    const struct sf_fill fill = {.key = sf_fill_key(1, 2, (uint64_t)dist), .dist = (enum sf_value_dist)dist, .scale = 1, .dtype = SF_F32};
    sf_fill_range(values, &fill, 0, COUNT);
    double sum = 0, squares = 0, largest = 0;
    for (int i = 0; i < COUNT; i++) sum += values[i];
    const double mean = sum / COUNT;
    for (int i = 0; i < COUNT; i++) {
      squares += (values[i] - mean) * (values[i] - mean);
      largest = fmax(largest, fabs(values[i]));
    }
    if (!(fabs(mean - table[dist].mean) < 0.012)) fail_msg("distribution %d: mean %g", dist, mean);
    if (!(fabs(squares / COUNT / table[dist].variance - 1) < 0.04)) fail_msg("distribution %d: variance %g", dist, squares / COUNT);
    if (!(largest <= table[dist].largest)) fail_msg("distribution %d: largest %g", dist, largest);
  }
  free(values);
}

static void test_fill_range_sparse_has_one_in_ten_nonzero(void **state) {
  (void)state;
  enum { COUNT = 100000 };
  int zeros = 0;
  for (uint64_t i = 0; i < COUNT; i++) {
    const float value = sf_draw_value(99, SF_DIST_SPARSE, i);
    zeros += bits_of(value) == 0; /* a negative zero would not count */
  }
  assert_in_range(zeros, 89600, 90400);
}

static void test_fill_range_neighbours_and_keys_are_uncorrelated(void **state) {
  (void)state;
  enum { COUNT = 1 << 18 };
  double neighbours = 0, keys = 0;
  for (uint64_t i = 0; i < COUNT; i++) {
    const double value = sf_draw_value(1, SF_DIST_NORMAL, i);
    neighbours += value * sf_draw_value(1, SF_DIST_NORMAL, i + 1);
    keys += value * sf_draw_value(sf_fill_key(0, 0, 1), SF_DIST_NORMAL, i);
  }
  assert_true(fabs(neighbours / COUNT) < 0.008); /* four standard deviations */
  assert_true(fabs(keys / COUNT) < 0.008);
}

/* --- access ----------------------------------------------------------------------------------------------------------- */

static void test_fill_range_equals_random_access(void **state) {
  (void)state;
  float values[300], block[10000];
  for (int dist = 0; dist < SF_DIST_COUNT; dist++) {
    for (int bf16 = 0; bf16 <= 1; bf16++) {
      const struct sf_fill fill = {
          .key = 77, .dist = (enum sf_value_dist)dist, .scale = 0.375f, .offset = 0.25f, .dtype = bf16 ? SF_BF16 : SF_F32};
      sf_fill_range(values, &fill, 1234567, 300);
      for (int i = 0; i < 300; i++) {
        const float scaled = 0.375f * sf_draw_value(77, fill.dist, (uint64_t)(1234567 + i)), want = sf_round(0.25f + scaled, fill.dtype);
        assert_int_equal(bits_of(values[i]), bits_of(want));
      }
      sf_fill_range(block, &fill, 5, 10000);
      for (int i = 0; i < 10000; i += 613) {
        sf_fill_range(values, &fill, 5 + i, 1);
        assert_int_equal(bits_of(values[0]), bits_of(block[i]));
      }
    }
  }
}

static struct sf_dim_map random_dim(struct sf_pcg *pcg, int64_t size) {
  struct sf_dim_map dim = {0};
  int64_t at = (int64_t)sf_pcg_below(pcg, 3);
  while (at < size && dim.count < SF_RUNS_MAX) {
    const int64_t len = 1 + (int64_t)sf_pcg_below(pcg, 9);
    sf_dim_map_append(&dim, at, at + len <= size ? len : size - at, sf_pcg_below(pcg, 3) == 0);
    at += len + (int64_t)sf_pcg_below(pcg, 4);
  }
  if (sf_pcg_below(pcg, 3) == 0) dim = sf_dim_map_whole(size);
  return dim;
}

static bool is_partial(const struct sf_dim_map *dim, int64_t local) {
  int32_t i = 0;
  while (local >= dim->runs[i].len) local -= dim->runs[i++].len;
  return dim->runs[i].partial;
}

static void test_fill_shard_random_maps_see_the_same_tensor(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(3, 4);
  static float whole[64 * 64], from_whole[64 * 64], local[64 * 64];
  for (int round = 0; round < 1500; round++) {
    const struct sf_shape shape = {1 + (int64_t)sf_pcg_below(&pcg, 64), 1 + (int64_t)sf_pcg_below(&pcg, 64)};
    const struct sf_shard_map map = {.rows = random_dim(&pcg, shape.rows), .cols = random_dim(&pcg, shape.cols)};
    const struct sf_fill fill = {.key = sf_pcg_next(&pcg),
                                 .dist = (enum sf_value_dist)sf_pcg_below(&pcg, SF_DIST_COUNT),
                                 .scale = 0.5f,
                                 .offset = 1.0f,
                                 .dtype = round % 2 ? SF_BF16 : SF_F32};
    const int64_t width = sf_dim_map_length(&map.cols), count = sf_dim_map_length(&map.rows) * width;
    sf_fill_range(whole, &fill, 0, shape.rows * shape.cols);
    shard_gather(from_whole, whole, shape, &map);
    sf_fill_shard(local, &fill, shape, &map, 0);
    assert_memory_equal(local, from_whole, (size_t)count * sizeof(float));
    sf_fill_shard(local, &fill, shape, &map, SF_AXES(SF_AXIS_TP));
    for (int64_t i = 0; i < count; i++) {
      const bool zero = is_partial(&map.rows, i / width) || is_partial(&map.cols, i % width);
      assert_int_equal(bits_of(local[i]), zero ? 0 : bits_of(from_whole[i]));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_draw_value_golden_lines_match),
      cmocka_unit_test(test_fill_range_moments_are_as_documented),
      cmocka_unit_test(test_fill_range_sparse_has_one_in_ten_nonzero),
      cmocka_unit_test(test_fill_range_neighbours_and_keys_are_uncorrelated),
      cmocka_unit_test(test_fill_range_equals_random_access),
      cmocka_unit_test(test_fill_shard_random_maps_see_the_same_tensor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
