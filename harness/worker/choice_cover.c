#include "harness/worker/choice_cover.h"

#include "harness/base/alloc.h"
#include "harness/base/hash.h"

#include <string.h>

/* Choices of a field beyond the last level count as that one: neighbours of a long range are much alike. */
enum { ROWS_MAX = 512, CANDIDATES = 16, IDLE_ROWS_MAX = 12, CHOICES_MAX = 8, AXES_MAX = 8 };

struct sf_choice_cover {
  int64_t count;
  uint64_t function[ROWS_MAX];
};

/* The pairs that rows contain: for every two levels a byte with a bit for each axis that the row's layouts can have. */
struct pairs {
  int64_t levels;
  uint8_t *axes;
};

/* The fields of the function that are not plain, each as its level. */
static int64_t levels_of(int64_t *out, const struct sf_choices *choices, const struct sf_description *description) {
  int64_t count = 0;
  for (int32_t i = 0; i < sf_description_field_count(description); i++) {
    const int32_t at = choices->at[i] < CHOICES_MAX ? choices->at[i] : CHOICES_MAX;
    if (at > 0 && !sf_description_field_is_layout(description, i)) out[count++] = (int64_t)i * CHOICES_MAX + at - 1;
  }
  return count;
}

/* Counts the function's pairs that no row has with the same axis; if `take` is set, marks them. A function that few axes can cut adds few
 * pairs. */
static int64_t new_pairs(struct pairs *pairs, const struct sf_choices *choices, const struct sf_choice_space *space, bool take) {
  int64_t levels[SF_DESCRIPTION_FIELDS_MAX], fresh = 0;
  const int64_t count = levels_of(levels, choices, space->description);
  struct sf_choices function = *choices;
  for (int32_t i = 0; i < sf_description_field_count(space->description); i++)
    if (sf_description_field_is_layout(space->description, i)) function.at[i] = space->is_fixed[i] ? space->fixed.at[i] : 0;
  uint64_t axes = sf_choices_axes(&function, space);
  axes = (axes | axes >> AXES_MAX) & UINT8_MAX;
  if (axes == 0) axes = 1; /* all are fixed */
  for (int64_t a = 0; a < count; a++) {
    for (int64_t b = 0; b <= a; b++) { /* b == a: a choice that is in no row */
      uint8_t *had = &pairs->axes[levels[a] * pairs->levels + levels[b]];
      for (uint64_t open = axes & ~(uint64_t)*had; open; open &= open - 1) fresh++;
      if (take) *had |= (uint8_t)axes;
    }
  }
  return fresh;
}

/* All candidates have the row's density; otherwise the fullest would always win, and full cases hide bugs behind each other. */
static enum sf_status add_row(struct sf_choice_cover *cover, struct pairs *pairs, const struct sf_choice_space *space, uint64_t seed,
                              int64_t *fresh, struct sf_error *error) {
  const uint64_t row = sf_hash_u64(seed, (uint64_t)cover->count);
  struct sf_choices choices;
  uint64_t best = 0;
  *fresh = -1;
  for (uint64_t i = 0; i < CANDIDATES; i++) {
    const uint64_t function = sf_hash_u64(row, i) / SF_CHOICES_DENSITIES * SF_CHOICES_DENSITIES + row % SF_CHOICES_DENSITIES;
    const enum sf_status status = sf_choices_draw(&choices, space, function, 0, 0, error);
    if (status != SF_OK) return status;
    const int64_t count = new_pairs(pairs, &choices, space, false);
    if (count <= *fresh) continue;
    *fresh = count;
    best = function;
  }
  const enum sf_status status = sf_choices_draw(&choices, space, best, 0, 0, error);
  if (status != SF_OK) return status;
  (void)new_pairs(pairs, &choices, space, true);
  cover->function[cover->count++] = best;
  return SF_OK;
}

enum sf_status sf_choice_cover_create(struct sf_choice_cover **out, const struct sf_choice_space *space, uint64_t seed,
                                      struct sf_error *error) {
  struct pairs pairs = {(int64_t)sf_description_field_count(space->description) * CHOICES_MAX, NULL};
  struct sf_choice_cover *cover = sf_alloc(sizeof *cover);
  pairs.axes = sf_alloc((size_t)(pairs.levels * pairs.levels + 1));
  enum sf_status status = cover && pairs.axes ? SF_OK : SF_ENOMEM;
  for (int64_t idle = 0; status == SF_OK && idle < IDLE_ROWS_MAX && cover->count < ROWS_MAX;) {
    int64_t fresh = 0;
    status = add_row(cover, &pairs, space, seed, &fresh, error);
    idle = fresh > 0 ? 0 : idle + 1;
  }
  sf_free(pairs.axes);
  if (status == SF_OK) *out = cover;
  else sf_choice_cover_destroy(cover);
  return status;
}

void sf_choice_cover_destroy(struct sf_choice_cover *cover) { sf_free(cover); }
int64_t sf_choice_cover_rows(const struct sf_choice_cover *cover) { return cover->count; }
uint64_t sf_choice_cover_function(const struct sf_choice_cover *cover, int64_t row) { return cover->function[row]; }
