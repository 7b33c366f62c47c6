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
  const struct sf_outcome one = failure(&c, SF_CLASS_CRASH, SF_MANNER_WRITE, "wrote 8 bytes behind"), other = failure(&c, SF_CLASS_CRASH, SF_MANNER_WRITE, "died");
  assert_string_equal(one.shrink_key, "crash/comm-write/mlp.linear_fc2.fwd");
  assert_string_equal(one.signature, "crash/comm-write/mlp.linear_fc2.fwd@tp");
  assert_string_equal(one.shrink_key, other.shrink_key);
  assert_int_equal(one.manner, SF_MANNER_WRITE);
  assert_string_equal(failure(&c, SF_CLASS_CRASH, SF_MANNER_ERROR, "").shrink_key, "crash/comm-error/mlp.linear_fc2.fwd");
  assert_string_equal(failure(&c, SF_CLASS_DEADLOCK, SF_MANNER_NONE, "").shrink_key, "deadlock/comm/mlp.linear_fc2.fwd");
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_outcome_from_failure_key_has_the_manner_and_nothing_of_the_text),
      cmocka_unit_test(test_signature_covers_key_of_old_form_stands_for_each_manner),
      cmocka_unit_test(test_as_expected_and_known_take_keys_of_old_form),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
