/* Lists of known findings. */
#include "tests/hostile/hostile.h"
#include "tests/hostile/program.h"
#include "tests/rounds.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/run/campaign/known.h"

static char path[128];

/* reason: NULL, or what the refusal has in it. */
static void try_list(const char *folder, const char *text, size_t size_bytes, const char *reason) {
  struct sf_known known = {-1, NULL};
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/known.json", folder);
  hostile_write(path, text, size_bytes);
  const enum sf_status status = sf_known_read(&known, path, &error);
  if (status == SF_OK && reason == NULL) {
    for (int32_t i = 0; i < known.count; i++) assert_true(*known.entries[i].signature != '\0');
    sf_known_destroy(&known);
    return;
  }
  if (status == SF_OK) fail_msg("not refused: %s", text);
  assert_int_equal(known.count, -1);
  law_refusal(status, &error, path);
  if (reason != NULL && strstr(error.text, reason) == NULL) fail_msg("'%s' has no '%s'", error.text, reason);
  if (!hostile_try(HOSTILE_LIST)) return;
  char out[128];
  snprintf(out, sizeof out, "%s/out", folder);
  program_refuses(folder, path, (const char *const[]){"fuzz", "--cases", "1", "--out", out, "--known", path, NULL});
}

static void test_lists_that_are_none_are_refused_with_their_entry(void **state) {
  static const struct {
    const char *text, *reason;
  } rows[] = {
      {"", "line 1"},
      {"{}", "array"},
      {"[1]", "[0].signature"},
      {"[{}]", "[0].signature"},
      {"[{\"signature\": \"\"}]", "[0].signature"},
      {"[{\"signature\": \"a\"}, {\"signature\": 2}]", "[1].signature"},
      {"[{\"signature\": \"a\", \"colour\": 1}]", "[0].colour"},
      {"[{\"signature\": \"a\", \"not\": \"b\"}]", "[0].not: no such field; did you mean note?"},
      {"[{\"signature\": \"a\", \"note\": 1}]", "[0].note"},
      {"[{\"signature\": \"a\", \"signature\": \"b\"}]", "uplicate"},
      {"[{\"signature\": \"a\", \"case\": {\"schema\": 9}}]", "schema"},
      {"[{\"signature\": \"a\", \"case\": 1}]", "document"},
      {"[{\"signature\": \"a\"}", "line 1"},
      {"[{\"signature\": \"a\", \"case\": {\"schema\": 2}}]", "schema: 2"},
      {"null", "line 1"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) try_list(*state, rows[i].text, strlen(rows[i].text), rows[i].reason);
}

static const char sound[] =
    "[{\"signature\": \"a/b/c@tp\", \"note\": \"upstream #1\", \"case\": {\"schema\": 1, \"seed\": 77, \"mode\": \"e2e\"}},"
    " {\"signature\": \"x@none\"}]";

static void test_list_cut_or_changed_anywhere_is_refused_or_another_list(void **state) {
  static const char bytes[] = {'\0', '"', '[', '\x1b', '\xff'};
  char changed[sizeof sound];
  for (size_t length = 0; length + 1 < sizeof sound; length++) try_list(*state, sound, length, "");
  for (size_t at = 0; at + 1 < sizeof sound; at += SF_STRIDE) {
    for (size_t i = 0; i < sizeof bytes; i++) {
      memcpy(changed, sound, sizeof sound);
      changed[at] = bytes[i];
      try_list(*state, changed, sizeof sound - 1, NULL);
    }
  }
}

static void test_list_members_with_values_that_they_may_not_have_are_refused(void **state) {
  static const char *const forms[] = {"%s",
                                      "[%s]",
                                      "[{\"signature\": %s}]",
                                      "[{\"signature\": \"a\", \"note\": %s}]",
                                      "[{\"signature\": \"a\", \"case\": %s}]",
                                      "[{\"signature\": \"a\", %s: 1}]"};
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_JSON_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      hostile_fill_json(&text, forms[f], i);
      try_list(*state, text.data, text.length, NULL);
      sf_text_destroy(&text);
    }
  }
}

int hostile_run_lists(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_lists_that_are_none_are_refused_with_their_entry),
      FOLDER_TEST(test_list_cut_or_changed_anywhere_is_refused_or_another_list),
      FOLDER_TEST(test_list_members_with_values_that_they_may_not_have_are_refused),
  };
  return cmocka_run_group_tests_name("hostile/lists", tests, NULL, NULL);
}
