#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/alloc.h"
#include "harness/tensor/safetensors.h"
#include "tests/st_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_parse_tensors_are_sorted_by_name(void **state) {
  (void)state;
  unsigned char file[256];
  const size_t size_bytes = st_make_file(
      file,
      "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}  ",
      8);
  struct sf_st_file out;
  assert_int_equal(sf_st_parse(&out, file, size_bytes, "t.st", NULL), SF_OK);
  assert_string_equal(out.entries[0].name, "a");
  assert_int_equal(out.entries[0].count, 1);
  assert_int_equal(out.entries[1].bytes[0], 4);
  sf_st_destroy(&out);
  assert_int_equal(sf_st_parse(&out, file, st_make_file(file, "{}", 0), "t.st", NULL), SF_OK);
  assert_int_equal(out.entry_count, 0);
  sf_st_destroy(&out);
}

static void path_for_test(char out[64]) { snprintf(out, 64, P_tmpdir "/sf_safetensors_%ld.st", (long)getpid()); }

/* The header alone and the whole file: the same entries, and every range of elements; and both refuse what is cut short. */
static void test_open_then_load_gives_what_parse_gives(void **state) {
  (void)state;
  char path[64];
  unsigned char file[256], part[8];
  const size_t size_bytes = st_make_file(
      file,
      "{\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[4,12]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"__metadata__\":{\"k\":\"v\"}}",
      12);
  struct sf_st_open opened;
  struct sf_error error = {SF_OK, ""};
  path_for_test(path);
  for (size_t cut = 0; cut < size_bytes; cut++) {
    assert_int_equal(sf_bytes_write_file(path, file, cut, NULL), SF_OK);
    assert_int_equal(sf_st_open(&opened, path, &error), SF_EINPUT);
  }
  assert_int_equal(sf_bytes_write_file(path, file, size_bytes, NULL), SF_OK);
  assert_int_equal(sf_st_open(&opened, path, &error), SF_OK);
  assert_int_equal(opened.file.entry_count, 2);
  assert_string_equal(sf_st_meta(&opened.file, "k"), "v");
  const struct sf_st_entry *entry = sf_st_find(&opened.file, "b");
  assert_null(entry->bytes);
  for (int64_t first = 0; first <= 4; first++) {
    for (int64_t count = 0; count <= 4 - first; count++) {
      assert_int_equal(sf_st_load(part, &opened, entry, first, count, &error), SF_OK);
      for (int64_t i = 0; i < 2 * count; i++) assert_int_equal(part[i], 4 + 2 * first + i);
    }
  }
  assert_int_equal(truncate(path, (off_t)size_bytes - 1), 0);
  assert_int_equal(sf_st_load(part, &opened, entry, 3, 1, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "became shorter"));
  sf_st_close(&opened);
  unlink(path);
  assert_int_equal(sf_st_open(&opened, path, &error), SF_ENOTFOUND);
  assert_int_equal(sf_st_open(&opened, P_tmpdir, &error), SF_EINPUT);
  assert_int_equal(symlink(path, path), 0);
  assert_int_equal(sf_st_open(&opened, path, &error), SF_EINPUT); /* a link to itself */
  unlink(path);
}

static const float f32_values[6] = {1.5f, -0.0f, INFINITY, 3.0e-42f, -7.25f, 16777216.0f};
static const float bf16_values[3] = {1.0f, -0x1.fep-100f, 0.0f};
static const double f64_values[2] = {0.1, -1e300};

/* Every byte of both fp8 formats; NaN as they are, which is not promised. */
static void test_writer_save_read_gives_the_same_fp8_values(void **state) {
  (void)state;
  static const enum sf_dtype formats[] = {SF_F8E4M3, SF_F8E5M2};
  char path[64];
  struct sf_st_writer *writer;
  struct sf_st_file file;
  path_for_test(path);
  assert_int_equal(sf_st_writer_create(&writer), SF_OK);
  for (int f = 0; f < 2; f++) {
    float values[256];
    for (int i = 0; i < 256; i++) values[i] = sf_f8_value((uint8_t)i, formats[f]);
    assert_int_equal(sf_st_writer_add(writer, sf_dtype_name(formats[f]), formats[f], (int64_t[]){256}, 1, values), SF_OK);
  }
  assert_int_equal(sf_st_writer_save(writer, path, NULL), SF_OK);
  sf_st_writer_destroy(writer);
  assert_int_equal(sf_st_read(&file, path, NULL), SF_OK);
  for (int f = 0; f < 2; f++) {
    double values[256];
    const struct sf_st_entry *entry = sf_st_find(&file, sf_dtype_name(formats[f]));
    assert_true(entry != NULL && entry->dtype == formats[f] && entry->count == 256);
    st_load_f64(values, entry);
    for (int i = 0; i < 256; i++) {
      const double want = (double)sf_f8_value((uint8_t)i, formats[f]);
      assert_true(want != want ? values[i] != values[i] : values[i] == want);
      if (want == want) assert_int_equal(entry->bytes[i], i);
    }
  }
  sf_st_destroy(&file);
  unlink(path);
}

static enum sf_status fill_writer(struct sf_st_writer *writer) {
  enum sf_status status = sf_st_writer_add(writer, "w/bf16", SF_BF16, (int64_t[]){3}, 1, bf16_values);
  if (status == SF_OK) status = sf_st_writer_add(writer, "w \"quoted\"", SF_F32, (int64_t[]){2, 3}, 2, f32_values);
  if (status == SF_OK) status = sf_st_writer_add(writer, "d", SF_F64, (int64_t[]){1, 2, 1}, 3, f64_values);
  if (status == SF_OK) status = sf_st_writer_add(writer, "empty", SF_F32, (int64_t[]){0, 4}, 2, NULL);
  if (status == SF_OK) status = sf_st_writer_add(writer, "scalar", SF_F32, NULL, 0, f32_values);
  if (status == SF_OK) status = sf_st_writer_meta(writer, "case", "{\"schema\":1}\n");
  return status;
}

static void test_writer_save_read_gives_the_same_tensors(void **state) {
  (void)state;
  char path[64];
  double values[6];
  struct sf_st_writer *writer;
  struct sf_st_file file;
  path_for_test(path);
  assert_int_equal(sf_st_writer_create(&writer), SF_OK);
  assert_int_equal(fill_writer(writer), SF_OK);
  assert_int_equal(sf_st_writer_save(writer, path, NULL), SF_OK);
  sf_st_writer_destroy(writer);
  assert_int_equal(sf_st_read(&file, path, NULL), SF_OK);
  assert_int_equal(file.entry_count, 5);
  const struct sf_st_entry *matrix = sf_st_find(&file, "w \"quoted\"");
  assert_non_null(matrix);
  assert_true(matrix->dtype == SF_F32 && matrix->dim_count == 2 && matrix->dims[0] == 2 && matrix->dims[1] == 3);
  assert_memory_equal(matrix->bytes, f32_values, sizeof f32_values);
  st_load_f64(values, matrix);
  for (int i = 0; i < 6; i++) assert_true(values[i] == (double)f32_values[i]);
  st_load_f64(values, sf_st_find(&file, "w/bf16"));
  for (int i = 0; i < 3; i++) assert_true(values[i] == (double)bf16_values[i]);
  st_load_f64(values, sf_st_find(&file, "d"));
  for (int i = 0; i < 2; i++) assert_true(values[i] == f64_values[i]);
  assert_int_equal(sf_st_find(&file, "empty")->count, 0);
  assert_int_equal(sf_st_find(&file, "scalar")->count, 1);
  assert_null(sf_st_find(&file, "absent"));
  assert_string_equal(sf_st_meta(&file, "case"), "{\"schema\":1}\n");
  assert_null(sf_st_meta(&file, "absent"));
  sf_st_destroy(&file);
  unlink(path);
}

/* The safetensors package pads the header with spaces to a multiple of eight and aligns every tensor to its element. */
static void test_writer_save_layout_follows_the_format(void **state) {
  (void)state;
  char path[64];
  struct sf_st_writer *writer;
  struct sf_bytes raw;
  path_for_test(path);
  assert_int_equal(sf_st_writer_create(&writer), SF_OK);
  assert_int_equal(fill_writer(writer), SF_OK);
  assert_int_equal(sf_st_writer_save(writer, path, NULL), SF_OK);
  sf_st_writer_destroy(writer);
  assert_int_equal(sf_bytes_read_file(&raw, path, 1 << 20, NULL), SF_OK);
  const uint64_t header_bytes = sf_load_u64_le(raw.data);
  assert_int_equal(header_bytes % 8, 0);
  assert_int_equal(raw.data[8], '{');
  size_t end = 8 + header_bytes;
  while (raw.data[end - 1] == ' ') end--;
  assert_int_equal(raw.data[end - 1], '}');
  struct sf_st_file file;
  assert_int_equal(sf_st_parse(&file, raw.data, raw.size_bytes, path, NULL), SF_OK);
  for (int32_t i = 0; i < file.entry_count; i++) {
    const size_t offset = (size_t)(file.entries[i].bytes - file.raw.data);
    assert_int_equal(offset % sf_dtype_wire_bytes(file.entries[i].dtype), 0);
    if (i > 0) assert_true(strcmp(file.entries[i - 1].name, file.entries[i].name) < 0);
  }
  sf_st_destroy(&file);
  sf_bytes_destroy(&raw);
  unlink(path);
}

static void test_writer_add_bad_tensors_are_refused(void **state) {
  (void)state;
  struct sf_st_writer *writer;
  struct sf_error error;
  char path[64];
  path_for_test(path);
  assert_int_equal(sf_st_writer_create(&writer), SF_OK);
  assert_int_equal(sf_st_writer_add(writer, "a\x01", SF_F32, NULL, 0, f32_values), SF_EUSAGE);
  assert_int_equal(sf_st_writer_add(writer, "__metadata__", SF_F32, NULL, 0, f32_values), SF_EUSAGE);
  assert_int_equal(sf_st_writer_add(writer, "a", SF_F32, (int64_t[]){-1}, 1, f32_values), SF_EUSAGE);
  assert_int_equal(sf_st_writer_add(writer, "a", SF_F64, (int64_t[]){INT64_MAX / 4}, 1, f64_values), SF_EUSAGE);
  assert_int_equal(sf_st_writer_add(writer, "a", SF_F32, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 9, f32_values), SF_EUSAGE);
  assert_int_equal(sf_st_writer_meta(writer, "k", "\xc3\xa9"), SF_EUSAGE);
  assert_int_equal(sf_st_writer_add(writer, "a", SF_F32, NULL, 0, f32_values), SF_OK);
  assert_int_equal(sf_st_writer_add(writer, "a", SF_F64, NULL, 0, f64_values), SF_OK);
  assert_int_equal(sf_st_writer_save(writer, path, &error), SF_EUSAGE);
  assert_non_null(strstr(error.text, "twice"));
  assert_int_not_equal(access(path, F_OK), 0);
  sf_st_writer_destroy(writer);
}

/* Writes and reads with the k-th allocation failing, for every k: a status, no crash, no leak (under the sanitizer). */
static enum sf_status round_trip(const char *path) {
  struct sf_st_writer *writer = NULL;
  struct sf_st_file file = {0};
  enum sf_status status = sf_st_writer_create(&writer);
  if (status == SF_OK) status = fill_writer(writer);
  if (status == SF_OK) status = sf_st_writer_save(writer, path, NULL);
  if (status == SF_OK) status = sf_st_read(&file, path, NULL);
  sf_st_destroy(&file);
  sf_st_writer_destroy(writer);
  return status;
}

static void test_round_trip_any_failing_allocation_gives_no_memory(void **state) {
  (void)state;
  char path[64];
  int64_t failures = 0;
  path_for_test(path);
  for (int64_t k = 1;; k++) {
    sf_alloc_fail_at(k);
    const enum sf_status status = round_trip(path);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (!failed) {
      assert_int_equal(status, SF_OK);
      break;
    }
    assert_int_equal(status, SF_ENOMEM);
    failures++;
  }
  assert_true(failures > 20);
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parse_tensors_are_sorted_by_name),
      cmocka_unit_test(test_open_then_load_gives_what_parse_gives),
      cmocka_unit_test(test_writer_save_read_gives_the_same_tensors),
      cmocka_unit_test(test_writer_save_read_gives_the_same_fp8_values),
      cmocka_unit_test(test_writer_save_layout_follows_the_format),
      cmocka_unit_test(test_writer_add_bad_tensors_are_refused),
      cmocka_unit_test(test_round_trip_any_failing_allocation_gives_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
