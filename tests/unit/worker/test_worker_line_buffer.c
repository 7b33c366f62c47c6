#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/worker/line_buffer.h"
#include "harness/worker/worker_set.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void open_pipe(int ends[2]) {
  assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
}

static void put(int fd, const char *text) { assert_int_equal(write(fd, text, strlen(text)), strlen(text)); }

static void test_next_lines_in_pieces_come_whole(void **state) {
  (void)state;
  int ends[2];
  size_t length = 0;
  struct sf_line_buffer buffer = {0};
  open_pipe(ends);
  assert_null(sf_line_buffer_next(&buffer, &length));
  put(ends[1], "fir");
  assert_true(sf_line_buffer_fill(&buffer, ends[0]));
  assert_null(sf_line_buffer_next(&buffer, &length));
  put(ends[1], "st\n\nthird\nrest");
  assert_true(sf_line_buffer_fill(&buffer, ends[0]));
  assert_string_equal(sf_line_buffer_next(&buffer, &length), "first");
  assert_int_equal(length, 5);
  assert_string_equal(sf_line_buffer_next(&buffer, &length), "");
  put(ends[1], " of it\n");
  close(ends[1]);
  assert_string_equal(sf_line_buffer_next(&buffer, &length), "third");
  assert_false(sf_line_buffer_fill(&buffer, ends[0]));
  assert_string_equal(sf_line_buffer_next(&buffer, &length), "rest of it");
  assert_null(sf_line_buffer_next(&buffer, &length));
  assert_false(sf_line_buffer_overflowed(&buffer));
  sf_line_buffer_destroy(&buffer);
  close(ends[0]);
}

/* A line of size bytes, written and read by turns; whether it came. */
static bool pass_line(struct sf_line_buffer *buffer, size_t size_bytes) {
  int ends[2];
  size_t length = 0, left = size_bytes;
  static char block[4096];
  memset(block, 'x', sizeof block);
  open_pipe(ends);
  const char *line = NULL;
  while (left && !sf_line_buffer_overflowed(buffer)) {
    const size_t part = left < sizeof block ? left : sizeof block;
    assert_int_equal(write(ends[1], block, part), part);
    left -= part;
    assert_true(sf_line_buffer_fill(buffer, ends[0]));
    assert_null(sf_line_buffer_next(buffer, &length));
  }
  if (!left) {
    put(ends[1], "\n");
    assert_true(sf_line_buffer_fill(buffer, ends[0]));
    line = sf_line_buffer_next(buffer, &length);
    if (line) assert_int_equal(length, size_bytes);
  }
  close(ends[0]);
  close(ends[1]);
  return line != NULL;
}

static void test_fill_line_beyond_the_limit_overflows(void **state) {
  (void)state;
  struct sf_line_buffer buffer = {0};
  assert_true(pass_line(&buffer, 1000000));
  assert_true(pass_line(&buffer, 10));
  assert_true(pass_line(&buffer, 1000000));
  assert_false(pass_line(&buffer, SF_WORKER_LINE_BYTES + 5000));
  assert_true(sf_line_buffer_overflowed(&buffer));
  sf_line_buffer_destroy(&buffer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_next_lines_in_pieces_come_whole),
      cmocka_unit_test(test_fill_line_beyond_the_limit_overflows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
