#include "oracles/diagnose/picture.h"

#include <math.h>
#include <string.h>

void sf_picture_begin(struct sf_picture *picture, struct sf_shape shape) {
  memset(picture, 0, sizeof *picture);
  picture->shape = shape;
  picture->of_rows = shape.rows;
  picture->rows = (int32_t)(shape.rows < SF_PICTURE_ROWS ? shape.rows : SF_PICTURE_ROWS);
  picture->cols = (int32_t)(shape.cols < SF_PICTURE_COLS ? shape.cols : SF_PICTURE_COLS);
  picture->worst_cell = -1;
  for (int32_t i = 0; i < SF_PICTURE_CELLS; i++) picture->want[i] = picture->got[i] = picture->allowed[i] = NAN;
}

int32_t sf_picture_cell(const struct sf_picture *picture, int64_t row, int64_t col) {
  const struct sf_shape shape = picture->shape;
  return (int32_t)(row * picture->rows / shape.rows) * picture->cols + (int32_t)(col * picture->cols / shape.cols);
}

struct sf_picture_holder *sf_picture_add_holder(struct sf_picture *picture, int32_t rank, bool is_summand) {
  for (int32_t i = 0; i < picture->holder_count; i++)
    if (picture->holders[i].rank == rank) return &picture->holders[i];
  if (picture->holders_all++ >= SF_PICTURE_HOLDERS) return NULL;
  struct sf_picture_holder *holder = &picture->holders[picture->holder_count++];
  *holder = (struct sf_picture_holder){.rank = rank, .is_summand = is_summand};
  return holder;
}

void sf_picture_hold(const struct sf_picture *picture, struct sf_picture_holder *holder, int64_t row, int64_t col) {
  const int32_t cell = sf_picture_cell(picture, row, col);
  holder->cells[cell / 64] |= UINT64_C(1) << cell % 64;
}

/* How far an element is off; a value that is not finite where one should be is off by most. */
static double distance_of(float want, float got) {
  const double distance = fabs((double)got - (double)want);
  return isnan(distance) ? isfinite(want) ? INFINITY : 0 : distance;
}

void sf_picture_add(struct sf_picture *picture, int64_t row, int64_t col, float want, float got, double allowed) {
  const int32_t cell = sf_picture_cell(picture, row, col), worst = picture->worst_cell;
  const double distance = distance_of(want, got);
  const bool is_first = isnan(picture->allowed[cell]);
  picture->has_values = true;
  if (!is_first && distance <= distance_of(picture->want[cell], picture->got[cell])) return;
  if (worst < 0 || distance > distance_of(picture->want[worst], picture->got[worst])) picture->worst_cell = cell;
  picture->want[cell] = want;
  picture->got[cell] = got;
  picture->allowed[cell] = (float)allowed;
}

static void add_shard(struct sf_picture *picture, const struct sf_tensor_view *view, const struct sf_view_shard *shard) {
  for (int64_t k = 0; k < shard->count; k++) {
    const int64_t at = shard->at[k], row = at / view->shape.cols;
    sf_picture_add(picture, row, at % view->shape.cols, view->x[at], shard->data[k], sf_view_allowed(view, row));
  }
}

static void add_holders(struct sf_picture *picture, const struct sf_tensor_view *view) {
  for (int32_t i = 0; i < view->shard_count; i++) {
    const struct sf_view_shard *shard = &view->shards[i];
    struct sf_picture_holder *holder = shard->rank >= 0 ? sf_picture_add_holder(picture, shard->rank, false) : NULL;
    for (int64_t k = 0; holder && k < shard->count; k++)
      sf_picture_hold(picture, holder, shard->at[k] / view->shape.cols, shard->at[k] % view->shape.cols);
  }
}

void sf_picture_of_view(struct sf_picture *picture, const struct sf_tensor_view *view) {
  if (picture->shape.rows != view->shape.rows || picture->shape.cols != view->shape.cols || !view->x) return;
  if (picture->holders_all == 0) add_holders(picture, view);
  picture->has_values = view->shard_count > 0;
  for (int32_t i = 0; i < view->shard_count; i++) add_shard(picture, view, &view->shards[i]);
}
