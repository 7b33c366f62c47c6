/* A wrong tensor as a picture: what its elements should be and what they are, in a grid that a page has room for, and who holds them. */
#ifndef SF_ORACLES_PICTURE_H
#define SF_ORACLES_PICTURE_H

#include "oracles/diagnose/view.h"

enum { SF_PICTURE_ROWS = 32, SF_PICTURE_COLS = 48, SF_PICTURE_CELLS = SF_PICTURE_ROWS * SF_PICTURE_COLS, SF_PICTURE_HOLDERS = 64 };

/* What a rank holds: a bit for each cell of which it holds an element. */
struct sf_picture_holder {
  int32_t rank;
  bool is_summand; /* what it holds is a summand of the value */
  uint64_t cells[SF_PICTURE_CELLS / 64];
};

/* Plain data. A tensor larger than the grid is reduced: a cell stands for a block of elements, and shows the one that is off by most. */
struct sf_picture {
  struct sf_shape shape;      /* of what is shown; 0 rows: nothing is */
  int64_t first_row, of_rows; /* shown are rows [first_row, first_row + shape.rows) of so many */
  int32_t rows, cols;         /* of the grid */
  bool has_values;            /* false: only the holders are known */
  float want[SF_PICTURE_CELLS], got[SF_PICTURE_CELLS], allowed[SF_PICTURE_CELLS]; /* NaN: nobody holds an element of the cell */
  int32_t worst_cell;                                                             /* that has the element that is off by most; -1: none */
  int32_t holder_count, holders_all;                                              /* those that there was room for; all of them */
  struct sf_picture_holder holders[SF_PICTURE_HOLDERS];
};

/* An empty picture of a tensor, or of some of its rows, to be filled by the functions below. */
void sf_picture_begin(struct sf_picture *picture, struct sf_shape shape);
/* The cell of an element. */
int32_t sf_picture_cell(const struct sf_picture *picture, int64_t row, int64_t col);
/* Adds a holder, which holds nothing yet; NULL: there is no room, or the rank is one of them already. */
struct sf_picture_holder *sf_picture_add_holder(struct sf_picture *picture, int32_t rank, bool is_summand);
void sf_picture_hold(const struct sf_picture *picture, struct sf_picture_holder *holder, int64_t row, int64_t col);
static inline bool sf_picture_holds(const struct sf_picture_holder *holder, int32_t cell) {
  return holder->cells[cell / 64] >> cell % 64 & 1;
}
/* Fills in an element of the picture's shape; of a cell's elements the one that is off by most stays. */
void sf_picture_add(struct sf_picture *picture, int64_t row, int64_t col, float want, float got, double allowed);
/* Fills in the values of a view of the picture's shape; its shards become holders where none was added before. */
void sf_picture_of_view(struct sf_picture *picture, const struct sf_tensor_view *view);

#endif
