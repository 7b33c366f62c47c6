/* What the programs that test the run room share: a folder of its own for each test, and small cases. */
#ifndef TESTS_UNIT_RUN_RUN_FIXTURE_H
#define TESTS_UNIT_RUN_RUN_FIXTURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/run/process/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ftw.h>
#include <unistd.h>

/* state: char *, the folder's path. */
static inline int folder_create(void **state) {
  const char *base = getenv("TMPDIR");
  char *path = test_malloc(96);
  snprintf(path, 96, "%.60s/sf_run_XXXXXX", base == NULL ? P_tmpdir : base);
  assert_non_null(mkdtemp(path));
  *state = path;
  return 0;
}

static inline int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw) {
  (void)info;
  (void)type;
  (void)ftw;
  return remove(path);
}

static inline int folder_destroy(void **state) {
  assert_int_equal(nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
  test_free(*state);
  return 0;
}

#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(name, folder_create, folder_destroy)

/* A case in a few fields: assignments as --set takes them, separated by spaces. */
static inline struct sf_case case_make(const char *assignments) {
  struct sf_case c;
  char text[512], *rest = NULL;
  struct sf_error error = {SF_OK, ""};
  sf_case_init(&c);
  snprintf(text, sizeof text, "%s", assignments);
  for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value = '\0';
    if (sf_case_field_parse(&c, word, value + 1, &error) != SF_OK) fail_msg("%s", error.text);
  }
  if (sf_case_validate(&c, &error) != SF_OK) fail_msg("%s: %s", assignments, error.text);
  return c;
}

/* Two ranks over tp that have everything to reduce. */
#define CASE_TP2 "mode=e2e model.heads=2 model.kv_heads=2 model.bias=true layout.tp=2"

/* Limits under which drawn cases take milliseconds, sanitizers on. */
static const char *const small_sizes[] = {"model.layers=1..4", "model.hidden=8..16", "model.ffn=8..16", "model.vocab=8..32",
                                          "model.seq=2..8"};

static inline struct sf_outcome finding_of(const struct sf_case *c, const char *label) {
  struct sf_outcome outcome;
  memset(&outcome, 0, sizeof outcome);
  sf_outcome_from_failure(&outcome, c, SF_CLASS_DEADLOCK, SF_MANNER_NONE, 1, label, "rank 1 waits");
  outcome.ranks = (int32_t)sf_case_ranks(c);
  return outcome;
}

#endif
