#include "harness/run/opfuzz/case/op_operands.h"

#include "harness/base/alloc.h"
#include "harness/base/system/directories.h"
#include "harness/run/opfuzz/case/op_fill.h"
#include "harness/tensor/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 8, LARGEST = 3 };

static bool is_whole(const struct sf_op_operand *operand) { return operand->element == SF_OP_INT32 || operand->element == SF_OP_UINT16; }

enum sf_status sf_op_operands_create(struct sf_op_operands *out, const struct sf_op_target *target, const struct sf_op_case *c) {
  struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
  const struct sf_op *op = sf_op_of(target, c);
  memset(out, 0, sizeof *out);
  out->c = *c;
  out->view = (struct sf_op_view){.op = op,
                                  .dims = out->c.field + SF_OP_DIM,
                                  .attrs = out->c.field + SF_OP_ATTR,
                                  .store = (enum sf_dtype)c->field[SF_OP_STORE],
                                  .plain_tails = *target->path};
  (void)sf_op_shapes(shapes, op, out->view.dims, out->view.attrs);
  const size_t count = (size_t)sf_op_case_elements(op, shapes) + 1;
  out->dense = sf_alloc(count * sizeof *out->dense);
  out->want = sf_alloc(count * sizeof *out->want);
  if (!out->dense || !out->want) {
    sf_op_operands_destroy(out);
    return SF_ENOMEM;
  }
  int64_t at = 0;
  for (int32_t i = 0; i < op->operand_count; i++) {
    struct sf_op_array *array = &out->view.at[i];
    *array = (struct sf_op_array){.rows = shapes[i].rows, .cols = shapes[i].cols, .want = out->want + at};
    if (is_whole(&op->operands[i]))
      array->ints = (int32_t *)(void *)(out->dense + at);
    else
      array->x = out->dense + at;
    at += shapes[i].rows * shapes[i].cols;
    if (op->operands[i].role != SF_OP_OUT) sf_op_fill(&out->view, i, c);
  }
  if (op->prepare) op->prepare(&out->view);
  return SF_OK;
}

void sf_op_operands_destroy(struct sf_op_operands *values) {
  sf_free(values->dense);
  sf_free(values->want);
  memset(values, 0, sizeof *values);
}

/* --- what went into an element ------------------------------------------------------------------------------------------------ */

/* The elements first, first + step, .. of an array. */
struct slice {
  int64_t first, step, count;
  int64_t beside; /* the one in the element's row and column; -1: none */
};

static struct slice slice_of(const struct sf_op_array *in, const struct sf_op_array *out, int64_t row, int64_t col) {
  const bool same_rows = in->rows == out->rows, same_cols = in->cols == out->cols;
  if (same_rows) return (struct slice){row * in->cols, 1, in->cols, same_cols ? col : -1};
  if (in->rows == 1 && same_cols) return (struct slice){0, 1, in->cols, col};
  if (in->rows == 1 && in->cols == out->rows) return (struct slice){row, 1, 1, 0};
  if (out->rows == 1 && same_cols) return (struct slice){col, in->cols, in->rows, -1};
  return (struct slice){0, 1, in->rows * in->cols, -1};
}

static void tell_value(struct sf_text *out, const struct sf_op_array *in, int64_t element) {
  if (in->ints)
    sf_text_append(out, " %d", in->ints[element]);
  else
    sf_text_append(out, " %.9g", (double)in->x[element]);
}
static void tell_place(struct sf_text *out, const struct sf_op_array *in, int64_t element) {
  sf_text_append(out, "[%" PRId64 ", %" PRId64 "]", element / in->cols, element % in->cols);
  tell_value(out, in, element);
}

static double size_at(const struct sf_op_array *in, int64_t element) {
  const double size = in->ints ? fabs((double)in->ints[element]) : fabs((double)in->x[element]);
  return isnan(size) ? INFINITY : size;
}

/* Tells the largest elements; of equal ones the first comes first. */
static void tell_largest(struct sf_text *out, const struct sf_op_array *in, const struct slice *s) {
  int64_t told[LARGEST];
  for (int n = 0; n < LARGEST; n++) {
    int64_t best = -1;
    for (int64_t k = 0; k < s->count; k++) {
      bool again = false;
      for (int m = 0; m < n; m++) again |= told[m] == k;
      if (!again && (best < 0 || size_at(in, s->first + k * s->step) > size_at(in, s->first + best * s->step))) best = k;
    }
    told[n] = best;
    sf_text_append(out, "%s", n ? ", " : " ");
    tell_place(out, in, s->first + best * s->step);
  }
}

static void tell_input(struct sf_text *out, const struct sf_op_array *in, const char *name, const struct slice *s) {
  const int64_t row = s->first / in->cols, col = s->first % in->cols;
  sf_text_append(out, "from         %s", name);
  if (s->step == in->cols && s->step > 1)
    sf_text_append(out, "[:, %" PRId64 "]", col);
  else if (s->count == in->cols)
    sf_text_append(out, "[%" PRId64 ", :]", row);
  else if (s->count == 1)
    sf_text_append(out, "[%" PRId64 ", %" PRId64 "]", row, col);
  if (s->count <= SHOWN) {
    for (int64_t k = 0; k < s->count; k++) tell_value(out, in, s->first + k * s->step);
  } else {
    if (s->beside >= 0) {
      sf_text_append(out, " ");
      tell_place(out, in, s->first + s->beside * s->step);
      sf_text_append(out, ";");
    }
    sf_text_append(out, " of %" PRId64 " the largest", s->count);
    tell_largest(out, in, s);
  }
  sf_text_append(out, "\n");
}

void sf_op_operands_tell(struct sf_text *out, const struct sf_op_operands *values, int32_t operand, int64_t row, int64_t col) {
  const struct sf_op *op = values->view.op;
  for (int32_t i = 0; i < op->operand_count; i++) {
    const struct sf_op_array *in = &values->view.at[i];
    if (op->operands[i].role == SF_OP_OUT || in->rows * in->cols == 0) continue;
    const struct slice s = slice_of(in, &values->view.at[operand], row, col);
    tell_input(out, in, op->operands[i].name, &s);
  }
}

/* --- a file of all ------------------------------------------------------------------------------------------------------------- */

static enum sf_status add(struct sf_st_writer *writer, const char *prefix, const struct sf_op_operand *operand,
                          const struct sf_op_array *array, enum sf_dtype dtype, const void *values) {
  char name[96];
  const int64_t dims[2] = {array->rows, array->cols};
  snprintf(name, sizeof name, "%s.%s", prefix, operand->name);
  return sf_st_writer_add(writer, name, dtype, dims, 2, values);
}

static enum sf_status add_input(struct sf_st_writer *writer, const struct sf_op_operands *values, const struct sf_op_target *target,
                                int32_t i, double *wide) {
  const struct sf_op_operand *operand = &values->view.op->operands[i];
  const struct sf_op_array *array = &values->view.at[i];
  const bool in_format = operand->element == SF_OP_INPUT || operand->element == SF_OP_STORED;
  if (!array->ints)
    return add(writer, "in", operand, array, in_format && *target->path ? (enum sf_dtype)values->c.field[SF_OP_INPUTS] : SF_F32, array->x);
  for (int64_t k = 0; k < array->rows * array->cols; k++) wide[k] = (double)array->ints[k];
  return add(writer, "in", operand, array, SF_F64, wide);
}

static enum sf_status add_wanted(struct sf_st_writer *writer, const struct sf_op_operands *values, int32_t i, double *wide) {
  const struct sf_op_operand *operand = &values->view.op->operands[i];
  const struct sf_op_array *array = &values->view.at[i];
  for (int64_t k = 0; k < array->rows * array->cols; k++) wide[k] = array->want[k].v;
  const enum sf_status status = add(writer, "want", operand, array, SF_F64, wide);
  for (int64_t k = 0; k < array->rows * array->cols; k++) wide[k] = array->want[k].e;
  return status == SF_OK ? add(writer, "bound", operand, array, SF_F64, wide) : status;
}

enum sf_status sf_op_operands_write(struct sf_op_operands *values, const struct sf_op_target *target, const char *folder,
                                    struct sf_error *error) {
  const struct sf_op *op = values->view.op;
  struct sf_st_writer *writer = NULL;
  struct sf_text path = {0};
  int64_t most = 1;
  for (int32_t i = 0; i < op->operand_count; i++)
    if (values->view.at[i].rows * values->view.at[i].cols > most) most = values->view.at[i].rows * values->view.at[i].cols;
  double *wide = sf_alloc((size_t)most * sizeof *wide);
  enum sf_status status = wide ? sf_st_writer_create(&writer) : SF_ENOMEM;
  op->reference(&values->view);
  for (int32_t i = 0; i < op->operand_count && status == SF_OK; i++) {
    if (op->operands[i].role != SF_OP_OUT) status = add_input(writer, values, target, i, wide);
    if (status == SF_OK && op->operands[i].role != SF_OP_IN) status = add_wanted(writer, values, i, wide);
  }
  if (status == SF_OK) status = sf_st_writer_meta(writer, "operation", op->name);
  if (status == SF_OK) status = sf_make_directories(folder, error);
  sf_text_append(&path, "%s/operands.safetensors", folder);
  if (status == SF_OK) status = path.failed ? SF_ENOMEM : sf_st_writer_save(writer, path.data, error);
  sf_st_writer_destroy(writer);
  sf_text_destroy(&path);
  sf_free(wide);
  return status;
}
