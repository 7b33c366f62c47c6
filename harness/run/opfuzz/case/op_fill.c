#include "harness/run/opfuzz/case/op_fill.h"

#include "harness/base/hash.h"
#include "harness/tensor/consistent.h"

#include <math.h>

enum { ROW_STEP = 1 << 20, SALT_VALUES = 1, SALT_SPECIAL, SALT_SHAPE };

static uint64_t element_bits(uint64_t key, int64_t row, int64_t col) {
  return sf_mix64(key + (uint64_t)(row * ROW_STEP + col) * UINT64_C(0x9e3779b97f4a7c15));
}

/* The distribution, scale and offset of consistent tensors that a choice stands for. */
static struct sf_fill fill_of(enum sf_op_values values, uint64_t key) {
  struct sf_fill fill = {.key = key, .scale = 1, .dtype = SF_F32};
  if ((int)values < (int)SF_DIST_COUNT) fill.dist = (enum sf_value_dist)values;
  if (values == SF_OP_SMALL) fill.scale = 0x1p-10f;
  if (values == SF_OP_LARGE) fill.scale = 0x1p12f;
  if (values == SF_OP_FAR) fill.offset = 1000;
  return fill;
}

static float small_number(enum sf_op_values values, uint64_t bits) {
  if (values == SF_OP_INTEGERS) return (float)(int64_t)(bits % 9) - 4.0f;
  return ((float)(int64_t)(bits % 5) - 2.0f) * 0.375f;
}

static void fill_values(struct sf_op_array *array, enum sf_op_values values, uint64_t key, uint64_t shape_key) {
  const struct sf_fill fill = fill_of(values, key);
  for (int64_t r = 0; r < array->rows; r++) {
    float *row = array->x + r * array->cols;
    if (values == SF_OP_INTEGERS || values == SF_OP_TIES)
      for (int64_t j = 0; j < array->cols; j++) row[j] = small_number(values, element_bits(key, r, j));
    else sf_fill_range(row, &fill, r * ROW_STEP, array->cols);
    for (int64_t j = 0; values == SF_OP_MASKED && j < array->cols; j++) {
      const uint64_t bits = element_bits(shape_key, r, j);
      if (bits % 4 == 0) row[j] = bits & 8 ? -10000.0f : -INFINITY;
    }
  }
}

/* Numbers at the ends of fp32's range, by kind. */
static float special_number(enum sf_op_special kind, uint64_t bits) {
  static const float tiny[8] = {0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1.8p-130f, -0x1p-127f, 0x1p-126f, -0x1p-133f};
  static const float huge[8] = {0x1.fffffep127f, -0x1.fffffep127f, 0x1.fep127f, -0x1p127f, 0x1p64f, -0x1p64f, 65504.0f, -0x1.4p100f};
  if (kind == SF_OP_MIXED) kind = (enum sf_op_special)(SF_OP_TINY + (int)(bits >> 40 & 3));
  if (kind == SF_OP_TINY) return tiny[bits >> 32 & 7];
  if (kind == SF_OP_HUGE) return huge[bits >> 32 & 7];
  if (kind == SF_OP_INFINITE) return bits >> 32 & 1 ? INFINITY : -INFINITY;
  return NAN;
}

/* Replaces one element in eight of a small operand, and one in 64 of a large one. */
static void sprinkle(struct sf_op_array *array, enum sf_op_special kind, uint64_t key) {
  const uint64_t rare = array->rows * array->cols <= 64 ? 8 : 64;
  for (int64_t r = 0; r < array->rows; r++)
    for (int64_t j = 0; j < array->cols; j++) {
      const uint64_t bits = element_bits(key, r, j);
      if (bits % rare == 0) array->x[r * array->cols + j] = special_number(kind, bits);
    }
}

static void fill_whole(struct sf_op_array *array, enum sf_op_fill fill, uint64_t key) {
  for (int64_t r = 0; r < array->rows; r++)
    for (int64_t j = 0; j < array->cols; j++)
      array->ints[r * array->cols + j] = (int32_t)(element_bits(key, r, j) >> (fill == SF_OP_BITS ? 48 : 34));
}

/* Limits an operand with a fixed range, made from uniform draws, which reach +-1.7. */
static void limit(struct sf_op_array *array, enum sf_op_fill fill) {
  for (int64_t i = 0; i < array->rows * array->cols; i++) {
    const float x = array->x[i];
    array->x[i] = fill == SF_OP_MASK ? (x > 0) : fill == SF_OP_UNIT ? x * 0.5625f : 0.0009765625f + fabsf(x);
  }
}

void sf_op_fill(struct sf_op_view *view, int32_t operand, const struct sf_op_case *c) {
  const struct sf_op_operand *o = &view->op->operands[operand];
  struct sf_op_array *array = &view->at[operand];
  const uint64_t key = sf_fill_key(c->field[SF_OP_SEED], (uint64_t)operand, SALT_VALUES);
  if (o->fill == SF_OP_ID || o->fill == SF_OP_BITS) {
    fill_whole(array, o->fill, key);
    return;
  }
  if (o->fill == SF_OP_ANY || o->fill == SF_OP_SCORE) {
    fill_values(array, (enum sf_op_values)c->field[SF_OP_VALUES + operand], key, sf_mix64(key + SALT_SHAPE));
    if (c->field[SF_OP_SPECIAL]) sprinkle(array, (enum sf_op_special)c->field[SF_OP_SPECIAL], sf_mix64(key + SALT_SPECIAL));
  } else {
    fill_values(array, (enum sf_op_values)SF_DIST_UNIFORM, key, key);
    limit(array, o->fill);
  }
  if (o->element == SF_OP_INPUT || o->element == SF_OP_STORED)
    sf_round_array(array->x, array->rows * array->cols, (enum sf_dtype)c->field[SF_OP_INPUTS]);
}
