#include "harness/base/alloc.h"
#include "harness/run/support/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct target {
  bool json;
  int64_t cases, time_ms, offset;
  const char *out;
  struct sf_texts presets, settings, arguments;
  int32_t mode;
  int calls;
};

static enum sf_status call_store(void *target, const char *text, struct sf_error *error) {
  if (strcmp(text, "bad") == 0) return sf_error_set(error, SF_EUSAGE, "--call: bad");
  ((struct target *)target)->calls++;
  return SF_OK;
}

static const char *const modes[] = {"e2e", "isolated", NULL};

#define AT(member) .offset = offsetof(struct target, member)
static const struct sf_option options[] = {
    {.name = "json", .type = SF_OPTION_FLAG, AT(json), .help = "Print one JSON object."},
    {.name = "cases", .type = SF_OPTION_INT, AT(cases), .min = 1, .max = 1000, .help = "How many cases."},
    {.name = "offset", .type = SF_OPTION_INT, AT(offset), .min = -5, .max = 5, .help = "May be negative."},
    {.name = "time", .type = SF_OPTION_DURATION, AT(time_ms), .min = 1, .max = 86400000, .help = "How long."},
    {.name = "out",
     .letter = 'o',
     .type = SF_OPTION_TEXT,
     AT(out),
     .value = "DIR",
     .help =
         "Where findings are written, one folder each, with the case as it was found, the case as it was shrunk, and a report for people."},
    {.name = "preset", .type = SF_OPTION_TEXTS, AT(presets), .help = "A preset."},
    {.name = "set", .type = SF_OPTION_KEY_VALUE, AT(settings), .help = "Fixes a field."},
    {.name = "mode", .type = SF_OPTION_CHOICE, AT(mode), .choices = modes, .help = "The mode."},
    {.name = "call", .type = SF_OPTION_CALL, .call = call_store, .help = "Something else."},
};
static const struct sf_command command = {
    .name = "try",
    .arguments = "CASE.json",
    .help = "Tries a case.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .argument_min = 1,
    .argument_max = 2,
    .argument_offset = offsetof(struct target, arguments),
};

/* Parses words that end with NULL. */
static enum sf_status parse(struct target *target, struct sf_error *error, const char *const *words) {
  char *argv[16];
  int argc = 0;
  bool wants_help = true;
  for (; words[argc] != NULL; argc++) argv[argc] = (char *)(uintptr_t)words[argc];
  const enum sf_status status = sf_command_parse(&command, target, &wants_help, argc, argv, error);
  assert_false(wants_help);
  return status;
}

#define WORDS(...)                                                                                                                         \
  (const char *const[]) { __VA_ARGS__, NULL }

static void refused(const char *const *words, const char *line) {
  struct target target = {0};
  struct sf_error error = {0};
  assert_int_equal(parse(&target, &error, words), SF_EUSAGE);
  assert_string_equal(error.text, line);
  sf_command_clear(&command, &target);
}

static void test_command_parse_all_types_are_stored(void **state) {
  (void)state;
  struct target target = {.cases = 7, .out = "findings"};
  struct sf_error error = {0};
  assert_int_equal(parse(&target, &error,
                         WORDS("--json", "--time=10m", "one.json", "--offset", "-5", "-o", "there", "--preset", "gpt", "--set",
                               "layout.tp=1..4", "--preset=llama", "--mode", "isolated", "--call=x")),
                   SF_OK);
  assert_true(target.json);
  assert_int_equal(target.cases, 7); /* not given: the default stays */
  assert_int_equal(target.time_ms, 600000);
  assert_int_equal(target.offset, -5);
  assert_string_equal(target.out, "there");
  assert_int_equal(target.presets.count, 2);
  assert_string_equal(target.presets.items[0], "gpt");
  assert_string_equal(target.presets.items[1], "llama");
  assert_int_equal(target.settings.count, 1);
  assert_string_equal(target.settings.items[0], "layout.tp=1..4");
  assert_int_equal(target.mode, 1);
  assert_int_equal(target.calls, 1);
  assert_int_equal(target.arguments.count, 1);
  assert_string_equal(target.arguments.items[0], "one.json");
  sf_command_clear(&command, &target);
  assert_int_equal(target.presets.count, 0);
}

static void test_command_parse_last_of_two_counts(void **state) {
  (void)state;
  struct target target = {0};
  assert_int_equal(parse(&target, NULL, WORDS("--cases", "5", "--cases=9", "a")), SF_OK);
  assert_int_equal(target.cases, 9);
  sf_command_clear(&command, &target);
}

static void test_command_parse_dashes_end_options(void **state) {
  (void)state;
  struct target target = {0};
  assert_int_equal(parse(&target, NULL, WORDS("-", "--", "--json")), SF_OK);
  assert_int_equal(target.arguments.count, 2);
  assert_string_equal(target.arguments.items[0], "-");
  assert_string_equal(target.arguments.items[1], "--json");
  assert_false(target.json);
  sf_command_clear(&command, &target);
}

static void test_command_parse_bad_words_one_line(void **state) {
  (void)state;
  refused(WORDS("a", "--case", "5"), "unknown option --case; did you mean --cases?");
  refused(WORDS("a", "--casesx=5"), "unknown option --casesx; did you mean --cases?");
  refused(WORDS("a", "--caess"), "unknown option --caess; did you mean --cases?");
  refused(WORDS("a", "--pre", "a"), "unknown option --pre; did you mean --preset?");
  refused(WORDS("a", "--nonsense"), "unknown option --nonsense (shardfuzz try --help lists them)");
  refused(WORDS("a", "-x"), "unknown option -x (shardfuzz try --help lists them)");
  refused(WORDS("a", "--cases"), "--cases needs a value");
  refused(WORDS("a", "--json=yes"), "--json takes no value");
  refused(WORDS("a", "--cases", "0"), "--cases: \"0\" is not a whole number from 1 to 1000");
  refused(WORDS("a", "--cases=1001"), "--cases: \"1001\" is not a whole number from 1 to 1000");
  refused(WORDS("a", "--cases="), "--cases: \"\" is not a whole number from 1 to 1000");
  refused(WORDS("a", "--cases=5x"), "--cases: \"5x\" is not a whole number from 1 to 1000");
  refused(WORDS("a", "--cases=99999999999999999999"), "--cases: \"99999999999999999999\" is not a whole number from 1 to 1000");
  refused(WORDS("a", "--offset=-6"), "--offset: \"-6\" is not a whole number from -5 to 5");
  refused(WORDS("a", "--time", "5d"), "--time: \"5d\" is not a duration such as 500ms, 90s, 10m or 1h30m");
  refused(WORDS("a", "--time", "25h"), "--time: \"25h\" is not between 1ms and 86400000ms");
  refused(WORDS("a", "--out="), "--out: the value is empty");
  refused(WORDS("a", "--set", "layout.tp"), "--set: \"layout.tp\" is not KEY=VALUE");
  refused(WORDS("a", "--set", "=2"), "--set: \"=2\" is not KEY=VALUE");
  refused(WORDS("a", "--mode", "both"), "--mode: \"both\" is none of: e2e, isolated");
  refused(WORDS("a", "--call", "bad"), "--call: bad");
  refused(WORDS("a", "b", "c"), "unexpected argument \"c\"");
  refused(WORDS("--json"), "an argument is missing (usage: shardfuzz try [options] CASE.json)");
}

static void test_command_parse_help_wins_over_errors(void **state) {
  (void)state;
  char one[] = "--nonsense", two[] = "--help", dashes[] = "--";
  char *const argv[] = {one, two}, *const after[] = {dashes, two};
  struct target target = {0};
  bool wants_help = false;
  assert_int_equal(sf_command_parse(&command, &target, &wants_help, 2, argv, NULL), SF_OK);
  assert_true(wants_help);
  assert_int_equal(sf_command_parse(&command, &target, &wants_help, 2, after, NULL), SF_OK);
  assert_false(wants_help);
  sf_command_clear(&command, &target);
}

static void test_command_parse_no_memory_is_a_status(void **state) {
  (void)state;
  struct target target = {0};
  sf_alloc_fail_at(2);
  const enum sf_status status = parse(&target, NULL, WORDS("--preset", "a", "--preset", "b", "c"));
  sf_alloc_fail_at(0);
  assert_int_equal(status, SF_ENOMEM);
  assert_int_equal(target.presets.count, 1);
  sf_command_clear(&command, &target);
}

static void test_duration_from_text_units(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t ms;
  } good[] = {{"0", 0},        {"90", 90000},      {"250ms", 250},     {"90s", 90000},    {"10m", 600000},
              {"2h", 7200000}, {"1h30m", 5400000}, {"1m1s1ms", 61001}, {"2h1ms", 7200001}};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    int64_t ms = -1;
    assert_int_equal(sf_duration_from_text(&ms, good[i].text, 0, INT64_MAX, "--time", NULL), SF_OK);
    assert_int_equal(ms, good[i].ms);
  }
  static const char *const bad[] = {"",      "s",    "-1s",    "1.5h", "10 m",  "1h30",
                                    "30m1h", "1m1m", "1h30mx", "h1",   "1h-5m", "9223372036854775807h"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    int64_t ms = -1;
    assert_int_equal(sf_duration_from_text(&ms, bad[i], 0, INT64_MAX, "--time", NULL), SF_EUSAGE);
    assert_int_equal(ms, -1);
  }
}

static void test_key_value_split_first_equals_counts(void **state) {
  (void)state;
  char key[16];
  const char *value = NULL;
  assert_int_equal(sf_key_value_split(key, sizeof key, &value, "a.b=c=d", NULL), SF_OK);
  assert_string_equal(key, "a.b");
  assert_string_equal(value, "c=d");
  assert_int_equal(sf_key_value_split(key, sizeof key, &value, "0123456789abcde=", NULL), SF_OK);
  assert_string_equal(value, "");
  assert_int_equal(sf_key_value_split(key, sizeof key, &value, "0123456789abcdef=1", NULL), SF_EUSAGE);
  assert_int_equal(sf_key_value_split(key, sizeof key, &value, "novalue", NULL), SF_EUSAGE);
}

static void test_command_help_lists_every_option_in_100_columns(void **state) {
  (void)state;
  struct sf_text help = {0};
  sf_command_help(&help, &command);
  assert_false(help.failed);
  assert_ptr_equal(strstr(help.data, "usage: shardfuzz try [options] CASE.json\n\nTries a case.\n\noptions:\n"), help.data);
  assert_non_null(strstr(help.data, "\n  --json                  Print one JSON object.\n"));
  assert_non_null(strstr(help.data, "\n  --mode e2e|isolated     The mode.\n"));
  assert_non_null(strstr(help.data, "\n  -o, --out DIR           Where findings are written, "));
  assert_non_null(strstr(help.data, "\n  --set KEY=VALUE         Fixes a field.\n"));
  assert_non_null(strstr(help.data, "\n  --call VALUE            Something else.\n"));
  for (const char *at = help.data; *at != '\0'; at += strcspn(at, "\n") + 1) assert_true(strcspn(at, "\n") <= 100);
  sf_text_destroy(&help);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_command_parse_all_types_are_stored),
      cmocka_unit_test(test_command_parse_last_of_two_counts),
      cmocka_unit_test(test_command_parse_dashes_end_options),
      cmocka_unit_test(test_command_parse_bad_words_one_line),
      cmocka_unit_test(test_command_parse_help_wins_over_errors),
      cmocka_unit_test(test_command_parse_no_memory_is_a_status),
      cmocka_unit_test(test_duration_from_text_units),
      cmocka_unit_test(test_key_value_split_first_equals_counts),
      cmocka_unit_test(test_command_help_lists_every_option_in_100_columns),
  };
  return cmocka_run_group_tests_name("run/options", tests, NULL, NULL);
}
