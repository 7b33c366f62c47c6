/* Traces and noise files: metadata that is none, names that are none, every member with every wrong value. */
#include "tests/hostile/hostile.h"
#include "tests/hostile/program.h"
#include "tests/rounds.h"
#include "tests/unit/check/trace_fixture.h"

#include "harness/check/noise.h"

#include <math.h>

#define NAME "s0/mb0/fwd/act/m/0"
#define HEAD "\"format\": 1, \"rank\": 0, \"ranks\": 1, \"mode\": \"e2e\""
#define ONE(map) "{" HEAD ", \"tensors\": {\"" NAME "\": " map "}}"

static const char *folder;
static struct sf_trace_set reference; /* a sound trace of the one tensor */

/* A file of one tensor with so many numbers, whose name and metadata may be anybody's; NULL: it has none. */
static void write_file(const char *path, const char *name, const char *type, int32_t width, const char *shape, int32_t count,
                       const char *meta) {
  struct sf_text header = {0};
  static unsigned char file[1 << 16];
  unsigned char size[8];
  sf_text_append(&header, "{");
  if (meta != NULL) {
    sf_text_append(&header, "\"__metadata__\":{\"shardfuzz\":");
    hostile_append_string(&header, meta);
    sf_text_append(&header, "},");
  }
  hostile_append_string(&header, name);
  sf_text_append(&header, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%d]}}", type, shape, width * count);
  assert_true(header.length + 100 < sizeof file);
  sf_store_u64_le(size, header.length);
  memcpy(file, size, sizeof size);
  memcpy(file + sizeof size, header.data, header.length);
  memset(file + sizeof size + header.length, 0, (size_t)(width * count));
  hostile_write(path, file, sizeof size + header.length + (size_t)(width * count));
  sf_text_destroy(&header);
}

static void check_program(const char *trace) {
  program_refuses(folder, trace, (const char *const[]){"check", trace, trace, "--json", NULL});
}

/* reason: NULL, or what the refusal has in it. */
static void try_trace(const char *name, const char *meta, const char *reason) {
  char trace[128], path[160];
  struct sf_trace_set set = {.ranks = -7};
  struct sf_error error = {SF_OK, ""};
  snprintf(trace, sizeof trace, "%s/trace", folder);
  snprintf(path, sizeof path, "%s/rank-00000.safetensors", trace);
  mkdir(trace, 0777);
  write_file(path, name, "F32", 4, "[2,2]", 4, meta);
  const enum sf_status status = sf_trace_set_open(&set, trace, &error);
  if (status == SF_OK && reason == NULL) {
    assert_int_equal(set.count, 1);
    assert_string_equal(set.tensors[0].text, name);
    sf_trace_set_close(&set);
    return;
  }
  if (status == SF_OK) fail_msg("not refused: '%s': %s", name, meta);
  law_refusal(status, &error, path);
  if (reason != NULL && strstr(error.text, reason) == NULL) fail_msg("'%s' has no '%s'", error.text, reason);
  assert_int_equal(set.ranks, -7);
  if (hostile_try(HOSTILE_TRACE)) check_program(trace);
}

static void test_traces_with_wrong_metadata_are_refused_with_a_reason(void **state) {
  static const struct {
    const char *meta, *reason;
  } table[] = {
      {NULL, "no metadata"},
      {"", "metadata \"shardfuzz\""},
      {"{", "metadata \"shardfuzz\""},
      {"[]", "not an object"},
      {"{}", "names no format"},
      {"{\"format\": 2}", "format 2"},
      {"{\"format\": \"1\"}", "names no format"},
      {"{\"format\": 1, \"format\": 1}", "duplicate"},
      {"{\"format\": 1, \"ranks\": 1, \"mode\": \"e2e\", \"tensors\": {}}", "rank 0"},
      {"{\"format\": 1, \"rank\": 1, \"ranks\": 1}", "rank 0"},
      {"{\"format\": 1, \"rank\": 0, \"ranks\": 0}", "ranks is no number"},
      {"{\"format\": 1, \"rank\": 0, \"ranks\": 1000000000000}", "ranks is no number"},
      {"{\"format\": 1, \"rank\": 0, \"ranks\": 1, \"mode\": \"both\"}", "mode"},
      {"{" HEAD "}", "tensors is not an object"},
      {"{" HEAD ", \"groups\": []}", "groups is not an object"},
      {"{" HEAD ", \"groups\": {\"tp\": 2}}", "is no list of ranks with rank 0 in it"},
      {"{" HEAD ", \"groups\": {\"tp\": []}}", "is no list of ranks with rank 0 in it"},
      {"{" HEAD ", \"groups\": {\"tp\": [0, 1]}}", "is no list of ranks with rank 0 in it"},
      {"{" HEAD ", \"groups\": {\"tp\": [0, 0]}}", "is no list of ranks with rank 0 in it"},
      {"{\"format\": 1, \"rank\": 0, \"ranks\": 3, \"mode\": \"e2e\", \"groups\": {\"tp\": [0, 1, 1]}}",
       "is no list of ranks with rank 0 in it"},
      {"{" HEAD ", \"groups\": {\"a name of more than thirty-one characters\": [0]}}", "with short names"},
      {"{" HEAD ", \"tensors\": {}}", "missing from the metadata"},
      {"{" HEAD ", \"tensors\": {\"" NAME "\": {}, \"s0/mb0/fwd/act/n/0\": {}}}", "metadata alone"},
      {ONE("[]"), "not an object"},
      {ONE("{\"shape\": 4}"), "shape is no array"},
      {ONE("{\"shape\": [1,1,1,1,1,1,1,1,1]}"), "shape is no array"},
      {ONE("{\"shape\": [-2, 2]}"), "no size"},
      {ONE("{\"shape\": [2.0, 2]}"), "no size"},
      {ONE("{\"shape\": [4294967296, 4294967296]}"), "too many elements"},
      {ONE("{\"shape\": [3, 2]}"), "differ in shape"},
      {ONE("{\"shape\": [4, 1]}"), "differ in shape"},
      {ONE("{\"index\": [[[0, 2]]]}"), "one list for each dimension"},
      {ONE("{\"index\": {}}"), "one list for each dimension"},
      {ONE("{\"index\": [[[0, 2]], 3]}"), "no list"},
      {ONE("{\"index\": [[[0, 2]], [3]]}"), "neither"},
      {ONE("{\"index\": [[[0, 2]], [[0]]]}"), "neither"},
      {ONE("{\"index\": [[[0, 2]], [[0, 2, 1, 1]]]}"), "neither"},
      {ONE("{\"index\": [[[0, 2]], [[0, -2]]]}"), "neither"},
      {ONE("{\"index\": [[[0, 2]], [[1, 2]]]}"), "leaves the shape"},
      {ONE("{\"flat\": [0, 4]}"), "differ in size"},
      {ONE("{\"flat\": [0, 5]}"), "leaves the box"},
      {ONE("{\"flat\": 4}"), "flat is not"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) try_trace(NAME, table[i].meta, table[i].reason);
}

static void test_traces_with_metadata_cut_anywhere_are_refused(void **state) {
  static const char sound[] = "{" HEAD ", \"groups\": {\"tp\": [0]}, \"tensors\": {\"" NAME
                              "\": {\"shape\": [2, 4], \"index\": [[[0, 2]], [[0, 2, 4]]], \"partial\": \"tp\"}}}";
  char cut[sizeof sound];
  (void)state;
  for (size_t length = 0; length + 1 < sizeof sound; length++) {
    snprintf(cut, length + 1, "%s", sound);
    try_trace(NAME, cut, "metadata");
  }
}

static void test_trace_members_with_values_that_they_may_not_have_are_refused(void **state) {
  static const char *const forms[] = {"%s",
                                      "{\"format\": %s}",
                                      "{\"format\": 1, \"rank\": %s, \"ranks\": 1, \"mode\": \"e2e\", \"tensors\": {}}",
                                      "{\"format\": 1, \"rank\": 0, \"ranks\": %s, \"mode\": \"e2e\", \"tensors\": {}}",
                                      "{\"format\": 1, \"rank\": 0, \"ranks\": 1, \"mode\": %s, \"tensors\": {}}",
                                      "{" HEAD ", \"tensors\": %s}",
                                      "{" HEAD ", \"groups\": %s, \"tensors\": {}}",
                                      "{" HEAD ", \"groups\": {%s: [1]}, \"tensors\": {}}",
                                      "{" HEAD ", \"groups\": {\"tp\": %s}, \"tensors\": {}}",
                                      "{" HEAD ", \"tensors\": {%s: {}}}",
                                      ONE("%s"),
                                      ONE("{\"shape\": %s}"),
                                      ONE("{\"shape\": [%s, 2]}"),
                                      ONE("{\"index\": %s}"),
                                      ONE("{\"index\": [%s, [[0, 2]]]}"),
                                      ONE("{\"index\": [[%s], [[0, 2]]]}"),
                                      ONE("{\"index\": [[[%s, 2]], [[0, 2]]]}"),
                                      ONE("{\"index\": [[[0, %s]], [[0, 2]]]}"),
                                      ONE("{\"flat\": %s}"),
                                      ONE("{\"flat\": [%s, 4]}"),
                                      ONE("{\"flat\": [0, %s]}"),
                                      ONE("{\"partial\": %s}"),
                                      ONE("{\"partial\": [%s]}")};
  (void)state;
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_JSON_COUNT; i += SF_STRIDE) {
      struct sf_text meta = {0};
      hostile_fill_json(&meta, forms[f], i);
      try_trace(NAME, meta.data, NULL);
      sf_text_destroy(&meta);
    }
  }
}

static void test_traces_with_names_that_are_none_are_refused(void **state) {
  static const char *const names[] = {"x",
                                      "s0/mb0/fwd/act/m",
                                      "s0/mb0/fwd/act//0",
                                      "s/mb0/fwd/act/m/0",
                                      "s0/mb/fwd/act/m/0",
                                      "s0/mb0/forward/act/m/0",
                                      "s0/mb0/fwd/acts/m/0",
                                      "s0/mb0/fwd/act/m/",
                                      "s0/mb0/fwd/act/m/x",
                                      "s0/mb0/fwd/act/m/0x",
                                      "s0/mb0/fwd/act/0"};
  static const char *const forms[] = {
      "%s", "s%s/mb0/fwd/act/m/0", "s0/mb%s/fwd/act/m/0", "s0/mb0/%s/act/m/0", "s0/mb0/fwd/%s/m/0", "s0/mb0/fwd/act/m/%s"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    struct sf_text meta = {0};
    sf_text_append(&meta, "{" HEAD ", \"tensors\": {\"%s\": {}}}", names[i]);
    try_trace(names[i], meta.data, "its name is not");
    sf_text_destroy(&meta);
  }
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_COUNT; i += SF_STRIDE) {
      struct sf_text name = {0}, meta = {0};
      hostile_fill(&name, forms[f], hostile_texts[i]);
      sf_text_append(&meta, "{" HEAD ", \"tensors\": {");
      hostile_append_string(&meta, name.data);
      sf_text_append(&meta, ": {}}}");
      try_trace(name.data, meta.data, "");
      sf_text_destroy(&name);
      sf_text_destroy(&meta);
    }
  }
}

/* --- noise files -------------------------------------------------------------------------------------------------- */

static void try_noise(const char *name, const char *type, int32_t width, const char *shape, int32_t count, const char *meta,
                      const char *reason) {
  char path[128];
  struct sf_noise_file noise;
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/noise.safetensors", folder);
  write_file(path, name, type, width, shape, count, meta);
  const enum sf_status status = sf_noise_open(&noise, path, &reference, &error);
  if (status == SF_OK && reason == NULL) {
    assert_true(noise.draws >= 0);
    sf_noise_close(&noise);
    return;
  }
  if (status == SF_OK) fail_msg("not refused: %s", meta);
  law_refusal(status, &error, path);
  if (reason != NULL && strstr(error.text, reason) == NULL) fail_msg("'%s' has no '%s'", error.text, reason);
  hostile_try(HOSTILE_TRACE);
}

static void test_noise_files_of_something_else_are_refused(void **state) {
  static const char meta[] = "{\"format\": 2, \"draws\": 3, \"widening\": 1.5, \"mode\": \"e2e\"}";
  static const char *const forms[] = {"%s", "{\"format\": %s, \"draws\": 3}", "{\"format\": 2, \"draws\": %s}",
                                      "{\"format\": 2, \"draws\": 3, \"widening\": %s}", "{\"format\": 2, \"draws\": 3, \"mode\": %s}"};
  (void)state;
  try_noise("s0/mb0/fwd/act/n/0", "F64", 8, "[6]", 6, meta, "is not of this reference");
  try_noise(NAME, "F64", 8, "[5]", 5, meta, "is not of this reference");
  try_noise(NAME, "F64", 8, "[7]", 7, meta, "is not of this reference");
  try_noise(NAME, "F64", 8, "[2,3]", 6, meta, "is not of this reference");
  try_noise(NAME, "F32", 4, "[6]", 6, meta, "is not of this reference");
  try_noise(NAME, "F64", 8, "[6]", 6, NULL, "no metadata");
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_JSON_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      hostile_fill_json(&text, forms[f], i);
      try_noise(NAME, "F64", 8, "[6]", 6, text.data, NULL);
      sf_text_destroy(&text);
    }
  }
}

static void test_noise_numbers_that_are_negative_are_refused_when_they_are_read(void **state) {
  static const double wrong[] = {-1, -1e-300, -HUGE_VAL};
  char path[128];
  (void)state;
  snprintf(path, sizeof path, "%s/noise.safetensors", folder);
  for (int at = 0; at < 6 * 3; at++) {
    double numbers[6];
    struct sf_noise_file noise;
    struct sf_error error = {SF_OK, ""};
    write_file(path, NAME, "F64", 8, "[6]", 6, "{\"format\": 2, \"draws\": 3}");
    FILE *to = fopen(path, "r+b");
    assert_int_equal(fseek(to, 8 * (at % 6 - 6), SEEK_END), 0);
    fwrite(&wrong[at / 6], sizeof wrong[0], 1, to);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(sf_noise_open(&noise, path, &reference, &error), SF_OK);
    const struct sf_st_entry *vector = sf_st_find(&noise.file.file, NAME);
    enum sf_status status = sf_noise_head(numbers, &noise, vector, &error);
    if (status == SF_OK) status = sf_noise_rows(numbers, &noise, vector, 0, 2, &error);
    law_refusal(status, &error, path);
    assert_non_null(strstr(error.text, "is negative"));
    sf_noise_close(&noise);
    hostile_try(HOSTILE_TRACE);
  }
}

static int setup(void **state) {
  char path[160];
  struct sf_error error = {SF_OK, ""};
  if (fixture_setup(state) != 0) return -1;
  folder = *state;
  snprintf(path, sizeof path, "%s/sound", folder);
  mkdir(path, 0777);
  snprintf(path, sizeof path, "%s/sound/rank-00000.safetensors", folder);
  write_file(path, NAME, "F32", 4, "[2,2]", 4, ONE("{}"));
  snprintf(path, sizeof path, "%s/sound", folder);
  return sf_trace_set_open(&reference, path, &error) == SF_OK ? 0 : -1;
}

static int teardown(void **state) {
  sf_trace_set_close(&reference);
  return fixture_teardown(state);
}

int hostile_run_traces(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_traces_with_wrong_metadata_are_refused_with_a_reason),
      cmocka_unit_test(test_traces_with_metadata_cut_anywhere_are_refused),
      cmocka_unit_test(test_trace_members_with_values_that_they_may_not_have_are_refused),
      cmocka_unit_test(test_traces_with_names_that_are_none_are_refused),
      cmocka_unit_test(test_noise_files_of_something_else_are_refused),
      cmocka_unit_test(test_noise_numbers_that_are_negative_are_refused_when_they_are_read),
  };
  return cmocka_run_group_tests_name("hostile/traces", tests, setup, teardown);
}
