/* safetensors files: headers that are none, sound files cut and changed anywhere, read whole and by the header alone. */
#include "tests/hostile/hostile.h"
#include "tests/rounds.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/tensor/safetensors.h"
#include "tests/st_values.h"

static char path[128];

/* What was taken is consistent to the last byte. */
static void check_taken(struct sf_st_file *file) {
  for (int32_t i = 0; i < file->entry_count; i++) {
    const struct sf_st_entry *entry = &file->entries[i];
    double *values = calloc((size_t)entry->count + 1, sizeof *values);
    assert_non_null(values);
    st_load_f64(values, entry);
    assert_ptr_equal(sf_st_find(file, entry->name), entry);
    free(values);
  }
  sf_st_destroy(file);
}

/* reason: NULL, or what the refusal has in it. The header alone says the same as the whole file. */
static void try_file(const unsigned char *data, size_t size_bytes, const char *reason) {
  struct sf_st_file out = {.entry_count = -7};
  struct sf_st_open opened;
  struct sf_error error = {SF_OK, ""};
  const enum sf_status status = sf_st_parse(&out, data, size_bytes, "t.st", &error);
  hostile_write(path, data, size_bytes);
  if (status == SF_OK && reason == NULL) {
    check_taken(&out);
    assert_int_equal(sf_st_open(&opened, path, &error), SF_OK);
    sf_st_close(&opened);
    return;
  }
  if (status == SF_OK) fail_msg("not refused: %.*s", (int)size_bytes - 8, data + 8);
  law_refusal(status, &error, "t.st: ");
  if (reason != NULL && strstr(error.text, reason) == NULL) fail_msg("'%s' has no '%s'", error.text, reason);
  assert_int_equal(out.entry_count, -7);
  const enum sf_status again = sf_st_open(&opened, path, &error);
  law_refusal(again, &error, path);
  hostile_try(HOSTILE_TRACE);
}

static void test_safetensors_headers_that_are_none_are_refused_with_a_reason(void **state) {
  static const struct {
    const char *header;
    size_t data_bytes;
    const char *reason;
  } table[] = {
      {"", 0, "does not begin"},
      {" {}", 0, "does not begin"},
      {"[]", 0, "does not begin"},
      {"{", 0, "header:"},
      {"{}x", 0, "header:"},
      {"{\"a\":\"\xff\"}", 0, "header:"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "beyond the file"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "data after"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "hole"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
       12, "hole"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
       12, "overlaps"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
       "overlaps"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
       "duplicate"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "end before they begin"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "no offset"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]}}", 8, "no offset"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", 8, "not a pair"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":8}}", 8, "not a pair"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "differ in size"},
      {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "differ in size"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "no size"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}}", 8, "no size"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "not an array"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "more than 8"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8, "too many"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "differ in size"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}", 8, "header:"},
      {"{\"a\":{\"dtype\":\"F8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8, "none of F32"},
      {"{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "none of F32"},
      {"{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "not a string"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "needs exactly"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"offsets\":[0,8]}}", 8, "not a pair"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "needs exactly"},
      {"{\"a\":7}", 0, "not an object"},
      {"{\"__metadata__\":[]}", 0, "__metadata__"},
      {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__"},
  };
  static const uint64_t sizes[] = {3, 100, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
  unsigned char file[512];
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    const size_t size_bytes = st_make_file(file, table[i].header, table[i].data_bytes);
    try_file(file, size_bytes, table[i].reason);
  }
  st_make_file(file, "{}", 0);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    sf_store_u64_le(file, sizes[i]);
    try_file(file, 10, "beyond");
  }
}

static const char sound[] = "{\"__metadata__\":{\"k\":\"v\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[4,8]},"
                            "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}  ";

static void test_safetensors_cut_anywhere_are_refused(void **state) {
  unsigned char file[256];
  (void)state;
  const size_t size_bytes = st_make_file(file, sound, 8);
  for (size_t cut = 0; cut < size_bytes; cut++) try_file(file, cut, "");
  try_file(file, size_bytes + 1, "data after");
}

/* Every bit of the header, and some bytes that mean something. */
static void test_safetensors_with_any_byte_changed_are_refused_or_other_files(void **state) {
  static const unsigned char bytes[] = {'\0', '"', '{', '9', '-', 0xff};
  unsigned char file[256];
  (void)state;
  const size_t size_bytes = st_make_file(file, sound, 8);
  for (size_t at = 0; at < size_bytes - 8; at += SF_STRIDE) {
    const unsigned char kept = file[at];
    for (size_t i = 0; i < sizeof bytes + 8; i++) {
      file[at] = (unsigned char)(i < 8 ? kept ^ 1u << i : bytes[i - 8]);
      if (file[at] != kept) try_file(file, size_bytes, NULL);
    }
    file[at] = kept;
  }
}

static void test_safetensors_members_with_values_that_they_may_not_have_are_refused(void **state) {
  static const char *const forms[] = {"{\"a\":%s}",
                                      "{\"__metadata__\":%s}",
                                      "{\"__metadata__\":{\"k\":%s}}",
                                      "{\"a\":{\"dtype\":%s,\"shape\":[2],\"data_offsets\":[0,8]}}",
                                      "{\"a\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,8]}}",
                                      "{\"a\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,8]}}",
                                      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":%s}}",
                                      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%s,8]}}",
                                      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,%s]}}",
                                      "{%s:{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}"};
  static unsigned char file[1024];
  (void)state;
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_JSON_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      hostile_fill_json(&text, forms[f], i);
      assert_true(text.length + 16 < sizeof file);
      try_file(file, st_make_file(file, text.data, 8), NULL);
      sf_text_destroy(&text);
    }
  }
}

static int setup(void **state) {
  const int failed = folder_create(state);
  if (failed == 0) snprintf(path, sizeof path, "%s/t.st", (char *)*state);
  return failed;
}

int hostile_run_safetensors(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_safetensors_headers_that_are_none_are_refused_with_a_reason),
      cmocka_unit_test(test_safetensors_cut_anywhere_are_refused),
      cmocka_unit_test(test_safetensors_with_any_byte_changed_are_refused_or_other_files),
      cmocka_unit_test(test_safetensors_members_with_values_that_they_may_not_have_are_refused),
  };
  return cmocka_run_group_tests_name("hostile/safetensors", tests, setup, folder_destroy);
}
