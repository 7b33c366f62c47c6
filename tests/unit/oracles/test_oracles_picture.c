#include "oracles/diagnose/picture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_picture_cells_cover_a_large_tensor_in_order(void **state) {
  static struct sf_picture picture;
  (void)state;
  sf_picture_begin(&picture, (struct sf_shape){1000, 3});
  assert_int_equal(picture.rows, SF_PICTURE_ROWS);
  assert_int_equal(picture.cols, 3);
  int32_t last = -1;
  for (int64_t row = 0; row < 1000; row++)
    for (int64_t col = 0; col < 3; col++) {
      const int32_t cell = sf_picture_cell(&picture, row, col);
      assert_true(cell >= 0 && cell < picture.rows * picture.cols && cell % 3 == col && cell / 3 >= last / 3);
      last = cell;
    }
  assert_int_equal(last, picture.rows * picture.cols - 1);
}

/* A cell shows the element of its block that is off by most; NaN where a number should be is off by most of all. */
static void test_picture_cell_shows_the_worst_of_its_block(void **state) {
  enum { COUNT = 4 * SF_PICTURE_COLS };
  static struct sf_picture picture;
  static float x[COUNT], got[COUNT];
  static int64_t at[COUNT];
  (void)state;
  for (int i = 0; i < COUNT; i++) x[i] = got[i] = (float)i, at[i] = i;
  got[5] += 1, got[6] += 3, got[7] -= 2, got[9] = NAN;
  const struct sf_view_shard shard = {.rank = 2, .count = COUNT, .at = at, .data = got};
  const struct sf_tensor_view view = {.shape = {1, COUNT}, .x = x, .noise = 1, .shards = &shard, .shard_count = 1};
  sf_picture_begin(&picture, view.shape);
  sf_picture_of_view(&picture, &view);
  assert_true(picture.has_values);
  assert_true(picture.want[0] == picture.got[0]);
  assert_true(picture.want[1] == 6 && picture.got[1] == 9);
  assert_true(isnan(picture.got[2]) && picture.want[2] == 9);
  assert_int_equal(picture.worst_cell, 2);
  assert_int_equal(picture.holder_count, 1);
  assert_int_equal(picture.holders[0].rank, 2);
  assert_true(sf_picture_holds(&picture.holders[0], SF_PICTURE_COLS - 1));
}

/* Of replicas the one that is off by most is shown, whoever holds it. */
static void test_picture_worst_replica_is_shown(void **state) {
  static const float x[] = {1, 2}, right[] = {1, 2}, wrong[] = {1, 7};
  static const int64_t at[] = {0, 1};
  static struct sf_picture picture;
  const struct sf_view_shard shards[] = {{.rank = 0, .count = 2, .at = at, .data = right},
                                         {.rank = 1, .count = 2, .at = at, .data = wrong}};
  const struct sf_tensor_view view = {.shape = {1, 2}, .x = x, .noise = 1, .shards = shards, .shard_count = 2};
  (void)state;
  sf_picture_begin(&picture, view.shape);
  sf_picture_of_view(&picture, &view);
  assert_true(picture.got[0] == 1 && picture.got[1] == 7);
  assert_int_equal(picture.holder_count, 2);
}

static void test_picture_holders_beyond_its_room_are_counted(void **state) {
  static struct sf_picture picture;
  (void)state;
  sf_picture_begin(&picture, (struct sf_shape){2, 2});
  for (int32_t rank = 0; rank < SF_PICTURE_HOLDERS + 5; rank++) {
    struct sf_picture_holder *holder = sf_picture_add_holder(&picture, rank, false);
    assert_true((holder != NULL) == (rank < SF_PICTURE_HOLDERS));
  }
  assert_ptr_equal(sf_picture_add_holder(&picture, 3, false), &picture.holders[3]);
  assert_int_equal(picture.holder_count, SF_PICTURE_HOLDERS);
  assert_int_equal(picture.holders_all, SF_PICTURE_HOLDERS + 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_picture_cells_cover_a_large_tensor_in_order),
      cmocka_unit_test(test_picture_cell_shows_the_worst_of_its_block),
      cmocka_unit_test(test_picture_worst_replica_is_shown),
      cmocka_unit_test(test_picture_holders_beyond_its_room_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
