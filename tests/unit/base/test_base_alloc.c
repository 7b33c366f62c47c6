#include "harness/base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static void test_alloc_gives_zeroed_memory(void **state) {
  (void)state;
  for (int round = 0; round < 8; round++) {
    unsigned char *memory = sf_alloc(4096);
    assert_non_null(memory);
    for (int i = 0; i < 4096; i++) assert_int_equal(memory[i], 0);
    memset(memory, 0xff, 4096);
    sf_free(memory);
  }
}

static void test_alloc_of_nothing_is_not_null(void **state) {
  (void)state;
  void *memory = sf_alloc(0);
  assert_non_null(memory);
  sf_free(memory);
  sf_free(NULL);
}

static void test_alloc_fail_at_third_fails_only_the_third(void **state) {
  (void)state;
  sf_alloc_fail_at(3);
  void *first = sf_alloc(8);
  char *second = sf_strdup("text");
  assert_non_null(first);
  assert_string_equal(second, "text");
  assert_false(sf_alloc_did_fail());
  assert_null(sf_realloc(first, 100));
  assert_true(sf_alloc_did_fail());
  void *fourth = sf_realloc(first, 100);
  assert_non_null(fourth);
  sf_alloc_fail_at(0);
  assert_false(sf_alloc_did_fail());
  sf_free(fourth);
  sf_free(second);
}

static void test_alloc_strdup_without_memory_is_null(void **state) {
  (void)state;
  sf_alloc_fail_at(1);
  assert_null(sf_strdup("text"));
  sf_alloc_fail_at(0);
}

static void test_realloc_that_fails_keeps_the_old_memory(void **state) {
  (void)state;
  char *text = sf_strdup("kept");
  sf_alloc_fail_at(1);
  assert_null(sf_realloc(text, 1 << 20));
  sf_alloc_fail_at(0);
  assert_string_equal(text, "kept");
  sf_free(text);
}

static void test_grown_keeps_what_is_there_and_zeroes_what_comes(void **state) {
  int64_t *items = NULL;
  (void)state;
  for (int64_t count = 0; count < 100; count++) {
    sf_alloc_fail_at(1);
    if ((count & (count - 1)) == 0) assert_null(sf_grown(items, count, sizeof *items));
    sf_alloc_fail_at(0);
    items = sf_grown(items, count, sizeof *items);
    assert_non_null(items);
    for (int64_t i = 0; i < count; i++) assert_int_equal(items[i], i + 1);
    assert_int_equal(items[count], 0);
    items[count] = count + 1;
  }
  sf_free(items);
}

static void test_alloc_failures_counts_made_and_real_failures(void **state) {
  (void)state;
  const uint64_t before = sf_alloc_failures();
  volatile size_t too_much = SIZE_MAX - 4096;
  assert_null(sf_alloc(too_much));
  sf_alloc_fail_at(1);
  assert_null(sf_alloc(1));
  sf_alloc_fail_at(0);
  sf_free(sf_alloc(1));
  assert_int_equal(sf_alloc_failures() - before, 2);
}

static void test_arena_alloc_of_any_size_is_aligned_and_apart(void **state) {
  (void)state;
  static const size_t SIZES[] = {1, 63, 64, 65, 4, 1000, 5000, 0, 7};
  enum { COUNT = sizeof SIZES / sizeof SIZES[0] };
  struct sf_arena *arena = sf_arena_create(256, false);
  unsigned char *pieces[COUNT];
  for (int i = 0; i < COUNT; i++) {
    pieces[i] = sf_arena_alloc(arena, SIZES[i]);
    assert_non_null(pieces[i]);
    assert_int_equal((uintptr_t)pieces[i] % 64, 0);
    memset(pieces[i], i + 1, SIZES[i]);
  }
  for (int i = 0; i < COUNT; i++)
    for (size_t at = 0; at < SIZES[i]; at++) assert_int_equal(pieces[i][at], i + 1);
  sf_arena_destroy(arena);
  sf_arena_destroy(NULL);
}

static void test_arena_alloc_with_poison_fills_with_nan(void **state) {
  (void)state;
  struct sf_arena *arena = sf_arena_create(256, true);
  for (int round = 0; round < 2; round++) {
    uint32_t *words = sf_arena_alloc(arena, 400);
    float first;
    for (int i = 0; i < 100; i++) assert_int_equal(words[i], 0x7fa5a5a5u);
    memcpy(&first, words, sizeof first);
    assert_true(first != first);
    memset(words, 0, 400);
    sf_arena_reset(arena);
  }
  sf_arena_destroy(arena);
}

static void test_arena_rewind_gives_back_what_came_after_the_mark(void **state) {
  (void)state;
  struct sf_arena *arena = sf_arena_create(128, false);
  char *kept = sf_arena_alloc(arena, 10);
  strcpy(kept, "kept");
  const struct sf_arena_mark outer = sf_arena_mark(arena);
  void *first = sf_arena_alloc(arena, 30);
  const struct sf_arena_mark inner = sf_arena_mark(arena);
  for (int i = 0; i < 20; i++) assert_non_null(sf_arena_alloc(arena, 100));
  sf_arena_rewind(arena, inner);
  assert_ptr_not_equal(sf_arena_alloc(arena, 30), first);
  sf_arena_rewind(arena, outer);
  assert_ptr_equal(sf_arena_alloc(arena, 30), first);
  assert_string_equal(kept, "kept");
  sf_arena_destroy(arena);
}

static void fill(struct sf_arena *arena, size_t step) {
  for (size_t size = 16; size <= 2000; size += step) assert_non_null(sf_arena_alloc(arena, size));
}

static void test_arena_reset_reuses_its_blocks(void **state) {
  (void)state;
  struct sf_arena *arena = sf_arena_create(256, false);
  fill(arena, 16);
  const size_t peak = sf_arena_peak_bytes(arena);
  sf_alloc_fail_at(1);
  for (int round = 0; round < 3; round++) {
    sf_arena_reset(arena);
    fill(arena, 16);
  }
  assert_false(sf_alloc_did_fail());
  sf_alloc_fail_at(0);
  assert_int_equal(sf_arena_peak_bytes(arena), peak);
  sf_arena_destroy(arena);
}

static void test_arena_alloc_larger_than_a_kept_block_gets_its_own(void **state) {
  (void)state;
  struct sf_arena *arena = sf_arena_create(64, false);
  for (int i = 0; i < 4; i++) assert_non_null(sf_arena_alloc(arena, 64));
  sf_arena_reset(arena);
  unsigned char *large = sf_arena_alloc(arena, 100000);
  unsigned char *small = sf_arena_alloc(arena, 64);
  memset(large, 1, 100000);
  memset(small, 2, 64);
  assert_int_equal(large[99999], 1);
  sf_arena_destroy(arena);
}

struct blocks {
  int64_t held, released;
};

static void *block_alloc(void *context, size_t size_bytes) {
  struct blocks *blocks = context;
  blocks->held++;
  return sf_alloc(size_bytes);
}

static void block_release(void *context, void *memory) {
  struct blocks *blocks = context;
  blocks->held--;
  blocks->released++;
  sf_free(memory);
}

static void test_arena_blocks_that_are_too_small_do_not_pile_up(void **state) {
  (void)state;
  enum { ROUNDS = 1000 };
  struct blocks blocks = {0};
  const struct sf_memory memory = {block_alloc, block_release, &blocks};
  struct sf_arena *arena = sf_arena_create_in(&memory, 64, false);
  for (int round = 0; round < ROUNDS; round++) { /* a large piece behind ever other numbers of small ones */
    sf_arena_reset(arena);
    for (int i = 0; i < round % 8; i++) assert_non_null(sf_arena_alloc(arena, 64));
    assert_non_null(sf_arena_alloc(arena, (size_t)1000 * (size_t)(1 + round)));
  }
  assert_in_range(blocks.held, 1, 8);
  const int64_t released = blocks.released;
  for (int round = 0; round < ROUNDS; round++) { /* what needs no more asks for no more */
    sf_arena_reset(arena);
    for (int i = 0; i < round % 8; i++) assert_non_null(sf_arena_alloc(arena, 64));
  }
  assert_int_equal(blocks.released, released);
  sf_arena_destroy(arena);
  assert_int_equal(blocks.held, 0);
}

static void test_arena_peak_bytes_is_the_most_at_once(void **state) {
  (void)state;
  struct sf_arena *arena = sf_arena_create(64, false);
  assert_int_equal(sf_arena_peak_bytes(arena), 0);
  const struct sf_arena_mark mark = sf_arena_mark(arena);
  for (int i = 0; i < 4; i++) assert_non_null(sf_arena_alloc(arena, 1000));
  const size_t peak = sf_arena_peak_bytes(arena);
  assert_in_range(peak, 4 * 1000, 4 * (1024 + 64));
  sf_arena_rewind(arena, mark);
  assert_non_null(sf_arena_alloc(arena, 1000));
  assert_int_equal(sf_arena_peak_bytes(arena), peak);
  sf_arena_destroy(arena);
}

static void test_arena_without_memory_gives_null_and_goes_on(void **state) {
  (void)state;
  for (int k = 1; k <= 2; k++) {
    sf_alloc_fail_at(k);
    assert_null(sf_arena_create(256, false));
  }
  sf_alloc_fail_at(0);
  struct sf_arena *arena = sf_arena_create(256, false);
  sf_alloc_fail_at(1);
  assert_null(sf_arena_alloc(arena, 1000));
  assert_true(sf_alloc_did_fail());
  assert_non_null(sf_arena_alloc(arena, 1000));
  sf_alloc_fail_at(0);
  assert_null(sf_arena_alloc(arena, SIZE_MAX - 8));
  sf_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_alloc_gives_zeroed_memory),
      cmocka_unit_test(test_alloc_of_nothing_is_not_null),
      cmocka_unit_test(test_alloc_fail_at_third_fails_only_the_third),
      cmocka_unit_test(test_alloc_strdup_without_memory_is_null),
      cmocka_unit_test(test_realloc_that_fails_keeps_the_old_memory),
      cmocka_unit_test(test_grown_keeps_what_is_there_and_zeroes_what_comes),
      cmocka_unit_test(test_alloc_failures_counts_made_and_real_failures),
      cmocka_unit_test(test_arena_alloc_of_any_size_is_aligned_and_apart),
      cmocka_unit_test(test_arena_alloc_with_poison_fills_with_nan),
      cmocka_unit_test(test_arena_rewind_gives_back_what_came_after_the_mark),
      cmocka_unit_test(test_arena_reset_reuses_its_blocks),
      cmocka_unit_test(test_arena_alloc_larger_than_a_kept_block_gets_its_own),
      cmocka_unit_test(test_arena_blocks_that_are_too_small_do_not_pile_up),
      cmocka_unit_test(test_arena_peak_bytes_is_the_most_at_once),
      cmocka_unit_test(test_arena_without_memory_gives_null_and_goes_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
