#include "tests/unit/run/run_fixture.h"

#include "harness/base/system/directories.h"
#include "harness/run/campaign/finding_files.h"

#include <sys/stat.h>

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static void test_finding_directory_has_no_slash_of_the_signature(void **state) {
  char out[256];
  (void)state;
  sf_finding_directory(out, sizeof out, "some/out", "tolerance/act/mlp.linear_fc1@tp+sp", NULL);
  assert_string_equal(out, "some/out/tolerance-act-mlp.linear_fc1@tp+sp");
}

static void test_make_directories_makes_all_and_takes_existing_ones(void **state) {
  char path[256];
  snprintf(path, sizeof path, "%s/a/b/c", (char *)*state);
  assert_int_equal(sf_make_directories(path, NULL), SF_OK);
  assert_true(is_folder(path));
  assert_int_equal(sf_make_directories(path, NULL), SF_OK);
  snprintf(path, sizeof path, "%s/a/d/", (char *)*state);
  assert_int_equal(sf_make_directories(path, NULL), SF_OK);
  assert_true(is_folder(path));
}

static void test_make_directories_file_or_link_in_the_way_is_named(void **state) {
  char file[256], link[256], path[300];
  struct sf_error error = {SF_OK, ""};
  snprintf(file, sizeof file, "%s/file", (char *)*state);
  snprintf(link, sizeof link, "%s/link", (char *)*state);
  assert_int_equal(sf_bytes_write_file(file, "x", 1, NULL), SF_OK);
  assert_int_equal(symlink("nothing", link), 0);
  const char *const wrong[] = {file, link};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(sf_make_directories(wrong[i], &error), SF_EINPUT);
    assert_ptr_equal(strstr(error.text, wrong[i]), error.text);
    snprintf(path, sizeof path, "%s/below", wrong[i]);
    assert_int_equal(sf_make_directories(path, &error), SF_EINPUT);
    assert_ptr_equal(strstr(error.text, path), error.text);
  }
  char *longer = test_malloc(3000);
  memset(longer, 'x', 2999);
  longer[2999] = '\0';
  assert_int_equal(sf_make_directories(longer, &error), SF_EUSAGE);
  test_free(longer);
}

static void test_finding_write_files_are_read_back_with_what_was_seen(void **state) {
  const struct sf_case c = case_make("model.layers=2 " CASE_TP2), min = case_make(CASE_TP2);
  const struct sf_outcome outcome = finding_of(&c, "here");
  static struct sf_job_result shrunk;
  shrunk = (struct sf_job_result){.end = SF_SHRINK_DONE,
                                  .min = min,
                                  .min_outcome = finding_of(&min, "here"),
                                  .script = "print(1)\n",
                                  .evaluations = 12,
                                  .budget = 30,
                                  .minimal = true};
  const struct sf_finding_story story = {.in_campaign = true, .seed = 5, .index = 17, .shrunk = &shrunk};
  char directory[512], path[600];
  struct sf_case read;
  snprintf(directory, sizeof directory, "%s/some/finding", (const char *)*state);
  assert_int_equal(sf_finding_write(directory, &c, &outcome, &story, SF_FINDING_ALL, NULL), SF_OK);
  snprintf(path, sizeof path, "%s/case.json", directory);
  assert_int_equal(sf_case_read(&read, path, NULL), SF_OK);
  assert_int_equal(read.model.layers, 2);
  assert_true(sf_outcome_as_expected(&outcome, &read.expect));
  snprintf(path, sizeof path, "%s/min.json", directory);
  assert_int_equal(sf_case_read(&read, path, NULL), SF_OK);
  assert_int_equal(read.model.layers, 1);
  assert_true(sf_outcome_as_expected(&shrunk.min_outcome, &read.expect));
  struct sf_bytes report;
  snprintf(path, sizeof path, "%s/report.txt", directory);
  assert_int_equal(sf_bytes_read_file(&report, path, 10000, NULL), SF_OK);
  snprintf(path, sizeof path, " replay '%s/min.json'\n", directory);
  assert_non_null(strstr((char *)report.data, path));
  assert_non_null(strstr((char *)report.data, "1 layer"));
  assert_non_null(strstr((char *)report.data,
                         "found        in case 17 of the campaign with seed 5\nshrunk       in 12 of at most 30 trials; minimal: yes\n"));
  sf_bytes_destroy(&report);
  snprintf(path, sizeof path, "%s/script.py", directory);
  assert_int_equal(sf_bytes_read_file(&report, path, 10000, NULL), SF_OK);
  assert_memory_equal(report.data, "print(1)\n", 9);
  sf_bytes_destroy(&report);
}

static void test_finding_write_without_min_leaves_only_the_case(void **state) {
  const struct sf_case c = case_make(CASE_TP2);
  const struct sf_outcome outcome = finding_of(&c, "here");
  const struct sf_finding_story story = {.in_campaign = true};
  char path[600];
  assert_int_equal(sf_finding_write(*state, &c, &outcome, &story, SF_FINDING_ALL, NULL), SF_OK);
  const char *directory = *state;
  snprintf(path, sizeof path, "%s/min.json", directory);
  assert_int_not_equal(access(path, F_OK), 0);
  snprintf(path, sizeof path, "%s/case.json", directory);
  assert_int_equal(access(path, F_OK), 0);
}

static void test_finding_report_tells_the_place_and_the_size(void **state) {
  (void)state;
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_outcome outcome = finding_of(&c, "");
  char *text = NULL;
  outcome.cls = SF_CLASS_TOLERANCE;
  outcome.error = 0.5;
  outcome.noise = 0.001;
  outcome.ratio = 500;
  outcome.row = 3;
  outcome.finding_count = 4;
  snprintf(outcome.first_id, sizeof outcome.first_id, "s0/mb0/fwd/act/x/0");
  outcome.diagnosis = (struct sf_diagnosis){.cls = SF_DIAGNOSIS_SCALE, .text = "scaled by 2"};
  assert_int_equal(sf_finding_report(&text, &c, &outcome, NULL), SF_OK);
  static const char *const parts[] = {"FINDING (tolerance)",
                                      "first        s0/mb0/fwd/act/x/0\n",
                                      "rank         1\n",
                                      "row          3\n",
                                      "error        0.5, 500 times what rounding explains\n",
                                      "2 ranks (tp)",
                                      "diagnosis    scale: scaled by 2\n",
                                      "4 wrong tensors in this run"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (!strstr(text, parts[i])) fail_msg("no '%s' in:\n%s", parts[i], text);
  }
  assert_null(strstr(text, "replay"));
  sf_free(text);
}

static void test_finding_report_tells_how_shrinking_ended(void **state) {
  (void)state;
  static struct sf_job_result ended[] = {
      {.end = SF_SHRINK_DONE, .evaluations = 30, .budget = 30},
      {.end = SF_SHRINK_DONE, .evaluations = 9, .budget = 30, .cut = SF_SHRINK_CUT_TIME},
      {.end = SF_SHRINK_DONE, .evaluations = 2, .is_explained = true},
      {.end = SF_SHRINK_DONE},
      {.end = SF_SHRINK_FLAKY},
      {.end = SF_SHRINK_UNCONFIRMED, .outcome.text = "out of memory\nmore"},
      {.end = SF_SHRINK_LOST, .outcome.text = "the process of rank -1 ended by itself after ''"},
  };
  static const char *const says[] = {"in 30 of at most 30 trials; minimal: no (the budget ran out)\n",
                                     "in 9 of at most 30 trials; minimal: no (the time ran out)\n",
                                     "not by itself: the smallest case of another finding explains it\n",
                                     "no: the budget is 0 trials, so the case was only run again",
                                     "no: in a second run the case did not fail in the same way (flaky)\n",
                                     "no: the case was run several times to confirm it, and never ended: out of memory\n",
                                     "no: the process that shrinks the case died several times in a row: the process of rank -1"};
  const struct sf_case c = case_make(CASE_TP2);
  const struct sf_outcome outcome = finding_of(&c, "here");
  for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++) {
    const struct sf_finding_story story = {.shrunk = &ended[i]};
    char *text = NULL;
    assert_int_equal(sf_finding_report(&text, &c, &outcome, &story), SF_OK);
    const char *line = strstr(text, "shrunk       ");
    if (!line || strncmp(line + 13, says[i], strlen(says[i])) != 0) fail_msg("no '%s' in:\n%s", says[i], text);
    assert_null(strstr(text, "campaign"));
    sf_free(text);
  }
}

static void test_finding_write_each_allocation_fails_once_status_is_enomem(void **state) {
  const struct sf_case c = case_make(CASE_TP2);
  const struct sf_outcome outcome = finding_of(&c, "here");
  static struct sf_job_result shrunk;
  shrunk = (struct sf_job_result){.end = SF_SHRINK_DONE, .min = c, .min_outcome = outcome, .script = "print(1)\n"};
  const struct sf_finding_story story = {.shrunk = &shrunk};
  bool ended = false;
  int refused = 0;
  for (int64_t k = 1; !ended; k++) {
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_finding_write(*state, &c, &outcome, &story, SF_FINDING_ALL, NULL);
    ended = !sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(status, ended ? SF_OK : SF_ENOMEM);
    refused += !ended;
  }
  assert_true(refused > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_finding_directory_has_no_slash_of_the_signature),
      FOLDER_TEST(test_make_directories_makes_all_and_takes_existing_ones),
      FOLDER_TEST(test_make_directories_file_or_link_in_the_way_is_named),
      FOLDER_TEST(test_finding_write_files_are_read_back_with_what_was_seen),
      FOLDER_TEST(test_finding_write_without_min_leaves_only_the_case),
      cmocka_unit_test(test_finding_report_tells_the_place_and_the_size),
      cmocka_unit_test(test_finding_report_tells_how_shrinking_ended),
      FOLDER_TEST(test_finding_write_each_allocation_fails_once_status_is_enomem),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
