#include "tests/unit/run/run_fixture.h"

#include "harness/run/campaign/known.h"

static const char *write_list(const char *folder, const char *text) {
  static char path[256];
  snprintf(path, sizeof path, "%s/known.json", folder);
  assert_int_equal(sf_bytes_write_file(path, text, strlen(text), NULL), SF_OK);
  return path;
}

/* A list with the shrunk case of a finding: tied embeddings, tp 2, two layers, a frozen part. */
static const char list[] =
    "[{\"signature\": \"a/b/c@tp\", \"note\": \"upstream #1\", \"case\": {\"schema\": 1, \"seed\": 77, \"mode\": \"e2e\","
    " \"model\": {\"layers\": 2, \"heads\": 2, \"kv_heads\": 2, \"tied\": true, \"norm\": \"layer\"},"
    " \"train\": {\"frozen\": [\"qkv\"]}, \"layout\": {\"tp\": 2}, \"schedule\": 5}},"
    " {\"signature\": \"x@none\"}]";

static void test_known_read_entries_are_as_written(void **state) {
  struct sf_known known;
  assert_int_equal(sf_known_read(&known, write_list(*state, list), NULL), SF_OK);
  assert_int_equal(known.count, 2);
  assert_true(known.entries[0].has_case);
  assert_int_equal(known.entries[0].c.seed, 77);
  assert_false(known.entries[1].has_case);
  assert_true(sf_known_has(&known, "a/b/c@tp"));
  assert_true(sf_known_has(&known, "x@none"));
  assert_false(sf_known_has(&known, "a/b/c@tp+dp"));
  assert_false(sf_known_has(&known, "a/b/c"));
  assert_false(sf_known_has(&known, ""));
  sf_known_destroy(&known);
  assert_int_equal(sf_known_read(&known, write_list(*state, "[]"), NULL), SF_OK);
  assert_int_equal(known.count, 0);
  assert_false(sf_known_has(&known, ""));
  sf_known_destroy(&known);
}

static void test_known_triggered_needs_every_field_that_the_small_case_needed(void **state) {
  static const struct {
    bool expected;
    const char *assignments;
  } rows[] = {
      {true,
       "seed=77 mode=e2e model.layers=2 model.heads=2 model.kv_heads=2 model.tied=true model.norm=layer train.frozen=qkv layout.tp=2 "
       "schedule=5"},
      {true, "model.layers=2 model.heads=2 model.kv_heads=2 model.tied=true model.norm=layer train.frozen=qkv layout.tp=2"},
      {true,
       "model.layers=5 model.heads=4 model.kv_heads=4 model.tied=true model.norm=layer train.frozen=qkv+fc1 layout.tp=4 model.bias=true"},
      {false, "model.layers=1 model.heads=2 model.kv_heads=2 model.tied=true model.norm=layer train.frozen=qkv layout.tp=2"},
      {false, "model.layers=2 model.heads=2 model.kv_heads=2 model.norm=layer train.frozen=qkv layout.tp=2"},
      {false, "model.layers=2 model.heads=2 model.kv_heads=2 model.tied=true train.frozen=qkv layout.tp=2"},
      {false, "model.layers=2 model.heads=2 model.kv_heads=2 model.tied=true model.norm=layer train.frozen=fc1 layout.tp=2"},
      {false, "model.layers=2 model.heads=2 model.kv_heads=2 model.tied=true model.norm=layer train.frozen=qkv"},
  };
  struct sf_known known;
  assert_int_equal(sf_known_read(&known, write_list(*state, list), NULL), SF_OK);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case c = case_make(rows[i].assignments);
    if (sf_known_triggered(&known, &c) != rows[i].expected) fail_msg("row %zu", i);
  }
  sf_known_destroy(&known);
}

static void test_known_read_what_is_no_file_is_refused(void **state) {
  struct sf_known known;
  assert_int_equal(sf_known_read(&known, *state, NULL), SF_EINPUT);
  assert_int_equal(sf_known_read(&known, "/nowhere/known.json", NULL), SF_ENOTFOUND);
}

/* A long number that lost digits, or a text that lost characters, would be another list. */
static void test_known_read_each_allocation_fails_once_list_is_whole_or_enomem(void **state) {
  const char *path = write_list(*state, list);
  bool ended = false;
  int refused = 0;
  for (int64_t k = 1; !ended; k++) {
    struct sf_known known;
    struct sf_error error = {SF_OK, ""};
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_known_read(&known, path, &error);
    ended = !sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (status != SF_OK) {
      assert_int_equal(status, SF_ENOMEM);
      refused++;
      continue;
    }
    assert_int_equal(known.count, 2);
    assert_true(sf_known_has(&known, "a/b/c@tp"));
    assert_int_equal(known.entries[0].c.seed, 77);
    sf_known_destroy(&known);
  }
  assert_true(refused > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_known_read_entries_are_as_written),
      FOLDER_TEST(test_known_triggered_needs_every_field_that_the_small_case_needed),
      FOLDER_TEST(test_known_read_what_is_no_file_is_refused),
      FOLDER_TEST(test_known_read_each_allocation_fails_once_list_is_whole_or_enomem),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
