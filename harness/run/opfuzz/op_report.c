/* Reports the outcome of a trial for people. */
#include "harness/run/opfuzz/op_report.h"
#include "harness/base/sinks.h"
#include "harness/run/opfuzz/case/op_operands.h"

#include <inttypes.h>
#include <string.h>

static void report_shape(struct sf_text *out, const struct sf_op_target *target, const struct sf_op_case *c) {
  const struct sf_op *op = sf_op_of(target, c);
  sf_line_append(out, "case         %s", op->name);
  for (int32_t i = 0; i < op->dim_count; i++) sf_line_append(out, " %s=%" PRId64, op->dims[i], c->field[SF_OP_DIM + i]);
  for (int32_t i = 0; i < op->attr_count; i++) {
    const int64_t value = c->field[SF_OP_ATTR + i];
    if (op->attrs[i].reals)
      sf_line_append(out, " %s=%.9g", op->attrs[i].name, (double)op->attrs[i].reals[value]);
    else
      sf_line_append(out, " %s=%" PRId64, op->attrs[i].name, value);
  }
  sf_line_append(out, ", %s%s%s\n", sf_dtype_name((enum sf_dtype)c->field[SF_OP_STORE]), c->field[SF_OP_SPECIAL] ? ", special values" : "",
                 c->field[SF_OP_IN_PLACE] ? ", in place" : "");
}

static void report_errors(struct sf_text *out, const struct sf_op_error *e, const struct sf_op_case *c, const struct sf_op *op,
                          int32_t operand) {
  const int64_t dims_cols = e->worst < 0 ? 0 : 1;
  struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
  (void)sf_op_shapes(shapes, op, c->field + SF_OP_DIM, c->field + SF_OP_ATTR);
  const int64_t cols = shapes[operand].cols > 0 ? shapes[operand].cols : 1;
  sf_line_append(out, "error        %s: %.3g of the whole, %.3g of row %" PRId64, op->operands[operand].name, e->relative, e->row_relative,
                 e->row);
  if (dims_cols) sf_line_append(out, ", %.3g ulp at [%" PRId64 ", %" PRId64 "]", e->ulps, e->worst / cols, e->worst % cols);
  sf_line_append(out, "\n");
  if (e->wrong) sf_line_append(out, "wrong        %" PRId64 " elements in %" PRId64 " rows\n", e->wrong, e->wrong_rows);
}

void sf_op_what(char *out, size_t size, const struct sf_op *op, const struct sf_op_outcome *o) {
  const char *name = o->operand >= 0 ? op->operands[o->operand].name : "";
  *out = '\0';
  if (o->verdict != SF_VERDICT_FINDING) return;
  switch (o->cls) {
  case SF_CLASS_TOLERANCE:
    snprintf(out, size, "%s[%" PRId64 ", %" PRId64 "] is %.9g, want %.9g +- %.3g (before rounding to the storage format)", name, o->row,
             o->col, o->got, o->want, o->bound);
    break;
  case SF_CLASS_UNWRITTEN:
    snprintf(out, size, "%s[%" PRId64 ", %" PRId64 "] was not written", name, o->row, o->col);
    break;
  case SF_CLASS_GUARD:
    if (*o->said)
      snprintf(out, size, "it %s%s", o->said, o->code > 0 ? ", where the process ended" : "");
    else
      snprintf(out, size, "a write %" PRId64 " elements from the first of %s, which lies outside of it", o->col, name);
    break;
  case SF_CLASS_INPUT:
    snprintf(out, size, "element %" PRId64 " of the input %s was changed", o->col, name);
    break;
  case SF_CLASS_UNREPEATABLE:
    snprintf(out, size, "%s[%" PRId64 ", %" PRId64 "] was %.9g, then %.9g from the same inputs", name, o->row, o->col, o->want, o->got);
    break;
  case SF_CLASS_ROUNDING:
    snprintf(out, size, "the function left the thread's floating-point mode changed: %s", o->said);
    break;
  case SF_CLASS_REFUSED:
    snprintf(out, size, "the function returned %d", o->code);
    break;
  case SF_CLASS_CRASH:
    if (o->operand >= 0)
      snprintf(out, size, "it %s, where the process ended by signal %d", o->said, o->code);
    else
      snprintf(out, size, "the process ended by %s %d%s%s", o->code > 0 ? "signal" : "exit code", o->code > 0 ? o->code : -o->code - 1,
               *o->said ? ", having said: " : "", o->said);
    break;
  case SF_CLASS_HANG:
    snprintf(out, size, "it did not end before its deadline");
    break;
  default:
    break;
  }
}

/* The case's row, according to any target of that name: the library need not be there. */
static enum sf_status row_of(struct sf_op_case *out, const struct sf_op_target **target, const struct sf_case *c, struct sf_error *error) {
  static struct sf_op_target reference;
  sf_op_target_reference(&reference, c->target, SF_OP_ELEMENTS_MOST);
  *target = &reference;
  return sf_op_case_of(out, c, &reference, error);
}

void sf_op_tell(struct sf_text *out, const struct sf_case *c, const struct sf_op_outcome *outcome, const char *what) {
  const struct sf_op_target *target;
  struct sf_op_case row;
  if (*what) sf_line_append(out, "what         %s\n", what);
  const bool measured = outcome->verdict == SF_VERDICT_PASS || outcome->cls == SF_CLASS_TOLERANCE;
  if (outcome->operand >= 0 && measured && row_of(&row, &target, c, NULL) == SF_OK)
    report_errors(out, &outcome->error, &row, sf_op_of(target, &row), outcome->operand);
}

void sf_op_tell_case(struct sf_text *out, const struct sf_case *c, const struct sf_op_outcome *o) {
  static struct sf_op_operands values;
  const struct sf_op_target *target;
  struct sf_op_case row;
  if (row_of(&row, &target, c, NULL) != SF_OK) return;
  report_shape(out, target, &row);
  if (o->verdict != SF_VERDICT_FINDING) return;
  const bool has_element =
      o->operand >= 0 && (o->cls == SF_CLASS_TOLERANCE || o->cls == SF_CLASS_UNWRITTEN || o->cls == SF_CLASS_UNREPEATABLE);
  if (has_element && sf_op_operands_create(&values, target, &row) == SF_OK) {
    sf_op_operands_tell(out, &values, o->operand, o->row, o->col);
    sf_op_operands_destroy(&values);
  }
  sf_line_append(out, "operands     shardfuzz replay CASE.json --trace DIR writes all of them, and what outputs should be\n");
}

enum sf_status sf_op_write_operands(const struct sf_case *c, const char *folder, struct sf_error *error) {
  static struct sf_op_operands values;
  const struct sf_op_target *target;
  struct sf_op_case row;
  enum sf_status status = row_of(&row, &target, c, error);
  if (status == SF_OK) status = sf_op_operands_create(&values, target, &row);
  if (status != SF_OK) return status;
  status = sf_op_operands_write(&values, target, folder, error);
  sf_op_operands_destroy(&values);
  return status;
}
