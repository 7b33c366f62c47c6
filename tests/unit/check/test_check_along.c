/* The rule on the part of an error that lies along a tensor, and noise files with and without its level. */
#include "tests/unit/check/check_fixture.h"

#include "tests/st_values.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 48, ALL = SIDE * SIDE, FORMAT_1_HEAD = 3 };
#define DELTA "s0/mb0/step/param_delta/w/0"

/* Numbers that look drawn from a normal distribution: the same for the same seed. */
static double normal_of(uint64_t *seed) {
  double sum = -6;
  for (int i = 0; i < 12; i++) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    sum += (double)(*seed >> 11) * 0x1p-53;
  }
  return sum;
}

/* times the reference, each element off by some 2^-9 of it. */
static void noisy(float *out, double times, uint64_t seed) {
  uint64_t of_reference = 1;
  for (int i = 0; i < ALL; i++) {
    const double x = normal_of(&of_reference);
    out[i] = (float)(x * (times + (seed ? 0x1p-9 * normal_of(&seed) : 0)));
  }
}

static void trace_write(const char *dir, const char *folder, const char *mode, double times, uint64_t seed) {
  float *x = malloc(ALL * sizeof *x);
  noisy(x, times, seed);
  rank_write(dir, folder, 0, 1, mode, &(struct part){ACT, SF_F32, 2, {SIDE, SIDE}, x, NULL}, 1);
  free(x);
}

/* A reference with noise of so many draws. */
static void reference_write(const char *dir, const char *mode, int draws) {
  struct sf_trace_set reference, sets[32];
  char path[400], name[16];
  struct sf_error error = {SF_OK, ""};
  trace_write(dir, "ref", mode, 1, 0);
  reference = set_open(dir, "ref");
  for (int i = 0; i < draws; i++) {
    snprintf(name, sizeof name, "draw%d", i);
    trace_write(dir, name, mode, 1, 100 + (uint64_t)i);
    sets[i] = set_open(dir, name);
  }
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", dir);
  if (sf_noise_make(path, &reference, &(struct sf_noise_draws){.sets = sets, .count = draws}, &error) != SF_OK) fail_msg("%s", error.text);
  for (int i = 0; i < draws; i++) sf_trace_set_close(&sets[i]);
  sf_trace_set_close(&reference);
}

static bool finds(const char *dir, const char *mode, double times, char text[200]) {
  struct judged j;
  trace_write(dir, "candidate", mode, times, 7);
  judged_open(&j, dir, "candidate");
  const bool found = j.report.findings > 0;
  if (text) snprintf(text, 200, "%s", j.report.results[0].text);
  judged_close(&j);
  return found;
}

static void test_check_small_factor_is_found_by_24_draws_of_whole_runs(void **state) {
  char text[200];
  reference_write(*state, "e2e", 24);
  assert_false(finds(*state, "e2e", 1, NULL));
  assert_false(finds(*state, "e2e", 1.0001, NULL));
  assert_true(finds(*state, "e2e", 1.003, text));
  if (strstr(text, "scaled by about 1.003: along the reference") == NULL) fail_msg("%s", text);
  assert_true(finds(*state, "e2e", 0.997, NULL));
  assert_true(finds(*state, "e2e", 1.1, text));
  if (strstr(text, "error norm") == NULL) fail_msg("%s", text); /* the distance is enough */
}

static void test_check_small_factor_is_not_judged_by_few_draws(void **state) {
  reference_write(*state, "e2e", 23);
  assert_false(finds(*state, "e2e", 1.003, NULL));
  assert_true(finds(*state, "e2e", 1.1, NULL));
}

static void test_check_small_factor_is_not_judged_module_by_module(void **state) {
  reference_write(*state, "isolated", 24);
  assert_false(finds(*state, "isolated", 1.003, NULL));
}

static void test_noise_make_level_along_is_that_of_the_format(void **state) {
  const char *dir = *state;
  char path[400];
  double numbers[SF_NOISE_ROWS + SIDE], norm = 0, fourths = 0, along = 0, apart = 0;
  float *x = malloc(ALL * sizeof *x), *d = malloc(ALL * sizeof *d);
  struct sf_st_file file;
  reference_write(dir, "e2e", 12);
  noisy(x, 1, 0);
  for (int i = 0; i < ALL; i++) norm += (double)x[i] * (double)x[i], fourths += pow((double)x[i], 4);
  for (int k = 0; k < 12; k++) {
    double dot = 0, squares = 0;
    noisy(d, 1, 100 + (uint64_t)k);
    for (int i = 0; i < ALL; i++) {
      const double off = (double)d[i] - (double)x[i];
      dot += off * (double)x[i];
      squares += off * off;
    }
    along = fmax(along, fabs(dot) / sqrt(norm));
    apart = fmax(apart, sqrt(squares));
  }
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", dir);
  assert_int_equal(sf_st_read(&file, path, NULL), SF_OK);
  st_load_f64(numbers, sf_st_find(&file, ACT));
  assert_true(fabs(numbers[SF_NOISE_ALONG] / fmax(along, apart * sqrt(fourths) / norm) - 1) < 1e-5);
  sf_st_destroy(&file);
  free(x), free(d);
}

/* Writes the noise file as format 1 had it. */
static void downgrade(const char *path) {
  enum { LENGTH = FORMAT_1_HEAD + SIDE };
  struct sf_st_file file;
  double numbers[SF_NOISE_ROWS + SIDE];
  char header[400];
  assert_int_equal(sf_st_read(&file, path, NULL), SF_OK);
  st_load_f64(numbers, sf_st_find(&file, ACT));
  sf_st_destroy(&file);
  memmove(&numbers[FORMAT_1_HEAD], &numbers[SF_NOISE_ROWS], SIDE * sizeof *numbers);
  snprintf(header, sizeof header,
           "{\"__metadata__\":{\"shardfuzz\":\"{\\\"format\\\": 1, \\\"draws\\\": 24}\"},\"" ACT
           "\":{\"dtype\":\"F64\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
           LENGTH, LENGTH * 8);
  const uint64_t bytes = (strlen(header) + 7) / 8 * 8;
  FILE *out = fopen(path, "wb");
  fwrite(&bytes, sizeof bytes, 1, out);
  fprintf(out, "%-*s", (int)bytes, header);
  fwrite(numbers, sizeof *numbers, LENGTH, out);
  fclose(out);
}

static void test_check_noise_files_of_format_1_are_read(void **state) {
  char path[400];
  reference_write(*state, "e2e", 24);
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", (char *)*state);
  downgrade(path);
  assert_false(finds(*state, "e2e", 1, NULL));
  assert_false(finds(*state, "e2e", 1.003, NULL)); /* nothing says how far rounding moves it along itself */
  assert_true(finds(*state, "e2e", 1.1, NULL));
}

/* A draw whose change of one row jumped says that another row's may. */
static void test_noise_make_a_change_may_jump_in_any_row(void **state) {
  const char *dir = *state;
  static const char *const draws[] = {"draw"};
  float x[COUNT], d[COUNT];
  struct judged j;
  for (int i = 0; i < COUNT; i++) x[i] = d[i] = i % 3 ? 1e-3f : -1e-3f;
  d[2] = 0;
  const struct part reference = act_part(DELTA, x), draw = act_part(DELTA, d);
  rank_write(dir, "ref", 0, 1, "e2e", &reference, 1);
  rank_write(dir, "draw", 0, 1, "e2e", &draw, 1);
  assert_int_equal(noise_make(dir, draws, 1, NULL), SF_OK);
  d[2] = x[2], d[3 * COLS + 1] = -x[3 * COLS + 1], d[3 * COLS + 5] = -x[3 * COLS + 5];
  rank_write(dir, "jump", 0, 1, "e2e", &draw, 1);
  judged_open(&j, dir, "jump");
  assert_int_equal(j.report.findings, 0);
  judged_close(&j);
  for (int i = 0; i < COUNT; i++) d[i] = -x[i];
  rank_write(dir, "wrong", 0, 1, "e2e", &draw, 1);
  judged_open(&j, dir, "wrong");
  assert_int_equal(j.report.findings, 1);
  judged_close(&j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_check_small_factor_is_found_by_24_draws_of_whole_runs),
      FOLDER_TEST(test_check_small_factor_is_not_judged_by_few_draws),
      FOLDER_TEST(test_check_small_factor_is_not_judged_module_by_module),
      FOLDER_TEST(test_noise_make_level_along_is_that_of_the_format),
      FOLDER_TEST(test_check_noise_files_of_format_1_are_read),
      FOLDER_TEST(test_noise_make_a_change_may_jump_in_any_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
