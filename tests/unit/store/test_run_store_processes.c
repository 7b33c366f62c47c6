/* A store that several processes open at once. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_OFD_SETLK */
#endif
#include "tests/unit/store/store_fixture.h"

#include <time.h>

static void body_second_writer(const struct fixture *f) {
  const struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  const enum sf_status status = sf_store_open(&store, &options, &error);
  if (status != SF_EUSAGE || strstr(error.text, "another process is writing") == NULL) {
    fprintf(stderr, "%s: %s\n", sf_status_text(status), error.text);
    _exit(1);
  }
  _exit(0);
}

static void body_reader(const struct fixture *f) {
  const struct sf_store_options options = options_make(f->path, SF_STORE_READ);
  struct sf_store *store = NULL;
  struct sf_store_summary summary;
  if (sf_store_open(&store, &options, NULL) != SF_OK || sf_store_summarise(store, &summary, NULL) != SF_OK) _exit(1);
  _exit(summary.cases == 1 && summary.high_water == 3 ? 0 : 2);
}

static void test_store_open_while_written_one_writer_many_readers(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 3, 100, 0, 3);
  add_ok(store, pass_make(0));
  commit_ok(store);
  add_ok(store, pass_make(1)); /* not committed: a reader must not see it, nor wait for it */
  assert_int_equal(child_exit(body_second_writer, f), 0);
  assert_int_equal(child_exit(body_reader, f), 0);
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  assert_int_equal(summary_of(store).cases, 1);
  sf_store_close(store);
}

/* The file is there and locked, but still without tables. */
static void test_store_open_while_it_is_made_reader_waits(void **state) {
  const struct fixture *f = *state;
  const struct timespec pause = {.tv_nsec = 250 * 1000000L};
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX - 1, .l_len = 1};
  struct sf_bytes bytes = {0};
  sf_store_close(open_ok(f->other, SF_STORE_CREATE));
  assert_int_equal(sf_bytes_read_file(&bytes, f->other, 1 << 24, NULL), SF_OK);
  const int file = open(f->path, O_RDWR | O_CREAT, 0666);
  assert_int_equal(fcntl(file, F_OFD_SETLK, &lock), 0);
  fflush(NULL);
  const pid_t maker = fork();
  assert_true(maker >= 0);
  if (maker == 0) {
    nanosleep(&pause, NULL);
    _exit(write(file, bytes.data, bytes.size_bytes) == (ssize_t)bytes.size_bytes ? 0 : 1);
  }
  close(file);
  sf_bytes_destroy(&bytes);
  sf_store_close(open_ok(f->path, SF_STORE_READ));
  int status = 0;
  assert_int_equal(waitpid(maker, &status, 0), maker);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A worker that was forked while the store was open still lives when the store is closed and opened again. */
static void test_store_open_again_while_forked_worker_lives_succeeds(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  const pid_t worker = fork();
  assert_true(worker >= 0);
  if (worker == 0) {
    char byte;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1); /* until the test closes its end */
  }
  sf_store_close(store);
  sf_store_close(open_ok(f->path, SF_STORE_RESUME));
  close(ends[0]);
  close(ends[1]);
  int status = 0;
  assert_int_equal(waitpid(worker, &status, 0), worker);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      STORE_TEST(test_store_open_while_written_one_writer_many_readers),
      STORE_TEST(test_store_open_while_it_is_made_reader_waits),
      STORE_TEST(test_store_open_again_while_forked_worker_lives_succeeds),
  };
  return cmocka_run_group_tests_name("run/store_processes", tests, NULL, NULL);
}
