#include "harness/base/alloc.h"
#include "harness/base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder { char path[256], file[300]; };

static int setup_folder(void **state) {
  struct folder *folder = calloc(1, sizeof *folder);
  if (folder == NULL) return -1;
  const char *base = getenv("TMPDIR");
  snprintf(folder->path, sizeof folder->path, "%s/sf_bytes_XXXXXX", base != NULL ? base : P_tmpdir);
  if (mkdtemp(folder->path) == NULL) return -1;
  snprintf(folder->file, sizeof folder->file, "%s/file", folder->path);
  *state = folder;
  return 0;
}

/* Entries of the folder, and removes them. */
static int folder_empty(const struct folder *folder) {
  int count = 0;
  DIR *listing = opendir(folder->path);
  for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
    char path[600];
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder->path, entry->d_name);
    if (unlink(path) != 0) rmdir(path);
    count++;
  }
  closedir(listing);
  return count;
}

static int teardown_folder(void **state) {
  struct folder *folder = *state;
  folder_empty(folder);
  rmdir(folder->path);
  free(folder);
  return 0;
}

static void test_bytes_write_then_read_gives_the_same_bytes(void **state) {
  struct folder *folder = *state;
  unsigned char data[70000];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + i / 256);
  struct sf_bytes back = {0};
  assert_int_equal(sf_bytes_write_file(folder->file, data, sizeof data, NULL), SF_OK);
  assert_int_equal(sf_bytes_read_file(&back, folder->file, sizeof data, NULL), SF_OK);
  assert_int_equal(back.size_bytes, sizeof data);
  assert_memory_equal(back.data, data, sizeof data);
  assert_int_equal(back.data[sizeof data], 0);
  sf_bytes_destroy(&back);
  assert_null(back.data);
  assert_int_equal(folder_empty(folder), 1); /* no temporary file is left */
}

static void test_bytes_write_replaces_the_old_file(void **state) {
  struct folder *folder = *state;
  struct sf_bytes back = {0};
  assert_int_equal(sf_bytes_write_file(folder->file, "long old text", 13, NULL), SF_OK);
  assert_int_equal(sf_bytes_write_file(folder->file, "new", 3, NULL), SF_OK);
  assert_int_equal(sf_bytes_read_file(&back, folder->file, 100, NULL), SF_OK);
  assert_string_equal((char *)back.data, "new");
  sf_bytes_destroy(&back);
}

static void test_bytes_read_of_an_empty_file_gives_no_bytes(void **state) {
  struct folder *folder = *state;
  struct sf_bytes back = {0};
  assert_int_equal(sf_bytes_write_file(folder->file, "", 0, NULL), SF_OK);
  assert_int_equal(sf_bytes_read_file(&back, folder->file, 0, NULL), SF_OK);
  assert_int_equal(back.size_bytes, 0);
  assert_string_equal((char *)back.data, "");
  sf_bytes_destroy(&back);
}

static void expect_refused(const char *path, size_t limit_bytes, enum sf_status status, const char *part) {
  struct sf_bytes bytes = {.data = NULL, .size_bytes = 77};
  struct sf_error error = {0};
  assert_int_equal(sf_bytes_read_file(&bytes, path, limit_bytes, &error), status);
  assert_int_equal(error.status, status);
  assert_non_null(strstr(error.text, path));
  if (strstr(error.text, part) == NULL) fail_msg("\"%s\" is not in \"%s\"", part, error.text);
  assert_int_equal(bytes.size_bytes, 77);
}

static void test_bytes_read_of_what_is_no_readable_file_is_refused(void **state) {
  struct folder *folder = *state;
  char path[320];
  expect_refused(folder->file, 100, SF_ENOTFOUND, "cannot open");
  expect_refused(folder->path, 100, SF_EINPUT, "not a regular file");
  snprintf(path, sizeof path, "%s/pipe", folder->path);
  assert_int_equal(mkfifo(path, 0600), 0);
  expect_refused(path, 100, SF_EINPUT, "not a regular file");
  assert_int_equal(sf_bytes_write_file(folder->file, "12345", 5, NULL), SF_OK);
  expect_refused(folder->file, 4, SF_EINPUT, "limit of 4");
  snprintf(path, sizeof path, "%s/file/below", folder->path);
  expect_refused(path, 100, SF_EIO, "cannot open");
}

static void test_bytes_write_where_no_file_can_be_is_refused(void **state) {
  struct folder *folder = *state;
  struct sf_error error;
  char path[320];
  snprintf(path, sizeof path, "%s/absent/file", folder->path);
  assert_int_equal(sf_bytes_write_file(path, "x", 1, &error), SF_ENOTFOUND);
  assert_non_null(strstr(error.text, path));
  assert_int_equal(sf_bytes_write_file(folder->path, "x", 1, &error), SF_EINPUT);
  assert_int_equal(folder_empty(folder), 0);
}

static void test_bytes_without_memory_fails_and_leaves_the_old_file(void **state) {
  struct folder *folder = *state;
  struct sf_bytes back = {0};
  assert_int_equal(sf_bytes_write_file(folder->file, "old", 3, NULL), SF_OK);
  sf_alloc_fail_at(1);
  assert_int_equal(sf_bytes_write_file(folder->file, "new", 3, NULL), SF_ENOMEM);
  sf_alloc_fail_at(1);
  assert_int_equal(sf_bytes_read_file(&back, folder->file, 100, NULL), SF_ENOMEM);
  sf_alloc_fail_at(0);
  assert_int_equal(sf_bytes_read_file(&back, folder->file, 100, NULL), SF_OK);
  assert_string_equal((char *)back.data, "old");
  sf_bytes_destroy(&back);
  assert_int_equal(folder_empty(folder), 1);
}

static void test_u64_le_is_least_byte_first(void **state) {
  (void)state;
  static const unsigned char BYTES[8] = {0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0xf1};
  unsigned char out[8];
  assert_int_equal(sf_load_u64_le(BYTES), UINT64_C(0xf102030405060708));
  sf_store_u64_le(out, UINT64_C(0xf102030405060708));
  assert_memory_equal(out, BYTES, 8);
}

static void test_text_append_grows_and_stays_terminated(void **state) {
  (void)state;
  struct sf_text text = {0};
  for (int i = 0; i < 500; i++) sf_text_append(&text, "%03d,", i);
  assert_int_equal(text.failed, 0);
  assert_int_equal(text.length, 2000);
  assert_int_equal(strlen(text.data), 2000);
  assert_memory_equal(text.data + 1996, "499,", 4);
  sf_text_destroy(&text);
  assert_null(text.data);
}

static void test_text_append_without_memory_keeps_the_text_and_stays_failed(void **state) {
  (void)state;
  struct sf_text text = {0};
  sf_text_append(&text, "kept");
  sf_alloc_fail_at(1);
  sf_text_append(&text, "%1000d", 1);
  sf_alloc_fail_at(0);
  assert_int_equal(text.failed, 1);
  sf_text_append(&text, "not any more");
  assert_string_equal(text.data, "kept");
  assert_int_equal(text.length, 4);
  sf_text_destroy(&text);
}

static void test_new_file_appears_whole_or_not_at_all(void **state) {
  struct folder *folder = *state;
  struct sf_new_file file;
  struct sf_bytes back = {0};
  for (int commit = 0; commit < 2; commit++) {
    assert_int_equal(sf_bytes_write_file(folder->file, "old", 3, NULL), SF_OK);
    assert_int_equal(sf_new_file_begin(&file, folder->file, NULL), SF_OK);
    assert_int_equal(sf_new_file_write(&file, "w", 1, 2, NULL), SF_OK);
    assert_int_equal(sf_new_file_write(&file, "ne", 2, 0, NULL), SF_OK);
    assert_int_equal(sf_bytes_read_file(&back, folder->file, 100, NULL), SF_OK);
    assert_string_equal((char *)back.data, "old");
    sf_bytes_destroy(&back);
    if (commit) assert_int_equal(sf_new_file_commit(&file, NULL), SF_OK);
    sf_new_file_abandon(&file);
    assert_int_equal(sf_bytes_read_file(&back, folder->file, 100, NULL), SF_OK);
    assert_string_equal((char *)back.data, commit ? "new" : "old");
    sf_bytes_destroy(&back);
    assert_int_equal(folder_empty(folder), 1);
  }
  assert_int_equal(sf_new_file_begin(&file, folder->path, NULL), SF_EINPUT);
}

/* A writer that was killed left a temporary file; another one still writes to the same path. */
static void test_new_file_removes_what_killed_writers_left(void **state) {
  const struct folder *folder = *state;
  struct sf_new_file living;
  static const char *const others[] = {".12.tmp", ".12.x.tmp", ".12.3.tmp.json", "2.12.3.tmp"};
  char path[400];
  assert_int_equal(sf_new_file_begin(&living, folder->file, NULL), SF_OK);
  snprintf(path, sizeof path, "%s.12.3.tmp", folder->file);
  fclose(fopen(path, "w"));
  for (size_t i = 0; i < 4; i++) {
    char other[400];
    snprintf(other, sizeof other, "%s%s", folder->file, others[i]);
    fclose(fopen(other, "w"));
  }
  assert_int_equal(sf_bytes_write_file(folder->file, "new", 3, NULL), SF_OK);
  assert_int_equal(access(path, F_OK), -1);
  assert_int_equal(access(living.name, F_OK), 0);
  assert_int_equal(sf_new_file_commit(&living, NULL), SF_OK);
  assert_int_equal(folder_empty(folder), 5); /* the file and what is named otherwise */
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup_folder, teardown_folder)
  const struct CMUnitTest tests[] = {
      IN_FOLDER(test_bytes_write_then_read_gives_the_same_bytes),
      IN_FOLDER(test_bytes_write_replaces_the_old_file),
      IN_FOLDER(test_bytes_read_of_an_empty_file_gives_no_bytes),
      IN_FOLDER(test_bytes_read_of_what_is_no_readable_file_is_refused),
      IN_FOLDER(test_bytes_write_where_no_file_can_be_is_refused),
      IN_FOLDER(test_bytes_without_memory_fails_and_leaves_the_old_file),
      IN_FOLDER(test_new_file_appears_whole_or_not_at_all),
      IN_FOLDER(test_new_file_removes_what_killed_writers_left),
      cmocka_unit_test(test_u64_le_is_least_byte_first),
      cmocka_unit_test(test_text_append_grows_and_stays_terminated),
      cmocka_unit_test(test_text_append_without_memory_keeps_the_text_and_stays_failed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
