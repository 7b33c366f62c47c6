/* Settings of the command line: fields and ranges of a space, numbers, durations. */
#include "tests/hostile/hostile.h"
#include "tests/hostile/program.h"
#include "tests/rounds.h"
#include "tests/unit/run/run_fixture.h"

#include "generators/codec.h"
#include "harness/run/support/options.h"

/* Values that hardly any field may have. */
static const char *const values[] = {"",
                                     " ",
                                     "=",
                                     "..",
                                     "1..",
                                     "..1",
                                     "2..1",
                                     "1..1..1",
                                     "-1",
                                     "-1..2",
                                     "1e3",
                                     "0x10",
                                     "1 ",
                                     " 1",
                                     "+1",
                                     "1,2",
                                     "9223372036854775808",
                                     "99999999999999999999",
                                     "two",
                                     "maybe",
                                     "None",
                                     "fp4",
                                     "qkv+",
                                     "+qkv",
                                     "qkv+qkv",
                                     "tp-tp"};
enum { VALUE_COUNT = sizeof values / sizeof values[0] };

static void try_setting(const char *folder, const char *setting) {
  static struct sf_space space;
  struct sf_error error = {SF_OK, ""};
  sf_space_init(&space);
  const enum sf_status status = sf_space_set(&space, setting, &error);
  if (status == SF_OK) return;
  law_refusal(status, &error, NULL);
  if (!hostile_try(HOSTILE_OPTION)) return;
  char out[128];
  snprintf(out, sizeof out, "%s/out", folder);
  program_refuses(folder, "shardfuzz: ", (const char *const[]){"fuzz", "--cases", "1", "--out", out, "--set", setting, NULL});
}

static void test_settings_of_every_field_are_refused_by_name(void **state) {
  for (int f = 0; f < sf_case_field_count; f++) {
    for (int i = f % SF_STRIDE; i < VALUE_COUNT; i += SF_STRIDE) {
      struct sf_text setting = {0};
      sf_text_append(&setting, "%s=%s", sf_case_fields[f].path, values[i]);
      try_setting(*state, setting.data);
      sf_text_destroy(&setting);
    }
  }
}

static void test_settings_of_any_text_are_refused_in_one_line(void **state) {
  static const char *const forms[] = {
      "%s", "%s=1", "model.%s=1", "mode=%s", "layout.order=%s", "train.frozen=%s", "layout.tp=%s..2", "layout.tp=1..%s"};
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_COUNT; i += SF_STRIDE) {
      struct sf_text setting = {0};
      hostile_fill(&setting, forms[f], hostile_texts[i]);
      try_setting(*state, setting.data);
      sf_text_destroy(&setting);
    }
  }
}

static void try_number(const char *text) {
  struct sf_error error = {SF_OK, ""};
  int64_t number = 0;
  enum sf_status status = sf_int_from_text(&number, text, 1, 1000, "--jobs", &error);
  if (status != SF_OK) {
    law_refusal(status, &error, "--jobs");
    hostile_try(HOSTILE_OPTION);
  }
  status = sf_duration_from_text(&number, text, 1, 1000000, "--time", &error);
  if (status == SF_OK) return;
  law_refusal(status, &error, "--time");
  hostile_try(HOSTILE_OPTION);
}

static void test_numbers_and_durations_of_any_text_are_refused_by_name(void **state) {
  static const char *const texts[] = {
      "0",   "-1", "0ms", "10x", "1.5h", "m", "30m1h", "1h1h", "9223372036854775807h", "1h 30m", "1001", "99999999999999999999s",
      "1e3", "0x1"};
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) try_number(texts[i]);
  for (int i = 0; i < VALUE_COUNT; i += SF_STRIDE) try_number(values[i]);
  for (int i = 0; i < HOSTILE_COUNT; i += SF_STRIDE) try_number(hostile_texts[i]);
}

int hostile_run_options(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_settings_of_every_field_are_refused_by_name),
      FOLDER_TEST(test_settings_of_any_text_are_refused_in_one_line),
      cmocka_unit_test(test_numbers_and_durations_of_any_text_are_refused_by_name),
  };
  return cmocka_run_group_tests_name("hostile/options", tests, NULL, NULL);
}
