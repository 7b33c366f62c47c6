/* Random bits of stochastic rounding: a second implementation's, the same for every shard, and uniform. */
#include "harness/tensor/rounding_bits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sf_catalog *catalog_of_seed(int64_t seed) {
  struct sf_case c;
  sf_case_init(&c);
  c.seed = seed;
  c.model.hidden = 16;
  c.model.ffn = 64;
  struct sf_catalog *catalog;
  assert_int_equal(sf_catalog_create(&catalog, &c), SF_OK);
  return catalog;
}

static int32_t param_named(const struct sf_catalog *catalog, const char *name) {
  for (int32_t p = 0; p < catalog->param_count; p++)
    if (strcmp(catalog->params[p].name, name) == 0) return p;
  fail_msg("no parameter %s", name);
  return -1;
}

/* corpus/golden/make_rounding_bits.py */
static void test_rounding_bits_golden_lines_match(void **state) {
  (void)state;
  char line[256], name[128];
  int64_t seed, step, index;
  unsigned want;
  int lines = 0;
  FILE *file = fopen("corpus/golden/rounding_bits.csv", "r");
  assert_non_null(file);
  for (; fgets(line, sizeof line, file) != NULL; lines++) {
    assert_int_equal(sscanf(line, "%" SCNd64 ",%" SCNd64 ",%127[^,],%" SCNd64 ",%x", &seed, &step, name, &index, &want), 5);
    struct sf_catalog *catalog = catalog_of_seed(seed);
    uint16_t got;
    sf_rounding_bits_range(&got, sf_rounding_key(catalog, param_named(catalog, name), step), index, 1);
    if (got != want) fail_msg("%04x for %s", got, line);
    sf_catalog_destroy(catalog);
  }
  fclose(file);
  assert_int_equal(lines, 108);
}

static void test_rounding_bits_of_shards_are_those_of_the_whole(void **state) {
  (void)state;
  const struct sf_shape shape = {24, 10};
  uint16_t whole[240], local[240], merged[240] = {0};
  sf_rounding_bits_range(whole, 77, 0, 240);
  for (int64_t part = 0; part < 4; part++) {
    struct sf_shard_map map = {0};
    sf_dim_map_append(&map.rows, 3 * part, 3, 0);
    sf_dim_map_append(&map.rows, 12 + 3 * (3 - part), 3, 0);
    sf_dim_map_append(&map.cols, 5, 5, 0);
    sf_dim_map_append(&map.cols, 0, 5, 0);
    sf_rounding_bits_shard(local, 77, shape, &map);
    const uint16_t *next = local;
    for (int32_t r = 0; r < map.rows.count; r++)
      for (int64_t row = map.rows.runs[r].start; row < map.rows.runs[r].start + map.rows.runs[r].len; row++)
        for (int32_t k = 0; k < 2; k++, next += 5) memcpy(&merged[row * 10 + map.cols.runs[k].start], next, 5 * sizeof *next);
  }
  assert_memory_equal(merged, whole, sizeof whole);
}

/* Each of the 256 upper bytes as often as the others, the mean of the middle, each bit half the time, neighbours independent. */
static void test_rounding_bits_are_uniform(void **state) {
  (void)state;
  enum { COUNT = 1 << 20 };
  struct sf_catalog *catalog = catalog_of_seed(5);
  uint16_t *bits = malloc(COUNT * sizeof *bits);
  assert_non_null(bits);
  for (int64_t step = 0; step < 3; step++) {
    sf_rounding_bits_range(bits, sf_rounding_key(catalog, 1, step), 0, COUNT);
    double mean = 0, product = 0, chi = 0;
    int64_t bytes[256] = {0}, ones[16] = {0};
    for (int64_t i = 0; i < COUNT; i++) {
      const double x = (double)bits[i] / 65536 - 0.5 + 0x1p-17, next = (double)bits[(i + 1) % COUNT] / 65536 - 0.5 + 0x1p-17;
      mean += x, product += x * next;
      bytes[bits[i] >> 8]++;
      for (int b = 0; b < 16; b++) ones[b] += bits[i] >> b & 1;
    }
    for (int b = 0; b < 256; b++) chi += pow((double)bytes[b] - COUNT / 256, 2) / (COUNT / 256);
    assert_true(fabs(mean) < 4 * sqrt(COUNT / 12.0));
    assert_true(fabs(product) < 4 * sqrt(COUNT / 144.0));
    assert_true(chi > 255 - 5 * sqrt(510) && chi < 255 + 5 * sqrt(510));
    for (int b = 0; b < 16; b++) assert_true(llabs(ones[b] - COUNT / 2) < 4 * 512);
  }
  free(bits);
  sf_catalog_destroy(catalog);
}

static void test_rounding_key_differs_by_seed_step_and_parameter(void **state) {
  (void)state;
  struct sf_catalog *a = catalog_of_seed(5), *b = catalog_of_seed(6);
  uint64_t keys[64];
  int count = 0;
  for (int32_t p = 0; p < 4; p++)
    for (int64_t step = 0; step < 3; step++) {
      keys[count++] = sf_rounding_key(a, p, step);
      keys[count++] = sf_rounding_key(b, p, step);
    }
  for (int i = 0; i < count; i++)
    for (int k = 0; k < i; k++) assert_true(keys[i] != keys[k]);
  sf_catalog_destroy(a);
  sf_catalog_destroy(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rounding_bits_golden_lines_match),
      cmocka_unit_test(test_rounding_bits_of_shards_are_those_of_the_whole),
      cmocka_unit_test(test_rounding_bits_are_uniform),
      cmocka_unit_test(test_rounding_key_differs_by_seed_step_and_parameter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
