/* Folders that outlive nobody: removed by their owners, their keepers, or the next one that comes. */
#include "harness/base/system/temporary.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char base[64]; /* of this test, for the folders */

/* As nobody in root's place, whom the modes of folders keep out of nothing. */
static int begin(void **state) {
  enum { NOBODY = 65534 };
  (void)state;
  if (geteuid() == 0 && seteuid(NOBODY) != 0) return -1;
  snprintf(base, sizeof base, "%s/sf_temporary_XXXXXX", P_tmpdir);
  return mkdtemp(base) ? 0 : -1;
}

static int end(void **state) {
  (void)state;
  sf_remove_tree(base);
  return access(base, F_OK) == 0 || seteuid(getuid()) != 0;
}

static int32_t entries(void) {
  DIR *list = opendir(base);
  int32_t count = -2;
  while (readdir(list)) count++;
  closedir(list);
  return count;
}

static void write_file(const char *folder, const char *name) {
  char path[SF_TEMPORARY_PATH + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fclose(file);
}

/* A process that makes a folder and ends, or waits to be killed; returns when the folder is there. */
static pid_t owner_process(bool keeps, bool stays) {
  int ready[2];
  char byte = 0;
  assert_int_equal(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    struct sf_temporary folder;
    if (sf_temporary_create(&folder, base, NULL) != SF_OK) _exit(1);
    if (keeps) sf_temporary_keep(&folder);
    if (write(ready[1], "r", 1) != 1) _exit(1);
    if (stays) pause();
    _exit(0);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  if (!stays) waitpid(pid, NULL, 0);
  return pid;
}

static void test_temporary_remove_takes_all_that_is_in_it(void **state) {
  (void)state;
  struct sf_temporary folder;
  char inner[SF_TEMPORARY_PATH + 16];
  assert_int_equal(sf_temporary_create(&folder, base, NULL), SF_OK);
  snprintf(inner, sizeof inner, "%s/inner", folder.path);
  assert_int_equal(mkdir(inner, 0700), 0);
  write_file(inner, "file");
  chmod(inner, 0);
  sf_temporary_remove(&folder);
  assert_int_equal(entries(), 0);
  sf_temporary_remove(&folder); /* a second time there is nothing to do */
}

static void test_remove_tree_does_not_follow_links(void **state) {
  (void)state;
  char tree[128], link[160];
  snprintf(tree, sizeof tree, "%s/tree", base);
  snprintf(link, sizeof link, "%s/link", tree);
  assert_int_equal(mkdir(tree, 0700), 0);
  write_file(base, "stays");
  assert_int_equal(symlink(base, link), 0);
  sf_remove_tree(tree);
  assert_int_equal(entries(), 1);
}

static void test_sweep_removes_folders_of_the_dead_alone(void **state) {
  (void)state;
  char path[128];
  struct sf_temporary own;
  assert_int_equal(sf_temporary_create(&own, base, NULL), SF_OK);
  const pid_t alive = owner_process(false, true);
  owner_process(false, false);
  snprintf(path, sizeof path, "%s/shardfuzz-abcDEF", base); /* has no lock: somebody else's */
  assert_int_equal(mkdir(path, 0700), 0);
  write_file(path, "owner");
  snprintf(path, sizeof path, "%s/shardfuzz-abcDEF7", base); /* is not named like ours */
  assert_int_equal(mkdir(path, 0700), 0);
  write_file(path, SF_TEMPORARY_LOCK);
  write_file(base, "shardfuzz-abcDE8"); /* is no folder */
  assert_int_equal(entries(), 6);
  sf_temporary_sweep(base);
  assert_int_equal(entries(), 5);
  kill(alive, SIGKILL);
  waitpid(alive, NULL, 0);
  sf_temporary_sweep(base);
  assert_int_equal(entries(), 4);
  sf_temporary_remove(&own);
  assert_int_equal(entries(), 3);
}

static void test_create_sweeps_before(void **state) {
  (void)state;
  struct sf_temporary folder;
  owner_process(false, false);
  assert_int_equal(entries(), 1);
  assert_int_equal(sf_temporary_create(&folder, base, NULL), SF_OK);
  assert_int_equal(entries(), 1);
  sf_temporary_remove(&folder);
}

/* Processes forked from the owner have the folder too, until they end. */
static void test_sweep_leaves_the_folder_to_the_owners_children(void **state) {
  (void)state;
  struct sf_temporary folder;
  assert_int_equal(sf_temporary_create(&folder, base, NULL), SF_OK);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  close(folder.lock);
  sf_temporary_sweep(base);
  assert_int_equal(entries(), 1);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  sf_temporary_sweep(base);
  assert_int_equal(entries(), 0);
}

static void test_keeper_removes_the_folder_of_an_owner_that_was_killed(void **state) {
  (void)state;
  const pid_t owner = owner_process(true, true);
  assert_int_equal(entries(), 1);
  kill(owner, SIGKILL);
  waitpid(owner, NULL, 0);
  for (int32_t i = 0; i < 600 && entries() > 0; i++) usleep(50000);
  assert_int_equal(entries(), 0);
}

static void test_create_says_why_there_is_no_folder(void **state) {
  (void)state;
  struct sf_temporary folder;
  struct sf_error error;
  assert_int_equal(sf_temporary_create(&folder, "/nowhere", &error), SF_ENOTFOUND);
  assert_string_equal(error.text, "/nowhere: no temporary folder can be made there: No such file or directory");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_temporary_remove_takes_all_that_is_in_it, begin, end),
      cmocka_unit_test_setup_teardown(test_remove_tree_does_not_follow_links, begin, end),
      cmocka_unit_test_setup_teardown(test_sweep_removes_folders_of_the_dead_alone, begin, end),
      cmocka_unit_test_setup_teardown(test_create_sweeps_before, begin, end),
      cmocka_unit_test_setup_teardown(test_sweep_leaves_the_folder_to_the_owners_children, begin, end),
      cmocka_unit_test_setup_teardown(test_keeper_removes_the_folder_of_an_owner_that_was_killed, begin, end),
      cmocka_unit_test(test_create_says_why_there_is_no_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
