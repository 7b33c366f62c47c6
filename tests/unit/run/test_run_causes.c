/* Which findings of a campaign are put together. */
#include "tests/unit/run/run_fixture.h"

#include "harness/run/campaign/causes.h"

/* cause NULL: nothing is said. */
static struct sf_diagnosis diagnosis_make(enum sf_diagnosis_class cls, const char *cause) {
  struct sf_diagnosis diagnosis = {.cls = cls};
  snprintf(diagnosis.text, sizeof diagnosis.text, "%s", cause ? "a sentence" : "");
  snprintf(diagnosis.cause, sizeof diagnosis.cause, "%s", cause ? cause : "");
  return diagnosis;
}

static void test_diagnosis_says_the_same_by_class_and_cause(void **state) {
  (void)state;
  const struct sf_diagnosis scaled = diagnosis_make(SF_DIAGNOSIS_SCALE, "tp"), by_dp = diagnosis_make(SF_DIAGNOSIS_SCALE, "dp"),
                            number = diagnosis_make(SF_DIAGNOSIS_SCALE, ""), part = diagnosis_make(SF_DIAGNOSIS_PART, "tp"),
                            nothing = diagnosis_make(SF_DIAGNOSIS_UNKNOWN, ""), none = diagnosis_make(SF_DIAGNOSIS_SCALE, NULL);
  struct sf_diagnosis again = scaled;
  snprintf(again.text, sizeof again.text, "the same in other numbers");
  assert_true(sf_diagnosis_says_the_same(&scaled, &again));
  assert_true(sf_diagnosis_says_the_same(&number, &number));
  assert_false(sf_diagnosis_says_the_same(&scaled, &by_dp));
  assert_false(sf_diagnosis_says_the_same(&scaled, &part));
  assert_false(sf_diagnosis_says_the_same(&scaled, &number));
  assert_false(sf_diagnosis_says_the_same(&nothing, &nothing));
  assert_false(sf_diagnosis_says_the_same(&none, &none));
  assert_true(sf_diagnosis_says_why(&scaled));
  assert_false(sf_diagnosis_says_why(&number));
  assert_false(sf_diagnosis_says_why(&part));
}

struct row {
  const char *signature, *shown, *min, *other_signature, *other_shown, *other_min;
  enum sf_diagnosis_class cls;
  const char *cause, *other_cause; /* NULL: nothing is said */
  bool one;
};

/* long: a table */
static void test_findings_have_one_cause_by_what_is_said_and_what_is_shown(void **state) {
  (void)state;
  static const char act[] = "tolerance/act/mlp.linear_fc2\n", both[] = "tolerance/act/mlp.linear_fc2\ntolerance/act/a.proj\n";
  static const char tp2[] = "model.heads=2 model.kv_heads=2 layout.tp=2", dp2[] = "layout.dp=2 train.microbatches=2";
  static const struct row rows[] = {
      /* one cause is named, and the place agrees: module; kind and axes; a smallest case that shows the other */
      {"tolerance/act/m@tp", "", tp2, "exact/act/m@dp", "", dp2, SF_DIAGNOSIS_SCALE, "by tp", "by tp", true},
      {"tolerance/act/m@tp", "", tp2, "exact/act/n@tp", "", tp2, SF_DIAGNOSIS_SCALE, "by tp", "by tp", true},
      {"tolerance/act/mlp.linear_fc2@tp", act, tp2, "tolerance/act/a.proj@tp+dp", both, dp2, SF_DIAGNOSIS_SCALE, "by tp", "by tp", true},
      {"tolerance/act/m@tp", "", tp2, "exact/act/n@dp", "", dp2, SF_DIAGNOSIS_SCALE, "by tp", "by tp", false},
      {"tolerance/act/m@tp", "", tp2, "exact/act/n@tp+sp+dp", "", tp2, SF_DIAGNOSIS_SCALE, "by tp", "by tp", true},
      {"bits/main_grad/m@edp", "", dp2, "tolerance/main_grad/n@cp", "", dp2, SF_DIAGNOSIS_SCALE, "by 2", "by 2", true},
      {"tolerance/act/m@tp", "", tp2, "exact/act/n@tp+pp", "", tp2, SF_DIAGNOSIS_SCALE, "by tp", "by tp", false},
      {"tolerance/act/m@tp", "", tp2, "exact/act_grad/n@tp", "", tp2, SF_DIAGNOSIS_SCALE, "by tp", "by tp", false},
      {"tolerance/act/m@tp", "", tp2, "exact/param/n@tp+sp", "", tp2, SF_DIAGNOSIS_FUSED_ORDER, "gate and up", "gate and up", true},
      {"tolerance/act/m@tp", "", tp2, "exact/param/n@tp", "", tp2, SF_DIAGNOSIS_FUSED_ORDER, "gate and up", "by head", false},
      /* a place is no cause */
      {"tolerance/act/m@tp", "", tp2, "exact/act/n@tp", "", tp2, SF_DIAGNOSIS_PART, "only some: rank", "only some: rank", false},
      {"tolerance/act/m@tp", "", tp2, "exact/act/m@tp", "", tp2, SF_DIAGNOSIS_PART, "only some: rank", "only some: rank", true},
      /* a gradient before and after it is summed, unless other causes are named */
      {"conflict/wgrad/m@tp", "", tp2, "tolerance/main_grad/m@tp", "", dp2, SF_DIAGNOSIS_SCALE, "by tp", NULL, true},
      {"conflict/wgrad/m@tp", "", tp2, "tolerance/main_grad/m@tp", "", dp2, SF_DIAGNOSIS_SCALE, "by tp", "by dp", false},
      {"conflict/wgrad/m@tp", "", tp2, "tolerance/main_grad/m@dp", "", dp2, SF_DIAGNOSIS_SCALE, "by tp", NULL, false},
      {"conflict/wgrad/m@cp", "conflict/wgrad/m\n", tp2, "conflict/wgrad/m@dp", "conflict/wgrad/m\n", dp2, SF_DIAGNOSIS_SCALE, "by cp",
       NULL, true},
      {"conflict/wgrad/m@tp", "conflict/wgrad/m\n", tp2, "conflict/wgrad/m@tp+sp", "conflict/wgrad/m\n", dp2, SF_DIAGNOSIS_SCALE, "by tp",
       NULL, false},
      {"conflict/wgrad/m@tp", "conflict/wgrad/m\n", tp2, "conflict/wgrad/m@dp", "conflict/wgrad/m\n", dp2, SF_DIAGNOSIS_SCALE, "by tp",
       "by dp", false},
      {"tolerance/act/m@cp", "", tp2, "tolerance/act/m@dp", "", dp2, SF_DIAGNOSIS_SCALE, "", "by tp", true},
      /* one term is scaled, by the sizes of other axes; another term is */
      {"tolerance/act_grad/m@tp", "", tp2, "tolerance/act_grad/m@cp", "", dp2, SF_DIAGNOSIS_SCALE, "a term is scaled: z: 1 / tp",
       "a term is scaled: z: 1 / cp", true},
      {"tolerance/act_grad/m@tp", "", tp2, "tolerance/act_grad/m@cp", "", dp2, SF_DIAGNOSIS_SCALE, "a term is scaled: z: 1 / tp",
       "a term is scaled: y: 1 / cp", false},
      {"tolerance/act_grad/m@tp", "", tp2, "tolerance/act_grad/m@cp", "", dp2, SF_DIAGNOSIS_SCALE, "scaled: 1 / tp", "scaled: 1 / cp",
       false},
      /* other causes, or none: each smallest case shows the other, of one kind or module */
      {"tolerance/act/mlp.linear_fc2@tp", both, tp2, "tolerance/act/a.proj@tp", both, dp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, true},
      {"tolerance/act/mlp.linear_fc2@tp", act, tp2, "tolerance/act/a.proj@tp", both, dp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
      {"tolerance/act/m@tp", "tolerance/wgrad/m\n", tp2, "tolerance/wgrad/m@dp", "tolerance/act/m\n", dp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL,
       true},
      {"tolerance/act/m@tp", "tolerance/wgrad/n\n", tp2, "tolerance/wgrad/n@tp", "tolerance/act/m\n", tp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL,
       false},
      /* one smallest case shows the other, and the models alone differ; a fault that needs nothing shows in every case */
      {"tolerance/act/mlp.linear_fc2@tp", act, tp2, "tolerance/act/a.proj@tp", both, "model.heads=4 model.kv_heads=4 layout.tp=2",
       SF_DIAGNOSIS_UNKNOWN, NULL, NULL, true},
      {"tolerance/act/mlp.linear_fc2@none", act, "", "tolerance/act/a.proj@tp", both, tp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
      {"tolerance/act/mlp.linear_fc2@none", act, NULL, "tolerance/act/a.proj@none", both, NULL, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
      /* the same in other kinds and modules: where both need dropout, and not where both need two ranks alone */
      {"tolerance/act/a.bda@tp", "tolerance/act/a.bda\n", "layout.tp=2 model.heads=2 model.kv_heads=2 train.dropout_milli=100",
       "tolerance/act_grad/m@tp", "tolerance/act_grad/m\nexact/act/a.bda\n",
       "layout.tp=2 model.heads=4 model.kv_heads=4 train.dropout_milli=100", SF_DIAGNOSIS_UNKNOWN, NULL, NULL, true},
      {"tolerance/act/a.bda@tp", "tolerance/act/a.bda\n", "layout.tp=2 model.heads=2 model.kv_heads=2 train.dropout_milli=100",
       "exact/act_grad/m@tp", "exact/act_grad/m\nexact/act/a.bda\n", "layout.tp=2 model.heads=4 model.kv_heads=4 train.dropout_milli=500",
       SF_DIAGNOSIS_UNKNOWN, NULL, NULL, true},
      {"tolerance/act/a.bda@tp", "tolerance/act/a.bda\n", "layout.tp=2 model.heads=2 model.kv_heads=2 train.dropout_milli=100",
       "tolerance/act_grad/m@tp", "tolerance/act_grad/m\nexact/act/a.bda\n",
       "layout.tp=2 model.heads=4 model.kv_heads=4 train.dropout_milli=100", SF_DIAGNOSIS_SCALE, "one", "other", false},
      {"tolerance/act/a.bda@tp", "tolerance/act/a.bda\n", tp2, "tolerance/act_grad/m@tp", "tolerance/act_grad/m\nexact/act/a.bda\n",
       "layout.tp=2 model.heads=4 model.kv_heads=4", SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
      /* NaN makes NaN */
      {"nonfinite/wgrad/m@tp", "nonfinite/wgrad/m\nnonfinite/scalar/optimizer\n", tp2, "nonfinite/scalar/optimizer@none",
       "nonfinite/scalar/optimizer\n", dp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, true},
      {"tolerance/wgrad/m@tp", "tolerance/wgrad/m\nnonfinite/scalar/optimizer\n", tp2, "nonfinite/scalar/optimizer@none",
       "nonfinite/scalar/optimizer\n", dp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
      /* stores of before `shown`, signatures of operations and of failures */
      {"tolerance/act/m@tp", NULL, tp2, "tolerance/act/n@tp", NULL, tp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
      {"tolerance/add/out", "", NULL, "unwritten/add/out", "", NULL, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
      {"crash/comm-read/a@tp", "crash/comm-read/a\n", tp2, "hang/comm/b@tp", "hang/comm/b\n", tp2, SF_DIAGNOSIS_UNKNOWN, NULL, NULL, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct row *r = &rows[i];
    const struct sf_case c = case_make(r->min ? r->min : ""), other = case_make(r->other_min ? r->other_min : "");
    const struct sf_diagnosis said = diagnosis_make(r->cls, r->cause), other_said = diagnosis_make(r->cls, r->other_cause);
    const struct sf_cause_evidence a = {r->signature, r->shown, r->min ? &c : NULL, &said, false, NULL},
                                   b = {r->other_signature, r->other_shown, r->other_min ? &other : NULL, &other_said, false, NULL};
    if (sf_findings_have_one_cause(&a, &b) != r->one || sf_findings_have_one_cause(&b, &a) != r->one)
      fail_msg("row %d: %s and %s", (int)i, r->signature, r->other_signature);
  }
}

/* A fault that needs nothing shows with one that needs dropout, and in another way where there is dropout. */
static void test_findings_of_a_shadow_and_what_it_shows_are_kept_apart(void **state) {
  (void)state;
  static const char both[] = "rounding/act_grad/a\ntolerance/act/m\n";
  const struct sf_case plain = case_make(""), dropout = case_make("train.dropout_milli=100");
  const struct sf_diagnosis none = diagnosis_make(SF_DIAGNOSIS_UNKNOWN, NULL);
  struct sf_cause_evidence shadow = {"rounding/act_grad/a@none", both, &dropout, &none, false, NULL};
  const struct sf_cause_evidence first = {"tolerance/act_grad/a@none", "tolerance/act_grad/a\n", &plain, &none, false, NULL},
                                 other = {"tolerance/act/m@none", both, &dropout, &none, false, NULL};
  assert_true(sf_finding_is_shadow_of(&shadow, &first));
  assert_false(sf_finding_is_shadow_of(&first, &shadow));
  assert_false(sf_finding_is_shadow_of(&other, &first));
  assert_true(sf_findings_have_one_cause(&shadow, &other));
  shadow.is_shadow = true;
  assert_false(sf_findings_have_one_cause(&shadow, &other));
  assert_false(sf_findings_have_one_cause(&other, &shadow));
  assert_true(sf_findings_have_one_cause(&shadow, &first));
}

/* A sum over another group; a sum that is made too early. */
static void test_findings_have_one_cause_by_what_one_wrong_sum_may_look_like(void **state) {
  (void)state;
  static const struct {
    const char *signature, *other_signature;
    enum sf_diagnosis_class cls, other_cls;
    bool one;
  } rows[] = {
      {"conflict/main_grad/m@edp", "tolerance/main_grad/m@etp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_EXTRA_REDUCTION, true},
      {"conflict/main_grad/m@dp", "tolerance/main_grad/m@dp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_STALE, true},
      {"conflict/main_grad/m@dp", "tolerance/main_grad/m@dp", SF_DIAGNOSIS_UNSYNCHRONISED, SF_DIAGNOSIS_STALE, true},
      {"conflict/scalar/m@dp", "conflict/scalar/m@cp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_MISSING_REDUCTION, true},
      {"conflict/scalar/m@dp", "conflict/scalar/m@cp", SF_DIAGNOSIS_STALE, SF_DIAGNOSIS_STALE, false},
      {"conflict/scalar/m@dp", "exact/scalar/m@dp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_SCALE, true},
      {"conflict/scalar/m@dp", "exact/scalar/m@cp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_SCALE, false},
      {"exact/param/m@dp", "exact/param/n@dp", SF_DIAGNOSIS_UNKNOWN, SF_DIAGNOSIS_UNKNOWN, true},
      {"exact/param/m@dp", "exact/param/n@cp", SF_DIAGNOSIS_UNKNOWN, SF_DIAGNOSIS_UNKNOWN, false},
      {"exact/param/m@dp", "exact/param/n@dp", SF_DIAGNOSIS_SCALE, SF_DIAGNOSIS_STALE, false},
      {"conflict/main_grad/m@dp", "tolerance/main_grad/m@cp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_STALE, false},
      {"conflict/main_grad/m@dp", "tolerance/main_grad/n@dp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_STALE, false},
      {"conflict/main_grad/m@dp", "tolerance/main_grad/m@dp", SF_DIAGNOSIS_MISSING_REDUCTION, SF_DIAGNOSIS_SCALE, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_diagnosis said = diagnosis_make(rows[i].cls, rows[i].cls ? "one" : ""),
                              other_said = diagnosis_make(rows[i].other_cls, rows[i].other_cls ? "other" : "");
    const struct sf_cause_evidence a = {.signature = rows[i].signature, .diagnosis = &said},
                                   b = {.signature = rows[i].other_signature, .diagnosis = &other_said};
    if (sf_findings_have_one_cause(&a, &b) != rows[i].one || sf_findings_have_one_cause(&b, &a) != rows[i].one) fail_msg("row %d", (int)i);
  }
}

static struct sf_case framework_case(const char *fields) {
  struct sf_case c = case_make("");
  snprintf(c.target, sizeof c.target, "some-framework");
  snprintf(c.fields, sizeof c.fields, "%s", fields);
  return c;
}

/* A norm of wrong gradients is wrong; isolated mode names the output of a module. */
static void test_findings_of_a_framework_have_one_cause_by_one_smallest_case(void **state) {
  (void)state;
  static const char plain[] = "{\"layout\": {\"tp\": 2}, \"model\": {\"experts\": 4}}", bare[] = "{\"layout\": {\"tp\": 2}}",
                    isolated[] = "{\"layout\": {\"tp\": 2}, \"model\": {\"experts\": 4}, \"mode\": \"isolated\", \"seed\": 7}",
                    more[] = "{\"layout\": {\"tp\": 2}, \"steps\": 2}";
  static const struct {
    const char *signature, *shown, *min, *other_signature, *other_min;
    bool one;
  } rows[] = {
      {"tolerance/main_grad/m@tp", "tolerance/main_grad/m\ntolerance/scalar/grad_norm\n", plain, "tolerance/scalar/grad_norm@tp", plain,
       true},
      {"tolerance/main_grad/m@tp", "tolerance/main_grad/m\ntolerance/scalar/grad_norm\n", plain, "tolerance/scalar/grad_norm@tp", more,
       false},
      {"tolerance/main_grad/m@tp", "tolerance/main_grad/m\ntolerance/scalar/grad_norm\n", bare, "tolerance/scalar/grad_norm@tp", bare,
       false},
      {"tolerance/main_grad/m@tp", "tolerance/main_grad/m\n", plain, "tolerance/scalar/grad_norm@tp", plain, false},
      {"tolerance/act/model@tp", "tolerance/act/model\ntolerance/act_grad/head\n", plain, "conflict/act_grad/head.output@tp+isolated",
       isolated, true},
      {"tolerance/act/model@tp", "tolerance/act/model\ntolerance/act_grad/head\n", plain, "conflict/act_grad/head.input@tp+isolated",
       isolated, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case c = framework_case(rows[i].min), other = framework_case(rows[i].other_min);
    const struct sf_diagnosis said = diagnosis_make(SF_DIAGNOSIS_EXTRA_REDUCTION, "one"),
                              other_said = diagnosis_make(SF_DIAGNOSIS_MISSING_TERM, "other");
    const struct sf_cause_evidence a = {.signature = rows[i].signature, .shown = rows[i].shown, .min = &c, .diagnosis = &said},
                                   b = {.signature = rows[i].other_signature, .min = &other, .diagnosis = &other_said};
    if (sf_findings_have_one_cause(&a, &b) != rows[i].one || sf_findings_have_one_cause(&b, &a) != rows[i].one) fail_msg("row %d", (int)i);
  }
}

static void test_finding_that_was_not_shrunk_may_be_of_one_whose_smallest_case_it_contains(void **state) {
  (void)state;
  static const struct {
    const char *signature, *found, *cause;
    bool may;
  } rows[] = {
      {"tolerance/act/m@tp+dp", "{\"layout\": {\"tp\": 4, \"dp\": 2}}", NULL, true},
      {"tolerance/act/m@tp+dp", "{\"layout\": {\"tp\": 4, \"dp\": 2}}", "by tp", true},
      {"tolerance/act/m@tp+dp", "{\"layout\": {\"tp\": 4, \"dp\": 2}}", "by dp", false},
      {"tolerance/act/m.output@tp+dp+isolated", "{\"layout\": {\"tp\": 4, \"dp\": 2}, \"mode\": \"isolated\"}", NULL, true},
      {"tolerance/act/m@dp", "{\"layout\": {\"dp\": 2}}", NULL, false},
      {"tolerance/act/n@tp+dp", "{\"layout\": {\"tp\": 4, \"dp\": 2}}", NULL, false},
      {"conflict/act/m@tp+dp", "{\"layout\": {\"tp\": 4, \"dp\": 2}}", NULL, false},
      {"tolerance/act_grad/m@tp+dp", "{\"layout\": {\"tp\": 4, \"dp\": 2}}", NULL, false},
  };
  const struct sf_case min = framework_case("{\"layout\": {\"tp\": 2}}");
  const struct sf_diagnosis by_tp = diagnosis_make(SF_DIAGNOSIS_SCALE, "by tp");
  const struct sf_cause_evidence shrunk = {.signature = "tolerance/act/m@tp", .min = &min, .diagnosis = &by_tp};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case found = framework_case(rows[i].found);
    const struct sf_diagnosis said = diagnosis_make(rows[i].cause ? SF_DIAGNOSIS_SCALE : SF_DIAGNOSIS_UNKNOWN, rows[i].cause);
    struct sf_cause_evidence own = {.signature = rows[i].signature, .diagnosis = &said, .found = &found};
    if (sf_finding_may_be_of(&own, &shrunk) != rows[i].may) fail_msg("row %d", (int)i);
    own.min = &min;
    assert_false(sf_finding_may_be_of(&own, &shrunk));
  }
  const struct sf_case found = framework_case("{\"layout\": {\"cp\": 2}}");
  const struct sf_diagnosis none = diagnosis_make(SF_DIAGNOSIS_UNKNOWN, NULL);
  const struct sf_cause_evidence one = {.signature = "tolerance/act/m@tp+pp", .diagnosis = &none, .found = &found},
                                 other = {.signature = "tolerance/act/m@tp+dp", .diagnosis = &none, .found = &found},
                                 isolated = {.signature = "tolerance/act/m@tp+dp+isolated", .diagnosis = &none, .found = &found};
  assert_true(sf_finding_may_be_of(&one, &other));
  assert_false(sf_finding_may_be_of(&one, &isolated));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_diagnosis_says_the_same_by_class_and_cause),
      cmocka_unit_test(test_findings_have_one_cause_by_what_is_said_and_what_is_shown),
      cmocka_unit_test(test_findings_of_a_shadow_and_what_it_shows_are_kept_apart),
      cmocka_unit_test(test_findings_have_one_cause_by_what_one_wrong_sum_may_look_like),
      cmocka_unit_test(test_findings_of_a_framework_have_one_cause_by_one_smallest_case),
      cmocka_unit_test(test_finding_that_was_not_shrunk_may_be_of_one_whose_smallest_case_it_contains),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
