/* Keys and signatures of failures that are not numbers. */
#include "tests/unit/run/run_fixture.h"

#include "harness/run/campaign/known.h"
#include "harness/run/trial/outcome.h"

static struct sf_outcome failure(const struct sf_case *c, enum sf_finding_class cls, enum sf_manner manner, const char *text) {
  struct sf_outcome outcome;
  memset(&outcome, 0, sizeof outcome);
  sf_outcome_from_failure(&outcome, c, cls, manner, 1, "mlp.linear_fc2.fwd", text);
  return outcome;
}

static void test_outcome_from_failure_key_has_the_manner_and_nothing_of_the_text(void **state) {
  (void)state;
  const struct sf_case c = case_make(CASE_TP2);
  const struct sf_outcome one = failure(&c, SF_CLASS_CRASH, SF_MANNER_WRITE, "wrote 8 bytes behind"),
                          other = failure(&c, SF_CLASS_CRASH, SF_MANNER_WRITE, "died");
  assert_string_equal(one.shrink_key, "crash/comm-write/mlp.linear_fc2.fwd");
  assert_string_equal(one.signature, "crash/comm-write/mlp.linear_fc2.fwd@tp");
  assert_string_equal(one.shrink_key, other.shrink_key);
  assert_int_equal(one.manner, SF_MANNER_WRITE);
  assert_string_equal(failure(&c, SF_CLASS_CRASH, SF_MANNER_ERROR, "").shrink_key, "crash/comm-error/mlp.linear_fc2.fwd");
  assert_string_equal(failure(&c, SF_CLASS_DEADLOCK, SF_MANNER_NONE, "").shrink_key, "deadlock/comm/mlp.linear_fc2.fwd");
}

static void test_outcome_from_failure_long_labels_that_differ_at_their_end_have_keys_of_their_own(void **state) {
  (void)state;
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_outcome outcomes[2] = {0};
  char label[2 * sizeof outcomes->label];
  for (int i = 0; i < 2; i++) {
    memset(label, 'a', sizeof label);
    snprintf(label + sizeof label - 8, 8, "%d.fwd", i);
    sf_outcome_from_failure(&outcomes[i], &c, SF_CLASS_CRASH, SF_MANNER_DIED, 1, label, "");
    assert_string_equal(strrchr(outcomes[i].signature, '@'), "@tp");
  }
  assert_string_not_equal(outcomes[0].shrink_key, outcomes[1].shrink_key);
  assert_string_not_equal(outcomes[0].label, outcomes[1].label);
  assert_string_not_equal(outcomes[0].module, outcomes[1].module);
}

static void test_signature_covers_key_of_old_form_stands_for_each_manner(void **state) {
  (void)state;
  assert_true(sf_signature_covers("crash/comm/a.fwd@tp", "crash/comm-write/a.fwd@tp"));
  assert_true(sf_signature_covers("mismatch/comm/a.fwd@tp", "mismatch/comm-absent/a.fwd@tp"));
  assert_true(sf_signature_covers("crash/comm-write/a.fwd@tp", "crash/comm-write/a.fwd@tp"));
  assert_false(sf_signature_covers("crash/comm-write/a.fwd@tp", "crash/comm-error/a.fwd@tp"));
  assert_false(sf_signature_covers("crash/comm-write/a.fwd@tp", "crash/comm/a.fwd@tp"));
  assert_false(sf_signature_covers("crash/comm/a.fwd@tp", "mismatch/comm-write/a.fwd@tp"));
  assert_false(sf_signature_covers("crash/comm/a.fwd@tp", "crash/comm-write/a.bwd@tp"));
  assert_false(sf_signature_covers("crash/comm/a.fwd@tp", "crash/comm-write/a.fwd@tp+dp"));
  assert_false(sf_signature_covers("crash/comm", "crash/comm-write/a.fwd@tp"));
  assert_false(sf_signature_covers("", "crash/comm-write/a.fwd@tp"));
}

/* Two ranks of etp may be ranks of tp, cp or dp: of the experts' code that is one failure, of any other code it is not. */
static void test_signature_of_experts_has_the_axes_of_their_mesh(void **state) {
  (void)state;
  static const char *const rows[][3] = {
      {"model.heads=2 model.kv_heads=2 moe.experts=2 layout.tp=2 layout.sp=on layout.etp=2", "tp+sp+etp", "etp"},
      {"moe.experts=2 layout.cp=2 layout.etp=2", "cp+etp", "etp"},
      {"moe.experts=2 layout.dp=2 layout.etp=2 train.microbatches=2", "etp+dp", "etp"},
      {"layout.dp=2 train.microbatches=2", "dp", "edp"},
      {"moe.experts=2 model.layers=2 model.seq=8 layout.cp=4 layout.ep=2 layout.pp=2", "cp+ep+pp", "ep+edp+pp"},
      {"", "none", "none"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    static const char *const keys[] = {"tolerance/act/mlp.combine", "tolerance/act/mlp.experts.linear_fc2",
                                       "deadlock/comm/token_dispatcher.etp_gather"};
    const struct sf_case c = case_make(rows[i][0]);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
      char signature[SF_SIGNATURE_TEXT];
      sf_signature_make(signature, keys[k], &c);
      assert_string_equal(strchr(signature, '@') + 1, rows[i][k > 0 ? 2 : 1]);
      assert_true(sf_signature_within(signature, &c));
    }
  }
  const struct sf_case c = case_make("model.heads=2 model.kv_heads=2 moe.experts=2 layout.tp=2 layout.sp=on layout.etp=2");
  assert_false(sf_signature_within("tolerance/act/mlp.combine@tp+dp", &c));
  assert_false(sf_signature_within("tolerance/act/mlp.combine@tpx", &c));
}

static void test_signature_covers_axes_of_old_form_stand_for_those_with_etp(void **state) {
  (void)state;
  static const struct {
    const char *written, *seen;
    bool covers;
  } rows[] = {
      {"tolerance/act/mlp.combine@tp+sp", "tolerance/act/mlp.combine@tp+sp+etp", true},
      {"tolerance/act/mlp.combine@tp+sp", "tolerance/act/mlp.combine@cp+etp", false},
      {"tolerance/act/mlp.combine@tp+sp+etp", "tolerance/act/mlp.combine@tp+sp", false},
      {"tolerance/act/mlp.experts.linear_fc2@tp+sp", "tolerance/act/mlp.experts.linear_fc2@etp", true},
      {"tolerance/act/mlp.experts.linear_fc2@dp", "tolerance/act/mlp.experts.linear_fc2@edp", true},
      {"tolerance/main_grad/mlp.experts.linear_fc1@cp+ep", "tolerance/main_grad/mlp.experts.linear_fc1@ep", true},
      {"tolerance/main_grad/mlp.experts.linear_fc1@cp+ep", "tolerance/main_grad/mlp.experts.linear_fc1@etp", false},
      {"tolerance/main_grad/mlp.experts.linear_fc1@none", "tolerance/main_grad/mlp.experts.linear_fc1@etp", false},
      {"tolerance/main_grad/mlp.experts.linear_fc1@etp", "tolerance/main_grad/mlp.experts.linear_fc1@edp", false},
      {"crash/comm/token_dispatcher.tokens@tp+sp", "crash/comm-write/token_dispatcher.tokens@etp", true},
      {"tolerance/act/mlp.combine@strange", "tolerance/act/mlp.combine@tp", false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (sf_signature_covers(rows[i].written, rows[i].seen) != rows[i].covers) fail_msg("%s, %s", rows[i].written, rows[i].seen);
}

static void test_as_expected_and_known_take_keys_of_old_form(void **state) {
  (void)state;
  const struct sf_case c = case_make(CASE_TP2);
  const struct sf_outcome seen = failure(&c, SF_CLASS_CRASH, SF_MANNER_READ, "");
  struct sf_expect expect = {.present = true, .verdict = "FINDING", .signature = "crash/comm/mlp.linear_fc2.fwd@tp"};
  struct sf_known_entry entry = {.signature = "crash/comm/mlp.linear_fc2.fwd@tp"};
  const struct sf_known known = {1, &entry};
  assert_true(sf_outcome_as_expected(&seen, &expect));
  assert_true(sf_known_has(&known, seen.signature));
  snprintf(expect.signature, sizeof expect.signature, "crash/comm-write/mlp.linear_fc2.fwd@tp");
  snprintf(entry.signature, sizeof entry.signature, "crash/comm-write/mlp.linear_fc2.fwd@tp");
  assert_false(sf_outcome_as_expected(&seen, &expect));
  assert_false(sf_known_has(&known, seen.signature));
}

static struct sf_culprit culprit_make(const char *key, const char *signature) {
  struct sf_culprit culprit = {.cls = SF_CLASS_TOLERANCE, .ratio = 7, .finding = 3};
  snprintf(culprit.shrink_key, sizeof culprit.shrink_key, "%s", key);
  snprintf(culprit.signature, sizeof culprit.signature, "%s", signature);
  snprintf(culprit.text, sizeof culprit.text, "off by %s", key);
  return culprit;
}

/* A case with two culprits: either can be told of, and either is what the case may expect. */
static void test_outcome_turn_to_tells_of_another_culprit_and_back(void **state) {
  (void)state;
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_outcome outcome = failure(&c, SF_CLASS_CRASH, SF_MANNER_READ, "read");
  const struct sf_outcome before = outcome;
  const struct sf_culprit other = culprit_make("tolerance/act/b", "tolerance/act/b@tp");
  for (int twice = 0; twice < 2; twice++) sf_outcome_add_culprit(&outcome, &other);
  assert_int_equal(outcome.further_count, 1);
  assert_string_equal(outcome.shown, "crash/comm-read/mlp.linear_fc2.fwd\ntolerance/act/b\n");
  assert_true(sf_outcome_shown_has(outcome.shown, "tolerance/act/b" SF_KEY_ISOLATED));
  assert_false(sf_outcome_shown_has(outcome.shown, "tolerance/act/"));
  struct sf_expect expect = {.present = true, .verdict = "FINDING", .signature = "tolerance/act/b@tp"};
  assert_true(sf_outcome_as_expected(&outcome, &expect));
  sf_outcome_turn_to_expected(&outcome, &expect);
  assert_string_equal(outcome.signature, "tolerance/act/b@tp");
  assert_string_equal(outcome.text, "off by tolerance/act/b");
  assert_int_equal(outcome.finding, 3);
  assert_string_equal(outcome.further[0].signature, before.signature);
  assert_true(sf_outcome_as_expected(&outcome, &expect));
  snprintf(expect.signature, sizeof expect.signature, "%s", before.signature);
  assert_true(sf_outcome_as_expected(&outcome, &expect));
  assert_true(sf_outcome_turn_to(&outcome, before.shrink_key));
  assert_string_equal(outcome.signature, before.signature);
  assert_int_equal(outcome.cls, SF_CLASS_CRASH);
  assert_false(sf_outcome_turn_to(&outcome, "tolerance/act/c"));
  snprintf(expect.signature, sizeof expect.signature, "tolerance/act/b@tp+dp");
  assert_false(sf_outcome_as_expected(&outcome, &expect));
}

static void test_outcome_add_culprit_keeps_as_many_as_there_is_room_for(void **state) {
  (void)state;
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_outcome outcome = failure(&c, SF_CLASS_CRASH, SF_MANNER_READ, "read");
  for (int i = 0; i < 2 * SF_FURTHER_MAX; i++) {
    char key[32];
    snprintf(key, sizeof key, "tolerance/act/%d", i);
    const struct sf_culprit other = culprit_make(key, key);
    sf_outcome_add_culprit(&outcome, &other);
  }
  assert_int_equal(outcome.further_count, SF_FURTHER_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_outcome_from_failure_key_has_the_manner_and_nothing_of_the_text),
      cmocka_unit_test(test_outcome_from_failure_long_labels_that_differ_at_their_end_have_keys_of_their_own),
      cmocka_unit_test(test_signature_covers_key_of_old_form_stands_for_each_manner),
      cmocka_unit_test(test_signature_of_experts_has_the_axes_of_their_mesh),
      cmocka_unit_test(test_signature_covers_axes_of_old_form_stand_for_those_with_etp),
      cmocka_unit_test(test_as_expected_and_known_take_keys_of_old_form),
      cmocka_unit_test(test_outcome_turn_to_tells_of_another_culprit_and_back),
      cmocka_unit_test(test_outcome_add_culprit_keeps_as_many_as_there_is_room_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
