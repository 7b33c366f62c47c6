/* Trace folders for tests: a few tensors per rank, with the metadata as text. */
#ifndef SF_TESTS_TRACE_FIXTURE_H
#define SF_TESTS_TRACE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/base/alloc.h"
#include "harness/check/trace_set.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One tensor of one rank. map: the value of its key in `tensors`, NULL = {}. */
struct part {
  const char *name;
  enum sf_dtype dtype;
  int32_t dim_count;
  int64_t dims[4];
  const void *values; /* floats; doubles for F64 */
  const char *map;
};

static inline int fixture_setup(void **state) {
  char *path = malloc(64);
  snprintf(path, 64, P_tmpdir "/sf_check_XXXXXX");
  *state = path;
  return mkdtemp(path) == NULL ? -1 : 0;
}

static inline void folder_remove(const char *path) {
  char inside[600];
  DIR *listing = opendir(path);
  for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
    if (unlink(inside) != 0) folder_remove(inside);
  }
  if (listing != NULL) closedir(listing);
  rmdir(path);
}

static inline int fixture_teardown(void **state) {
  folder_remove(*state);
  free(*state);
  return 0;
}

/* Writes DIR/FOLDER/rank-NNNNN.safetensors with this text as its metadata. */
static inline void rank_write_raw(const char *dir, const char *folder, int rank, const struct part *parts, int count, const char *meta) {
  char path[400];
  struct sf_st_writer *writer = NULL;
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/%s", dir, folder);
  mkdir(path, 0777);
  snprintf(path, sizeof path, "%s/%s/rank-%05d.safetensors", dir, folder, rank);
  assert_int_equal(sf_st_writer_create(&writer), SF_OK);
  for (int i = 0; i < count; i++)
    assert_int_equal(sf_st_writer_add(writer, parts[i].name, parts[i].dtype, parts[i].dims, parts[i].dim_count, parts[i].values), SF_OK);
  if (meta != NULL) assert_int_equal(sf_st_writer_meta(writer, "shardfuzz", meta), SF_OK);
  if (sf_st_writer_save(writer, path, &error) != SF_OK) fail_msg("%s", error.text);
  sf_st_writer_destroy(writer);
}

/* groups: the value of that key. */
static inline void rank_write_in_groups(const char *dir, const char *folder, int rank, int ranks, const char *mode, const char *groups,
                                        const struct part *parts, int count) {
  struct sf_text meta = {0};
  sf_text_append(&meta, "{\"format\": 1, \"rank\": %d, \"ranks\": %d, \"mode\": \"%s\", \"groups\": %s, \"tensors\": {", rank, ranks, mode,
                 groups);
  for (int i = 0; i < count; i++)
    sf_text_append(&meta, "%s\"%s\": %s", i > 0 ? ", " : "", parts[i].name, parts[i].map != NULL ? parts[i].map : "{}");
  sf_text_append(&meta, "}}");
  rank_write_raw(dir, folder, rank, parts, count, meta.data);
  sf_text_destroy(&meta);
}

static inline struct sf_trace_set set_open(const char *dir, const char *folder) {
  char path[400];
  struct sf_trace_set set = {0};
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/%s", dir, folder);
  if (sf_trace_set_open(&set, path, &error) != SF_OK) fail_msg("%s", error.text);
  return set;
}

static inline void rank_write(const char *dir, const char *folder, int rank, int ranks, const char *mode, const struct part *parts,
                              int count) {
  rank_write_in_groups(dir, folder, rank, ranks, mode, "{}", parts, count);
}

#define FOLDER_TEST(function) cmocka_unit_test_setup_teardown(function, fixture_setup, fixture_teardown)

#endif
