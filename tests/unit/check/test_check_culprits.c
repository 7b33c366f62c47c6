/* Which wrong tensors of a trace are culprits, in which order, and the simple causes that are named. */
#include "tests/unit/check/check_fixture.h"

#include <math.h>

/* What comes before them in the trace is off too, and so would be everything later. */
static void test_check_run_other_parameters_at_the_start_come_first(void **state) {
  static const char *const draws[] = {"draw"};
  float x[COUNT], d[COUNT], other[COUNT];
  fill(x, 0);
  fill(d, 1);
  fill(other, 9);
  struct part parts[4] = {act_part(ACT, x), act_part("s0/mb0/step/param/a/0", x), act_part("s0/mb0/step/param/b/0", x),
                          act_part("s1/mb0/step/param/a/0", x)};
  rank_write(*state, "ref", 0, 1, "e2e", parts, 4);
  parts[0].values = d;
  rank_write(*state, "draw", 0, 1, "e2e", parts, 4);
  assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
  for (int k = 0; k < 2; k++) { /* only later parameters; at the start too */
    parts[0].values = parts[3].values = other;
    if (k == 1) parts[2].values = other;
    rank_write(*state, "c", 0, 1, "e2e", parts, 4);
    struct judged j;
    judged_open(&j, *state, "c");
    const struct sf_check_report *report = &j.report;
    assert_int_equal(report->start_count, 2);
    assert_int_equal(report->start_differ, k);
    assert_int_equal(report->culprit_count, 1);
    assert_int_equal(report->culprits[0].result, k == 0 ? 0 : 2);
    assert_int_equal(report->findings, 2 + k);
    judged_close(&j);
  }
}

/* Of isolated runs each wrong tensor is a culprit up to the first that is not replaced by a given one, and the wrong main gradients of a
 * step are where most are right; end to end only the first is. */
static void test_check_run_isolated_lists_each_culprit(void **state) {
  enum { PARTS = 6 };
  static const char *const names[PARTS] = {"s0/mb0/fwd/act/a/0",        "s0/mb0/bwd/act_grad/a/0",   "s0/mb0/step/main_grad/a/0",
                                           "s0/mb0/step/main_grad/b/0", "s0/mb0/step/main_grad/c/0", "s1/mb0/fwd/act/a/0"};
  static const struct {
    const char *mode;
    unsigned wrong;
    int32_t culprits[PARTS + 1]; /* up to -1 */
  } rows[] = {
      {"isolated", 0x23, {0, 1, 5, -1}}, {"isolated", 0x25, {0, 2, -1}}, {"isolated", 0x3c, {2, -1}},
      {"isolated", 0x1, {0, -1}},        {"e2e", 0x23, {0, -1}},
  };
  static const char *const draws[] = {"draw"};
  float x[COUNT], d[COUNT], other[COUNT];
  fill(x, 0);
  fill(d, 1);
  fill(other, 9);
  for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
    struct part parts[PARTS];
    for (int i = 0; i < PARTS; i++) parts[i] = act_part(names[i], x);
    rank_write(*state, "ref", 0, 1, rows[row].mode, parts, PARTS);
    for (int i = 0; i < PARTS; i++) parts[i].values = d;
    rank_write(*state, "draw", 0, 1, rows[row].mode, parts, PARTS);
    assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
    for (int i = 0; i < PARTS; i++) parts[i].values = rows[row].wrong & 1u << i ? other : x;
    rank_write(*state, "c", 0, 1, rows[row].mode, parts, PARTS);
    struct judged j;
    judged_open(&j, *state, "c");
    const struct sf_check_report *report = &j.report;
    int32_t count = 0;
    for (; rows[row].culprits[count] >= 0; count++)
      if (count >= report->culprit_count || report->culprits[count].result != rows[row].culprits[count])
        fail_msg("row %zu: culprit %d", row, (int)count);
    assert_int_equal(report->culprit_count, count);
    judged_close(&j);
  }
}

/* An anchored reference had the candidate's tensors: each wrong one is a culprit, but of what the optimizer makes only the first, no
 * gradient of a weight whose module gives back a wrong gradient, and nothing after replicas that differ. Rows may be off by as much as in
 * isolated runs, and fp32 sums by 4 units where no draw says so. */
static void test_check_run_anchored_lists_what_follows_from_no_other(void **state) {
  enum { PARTS = 9 };
  static const char *const names[PARTS] = {"s0/mb0/fwd/act/a/0",
                                           "s0/mb0/bwd/act_grad/a/0",
                                           "s0/mb0/step/main_grad/a/0",
                                           "s0/mb0/step/main_grad/b/0",
                                           "s0/mb0/step/main_grad/a.weight/0",
                                           "s0/mb0/step/param_delta/a/0",
                                           "s0/mb0/step/param_delta/b/0",
                                           "s1/mb0/step/param/a/0",
                                           "s1/mb0/fwd/act/a/0"};
  static const struct {
    unsigned wrong;
    int32_t apart;               /* the tensor whose replicas differ; -1: none */
    int32_t culprits[PARTS + 1]; /* up to -1 */
  } rows[] = {
      {0x103, -1, {0, 1, 8, -1}}, {0x105, -1, {0, 2, 8, -1}}, {0x11c, -1, {2, 8, -1}}, {0x1e0, -1, {5, 8, -1}},
      {0x12, -1, {1, -1}},        {0x10, -1, {4, -1}},        {0x101, 1, {0, 1, -1}},  {0, -1, {-1}},
  };
  float x[COUNT], other[COUNT], near[COUNT];
  fill(x, 0);
  fill(other, 9);
  for (int i = 0; i < COUNT; i++) near[i] = x[i] * (1 + 10 * 0x1p-24f); /* within three noise levels of 4 units */
  for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
    struct part parts[PARTS];
    for (int i = 0; i < PARTS; i++) parts[i] = act_part(names[i], x);
    rank_write(*state, "ref", 0, 1, "anchored", parts, PARTS);
    assert_int_equal(noise_make(*state, NULL, 0, NULL), SF_OK);
    for (int rank = 0; rank < 2; rank++) {
      for (int i = 0; i < PARTS; i++) parts[i].values = rows[row].wrong & 1u << i || (i == rows[row].apart && rank == 1) ? other : near;
      rank_write(*state, "c", rank, 2, "e2e", parts, PARTS);
    }
    struct judged j;
    judged_open(&j, *state, "c");
    assert_true(j.report.anchored);
    for (int32_t i = 0; i < PARTS; i++)
      if ((rows[row].culprits[i] < 0 ? -1 : j.report.culprits[i].result) != rows[row].culprits[i] || j.report.culprit_count < i)
        fail_msg("row %zu: culprit %d of %d", row, (int)i, (int)j.report.culprit_count);
      else if (rows[row].culprits[i] < 0) {
        assert_int_equal(j.report.culprit_count, i);
        break;
      }
    judged_close(&j);
  }
}

static void test_check_run_isolated_candidate_of_an_anchored_reference_is_refused(void **state) {
  float x[COUNT];
  fill(x, 0);
  const struct part part = act_part(ACT, x);
  rank_write(*state, "ref", 0, 1, "anchored", &part, 1);
  assert_int_equal(noise_make(*state, NULL, 0, NULL), SF_OK);
  rank_write(*state, "c", 0, 1, "isolated", &part, 1);
  char path[400];
  struct judged j = {.reference = set_open(*state, "ref"), .candidate = set_open(*state, "c")};
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", (char *)*state);
  assert_int_equal(sf_noise_open(&j.noise, path, &j.reference, &error), SF_OK);
  assert_int_equal(sf_check_run(&j.report, &j.reference, &j.noise, &j.candidate, NULL, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "is isolated, but the reference was given"));
  judged_close(&j);
}

/* --- diagnosis ---------------------------------------------------------------------------------------------------- */

#define OTHER_MICROBATCH "s0/mb1/fwd/act/m/0"
#define LAYER(n) "s0/mb0/fwd/act/layers." #n ".fc/0"
#define BIAS "s0/mb0/step/param/layers.1.fc.bias/0"
#define GATED "s0/mb0/step/main_grad/gated/0"

/* A trace of two ranks in which one tensor is wrong. */
struct scene {
  float x[6][COUNT], bias[COLS]; /* of the reference, by tensor */
  float local[2][COUNT];         /* of the wrong one, by rank */
  const char *name, *map[2];     /* NULL: each rank has all of it */
  int64_t rows, cols;            /* of each rank */
};

enum { M, M_OTHER, LAYER_0, LAYER_1, GRADIENT, GATES, TENSORS };

static const char *const scene_names[TENSORS] = {ACT, OTHER_MICROBATCH, LAYER(0), LAYER(1), MAIN_GRAD, GATED};

static void scene_reference(const char *dir, struct scene *s) {
  static const char *const draws[] = {"draw"};
  struct part parts[TENSORS + 1];
  float drawn[TENSORS][COUNT];
  for (int t = 0; t < TENSORS; t++) {
    for (int i = 0; i < COUNT; i++) s->x[t][i] = (float)((37 * i + 11 * t * i + 5 * t) % 29 - 14) + (float)(i % 5) * 0.25f;
    for (int i = 0; i < COUNT; i++) drawn[t][i] = s->x[t][i] * (1 + (float)(i % 3 - 1) * 0x1p-22f);
    parts[t] = act_part(scene_names[t], s->x[t]);
  }
  for (int k = 0; k < COLS; k++) s->bias[k] = (float)(k % 3) + 0.5f;
  parts[TENSORS] = (struct part){BIAS, SF_F32, 1, {COLS}, s->bias, NULL};
  rank_write(dir, "ref", 0, 1, "e2e", parts, TENSORS + 1);
  for (int t = 0; t < TENSORS; t++) parts[t].values = drawn[t];
  rank_write(dir, "draw", 0, 1, "e2e", parts, TENSORS + 1);
  assert_int_equal(noise_make(dir, draws, 1, NULL), SF_OK);
}

static void whole(struct scene *s, const char *name, int tensor) {
  s->name = name;
  s->rows = ROWS, s->cols = COLS;
  for (int rank = 0; rank < 2; rank++) memcpy(s->local[rank], s->x[tensor], sizeof s->local[rank]);
}

/* Each rank has two rows. */
static void cut(struct scene *s, const char *name, int tensor, const char *first, const char *second) {
  s->name = name;
  s->rows = ROWS / 2, s->cols = COLS;
  s->map[0] = first, s->map[1] = second;
  for (int rank = 0; rank < 2; rank++) memcpy(s->local[rank], s->x[tensor] + rank * COUNT / 2, sizeof s->local[rank] / 2);
}
#define ROWS_OF(first, second)                                                                                                             \
  "{\"shape\": [4, 8], \"index\": [[" first "], [[0, 8]]]}", "{\"shape\": [4, 8], \"index\": [[" second "], [[0, 8]]]}"

static void add(float *to, const float *x, float times, int count) {
  for (int i = 0; i < count; i++) to[i] += times * x[i];
}

static void partial_sums(struct scene *s) {
  whole(s, ACT, M);
  add(s->local[0], s->x[LAYER_0], 1, COUNT);
  for (int i = 0; i < COUNT; i++) s->local[1][i] = -s->x[LAYER_0][i];
}
static void partial_multiples(struct scene *s) {
  partial_sums(s);
  add(s->local[1], s->x[M], 1, COUNT);
}
static void biased_partial_sums(struct scene *s) {
  whole(s, LAYER(1), LAYER_1);
  add(s->local[0], s->x[LAYER_0], 1, COUNT);
  for (int i = 0; i < COUNT; i++) s->local[1][i] = s->bias[i % COLS] - s->x[LAYER_0][i];
}
static void one_replica(struct scene *s) {
  whole(s, ACT, M);
  s->local[1][3] = 9.5f;
}
static void sums_of_replicas(struct scene *s) {
  whole(s, ACT, M);
  for (int rank = 0; rank < 2; rank++) add(s->local[rank], s->x[M], 1, COUNT);
}
static void gradient_times_dp(struct scene *s) {
  whole(s, MAIN_GRAD, GRADIENT);
  for (int rank = 0; rank < 2; rank++) add(s->local[rank], s->x[GRADIENT], 1, COUNT);
}
static void third(struct scene *s) {
  whole(s, ACT, M);
  for (int rank = 0; rank < 2; rank++)
    for (int i = 0; i < COUNT; i++) s->local[rank][i] *= -0.7f;
}
static void zeros(struct scene *s) {
  whole(s, ACT, M);
  memset(s->local, 0, sizeof s->local);
}
static void another_microbatch(struct scene *s) { whole(s, ACT, M_OTHER); }
static void another_layer(struct scene *s) { whole(s, LAYER(1), LAYER_0); }
static void bias_twice(struct scene *s) {
  whole(s, LAYER(1), LAYER_1);
  for (int rank = 0; rank < 2; rank++)
    for (int r = 0; r < ROWS; r++) add(s->local[rank] + r * COLS, s->bias, 1, COLS);
}
static void exchanged(struct scene *s) {
  cut(s, ACT, M, ROWS_OF("[0, 2]", "[2, 2]"));
  memcpy(s->local[0], s->x[M] + COUNT / 2, COUNT / 2 * sizeof(float));
  memcpy(s->local[1], s->x[M], COUNT / 2 * sizeof(float));
}
static void one_row(struct scene *s) {
  whole(s, ACT, M);
  for (int rank = 0; rank < 2; rank++) add(s->local[rank] + 2 * COLS, s->x[LAYER_0], 1, COLS);
}
static void not_finite(struct scene *s) {
  whole(s, ACT, M);
  for (int rank = 0; rank < 2; rank++) s->local[rank][COLS] = NAN;
}
/* Rows 0, 1 are the gate and 2, 3 the up part: rank 0 must have rows 0 and 2. */
static void contiguous_cut(struct scene *s) { cut(s, GATED, GATES, ROWS_OF("[0, 1], [2, 1]", "[1, 1], [3, 1]")); }
static void nothing_simple(struct scene *s) {
  whole(s, ACT, M);
  for (int rank = 0; rank < 2; rank++) add(s->local[rank], s->x[LAYER_0], 1, COUNT);
}

/* What the built-in layers' diagnosis knows it knows of traces too; without the ranks' groups it speaks of the ranks. */
static void test_check_run_causes_are_named(void **state) {
  static const struct {
    void (*make)(struct scene *s);
    const char *groups;
    enum sf_diagnosis_class cls;
    const char *text;
  } rows[] = {
      {partial_sums, "{\"tp\": [0, 1]}", SF_DIAGNOSIS_MISSING_REDUCTION, "rank 0 holds a partial sum over tp"},
      {partial_sums, "{}", SF_DIAGNOSIS_MISSING_REDUCTION, "rank 0 holds a partial sum over the ranks"},
      {partial_multiples, "{\"dp\": [0, 1]}", SF_DIAGNOSIS_MISSING_REDUCTION, "give the reference times 2 = dp: not reduced over dp"},
      {biased_partial_sums, "{\"tp\": [0, 1]}", SF_DIAGNOSIS_MISSING_REDUCTION,
       "give the reference and 1 times the bias, which each rank adds"},
      {one_replica, "{}", SF_DIAGNOSIS_UNSYNCHRONISED, "rank 1 went another way"},
      {sums_of_replicas, "{\"tp\": [0, 1]}", SF_DIAGNOSIS_EXTRA_REDUCTION, "summed over tp once too often"},
      {gradient_times_dp, "{\"dp\": [0, 1]}", SF_DIAGNOSIS_SCALE, "scaled by 2 = dp"},
      {gradient_times_dp, "{}", SF_DIAGNOSIS_SCALE, "scaled by 2 = the number of ranks"},
      {third, "{}", SF_DIAGNOSIS_SCALE, "scaled by -0.7"},
      {zeros, "{}", SF_DIAGNOSIS_STALE, "zeros stand in place of the value"},
      {another_microbatch, "{}", SF_DIAGNOSIS_STALE, "the value is that of microbatch 1"},
      {another_layer, "{}", SF_DIAGNOSIS_SHIFTED, "the value is that of layers.0.fc"},
      {bias_twice, "{\"tp\": [0, 1]}", SF_DIAGNOSIS_REPEATED_TERM, "the bias is added 2 times, once by each rank of tp"},
      {exchanged, "{}", SF_DIAGNOSIS_PERMUTED, "rank 0 holds the piece of rank 1"},
      {one_row, "{}", SF_DIAGNOSIS_PART, "only row 2 of 4 is wrong"},
      {not_finite, "{}", SF_DIAGNOSIS_PART, "only row 1 of 4 is wrong"},
      {contiguous_cut, "{\"tp\": [0, 1]}", SF_DIAGNOSIS_FUSED_ORDER,
       "are cut into contiguous pieces, where each rank needs a piece of each part: gate and up"},
      {nothing_simple, "{}", SF_DIAGNOSIS_UNKNOWN, "no simple cause explains the error"},
  };
  for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
    struct scene s = {.rows = 0};
    struct judged j;
    scene_reference(*state, &s);
    rows[row].make(&s);
    for (int rank = 0; rank < 2; rank++) {
      struct part parts[TENSORS];
      for (int t = 0; t < TENSORS; t++) {
        parts[t] = act_part(scene_names[t], s.x[t]);
        if (strcmp(scene_names[t], s.name) == 0) parts[t] = (struct part){s.name, SF_F32, 2, {s.rows, s.cols}, s.local[rank], s.map[rank]};
      }
      rank_write_in_groups(*state, "c", rank, 2, "e2e", rows[row].groups, parts, TENSORS);
    }
    judged_open(&j, *state, "c");
    assert_int_equal(j.report.findings, 2); /* nobody has the bias */
    assert_string_equal(j.report.results[j.report.culprits[0].result].tensor->text, s.name);
    const struct sf_diagnosis *diagnosis = &j.report.culprits[0].diagnosis;
    if (diagnosis->cls != rows[row].cls || !strstr(diagnosis->text, rows[row].text))
      fail_msg("wanted %s with '%s', got %s: %s", sf_diagnosis_class_name(rows[row].cls), rows[row].text,
               sf_diagnosis_class_name(diagnosis->cls), diagnosis->text);
    judged_close(&j);
  }
}

/* Another run of the reference: the candidate holds what it made, or half of what it leaves out. */
static void test_check_run_names_what_a_supposed_run_makes(void **state) {
  static const char *const texts[] = {"other_setting: the value is as if depth were 1: here it is 2;",
                                      "scale: what depth adds is scaled by 0.5"};
  struct sf_supposed_run run = {.name = "depth were 1: here it is 2", .without = "depth"};
  const struct sf_suppositions supposed = {1, &run};
  float x[COUNT], other[COUNT], got[COUNT];
  act_reference(*state);
  fill(x, 0);
  for (int i = 0; i < COUNT; i++) other[i] = (float)(i * i % 7) - 2.5f;
  const struct part of_other = act_part(ACT, other), of_candidate = act_part(ACT, got);
  rank_write(*state, "other", 0, 1, "e2e", &of_other, 1);
  run.set = set_open(*state, "other");
  for (int half = 0; half < 2; half++) {
    for (int i = 0; i < COUNT; i++) got[i] = half ? 0.5f * (x[i] + other[i]) : other[i];
    for (int rank = 0; rank < 2; rank++) rank_write(*state, "c", rank, 2, "e2e", &of_candidate, 1);
    struct judged j;
    char text[400];
    judged_open_supposing(&j, *state, "c", &supposed);
    const struct sf_diagnosis *diagnosis = &j.report.culprits[0].diagnosis;
    snprintf(text, sizeof text, "%s: %s", sf_diagnosis_class_name(diagnosis->cls), diagnosis->text);
    if (strncmp(text, texts[half], strlen(texts[half])) != 0) fail_msg("%s", text);
    judged_close(&j);
  }
  sf_trace_set_close(&run.set);
}

/* A gradient norm that counts the squares of some parameters another number of times; what only comes near is not named. */
static void test_check_run_names_the_squares_that_a_norm_counts_wrong(void **state) {
  enum { GRADIENTS = 4, QUERIES = 0 };
  static const char *const names[GRADIENTS] = {"s0/mb0/step/main_grad/layers.0.a.q/0", "s0/mb0/step/main_grad/layers.0.a.k/0",
                                               "s0/mb0/step/main_grad/layers.1.a.k/0", "s0/mb0/step/main_grad/layers.1.a.v/0"};
  static const struct {
    double times[GRADIENTS];
    const char *text;
  } rows[] = {
      {{1, 2, 2, 2}, "the share of a.k and v (as squares) is added 2 times;"},
      {{1, 0, 0, 1}, "the share of a.k (as squares) is not added;"},
      {{0.5, 1, 1, 1}, "the share of a.q (as squares) is divided by 2 = the number of ranks before it is added;"},
      {{0.001, 1, 1, 1}, "no simple cause explains the error"},
  };
  float x[GRADIENTS][COUNT], norm = 1;
  double squares[GRADIENTS] = {0};
  struct part parts[GRADIENTS + 1];
  for (int g = 0; g < GRADIENTS; g++) {
    for (int i = 0; i < COUNT; i++) x[g][i] = (float)((37 * i + 11 * g * i + 5 * g) % 29 - 14) * 0.25f;
    for (int i = 0; i < COUNT; i++) squares[g] += (double)x[g][i] * (double)x[g][i];
    parts[g] = act_part(names[g], x[g]);
  }
  parts[GRADIENTS] = (struct part){NORM, SF_F32, 0, {0}, &norm, NULL};
  rank_write(*state, "ref", 0, 1, "e2e", parts, GRADIENTS + 1);
  assert_int_equal(noise_make(*state, NULL, 0, NULL), SF_OK);
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
    double counted = 0;
    for (int g = 0; g < GRADIENTS; g++) counted += rows[row].times[g] * squares[g];
    norm = (float)sqrt(counted);
    for (int rank = 0; rank < 2; rank++) rank_write(*state, "c", rank, 2, "e2e", parts, GRADIENTS + 1);
    struct judged j;
    judged_open(&j, *state, "c");
    const char *text = j.report.culprits[0].diagnosis.text;
    if (strncmp(text, rows[row].text, strlen(rows[row].text)) != 0) fail_msg("wanted '%s', got '%s'", rows[row].text, text);
    judged_close(&j);
  }
}

/* Of a tensor that is too large the rows, or elements, round the error are looked at; which rows are wrong it cannot say. */
static void assert_large_is_looked_at(const char *dir, int64_t rows, int64_t cols, const char *scaled) {
  enum { LARGE_ROWS = 4096, LARGE_COLS = 128, LARGE = LARGE_ROWS * LARGE_COLS, WRONG_ROW = 4000 };
  static const char *const draws[] = {"draw"};
  const char *const texts[] = {scaled, ""};
  float *x = malloc(LARGE * sizeof *x), *other = malloc(LARGE * sizeof *other);
  const struct part reference = {ACT, SF_F32, 2, {rows, cols}, x, NULL}, candidate = {ACT, SF_F32, 2, {rows, cols}, other, NULL};
  for (int i = 0; i < LARGE; i++) x[i] = (float)((37 * i + i / 1000) % 29 - 14) + 0.25f;
  rank_write(dir, "ref", 0, 1, "e2e", &reference, 1);
  for (int i = 0; i < LARGE; i++) other[i] = x[i] * (1 + (float)(i % 3 - 1) * 0x1p-22f);
  rank_write(dir, "draw", 0, 1, "e2e", &candidate, 1);
  assert_int_equal(noise_make(dir, draws, 1, NULL), SF_OK);
  for (int k = 0; k < 2; k++) { /* all of it; one row */
    for (int i = 0; i < LARGE; i++) other[i] = k == 0 ? 3 * x[i] : x[i];
    for (int i = 0; i < LARGE_COLS; i++) other[WRONG_ROW * LARGE_COLS + i] += k == 0 ? 0 : (float)(i * i % 17);
    for (int rank = 0; rank < 2; rank++) rank_write(dir, "c", rank, 2, "e2e", &candidate, 1);
    struct judged j;
    judged_open(&j, dir, "c");
    const struct sf_diagnosis *diagnosis = &j.report.culprits[0].diagnosis;
    if (strncmp(diagnosis->text, texts[k], *texts[k] ? strlen(texts[k]) : 1) != 0) fail_msg("'%s'", diagnosis->text);
    judged_close(&j);
  }
  free(x);
  free(other);
}

static void test_check_run_large_tensor_is_looked_at_round_its_error(void **state) {
  assert_large_is_looked_at(*state, 4096, 128, "scaled by 3; this explains the whole error up to rounding (looked at in rows ");
  assert_large_is_looked_at(*state, 1, 4096 * 128, "scaled by 3; this explains the whole error up to rounding (looked at in elements ");
}

/* A culprit that is explained needs memory that may not be there. */
static void test_check_run_explaining_without_memory_fails_cleanly(void **state) {
  static const char *const draws[] = {"draw"};
  char path[300];
  float x[COUNT], d[COUNT], c[COUNT];
  fill(x, 0), fill(d, 1), fill(c, 0);
  for (int i = 0; i < COUNT; i++) c[i] *= 3;
  const struct part parts[3] = {act_part(ACT, x), act_part(ACT, d), act_part(ACT, c)};
  rank_write(*state, "ref", 0, 1, "e2e", &parts[0], 1);
  rank_write(*state, "draw", 0, 1, "e2e", &parts[1], 1);
  assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
  for (int rank = 0; rank < 2; rank++) rank_write_in_groups(*state, "c", rank, 2, "e2e", "{\"tp\": [0, 1]}", &parts[2], 1);
  snprintf(path, sizeof path, "%s/c", (char *)*state);
  for (int64_t k = 1;; k++) {
    struct judged j = {.reference = set_open(*state, "ref")};
    char noise[300];
    snprintf(noise, sizeof noise, "%s/ref/noise.safetensors", (char *)*state);
    assert_int_equal(sf_noise_open(&j.noise, noise, &j.reference, NULL), SF_OK);
    sf_alloc_fail_at(k);
    enum sf_status status = sf_trace_set_open(&j.candidate, path, NULL);
    if (status == SF_OK) status = sf_check_run(&j.report, &j.reference, &j.noise, &j.candidate, NULL, NULL);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
    judged_close(&j);
    if (failed) continue;
    assert_true(k > 30);
    break;
  }
}

/* Which tensors of the first culprit's kind are wrong, as names and pieces tell it. */
static void test_check_run_pattern_holds_for_all_wrong_tensors_and_no_others(void **state) {
  enum { PARTS = 12 };
#define GRAD(subject) "s0/mb0/step/main_grad/" subject "/0"
  static const char *const names[PARTS] = {
      GRAD("embed.weight"),                           /* bit 0, cut by tp, as bits 2 and 5 */
      GRAD("layers.0.norm.weight"),                   /* bit 1 */
      GRAD("layers.0.fc.weight"),                     /* bit 2 */
      GRAD("layers.0.fc.bias"),                       /* bit 3 */
      GRAD("layers.1.norm.weight"),                   /* bit 4 */
      GRAD("layers.1.fc.weight"),                     /* bit 5 */
      GRAD("layers.1.fc.bias"),                       /* bit 6 */
      GRAD("layers.1.moe.experts.0.up.weight"),       /* bit 7 */
      GRAD("layers.1.moe.experts.1.up.weight"),       /* bit 8 */
      "s1/mb0/step/main_grad/layers.0.norm.weight/0", /* bit 9 */
      "s0/mb0/fwd/act/layers.0.fc/0",                 /* bit 10 */
      "s0/mb1/fwd/act/layers.0.fc/0",                 /* bit 11 */
  };
#undef GRAD
  static const struct {
    unsigned wrong;
    const char *text;
  } rows[] = {
      {0x3ff, "all 10 main gradients are wrong"},
      {0x1ff, "all 9 main gradients in step 0 are wrong, and the other one is not"},
      {0x212, "all 3 main gradients of norms are wrong, and none of the other 7"},
      {0x012, "both main gradients of norms in step 0 are wrong, and none of the other 8"},
      {0x048, "both main gradients of biases are wrong, and none of the other 8"},
      {0x180, "both main gradients of experts are wrong, and none of the other 8"},
      {0x025, "all 3 main gradients of parameters that tp cuts are wrong, and none of the other 7"},
      {0x1f0, "all 5 main gradients of layer 1 are wrong, and none of the other 5"},
      {0x06c, "all 4 main gradients of fc are wrong, and none of the other 6"},
      {0xc00, "both activations are wrong"},
      {0x011, ""}, /* an embedding and one norm: no rule */
      {0x001, ""},
  };
  static const char *const draws[] = {"draw"}, *const halves[] = {"{\"shape\": [4, 8], \"index\": [[[0, 2]], [[0, 8]]]}",
                                                                  "{\"shape\": [4, 8], \"index\": [[[2, 2]], [[0, 8]]]}"};
  float x[COUNT], d[COUNT], other[COUNT];
  struct part parts[PARTS];
  fill(x, 0);
  fill(d, 1);
  fill(other, 9);
  for (int i = 0; i < PARTS; i++) parts[i] = act_part(names[i], x);
  rank_write(*state, "ref", 0, 1, "e2e", parts, PARTS);
  for (int i = 0; i < PARTS; i++) parts[i].values = d;
  rank_write(*state, "draw", 0, 1, "e2e", parts, PARTS);
  assert_int_equal(noise_make(*state, draws, 1, NULL), SF_OK);
  for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
    for (int rank = 0; rank < 2; rank++) {
      for (int i = 0; i < PARTS; i++) {
        const float *values = rows[row].wrong >> i & 1 ? other : x;
        const bool is_cut = i == 0 || i == 2 || i == 5;
        parts[i] = act_part(names[i], is_cut ? values + rank * COUNT / 2 : values);
        if (is_cut) parts[i].dims[0] = ROWS / 2, parts[i].map = halves[rank];
      }
      rank_write_in_groups(*state, "c", rank, 2, "e2e", "{\"tp\": [0, 1]}", parts, PARTS);
    }
    struct judged j;
    judged_open(&j, *state, "c");
    assert_string_equal(j.report.pattern, rows[row].text);
    judged_close(&j);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_check_run_other_parameters_at_the_start_come_first),
      FOLDER_TEST(test_check_run_isolated_lists_each_culprit),
      FOLDER_TEST(test_check_run_anchored_lists_what_follows_from_no_other),
      FOLDER_TEST(test_check_run_isolated_candidate_of_an_anchored_reference_is_refused),
      FOLDER_TEST(test_check_run_causes_are_named),
      FOLDER_TEST(test_check_run_pattern_holds_for_all_wrong_tensors_and_no_others),
      FOLDER_TEST(test_check_run_names_what_a_supposed_run_makes),
      FOLDER_TEST(test_check_run_names_the_squares_that_a_norm_counts_wrong),
      FOLDER_TEST(test_check_run_large_tensor_is_looked_at_round_its_error),
      FOLDER_TEST(test_check_run_explaining_without_memory_fails_cleanly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
