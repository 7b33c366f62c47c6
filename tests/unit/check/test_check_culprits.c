/* Which wrong tensors of a trace are culprits, in which order, and the simple causes that are named. */
#include "tests/unit/check/check_fixture.h"

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

/* Two ranks with halves that add up, multiples, zero, and what nothing simple explains. */
static void test_check_run_simple_causes_are_named(void **state) {
  static const struct {
    enum sf_diagnosis_class cls;
    const char *text;
  } expected[] = {{SF_DIAGNOSIS_MISSING_REDUCTION, "what the ranks hold adds up to the reference"},
                  {SF_DIAGNOSIS_MISSING_REDUCTION, "what the ranks hold adds up to 2 times the reference"},
                  {SF_DIAGNOSIS_SCALE, "the reference times 3"},
                  {SF_DIAGNOSIS_SCALE, "the reference times 1/4"},
                  {SF_DIAGNOSIS_STALE, "every element is 0"},
                  {SF_DIAGNOSIS_UNKNOWN, ""},
                  {SF_DIAGNOSIS_UNKNOWN, ""}};
  float x[COUNT], a[COUNT], b[COUNT];
  act_reference(*state);
  fill(x, 0);
  for (int k = 0; k < 7; k++) {
    for (int i = 0; i < COUNT; i++) {
      const float part = (float)(i % 11) - 5, scales[] = {0, 0, 3, 0.25f, 0, 1, 1};
      a[i] = k < 2 ? part : scales[k] * x[i];
      b[i] = k < 2 ? (float)(k + 1) * x[i] - part : a[i];
    }
    if (k == 5) a[3] = b[3] = 9;
    if (k == 6) b[3] = 9; /* replicas of which one is right */
    const struct part parts[2] = {act_part(ACT, a), act_part(ACT, b)};
    for (int rank = 0; rank < 2; rank++) rank_write(*state, "c", rank, 2, "e2e", &parts[rank], 1);
    struct judged j;
    judged_open(&j, *state, "c");
    const struct sf_check_report *report = &j.report;
    assert_int_equal(report->results[0].cls, k < 2 || k == 6 ? SF_CLASS_CONFLICT : SF_CLASS_TOLERANCE);
    assert_string_equal(report->culprits[0].diagnosis.text, expected[k].text);
    assert_int_equal(report->culprits[0].diagnosis.cls, expected[k].cls);
    assert_true(report->culprits[0].diagnosis.left >= 0 && report->culprits[0].diagnosis.left <= sf_factors.fro);
    judged_close(&j);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_check_run_other_parameters_at_the_start_come_first),
      FOLDER_TEST(test_check_run_isolated_lists_each_culprit),
      FOLDER_TEST(test_check_run_simple_causes_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
