#include "harness/base/alloc.h"
#include "harness/base/system/walled.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state) {
  *state = sf_walled_pool_create();
  return *state ? 0 : -1;
}
static int teardown(void **state) {
  sf_walled_pool_destroy(*state);
  return 0;
}

/* Whether a process that touches the byte ends of it. */
static bool is_fatal(volatile char *at, bool write) {
  int how = 0;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would say more */
    if (write) *at = 1;
    else (void)*at;
    _exit(0);
  }
  waitpid(child, &how, 0);
  return WIFSIGNALED(how);
}

static void test_walled_data_ends_at_a_wall(void **state) {
  static const size_t sizes[] = {0, 1, 63, 64, 4095, 4096, 4097, 70000, 5 << 20}, offsets[] = {0, 4, 60, 63};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (size_t k = 0; k < sizeof offsets / sizeof offsets[0]; k++) {
      struct sf_walled *block = sf_walled_take(*state, sizes[i], offsets[k]);
      assert_non_null(block);
      assert_int_equal((uintptr_t)block->data % SF_WALLED_ALIGNMENT, offsets[k]);
      assert_true(block->data >= block->begin && block->data + sizes[i] <= block->end &&
                  block->end - (block->data + sizes[i]) < SF_WALLED_ALIGNMENT);
      memset(block->begin, 1, (size_t)(block->end - block->begin));
      assert_false(is_fatal(block->end - 1, true));
      for (int write = 0; write < 2; write++) {
        assert_true(is_fatal(block->end, write));
        assert_true(is_fatal(block->end + SF_WALL_BYTES - 1, write));
        assert_true(is_fatal(block->begin - 1, write));
        assert_true(is_fatal(block->begin - SF_WALL_BYTES, write));
      }
      sf_walled_give(*state, block);
    }
}

static void test_walled_address_is_told_by_the_nearest_block(void **state) {
  char text[48];
  struct sf_walled *a = sf_walled_take(*state, 100, 0), *b = sf_walled_take(*state, 100, 0);
  assert_ptr_equal(sf_walled_near(*state, a->data + 160), a);
  assert_ptr_equal(sf_walled_near(*state, b->data - 70000), b);
  assert_null(sf_walled_near(*state, text));
  assert_null(sf_walled_near(NULL, text));
  sf_walled_where(text, sizeof text, a->data, 100, a->data + 160);
  assert_string_equal(text, "60 bytes behind");
  sf_walled_where(text, sizeof text, a->data, 100, a->data + 100);
  assert_string_equal(text, "right behind");
  sf_walled_where(text, sizeof text, a->data, 100, a->data - 1);
  assert_string_equal(text, "1 byte in front of");
  sf_walled_give(*state, a);
  assert_ptr_not_equal(sf_walled_near(*state, a->data + 160), a);
  sf_walled_give(*state, b);
}

/* In any order, all at once; the same memory comes back. */
static void test_walled_blocks_are_used_again(void **state) {
  struct sf_walled *blocks[5];
  for (int i = 0; i < 5; i++) blocks[i] = sf_walled_take(*state, 1000, 0);
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < i; k++) assert_ptr_not_equal(blocks[i]->begin, blocks[k]->begin);
  sf_walled_give(*state, blocks[2]);
  assert_ptr_equal(sf_walled_take(*state, 4000, 8), blocks[2]);
  sf_walled_give_all(*state);
  for (int i = 0; i < 5; i++) {
    const struct sf_walled *again = sf_walled_take(*state, 1, 0);
    bool known = false;
    for (int k = 0; k < 5; k++) known |= again == blocks[k];
    assert_true(known);
  }
  sf_walled_give_all(*state);
}

static void test_walled_without_memory_gives_null(void **state) {
  assert_null(sf_walled_take(*state, (size_t)PTRDIFF_MAX / 2, 0));
  sf_alloc_fail_at(1);
  assert_null(sf_walled_take(*state, 1 << 20, 0));
  sf_alloc_fail_at(1);
  assert_null(sf_walled_pool_create());
  sf_alloc_fail_at(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_walled_data_ends_at_a_wall),
      cmocka_unit_test(test_walled_address_is_told_by_the_nearest_block),
      cmocka_unit_test(test_walled_blocks_are_used_again),
      cmocka_unit_test(test_walled_without_memory_gives_null),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
