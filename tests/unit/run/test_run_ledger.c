#include "tests/unit/run/run_fixture.h"

#include "harness/run/campaign/ledger.h"
#include "harness/run/campaign/signatures.h"
#include "harness/run/commands/report_json.h"

struct books {
  struct sf_campaign_options options;
  struct sf_ledger ledger;
};

static struct books *books_open(const char *folder, bool resume) {
  struct books *b = test_calloc(1, sizeof *b);
  struct sf_error error = {SF_OK, ""};
  sf_space_init(&b->options.space);
  b->options.layouts = 4;
  b->options.resume = resume;
  snprintf(b->options.store_path, sizeof b->options.store_path, "%s/store.sqlite", folder);
  snprintf(b->options.out_dir, sizeof b->options.out_dir, "%s/findings", folder);
  if (sf_ledger_open(&b->ledger, &b->options, &error) != SF_OK) fail_msg("%s", error.text);
  if (!resume) {
    int64_t first, count;
    assert_int_equal(sf_store_lease(b->ledger.store, &first, &count, 100, 100, NULL), SF_OK);
  }
  return b;
}

static void books_close(struct books *b) {
  sf_ledger_commit(&b->ledger);
  assert_int_equal(b->ledger.status, SF_OK);
  sf_ledger_close(&b->ledger);
  test_free(b);
}

/* What is not stored is lost. */
static void books_kill(struct books *b) {
  sf_ledger_close(&b->ledger);
  test_free(b);
}

static struct sf_store_summary summary(struct books *b) {
  struct sf_store_summary s;
  assert_int_equal(sf_store_summarise(b->ledger.store, &s, NULL), SF_OK);
  return s;
}

static struct sf_store_finding finding(struct books *b, const char *signature) {
  struct sf_store_finding f;
  bool found = false;
  assert_int_equal(sf_store_find(b->ledger.store, &f, &found, signature, NULL), SF_OK);
  if (!found) fail_msg("no finding %s", signature);
  return f;
}

static struct sf_job_result shrunk_to(const struct sf_case *min, const struct sf_outcome *outcome) {
  struct sf_job_result r;
  memset(&r, 0, sizeof r);
  r.end = SF_SHRINK_DONE;
  r.outcome = *outcome;
  r.min = *min;
  r.min_outcome = finding_of(min, outcome->label);
  r.minimal = true;
  return r;
}

static struct sf_case read_file(const char *folder, const char *signature_folder, const char *name) {
  char path[512];
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/findings/%s/%s", folder, signature_folder, name);
  if (sf_case_read(&c, path, &error) != SF_OK) fail_msg("%s", error.text);
  return c;
}

#define BOOKING(INDEX, CASE, OUTCOME) ((struct sf_booking){.index = (INDEX), .c = &(CASE), .outcome = &(OUTCOME)})
#define CASE_TP2DP2 "model.heads=2 model.kv_heads=2 layout.tp=2 layout.dp=2 train.microbatches=2"

static void test_ledger_add_shrunk_signature_is_the_small_cases(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2DP2), min = case_make(CASE_TP2);
  const struct sf_outcome outcome = finding_of(&c, "here");
  const struct sf_job_result r = shrunk_to(&min, &outcome);
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(5, c, outcome), &r);
  assert_int_equal(sf_ledger_shrinks(&b->ledger, "deadlock/comm/here"), 1);
  const struct sf_store_finding f = finding(b, "deadlock/comm/here@tp");
  assert_int_equal(f.index, 5);
  assert_int_equal(f.count, 1);
  assert_non_null(f.min_json);
  assert_non_null(strstr(f.report, "min.json"));
  const struct sf_case file = read_file(*state, "deadlock-comm-here@tp", "min.json");
  assert_int_equal(sf_case_ranks(&file), 2);
  assert_string_equal(file.expect.verdict, "FINDING");
  assert_string_equal(file.expect.signature, "deadlock/comm/here@tp");
  const struct sf_case whole = read_file(*state, "deadlock-comm-here@tp", "case.json");
  assert_int_equal(sf_case_ranks(&whole), 4);
  assert_string_equal(whole.expect.signature, "deadlock/comm/here@tp+dp");
  books_close(b);
}

static void test_ledger_add_unshrunk_counts_under_a_signature_with_axes_it_has(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case tp = case_make(CASE_TP2), both = case_make(CASE_TP2DP2), dp = case_make("layout.dp=2 train.microbatches=2");
  const struct sf_outcome of_tp = finding_of(&tp, "here"), of_both = finding_of(&both, "here"), of_dp = finding_of(&dp, "here");
  const struct sf_outcome elsewhere = finding_of(&both, "there");
  const struct sf_job_result r = shrunk_to(&tp, &of_tp);
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(0, tp, of_tp), &r);
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(1, both, of_both));   /* has tp */
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(2, dp, of_dp));       /* has not */
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(3, both, elsewhere)); /* another key */
  assert_int_equal(finding(b, "deadlock/comm/here@tp").count, 2);
  assert_int_equal(finding(b, "deadlock/comm/here@dp").count, 1);
  assert_null(finding(b, "deadlock/comm/here@dp").min_json);
  assert_int_equal(finding(b, "deadlock/comm/there@tp+dp").count, 1);
  const struct sf_store_summary s = summary(b);
  assert_int_equal(s.cases, 4);
  assert_int_equal(s.signatures, 3);
  assert_int_equal(sf_ledger_shrinks(&b->ledger, "deadlock/comm/here"), 1);
  books_close(b);
}

static void test_ledger_add_unshrunk_looks_at_the_layout_that_a_case_is_loaded_with_too(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case tp = case_make(CASE_TP2);
  const struct sf_case dp_then_tp =
      case_make("model.heads=2 model.kv_heads=2 layout.dp=2 train.microbatches=2 train.steps=2 reload.after_step=1 reload.tp=2");
  const struct sf_outcome of_tp = finding_of(&tp, "here"), of_both = finding_of(&dp_then_tp, "here");
  const struct sf_job_result r = shrunk_to(&tp, &of_tp);
  assert_string_equal(of_both.signature, "deadlock/comm/here@tp+dp");
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(0, tp, of_tp), &r);
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(1, dp_then_tp, of_both));
  assert_int_equal(finding(b, "deadlock/comm/here@tp").count, 2);
  assert_int_equal(summary(b).signatures, 1);
  books_close(b);
}

static void test_ledger_wants_shrink_three_of_a_key_and_then_only_other_axes(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case tp = case_make(CASE_TP2), both = case_make(CASE_TP2DP2), dp = case_make("layout.dp=2 train.microbatches=2");
  const struct sf_outcome of_tp = finding_of(&tp, "here"), of_both = finding_of(&both, "here"), of_dp = finding_of(&dp, "here");
  const struct sf_outcome elsewhere = finding_of(&both, "there");
  const struct sf_job_result r = shrunk_to(&tp, &of_tp);
  int64_t index = 0;
  for (; index < SF_LEDGER_SHRINKS_PER_KEY; index++) {
    assert_true(sf_ledger_wants_shrink(&b->ledger, &BOOKING(0, both, of_both)));
    sf_ledger_add_shrunk(&b->ledger, &BOOKING(index, tp, of_tp), &r);
  }
  assert_false(sf_ledger_wants_shrink(&b->ledger, &BOOKING(0, both, of_both))); /* has tp */
  for (; index < SF_LEDGER_SHRINKS_MAX; index++) {
    assert_true(sf_ledger_wants_shrink(&b->ledger, &BOOKING(0, dp, of_dp)));
    sf_ledger_add_shrunk(&b->ledger, &BOOKING(index, tp, of_tp), &r);
  }
  assert_false(sf_ledger_wants_shrink(&b->ledger, &BOOKING(0, dp, of_dp)));
  assert_true(sf_ledger_wants_shrink(&b->ledger, &BOOKING(0, both, elsewhere)));
  books_close(b);
}

static void test_ledger_divides_the_shrinks_of_a_key_by_the_shares_of_the_campaign(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case tp = case_make(CASE_TP2);
  const struct sf_outcome of_tp = finding_of(&tp, "here");
  for (int32_t shares = 0; shares <= 8; shares++) {
    b->options.share_count = shares;
    assert_int_equal(sf_ledger_shrinks_at_least(&b->ledger, &BOOKING(0, tp, of_tp)), shares <= 1 ? 3 : shares == 2 ? 2 : 1);
  }
  books_close(b);
}

/* Two keys that were shrunk to one culprit: later findings of both are counted to it, also by a campaign that goes on. */
static void test_ledger_add_unshrunk_counts_each_key_under_the_signature_that_it_was_shrunk_to(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case tp = case_make(CASE_TP2), both = case_make(CASE_TP2DP2);
  const struct sf_outcome of_tp = finding_of(&tp, "culprit"), first = finding_of(&both, "first"), second = finding_of(&both, "second");
  const struct sf_job_result r = shrunk_to(&tp, &of_tp);
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(0, both, first), &r);
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(1, both, second), &r);
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(2, both, first));
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(3, both, second));
  assert_int_equal(finding(b, "deadlock/comm/culprit@tp").count, 4);
  books_close(b);
  b = books_open(*state, true);
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(4, both, first));
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(5, both, second));
  assert_int_equal(finding(b, "deadlock/comm/culprit@tp").count, 6);
  assert_int_equal(summary(b).signatures, 1);
  books_close(b);
}

static void test_ledger_open_resume_remembers_signatures(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case tp = case_make(CASE_TP2), both = case_make(CASE_TP2DP2);
  const struct sf_outcome of_tp = finding_of(&tp, "here"), of_both = finding_of(&both, "here");
  const struct sf_job_result r = shrunk_to(&tp, &of_tp);
  struct sf_outcome passed;
  memset(&passed, 0, sizeof passed);
  passed.verdict = SF_VERDICT_PASS;
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(0, tp, of_tp), &r);
  sf_ledger_add_verdict(&b->ledger, 2, &tp, &passed); /* its row has no signature */
  books_close(b);
  b = books_open(*state, true);
  assert_int_equal(sf_ledger_shrinks(&b->ledger, "deadlock/comm/here"), 1);
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(1, both, of_both));
  assert_int_equal(finding(b, "deadlock/comm/here@tp").count, 2);
  books_close(b);
}

static void write_beside(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/findings/%s", folder, name);
  assert_int_equal(sf_bytes_write_file(path, "half", 4, NULL), SF_OK);
}

static bool is_there(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/findings/%s", folder, name);
  return access(path, F_OK) == 0;
}

/* Files of a finding that a killed run did not store go, half-written ones too; those of a stored finding and what others wrote stay. */
static void test_ledger_open_resume_discards_files_of_what_was_not_stored(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case tp = case_make(CASE_TP2);
  const struct sf_outcome here = finding_of(&tp, "here"), lost = finding_of(&tp, "lost"), shared = finding_of(&tp, "shared");
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(0, tp, here));
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(1, tp, lost));
  write_beside(*state, "deadlock-comm-lost@tp/case.json.1.0.tmp");
  assert_true(is_there(*state, "deadlock-comm-lost@tp/report.txt"));
  books_kill(b);
  b = books_open(*state, true);
  assert_true(is_there(*state, "deadlock-comm-here@tp/report.txt"));
  assert_false(is_there(*state, "deadlock-comm-lost@tp"));
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(1, tp, lost));
  assert_true(is_there(*state, "deadlock-comm-lost@tp/case.json"));
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(2, tp, shared));
  write_beside(*state, "deadlock-comm-shared@tp/notes");
  books_kill(b);
  b = books_open(*state, true);
  assert_true(is_there(*state, "deadlock-comm-lost@tp/case.json")); /* it was stored before the next finding took a folder */
  assert_true(is_there(*state, "deadlock-comm-shared@tp/notes"));
  assert_false(is_there(*state, "deadlock-comm-shared@tp/case.json"));
  books_close(b);
}

static void test_ledger_add_shrunk_files_are_those_of_the_smallest_index(void **state) {
  struct books *b = books_open(*state, false);
  static const int64_t order[] = {7, 3, 9};
  for (int i = 0; i < 3; i++) {
    struct sf_case c = case_make(CASE_TP2);
    c.seed = order[i];
    const struct sf_outcome outcome = finding_of(&c, "here");
    const struct sf_job_result r = shrunk_to(&c, &outcome);
    sf_ledger_add_shrunk(&b->ledger, &BOOKING(order[i], c, outcome), &r);
  }
  assert_int_equal(read_file(*state, "deadlock-comm-here@tp", "case.json").seed, 3);
  assert_int_equal(read_file(*state, "deadlock-comm-here@tp", "min.json").seed, 3);
  assert_int_equal(finding(b, "deadlock/comm/here@tp").index, 3);
  assert_int_equal(finding(b, "deadlock/comm/here@tp").count, 3);
  books_close(b);
}

/* Of what was counted under its own signature the case stays, and what a later finding of that signature was shrunk to comes beside it: the
 * files are what the row says. */
static void test_ledger_add_shrunk_after_unshrunk_leaves_the_case_of_the_smallest_index(void **state) {
  struct books *b = books_open(*state, false);
  struct sf_case early = case_make(CASE_TP2), late = early;
  early.seed = 3;
  late.seed = 7;
  const struct sf_outcome outcome = finding_of(&early, "here");
  const struct sf_job_result r = shrunk_to(&late, &outcome);
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(3, early, outcome));
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(7, late, outcome), &r);
  assert_int_equal(read_file(*state, "deadlock-comm-here@tp", "case.json").seed, 3);
  assert_int_equal(read_file(*state, "deadlock-comm-here@tp", "min.json").seed, 7);
  assert_int_equal(finding(b, "deadlock/comm/here@tp").index, 3);
  assert_int_equal(finding(b, "deadlock/comm/here@tp").min_index, 7);
  assert_non_null(strstr(finding(b, "deadlock/comm/here@tp").report, "min.json"));
  books_close(b);
}

static void test_ledger_add_shrunk_flaky_has_a_class_and_a_signature_of_its_own(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2);
  const struct sf_outcome outcome = finding_of(&c, "here");
  struct sf_job_result r;
  memset(&r, 0, sizeof r);
  r.end = SF_SHRINK_FLAKY;
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(0, c, outcome), &r);
  const struct sf_store_summary s = summary(b);
  assert_int_equal(s.flaky, 1);
  assert_int_equal(s.by_verdict[SF_VERDICT_FINDING], 1);
  assert_int_equal(s.by_class[SF_CLASS_FLAKY], 1);
  assert_int_equal(s.by_class[SF_CLASS_DEADLOCK], 0);
  assert_int_equal(finding(b, "flaky/deadlock/comm/here").count, 1);
  assert_int_equal(sf_ledger_shrinks(&b->ledger, "deadlock/comm/here"), 0);
  books_close(b);
}

static void test_ledger_add_shrunk_flaky_of_long_keys_stay_different(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_job_result r;
  memset(&r, 0, sizeof r);
  r.end = SF_SHRINK_FLAKY;
  for (int i = 0; i < 2; i++) {
    struct sf_outcome outcome = finding_of(&c, "here");
    memset(outcome.shrink_key, 'a', sizeof outcome.shrink_key - 2);
    outcome.shrink_key[sizeof outcome.shrink_key - 2] = (char)('0' + i);
    sf_ledger_add_shrunk(&b->ledger, &BOOKING(i, c, outcome), &r);
  }
  assert_int_equal(summary(b).signatures, 2);
  books_close(b);
}

/* Processes that died again and again say nothing of the finding: it stays what it was. */
static void test_ledger_add_shrunk_what_could_not_be_confirmed_stays_what_it_was(void **state) {
  static const enum sf_shrink_end ends[] = {SF_SHRINK_LOST, SF_SHRINK_UNCONFIRMED};
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2);
  for (int i = 0; i < 2; i++) {
    const struct sf_outcome outcome = finding_of(&c, i ? "there" : "here");
    struct sf_job_result r;
    memset(&r, 0, sizeof r);
    r.end = ends[i];
    sf_outcome_from_failure(&r.outcome, &c, SF_CLASS_CRASH, SF_MANNER_DIED, -1, "", "the process ended by itself");
    sf_ledger_add_shrunk(&b->ledger, &BOOKING(i, c, outcome), &r);
    const struct sf_store_finding f = finding(b, outcome.signature);
    assert_null(f.min_json);
    assert_non_null(strstr(f.report, "several times"));
    assert_non_null(strstr(f.report, "the process ended by itself"));
    assert_int_equal(sf_ledger_shrinks(&b->ledger, outcome.shrink_key), 1); /* or each finding of the key would be tried */
  }
  const struct sf_store_summary s = summary(b);
  assert_int_equal(s.flaky, 0);
  assert_int_equal(s.by_class[SF_CLASS_DEADLOCK], 2);
  books_close(b);
}

static void test_ledger_add_known_signature_is_marked(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2);
  const struct sf_outcome known = finding_of(&c, "here"), unknown = finding_of(&c, "there");
  struct sf_known_entry entry = {.signature = "deadlock/comm/here@tp"};
  b->options.known = (struct sf_known){1, &entry};
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(0, c, known));
  sf_ledger_add_unshrunk(&b->ledger, &BOOKING(1, c, unknown));
  assert_true(finding(b, "deadlock/comm/here@tp").known);
  assert_false(finding(b, "deadlock/comm/there@tp").known);
  struct sf_campaign_result result;
  memset(&result, 0, sizeof result);
  sf_ledger_summarise(&b->ledger, &result);
  assert_int_equal(result.new_signatures, 1);
  assert_int_equal(result.cases_run, 2);
  books_close(b);
}

static void test_ledger_fail_first_failure_stays_and_nothing_more_is_booked(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2);
  sf_ledger_fail(&b->ledger, SF_OK, "nothing");
  assert_int_equal(b->ledger.status, SF_OK);
  sf_ledger_fail(&b->ledger, SF_EIO, "first");
  sf_ledger_fail(&b->ledger, SF_ENOMEM, "second");
  assert_int_equal(b->ledger.status, SF_EIO);
  assert_string_equal(b->ledger.error.text, "first");
  const struct sf_outcome outcome = finding_of(&c, "here");
  const struct sf_job_result r = shrunk_to(&c, &outcome);
  sf_ledger_add_shrunk(&b->ledger, &BOOKING(0, c, outcome), &r);
  assert_int_equal(sf_ledger_shrinks(&b->ledger, "deadlock/comm/here"), 0);
  assert_int_equal(summary(b).signatures, 0);
  sf_ledger_close(&b->ledger);
  test_free(b);
}

static void test_ledger_add_verdict_twice_fails(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_outcome outcome;
  memset(&outcome, 0, sizeof outcome);
  outcome.verdict = SF_VERDICT_PASS;
  sf_ledger_add_verdict(&b->ledger, 4, &c, &outcome);
  assert_int_equal(b->ledger.status, SF_OK);
  sf_ledger_add_verdict(&b->ledger, 4, &c, &outcome);
  assert_int_equal(b->ledger.status, SF_EUSAGE);
  sf_ledger_close(&b->ledger);
  test_free(b);
}

static void test_ledger_open_out_folder_that_cannot_be_is_told(void **state) {
  static struct sf_campaign_options options;
  struct sf_ledger ledger;
  struct sf_error error = {SF_OK, ""};
  char path[256];
  snprintf(path, sizeof path, "%s/file", (char *)*state);
  assert_int_equal(sf_bytes_write_file(path, "x", 1, &error), SF_OK);
  sf_space_init(&options.space);
  options.layouts = 1;
  snprintf(options.store_path, sizeof options.store_path, "%s/store.sqlite", (char *)*state);
  snprintf(options.out_dir, sizeof options.out_dir, "%s/findings", path);
  assert_int_equal(sf_ledger_open(&ledger, &options, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, options.out_dir));
  assert_int_not_equal(access(options.store_path, F_OK), 0);
}

/* A campaign of which nothing was judged says why; one verdict more and it was judged. */
static void test_campaign_nothing_text_names_the_last_reasons(void **state) {
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make("");
  struct sf_campaign_result result;
  struct sf_outcome outcome = finding_of(&c, "here");
  char text[480];
  static const struct {
    enum sf_verdict verdict;
    const char *text, *says;
  } rows[] = {{SF_VERDICT_SKIP, "too large", "every case was skipped: too large"},
              {SF_VERDICT_INCONCLUSIVE, "3 of 4 tensors\nwhat it printed",
               "nothing was judged: 1 inconclusive (last: 3 of 4 tensors), 1 skipped (last: too large)"},
              {SF_VERDICT_INCONCLUSIVE, "", "nothing was judged: 2 inconclusive (last: 3 of 4 tensors), 1 skipped (last: too large)"},
              {SF_VERDICT_PASS, "", NULL}};
  memset(&result, 0, sizeof result);
  assert_false(sf_campaign_judged_nothing(&result));
  for (int i = 0; i < 4; i++) {
    outcome.verdict = rows[i].verdict;
    snprintf(outcome.text, sizeof outcome.text, "%s", rows[i].text);
    sf_ledger_add_verdict(&b->ledger, i, &c, &outcome);
    sf_ledger_summarise(&b->ledger, &result);
    assert_int_equal(sf_campaign_judged_nothing(&result), rows[i].says != NULL);
    if (!rows[i].says) continue;
    sf_campaign_nothing_text(text, sizeof text, &result);
    assert_string_equal(text, rows[i].says);
    /* and so does a later run that has nothing left to do */
    books_close(b);
    b = books_open(*state, true);
    sf_ledger_summarise(&b->ledger, &result);
    sf_campaign_nothing_text(text, sizeof text, &result);
    assert_string_equal(text, rows[i].says);
  }
  books_close(b);
}

/* --- what a campaign shows at its end ----------------------------------------------------------------------------- */

/* One fault behind a collective that ranks do not meet in has a signature for each call behind it; what is said of them differs in numbers.
 */
static void test_signatures_text_and_json_name_the_diagnosis(void **state) {
  static const struct {
    const char *label, *text, *cause;
    enum sf_diagnosis_class cls;
  } rows[] = {
      {"first", "s0/mb0/fwd/act/a.layers.0.b/0 was wrong before: off by 1.5e-05, 3e+06 times", "wrong before: act of b",
       SF_DIAGNOSIS_EARLIER},
      {"second", "the bias is added 2 times", "added twice: the bias", SF_DIAGNOSIS_REPEATED_TERM},
      {"third", "s1/mb3/fwd/act/a.layers.2.b/0 was wrong before: off by 2, 31.25 times", "wrong before: act of b", SF_DIAGNOSIS_EARLIER},
      {"fourth", "", "", SF_DIAGNOSIS_UNKNOWN},
      {"fifth", "", "", SF_DIAGNOSIS_UNKNOWN}};
  struct books *b = books_open(*state, false);
  const struct sf_case c = case_make(CASE_TP2);
  for (int i = 0; i < 5; i++) {
    const struct sf_outcome outcome = finding_of(&c, rows[i].label);
    struct sf_job_result r = shrunk_to(&c, &outcome);
    r.min_outcome.diagnosis = (struct sf_diagnosis){.cls = rows[i].cls, .left = 0.25};
    snprintf(r.min_outcome.diagnosis.text, sizeof r.min_outcome.diagnosis.text, "%s", rows[i].text);
    snprintf(r.min_outcome.diagnosis.cause, sizeof r.min_outcome.diagnosis.cause, "%s", rows[i].cause);
    if (i < 4)
      sf_ledger_add_shrunk(&b->ledger, &BOOKING(i, c, outcome), &r);
    else
      sf_ledger_add_unshrunk(&b->ledger, &BOOKING(i, c, outcome));
  }
  sf_ledger_commit(&b->ledger);
  struct sf_signatures signatures;
  struct sf_text text = {0};
  assert_int_equal(sf_signatures_read(&signatures, &b->options, NULL), SF_OK);
  sf_signatures_text(&text, &signatures);
  /* The folder's name is the test's own; what stands before it is not. */
  char shown[4000] = "", *rest = text.data;
  for (const char *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
    const size_t length = strlen(shown);
    const char *axes = strstr(line, "@tp ");
    snprintf(shown + length, sizeof shown - length, "%.*s|", (int)(axes ? axes + 3 - line : (ptrdiff_t)strlen(line)), line);
  }
  assert_string_equal(shown,
                      "  deadlock/comm/first@tp|    also deadlock/comm/third@tp|"
                      "    diagnosis: earlier: s0/mb0/fwd/act/a.layers.0.b/0 was wrong before: off by 1.5e-05, 3e+06 times|"
                      "  deadlock/comm/second@tp|    diagnosis: repeated_term: the bias is added 2 times|  deadlock/comm/fourth@tp|  "
                      "deadlock/comm/fifth@tp|");
  assert_int_equal(signatures.cause_count, 4);
  assert_int_equal(signatures.new_cause_count, 4);
  const struct sf_campaign_result result = {.summary.signatures = 5};
  json_t *json = sf_json_of_campaign(&result, &signatures), *list = json_object_get(json, "by_signature"),
         *second = json_array_get(list, 1);
  assert_int_equal(json_array_size(list), 5);
  assert_string_equal(json_string_value(json_object_get(second, "signature")), "deadlock/comm/second@tp");
  assert_string_equal(json_string_value(json_object_get(json_array_get(list, 2), "cause")), "deadlock/comm/first@tp");
  assert_int_equal(json_integer_value(json_object_get(json, "causes")), 4);
  assert_int_equal(json_integer_value(json_object_get(second, "count")), 1);
  assert_true(json_is_false(json_object_get(second, "known")));
  assert_string_equal(json_string_value(json_object_get(json_object_get(second, "diagnosis"), "class")), "repeated_term");
  assert_string_equal(json_string_value(json_object_get(json_object_get(second, "diagnosis"), "text")), rows[1].text);
  assert_true(json_real_value(json_object_get(json_object_get(second, "diagnosis"), "left")) == 0.25);
  assert_true(json_is_null(json_object_get(json_array_get(list, 3), "diagnosis")));
  assert_int_equal(access(json_string_value(json_object_get(second, "min")), R_OK), 0);
  assert_non_null(strstr(json_string_value(json_object_get(second, "min")), "/min.json"));
  assert_non_null(strstr(json_string_value(json_object_get(json_array_get(list, 4), "min")), "/case.json"));
  json_decref(json);
  json = sf_json_of_campaign(&result, NULL);
  assert_non_null(json);
  assert_null(json_object_get(json, "by_signature"));
  json_decref(json);
  sf_text_destroy(&text);
  sf_signatures_destroy(&signatures);
  books_close(b);
}

static void test_many_signatures_of_a_cause_are_counted_not_listed(void **state) {
  (void)state;
  for (int32_t count = 7; count <= 9; count++) {
    struct sf_signature at[9] = {0};
    for (int32_t i = 0; i < count; i++) snprintf(at[i].signature, sizeof at[i].signature, "gap/act/module-%d@tp", (int)i);
    const struct sf_signatures signatures = {.count = count, .cause_count = 1, .new_cause_count = 1, .at = at};
    struct sf_text text = {0};
    sf_signatures_text(&text, &signatures);
    assert_non_null(strstr(text.data, "    also gap/act/module-6@tp"));
    assert_null(strstr(text.data, "module-7"));
    assert_int_equal(strstr(text.data, "    also 1 more signature:") != NULL, count == 8);
    assert_int_equal(strstr(text.data, "    also 2 more signatures:") != NULL, count == 9);
    sf_text_destroy(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_ledger_add_shrunk_signature_is_the_small_cases),
      FOLDER_TEST(test_ledger_add_unshrunk_counts_under_a_signature_with_axes_it_has),
      FOLDER_TEST(test_ledger_add_unshrunk_looks_at_the_layout_that_a_case_is_loaded_with_too),
      FOLDER_TEST(test_ledger_wants_shrink_three_of_a_key_and_then_only_other_axes),
      FOLDER_TEST(test_ledger_divides_the_shrinks_of_a_key_by_the_shares_of_the_campaign),
      FOLDER_TEST(test_ledger_add_unshrunk_counts_each_key_under_the_signature_that_it_was_shrunk_to),
      FOLDER_TEST(test_ledger_open_resume_remembers_signatures),
      FOLDER_TEST(test_ledger_open_resume_discards_files_of_what_was_not_stored),
      FOLDER_TEST(test_ledger_add_shrunk_files_are_those_of_the_smallest_index),
      FOLDER_TEST(test_ledger_add_shrunk_after_unshrunk_leaves_the_case_of_the_smallest_index),
      FOLDER_TEST(test_ledger_add_shrunk_flaky_has_a_class_and_a_signature_of_its_own),
      FOLDER_TEST(test_ledger_add_shrunk_flaky_of_long_keys_stay_different),
      FOLDER_TEST(test_ledger_add_shrunk_what_could_not_be_confirmed_stays_what_it_was),
      FOLDER_TEST(test_ledger_add_known_signature_is_marked),
      FOLDER_TEST(test_ledger_fail_first_failure_stays_and_nothing_more_is_booked),
      FOLDER_TEST(test_ledger_add_verdict_twice_fails),
      FOLDER_TEST(test_ledger_open_out_folder_that_cannot_be_is_told),
      FOLDER_TEST(test_campaign_nothing_text_names_the_last_reasons),
      FOLDER_TEST(test_signatures_text_and_json_name_the_diagnosis),
      cmocka_unit_test(test_many_signatures_of_a_cause_are_counted_not_listed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
