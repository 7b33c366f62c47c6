#include "harness/library/library.h"

#include "harness/base/hash.h"
#include "harness/tensor/consistent.h"

int32_t sf_library_version(void) { return SF_LIBRARY_VERSION; }

uint64_t sf_library_key(int64_t seed, const char *name, uint64_t salt) { return sf_fill_key(seed, sf_hash_string(0, name), salt); }

static const char *fill_make(struct sf_fill *out, const struct sf_library_fill *fill) {
  if (fill->dist < 0 || fill->dist >= SF_DIST_COUNT) return "there is no such distribution";
  if (fill->dtype < 0 || fill->dtype >= SF_DTYPE_COUNT || fill->dtype == SF_F64) return "there is no such format";
  *out = (struct sf_fill){.key = fill->key,
                          .dist = (enum sf_value_dist)fill->dist,
                          .scale = fill->scale,
                          .offset = fill->offset,
                          .dtype = (enum sf_dtype)fill->dtype};
  return NULL;
}

const char *sf_library_fill_range(float *out, const struct sf_library_fill *fill, int64_t first, int64_t count) {
  struct sf_fill made;
  int64_t end = 0;
  const char *wrong = fill_make(&made, fill);
  if (wrong) return wrong;
  if (first < 0 || count < 0 || __builtin_add_overflow(first, count, &end)) return "the range is not within a tensor";
  sf_fill_range(out, &made, first, count);
  return NULL;
}

static const char *box_check(const struct sf_library_box *box) {
  int64_t elements = 1;
  const int64_t *run = box->runs;
  if (box->dim_count < 0 || box->dim_count > SF_LIBRARY_DIMS_MAX) return "a tensor has 0 to 8 dimensions";
  for (int32_t d = 0; d < box->dim_count; d++) {
    if (box->shape[d] < 0 || __builtin_mul_overflow(elements, box->shape[d], &elements)) return "the shape is not one of a tensor";
    if (box->run_counts[d] < 0) return "a dimension's number of runs is negative";
    for (int64_t i = 0; i < box->run_counts[d]; i++, run += 2) {
      if (run[0] < 0 || run[1] < 0 || run[0] > box->shape[d] || run[1] > box->shape[d] - run[0])
        return "a run does not lie within its dimension";
    }
  }
  return NULL;
}

struct walk {
  const struct sf_fill *fill;
  const struct sf_library_box *box;
  float *out;
};

/* row: index of the row in the row-major block of dimensions d and on. */
static void fill_dimension(struct walk *walk, int32_t d, const int64_t *run, int64_t row) {
  const struct sf_library_box *box = walk->box;
  const bool last = d + 1 == box->dim_count;
  for (int64_t i = 0; i < box->run_counts[d]; i++) {
    const int64_t first = row * box->shape[d] + run[2 * i], length = run[2 * i + 1];
    if (last) {
      sf_fill_range(walk->out, walk->fill, first, length);
      walk->out += length;
      continue;
    }
    for (int64_t k = 0; k < length; k++) fill_dimension(walk, d + 1, run + 2 * box->run_counts[d], first + k);
  }
}

const char *sf_library_fill_box(float *out, const struct sf_library_fill *fill, const struct sf_library_box *box) {
  struct sf_fill made;
  const char *wrong = fill_make(&made, fill);
  if (!wrong) wrong = box_check(box);
  if (wrong) return wrong;
  struct walk walk = {&made, box, out};
  if (box->dim_count == 0) sf_fill_range(out, &made, 0, 1);
  else fill_dimension(&walk, 0, box->runs, 0);
  return NULL;
}
