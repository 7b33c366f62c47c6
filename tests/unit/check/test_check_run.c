#include "tests/unit/check/check_fixture.h"

#include "harness/check/merge.h"
#include "tests/st_values.h"

#include <math.h>

/* Judges DIR/FOLDER; the first finding, or a result that is not flagged. */
static enum sf_verdict judge(struct sf_check_result *first, char *name, const char *dir, const char *folder) {
  struct judged j;
  judged_open(&j, dir, folder);
  const struct sf_check_report *report = &j.report;
  *first = report->results[report->culprit_count > 0 ? report->culprits[0].result : 0];
  strcpy(name, first->tensor->text);
  first->tensor = NULL;
  const enum sf_verdict verdict = report->verdict;
  assert_int_equal(report->judged + report->not_judged, report->result_count);
  judged_close(&j);
  return verdict;
}

static void assert_finding(const char *dir, const char *folder, enum sf_finding_class cls, const char *name, const char *word) {
  struct sf_check_result first;
  char seen[200];
  const enum sf_verdict verdict = judge(&first, seen, dir, folder);
  if (verdict != SF_VERDICT_FINDING || first.cls != cls) fail_msg("%s: verdict %d, class %d: %s", folder, verdict, first.cls, first.text);
  assert_string_equal(seen, name);
  if (strstr(first.text, word) == NULL) fail_msg("no '%s' in '%s'", word, first.text);
}

static void assert_passes(const char *dir, const char *folder) {
  struct sf_check_result first;
  char name[200];
  const enum sf_verdict verdict = judge(&first, name, dir, folder);
  if (verdict != SF_VERDICT_PASS) fail_msg("%s: verdict %d: %s %s", folder, verdict, name, first.text);
}

static void test_noise_make_numbers_are_those_of_the_format(void **state) {
  char path[300];
  float x[COUNT], d[COUNT];
  double w[ROWS], norm_squares = 0, apart_squares = 0, rolled_squares = 0, w_squares = 0, numbers[SF_NOISE_ROWS + ROWS];
  struct sf_st_file file;
  act_reference(*state);
  fill(x, 0);
  fill(d, 1);
  for (int r = 0; r < ROWS; r++) {
    double row_norm = 0, row_apart = 0;
    for (int c = 0; c < COLS; c++) {
      const double v = (double)x[r * COLS + c], apart = (double)d[r * COLS + c] - v,
                   rolled = v - (double)x[(r + ROWS - 1) % ROWS * COLS + c];
      row_norm += v * v;
      row_apart += apart * apart;
      rolled_squares += rolled * rolled;
    }
    norm_squares += row_norm;
    apart_squares += row_apart;
    w[r] = fmax(sqrt(row_apart), 0x1p-24 * sqrt(row_norm));
    w_squares += w[r] * w[r];
  }
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", (char *)*state);
  assert_int_equal(sf_st_read(&file, path, NULL), SF_OK);
  const struct sf_st_entry *entry = sf_st_find(&file, ACT);
  assert_int_equal(entry->count, SF_NOISE_ROWS + ROWS);
  st_load_f64(numbers, entry);
  assert_true(fabs(numbers[0] / sqrt(norm_squares) - 1) < 1e-12);
  assert_true(fabs(numbers[1] / sqrt(apart_squares) - 1) < 1e-12);
  assert_true(fabs(numbers[2] / sqrt(rolled_squares) - 1) < 1e-12);
  for (int r = 0; r < ROWS; r++) {
    const double level = fmax(w[r] + 0.5 * sqrt(w_squares / ROWS), 0x1p-24 * sqrt(norm_squares / ROWS));
    assert_true(fabs(numbers[SF_NOISE_ROWS + r] / level - 1) < 1e-12);
  }
  assert_non_null(strstr(sf_st_meta(&file, "shardfuzz"), "\"draws\": 1"));
  sf_st_destroy(&file);
}

/* Tensors longer than a block, in rows and in one row, give the numbers that their parts add up to. */
static void test_noise_make_long_rows_and_vectors_stream(void **state) {
  enum { LONG = SF_BLOCK_ELEMENTS + 777 };
  char path[300];
  static float x[2 * LONG], d[2 * LONG];
  double norm[2] = {0, 0}, apart[2] = {0, 0}, rolled = 0, vector_rolled = 0, numbers[SF_NOISE_ROWS + 2];
  static const char *const draws[] = {"draw"};
  for (int i = 0; i < 2 * LONG; i++) {
    x[i] = (float)(i % 1013) - 500;
    d[i] = x[i] + (float)(i % 11) * 0x1p-10f;
    norm[i / LONG] += (double)x[i] * (double)x[i];
    apart[i / LONG] += ((double)d[i] - (double)x[i]) * ((double)d[i] - (double)x[i]);
  }
  for (int i = 0; i < 2 * LONG; i++) {
    const double row = (double)x[i] - (double)x[(i + LONG) % (2 * LONG)], one = (double)x[i] - (double)x[(i + 2 * LONG - 1) % (2 * LONG)];
    rolled += row * row;
    vector_rolled += one * one;
  }
  const struct part reference[2] = {{ACT, SF_F32, 2, {2, LONG}, x, NULL}, {WGRAD, SF_F32, 1, {2 * LONG}, x, NULL}};
  const struct part draw[2] = {{ACT, SF_F32, 2, {2, LONG}, d, NULL}, {WGRAD, SF_F32, 1, {2 * LONG}, d, NULL}};
  rank_write(*state, "ref", 0, 1, "e2e", reference, 2);
  rank_write(*state, "draw", 0, 1, "e2e", draw, 2);
  assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", (char *)*state);
  struct sf_st_file file;
  assert_int_equal(sf_st_read(&file, path, NULL), SF_OK);
  st_load_f64(numbers, sf_st_find(&file, ACT));
  const double w_rms = sqrt((apart[0] + apart[1]) / 2);
  assert_true(fabs(numbers[0] / sqrt(norm[0] + norm[1]) - 1) < 1e-9);
  assert_true(fabs(numbers[1] / sqrt(apart[0] + apart[1]) - 1) < 1e-9);
  assert_true(fabs(numbers[2] / sqrt(rolled) - 1) < 1e-6);
  for (int r = 0; r < 2; r++) assert_true(fabs(numbers[SF_NOISE_ROWS + r] / (sqrt(apart[r]) + 0.5 * w_rms) - 1) < 1e-9);
  st_load_f64(numbers, sf_st_find(&file, WGRAD));
  assert_true(fabs(numbers[2] / sqrt(vector_rolled) - 1) < 1e-6);
  assert_true(fabs(numbers[SF_NOISE_ROWS] / (1.5 * numbers[1]) - 1) < 1e-9);
  sf_st_destroy(&file);
  assert_passes(*state, "draw");
  x[LONG + 30000] += 20;
  rank_write(*state, "bad", 0, 1, "e2e", reference, 2);
  assert_finding(*state, "bad", SF_CLASS_TOLERANCE, ACT,
                 "error norm 20, reference norm 7.59e+04 (0.0264 %); rounding explains at most 1.5");
}

static void test_check_run_within_noise_passes_beyond_is_a_finding(void **state) {
  float c[COUNT] = {0};
  struct part part = act_part(ACT, c);
  act_reference(*state);
  fill(c, -2); /* two noise levels */
  rank_write(*state, "c", 0, 1, "e2e", &part, 1);
  assert_passes(*state, "c");
  fill(c, 3.5f);
  rank_write(*state, "c", 0, 1, "e2e", &part, 1);
  assert_finding(*state, "c", SF_CLASS_TOLERANCE, ACT,
                 "error norm 1.53e-05, reference norm 11.3 (0.000136 %); rounding explains at most 4.4e-06");
}

/* One row off by five of its own levels, which end to end is too much and isolated is not. */
static void test_check_run_row_has_a_factor_of_its_own(void **state) {
  float c[COUNT] = {0}, x[COUNT], d[COUNT];
  struct part part = act_part(ACT, c);
  static const char *const draws[] = {"draw"};
  fill(x, 0);
  fill(d, 0);
  for (int i = 0; i < COUNT; i++) d[i] += i < COLS ? 0x1p-10f : 0x1p-18f; /* row 0 has most of the noise */
  const struct part reference = act_part(ACT, x), draw = act_part(ACT, d);
  rank_write(*state, "ref", 0, 1, "e2e", &reference, 1);
  rank_write(*state, "draw", 0, 1, "isolated", &draw, 1);
  rank_write(*state, "draw-e2e", 0, 1, "e2e", &draw, 1);
  fill(c, 0);
  for (int i = 0; i < COLS; i++) c[2 * COLS + i] += 0x1p-10f * 0.25f * 5;
  for (int isolated = 0; isolated < 2; isolated++) {
    static const char *const e2e[] = {"draw-e2e"};
    struct sf_check_result first;
    char name[200];
    assert_int_equal(noise_make(*state, isolated ? draws : e2e, 1, NULL), SF_OK);
    rank_write(*state, "c", 0, 1, isolated ? "isolated" : "e2e", &part, 1);
    const enum sf_verdict verdict = judge(&first, name, *state, "c");
    assert_int_equal(verdict, isolated ? SF_VERDICT_PASS : SF_VERDICT_FINDING);
    assert_true(first.row_ratio > 4.9 && first.row_ratio < 5.01);
    assert_int_equal(first.row, 2);
  }
}

static double margin_of(const char *dir, const char *folder) {
  struct judged j;
  judged_open(&j, dir, folder);
  const double margin = sf_check_report_margin(&j.report);
  judged_close(&j);
  return margin;
}

/* A bound is three noise levels; what replicas show needs none. */
static void test_check_report_margin_is_by_how_much_bounds_may_widen(void **state) {
  float c[COUNT] = {0}, other[COUNT];
  struct part part = act_part(ACT, c);
  act_reference(*state);
  fill(c, -2);
  rank_write(*state, "c", 0, 1, "e2e", &part, 1);
  assert_true(margin_of(*state, "c") == INFINITY);
  fill(c, 12);
  rank_write(*state, "c", 0, 1, "e2e", &part, 1);
  const double margin = margin_of(*state, "c");
  if (!(fabs(margin - 4) < 0.05)) fail_msg("margin %g", margin);
  fill(c, 0);
  fill(other, 0);
  other[0] += 1;
  const struct part replica = act_part(ACT, other);
  rank_write(*state, "twice", 0, 2, "e2e", &part, 1);
  rank_write(*state, "twice", 1, 2, "e2e", &replica, 1);
  assert_finding(*state, "twice", SF_CLASS_CONFLICT, ACT, "");
  assert_true(margin_of(*state, "twice") == INFINITY);
}

static void test_check_run_structure_is_found_before_numbers(void **state) {
  float c[COUNT] = {0}, half[COUNT];
  struct part part = act_part(ACT, c);
  act_reference(*state);
  fill(c, 0);
  fill(half, 0);
  const struct part other = act_part("s0/mb0/fwd/act/other/0", c);
  rank_write(*state, "lacks", 0, 1, "e2e", &other, 1);
  assert_finding(*state, "lacks", SF_CLASS_GAP, ACT, "no rank has this tensor");

  struct part rows = {ACT, SF_F32, 2, {2, COLS}, half, "{\"shape\": [4, 8], \"index\": [[[0, 1], [2, 1]], [[0, 8]]]}"};
  rank_write(*state, "gap", 0, 1, "e2e", &rows, 1);
  assert_finding(*state, "gap", SF_CLASS_GAP, ACT, "16 of 32 elements are held by no rank, the first at [1, 0]");

  rows.map = "{\"shape\": [4, 8], \"index\": [[[1, 1], [1, 1]], [[0, 8]]]}";
  rank_write(*state, "overlap", 0, 1, "e2e", &rows, 1);
  assert_finding(*state, "overlap", SF_CLASS_OVERLAP, ACT, "the index of rank 0 names elements twice");

  rows.map = "{\"shape\": [2, 8]}";
  rank_write(*state, "shape", 0, 1, "e2e", &rows, 1);
  assert_finding(*state, "shape", SF_CLASS_MAP, ACT, "its shape is [2, 8], and should be [4, 8]");
  rank_write(*state, "shapes", 0, 2, "e2e", &part, 1);
  rank_write(*state, "shapes", 1, 2, "e2e", &rows, 1);
  assert_finding(*state, "shapes", SF_CLASS_MAP, ACT, "different shapes: rank 0 [4, 8], rank 1 [2, 8]");

  part.dtype = SF_BF16;
  rank_write(*state, "bits", 0, 1, "e2e", &part, 1);
  assert_finding(*state, "bits", SF_CLASS_BITS, ACT, "bf16");
  part.dtype = SF_F32;

  c[11] = NAN;
  c[12] = INFINITY;
  rank_write(*state, "nan", 0, 1, "e2e", &part, 1);
  assert_finding(*state, "nan", SF_CLASS_NONFINITE, ACT, "2 values are NaN or infinite where the reference is finite, the first at [1, 3]");
  c[11] = c[12] = 3e38f; /* its difference to -3e38 is beyond fp32, and no infinity */
  rank_write(*state, "large", 0, 1, "e2e", &part, 1);
  assert_finding(*state, "large", SF_CLASS_TOLERANCE, ACT, "error norm 4.24e+38, reference norm 11.3 (3.76e+37 times)");

  fill(c, 0);
  fill(half, 0);
  half[9] = nextafterf(half[9], 9);
  const struct part replica = act_part(ACT, half);
  rank_write(*state, "conflict", 0, 2, "e2e", &part, 1);
  rank_write(*state, "conflict", 1, 2, "e2e", &replica, 1);
  assert_finding(*state, "conflict", SF_CLASS_CONFLICT, ACT, "replicas on ranks 0 and 1 differ in 1 elements, the first at [1, 1]");
}

/* Nothing has reduced a microbatch's weight gradient yet: its replicas may differ by noise, and no more. */
static void test_check_run_replicas_of_a_wgrad_agree_within_noise(void **state) {
  static const char *const draws[] = {"draw"};
  float x[COUNT], d[COUNT], c[COUNT];
  fill(x, 0);
  fill(d, 1);
  const struct part reference = act_part(WGRAD, x), draw = act_part(WGRAD, d), other = act_part(WGRAD, c);
  rank_write(*state, "ref", 0, 1, "e2e", &reference, 1);
  rank_write(*state, "draw", 0, 1, "e2e", &draw, 1);
  assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
  for (int times = 2; times <= 4; times += 2) {
    fill(c, (float)times);
    rank_write(*state, "c", 0, 2, "e2e", &reference, 1);
    rank_write(*state, "c", 1, 2, "e2e", &other, 1);
    if (times == 2)
      assert_passes(*state, "c");
    else
      assert_finding(*state, "c", SF_CLASS_CONFLICT, WGRAD, "ranks 0 and 1");
  }
}

static void test_check_run_what_proves_nothing_is_not_judged(void **state) {
  static const char *const draws[] = {"draw"};
  static const struct {
    float x, draw, candidate;
    const char *why_not;
  } table[] = {{0, 0, 0, "zero"},
               {0, 0, 1e-30f, NULL},
               {0, 1e-3f, 1e-3f, "zero"},
               {0, 1e-3f, 1e-2f, NULL},
               {1, 1.5f, 7, "ill-conditioned"},
               {1, INFINITY, 7, "ill-conditioned"}, /* a draw that rounding drove to infinity */
               {1, NAN, 7, "ill-conditioned"},
               {0, NAN, 1e-2f, "zero"},
               {1, 1, 1, "values alike"},
               {INFINITY, INFINITY, INFINITY, "reference not finite"}};
  for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
    float x[COUNT], d[COUNT], c[COUNT];
    struct sf_check_result first;
    char name[200];
    for (int i = 0; i < COUNT; i++) x[i] = table[k].x, d[i] = table[k].draw, c[i] = table[k].candidate;
    const struct part parts[3] = {act_part(ACT, x), act_part(ACT, d), act_part(ACT, c)};
    rank_write(*state, "ref", 0, 1, "e2e", &parts[0], 1);
    rank_write(*state, "draw", 0, 1, "e2e", &parts[1], 1);
    rank_write(*state, "c", 0, 1, "e2e", &parts[2], 1);
    assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
    assert_int_equal(judge(&first, name, *state, "c"), table[k].why_not != NULL ? SF_VERDICT_INCONCLUSIVE : SF_VERDICT_FINDING);
    if (table[k].why_not != NULL) assert_string_equal(first.why_not, table[k].why_not);
  }
}

static void test_check_run_single_number_is_judged_against_zero(void **state) {
  const float x = 2, d = 2.0001f, c = 2.0002f, wrong = 2.1f;
  static const char *const draws[] = {"draw"};
  struct part part = {"s0/mb0/step/scalar/loss/0", SF_F32, 0, {0}, &x, NULL};
  rank_write(*state, "ref", 0, 1, "e2e", &part, 1);
  part.values = &d;
  rank_write(*state, "draw", 0, 1, "e2e", &part, 1);
  assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
  part.values = &c;
  rank_write(*state, "c", 0, 1, "e2e", &part, 1);
  assert_passes(*state, "c");
  part.values = &wrong;
  rank_write(*state, "c", 0, 1, "e2e", &part, 1);
  assert_finding(*state, "c", SF_CLASS_TOLERANCE, part.name, "error norm 0.1, reference norm 2 (5 %)");
}

static void test_check_run_gradient_norm_is_that_of_the_candidates_own_gradients(void **state) {
  static const char *const draws[] = {"draw"};
  float x[COUNT], d[COUNT], c[COUNT];
  double squares = 0;
  fill(x, 0);
  fill(d, 1);
  fill(c, 2);
  for (int i = 0; i < COUNT; i++) squares += (double)c[i] * (double)c[i];
  float norm = 4; /* the reference's own is not looked at */
  struct part parts[2] = {act_part(MAIN_GRAD, x), {NORM, SF_F32, 0, {0}, &norm, NULL}};
  rank_write(*state, "ref", 0, 1, "e2e", parts, 2);
  parts[0].values = d;
  rank_write(*state, "draw", 0, 1, "e2e", parts, 2);
  assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
  parts[0].values = c;
  norm = (float)(sqrt(squares) * (1 + 5e-6));
  rank_write(*state, "c", 0, 1, "e2e", parts, 2);
  assert_passes(*state, "c");
  norm = (float)(sqrt(squares) * (1 + 2e-5));
  rank_write(*state, "c", 0, 1, "e2e", parts, 2);
  assert_finding(*state, "c", SF_CLASS_TOLERANCE, NORM, "the norm of the main gradients is");
  norm = (float)sqrt(squares);
  const struct part extra[3] = {parts[0], parts[1], {"s0/mb0/step/main_grad/extra/0", SF_F32, 2, {ROWS, COLS}, c, NULL}};
  rank_write(*state, "c", 0, 1, "e2e", extra, 3);
  assert_finding(*state, "c", SF_CLASS_TOLERANCE, NORM, "the norm of the main gradients is");
}

/* torch's norm of bf16 gradients is a bf16 number. */
static void test_check_run_gradient_norm_in_bf16_may_be_off_by_its_roundings(void **state) {
  float x[COUNT];
  double squares = 0;
  fill(x, 0);
  for (int i = 0; i < COUNT; i++) squares += (double)x[i] * (double)x[i];
  float norm = 4;
  struct part parts[2] = {act_part(MAIN_GRAD, x), {NORM, SF_BF16, 0, {0}, &norm, NULL}};
  rank_write(*state, "ref", 0, 1, "e2e", parts, 2);
  assert_int_equal(noise_make(*state, NULL, 0, NULL), SF_OK);
  norm = (float)(sqrt(squares) * (1 + 0x1p-8));
  rank_write(*state, "c", 0, 1, "e2e", parts, 2);
  assert_passes(*state, "c");
  norm = (float)(sqrt(squares) * (1 + 0x1p-6));
  rank_write(*state, "c", 0, 1, "e2e", parts, 2);
  assert_finding(*state, "c", SF_CLASS_TOLERANCE, NORM, "the norm of the main gradients is");
}

static void test_check_run_recomputed_activation_must_repeat(void **state) {
  float c[COUNT], again[COUNT];
  act_reference(*state);
  fill(c, 1);
  fill(again, 1);
  const struct part parts[2] = {act_part(ACT, c), act_part("s0/mb0/recompute/act/m/0", again)};
  rank_write(*state, "c", 0, 1, "e2e", parts, 2);
  assert_passes(*state, "c");
  c[20] = NAN, again[20] = -NAN; /* the same in a recomputation: no sign of a NaN is promised */
  rank_write(*state, "c", 0, 1, "e2e", parts, 2);
  assert_finding(*state, "c", SF_CLASS_NONFINITE, ACT, "1 values are NaN");
  fill(c, 1);
  fill(again, 1);
  again[20] = nextafterf(again[20], 9);
  rank_write(*state, "c", 0, 1, "e2e", parts, 2);
  assert_finding(*state, "c", SF_CLASS_CONFLICT, parts[1].name, "first in its element 20");
}

static void test_noise_open_wrong_files_are_refused_with_a_reason(void **state) {
  char path[300];
  float x[COUNT];
  struct sf_error error = {SF_OK, ""};
  struct sf_noise_file noise;
  fill(x, 0);
  struct part parts[2] = {act_part(ACT, x), act_part("s0/mb0/fwd/act/n/0", x)};
  act_reference(*state);
  rank_write(*state, "ref", 0, 1, "e2e", parts, 2);
  struct sf_trace_set reference = set_open(*state, "ref");
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", (char *)*state);
  assert_int_equal(sf_noise_open(&noise, path, &reference, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "is not of this reference"));
  unlink(path);
  assert_int_equal(sf_noise_open(&noise, path, &reference, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "shardfuzz noise"));
  sf_trace_set_close(&reference);
}

static void test_noise_make_unfit_draws_are_refused_and_leave_nothing(void **state) {
  static const char *const draws[] = {"draw"};
  char path[300];
  float x[COUNT];
  struct sf_error error = {SF_OK, ""};
  fill(x, 0);
  const struct part reference = act_part(ACT, x);
  const struct part bad[3] = {act_part("s0/mb0/fwd/act/n/0", x),
                              {ACT, SF_F32, 1, {COUNT}, x, NULL},
                              {ACT, SF_F32, 2, {1, COLS}, x, "{\"shape\": [4, 8], \"index\": [[[2, 1]], [[0, 8]]]}"}};
  static const char *const words[] = {"lacks tensor", "its shape is [32], and should be [4, 8]", "no rank holds element 0"};
  rank_write(*state, "ref", 0, 1, "e2e", &reference, 1);
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", (char *)*state);
  for (int i = 0; i < 3; i++) {
    rank_write(*state, "draw", 0, 1, "e2e", &bad[i], 1);
    assert_int_equal(noise_make(*state, draws, 1, &error), SF_EINPUT);
    if (strstr(error.text, words[i]) == NULL) fail_msg("%d: %s", i, error.text);
    assert_int_not_equal(access(path, F_OK), 0);
  }
  int files = 0;
  snprintf(path, sizeof path, "%s/ref", (char *)*state);
  DIR *listing = opendir(path);
  for (struct dirent *entry; (entry = readdir(listing)) != NULL;) files += entry->d_name[0] != '.';
  closedir(listing);
  assert_int_equal(files, 1);
}

/* The tensor's noise level by `count` draws that lie as far from the reference as each other. */
static double level_of(const char *dir, int count, bool first) {
  static const char *const draws[] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"};
  char path[300];
  double numbers[SF_NOISE_ROWS + ROWS];
  struct sf_st_file file;
  struct sf_error error = {SF_OK, ""};
  if (noise_make_of(dir, draws, count, count, first, &error) != SF_OK) fail_msg("%s", error.text);
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", dir);
  assert_int_equal(sf_st_read(&file, path, NULL), SF_OK);
  st_load_f64(numbers, sf_st_find(&file, ACT));
  sf_st_destroy(&file);
  return numbers[SF_NOISE_LEVEL];
}

static void test_noise_make_few_draws_are_widened_unless_more_follow(void **state) {
  float x[COUNT], d[COUNT];
  char name[8];
  fill(x, 0);
  const struct part reference = act_part(ACT, x), draw = act_part(ACT, d);
  rank_write(*state, "ref", 0, 1, "e2e", &reference, 1);
  for (int i = 0; i < 10; i++) {
    fill(d, 0);
    d[i] += 0x1p-10f;
    snprintf(name, sizeof name, "d%d", i);
    rank_write(*state, name, 0, 1, "e2e", &draw, 1);
  }
  assert_true(fabs(level_of(*state, 9, false) / 0x1p-10 - 1) < 1e-3);
  for (int count = 1; count <= 10; count++) {
    assert_true(level_of(*state, count, true) == level_of(*state, 9, false));
    assert_true(fabs(level_of(*state, count, false) / level_of(*state, 9, false) / sf_draws_widening(count) - 1) < 1e-12);
    assert_true(count >= 9 ? sf_draws_widening(count) == 1 : sf_draws_widening(count) > sf_draws_widening(count + 1));
  }
}

/* What a perturbation leaves alone in one tensor may lie in another; of types, values count. */
static void test_noise_make_draws_that_are_alike_are_refused(void **state) {
  static const char *const all[] = {"moved", "moved-too", "again", "still", "still-f64"};
  static const struct {
    int draws[3], count, distinct_min;
    const char *alike, *to;
  } table[] = {{{0, 1}, 2, 2, NULL, NULL},
               {{3}, 1, 1, "still", "the reference"},
               {{4}, 1, 1, "still-f64", "the reference"},
               {{0, 1, 2}, 3, 3, "again", "draw"},
               {{0, 3, 1}, 3, 3, "still", "the reference"},
               {{0, 2, 3}, 3, 1, NULL, NULL},
               {{3, 4}, 2, 1, "still", "the reference"},
               {{3, 4}, 2, 0, NULL, NULL}};
  float x[COUNT], d[COUNT], e[COUNT];
  double wide[COUNT];
  struct sf_error error = {SF_OK, ""};
  fill(x, 0);
  fill(d, 1);
  fill(e, 1);
  e[COUNT - 1] = nextafterf(e[COUNT - 1], 9);
  for (int i = 0; i < COUNT; i++) wide[i] = (double)x[i];
  const struct part still = act_part(ACT, x), moved[3] = {act_part(MAIN_GRAD, d), act_part(MAIN_GRAD, e), act_part(MAIN_GRAD, d)};
  const struct part parts[5][2] = {{still, moved[0]},
                                   {still, moved[1]},
                                   {still, moved[2]},
                                   {still, act_part(MAIN_GRAD, x)},
                                   {still, {MAIN_GRAD, SF_F64, 2, {ROWS, COLS}, wide, NULL}}};
  rank_write(*state, "ref", 0, 1, "e2e", parts[3], 2);
  for (int i = 0; i < 5; i++) rank_write(*state, all[i], 0, 1, "e2e", parts[i], 2);
  for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
    const char *draws[3], *alike = table[k].alike;
    for (int i = 0; i < table[k].count; i++) draws[i] = all[table[k].draws[i]];
    assert_int_equal(noise_make_of(*state, draws, table[k].count, table[k].distinct_min, false, &error), alike ? SF_EINPUT : SF_OK);
    char wanted[120];
    snprintf(wanted, sizeof wanted, "/%s: has the same values as %s ", alike ? alike : "", alike ? table[k].to : "");
    if (alike && strstr(error.text, wanted) == NULL) fail_msg("%zu: '%s' lacks '%s'", k, error.text, wanted);
  }
}

static void test_check_and_noise_any_failing_allocation_gives_no_memory(void **state) {
  char path[300];
  float c[COUNT];
  fill(c, 1);
  const struct part parts[3] = {act_part(ACT, c), act_part("s0/mb0/recompute/act/m/0", c), act_part(MAIN_GRAD, c)};
  act_reference(*state);
  rank_write(*state, "c", 0, 1, "e2e", parts, 3);
  struct sf_trace_set reference = set_open(*state, "ref"), candidate = set_open(*state, "c");
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", (char *)*state);
  for (int64_t k = 1;; k++) {
    struct sf_noise_file noise = {0};
    struct sf_check_report report = {0};
    sf_alloc_fail_at(k);
    enum sf_status status =
        sf_noise_make(path, &reference, &(struct sf_noise_draws){.sets = &candidate, .count = 1, .distinct_min = 1}, NULL);
    if (status == SF_OK) status = sf_noise_open(&noise, path, &reference, NULL);
    if (status == SF_OK) status = sf_check_run(&report, &reference, &noise, &candidate, NULL, NULL);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    sf_check_report_destroy(&report);
    sf_noise_close(&noise);
    assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
    if (failed) continue;
    assert_true(k > 30);
    break;
  }
  sf_trace_set_close(&candidate);
  sf_trace_set_close(&reference);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_noise_make_numbers_are_those_of_the_format),
      FOLDER_TEST(test_noise_make_long_rows_and_vectors_stream),
      FOLDER_TEST(test_check_run_within_noise_passes_beyond_is_a_finding),
      FOLDER_TEST(test_check_run_row_has_a_factor_of_its_own),
      FOLDER_TEST(test_check_report_margin_is_by_how_much_bounds_may_widen),
      FOLDER_TEST(test_check_run_structure_is_found_before_numbers),
      FOLDER_TEST(test_check_run_replicas_of_a_wgrad_agree_within_noise),
      FOLDER_TEST(test_check_run_what_proves_nothing_is_not_judged),
      FOLDER_TEST(test_check_run_single_number_is_judged_against_zero),
      FOLDER_TEST(test_check_run_gradient_norm_is_that_of_the_candidates_own_gradients),
      FOLDER_TEST(test_check_run_gradient_norm_in_bf16_may_be_off_by_its_roundings),
      FOLDER_TEST(test_check_run_recomputed_activation_must_repeat),
      FOLDER_TEST(test_noise_open_wrong_files_are_refused_with_a_reason),
      FOLDER_TEST(test_noise_make_unfit_draws_are_refused_and_leave_nothing),
      FOLDER_TEST(test_noise_make_few_draws_are_widened_unless_more_follow),
      FOLDER_TEST(test_noise_make_draws_that_are_alike_are_refused),
      FOLDER_TEST(test_check_and_noise_any_failing_allocation_gives_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
