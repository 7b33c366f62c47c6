/* What a trial showed, for people. */
#include "harness/base/sinks.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/opfuzz/case/op_operands.h"
#include "harness/run/opfuzz/op_opened.h"

#include <inttypes.h>
#include <string.h>

static void report_shape(struct sf_text *out, const struct sf_op_target *target, const struct sf_op_case *c) {
  const struct sf_op *op = sf_op_of(target, c);
  sf_line_append(out, "case         %s", op->name);
  for (int32_t i = 0; i < op->dim_count; i++) sf_line_append(out, " %s=%" PRId64, op->dims[i], c->field[SF_OP_DIM + i]);
  for (int32_t i = 0; i < op->attr_count; i++) {
    const int64_t value = c->field[SF_OP_ATTR + i];
    if (op->attrs[i].reals) sf_line_append(out, " %s=%.9g", op->attrs[i].name, (double)op->attrs[i].reals[value]);
    else sf_line_append(out, " %s=%" PRId64, op->attrs[i].name, value);
  }
  sf_line_append(out, ", %s%s%s\n", sf_dtype_name((enum sf_dtype)c->field[SF_OP_STORE]), c->field[SF_OP_SPECIAL] ? ", special values" : "",
                 c->field[SF_OP_IN_PLACE] ? ", in place" : "");
}

static void report_errors(struct sf_text *out, const struct sf_op_error *e, const struct sf_op_case *c, const struct sf_op *op,
                          int32_t operand) {
  const int64_t dims_cols = e->worst < 0 ? 0 : 1;
  struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
  op->shape(shapes, c->field + SF_OP_DIM, c->field + SF_OP_ATTR);
  const int64_t cols = shapes[operand].cols > 0 ? shapes[operand].cols : 1;
  sf_line_append(out, "error        %s: %.3g of the whole, %.3g of row %" PRId64, op->operands[operand].name, e->relative, e->row_relative,
                 e->row);
  if (dims_cols) sf_line_append(out, ", %.3g ulp at [%" PRId64 ", %" PRId64 "]", e->ulps, e->worst / cols, e->worst % cols);
  sf_line_append(out, "\n");
  if (e->wrong) sf_line_append(out, "wrong        %" PRId64 " elements in %" PRId64 " rows\n", e->wrong, e->wrong_rows);
}

static void report_what(struct sf_text *out, const struct sf_op *op, const struct sf_op_case *c, const struct sf_op_outcome *o) {
  const char *name = o->operand >= 0 ? op->operands[o->operand].name : "";
  switch ((enum sf_op_class)o->cls) {
  case SF_OP_TOLERANCE:
    sf_line_append(out, "what         %s[%" PRId64 ", %" PRId64 "] is %.9g, want %.9g +- %.3g (before rounding to the storage format)\n",
                   name, o->row, o->col, o->got, o->want, o->bound);
    report_errors(out, &o->error, c, op, o->operand);
    break;
  case SF_OP_UNWRITTEN: sf_line_append(out, "what         %s[%" PRId64 ", %" PRId64 "] was not written\n", name, o->row, o->col); break;
  case SF_OP_GUARD:
    if (*o->said) sf_line_append(out, "what         it %s%s\n", o->said, o->code > 0 ? ", where the process ended" : "");
    else sf_line_append(out, "what         a write %" PRId64 " elements from the first of %s, which lies outside of it\n", o->col, name);
    break;
  case SF_OP_INPUT_CHANGED: sf_line_append(out, "what         element %" PRId64 " of the input %s was changed\n", o->col, name); break;
  case SF_OP_UNREPEATABLE:
    sf_line_append(out, "what         %s[%" PRId64 ", %" PRId64 "] was %.9g, then %.9g from the same inputs\n", name, o->row, o->col,
                   o->want, o->got);
    break;
  case SF_OP_ROUNDING: sf_line_append(out, "what         the function left the thread's floating-point mode changed: %s\n", o->said); break;
  case SF_OP_REFUSED: sf_line_append(out, "what         the function returned %d\n", o->code); break;
  case SF_OP_CRASH:
    if (o->operand >= 0) sf_line_append(out, "what         it %s, where the process ended by signal %d\n", o->said, o->code);
    else
      sf_line_append(out, "what         the process ended by %s %d%s%s\n", o->code > 0 ? "signal" : "exit code",
                     o->code > 0 ? o->code : -o->code - 1, *o->said ? ", having said: " : "", o->said);
    break;
  case SF_OP_INCONCLUSIVE:
    sf_line_append(out, "what         %s\n", o->said);
    break;
  case SF_OP_HANG: sf_line_append(out, "what         it did not end before its deadline\n"); break;
  default: break;
  }
}

/* What went into the element that is told, and how to have the rest. */
static void report_inputs(struct sf_text *out, const struct sf_op_target *target, const struct sf_op_case *c, const struct sf_op_outcome *o,
                          const char *replay_path, const char *replay_options) {
  static struct sf_op_operands values;
  const bool has_element = o->operand >= 0 && (o->cls == SF_OP_TOLERANCE || o->cls == SF_OP_UNWRITTEN || o->cls == SF_OP_UNREPEATABLE);
  if (has_element && sf_op_operands_create(&values, target, c) == SF_OK) {
    sf_op_operands_tell(out, &values, o->operand, o->row, o->col);
    sf_op_operands_destroy(&values);
  }
  sf_line_append(out, "operands     shardfuzz replay CASE.json --trace DIR writes all of them, and what outputs should be\n");
  if (!replay_path) return;
  sf_text_append(out, "replay       ");
  sf_replay_append(out, replay_path, replay_options, 0);
  sf_text_append(out, "\n");
}

void sf_op_report(struct sf_text *out, const struct sf_op_target *target, const struct sf_op_case *c, const struct sf_op_outcome *outcome,
                  const char *replay_path, const char *replay_options) {
  const struct sf_op *op = sf_op_of(target, c);
  char signature[128];
  sf_op_signature(signature, sizeof signature, op, outcome);
  if (sf_op_is_finding((enum sf_op_class)outcome->cls))
    sf_line_append(out, "verdict      FINDING (%s)\nsignature    %s\n", sf_op_class_name((enum sf_op_class)outcome->cls), signature);
  else
    sf_line_append(out, "verdict      %s\n", sf_op_verdict(outcome));
  report_what(out, op, c, outcome);
  if (outcome->cls == SF_OP_PASSED) {
    if (outcome->operand >= 0) report_errors(out, &outcome->error, c, op, outcome->operand);
    sf_line_append(out, "judged       %" PRId64 " of %" PRId64 " elements\n", outcome->judged, outcome->elements);
  }
  report_shape(out, target, c);
  if (sf_op_is_finding((enum sf_op_class)outcome->cls)) report_inputs(out, target, c, outcome, replay_path, replay_options);
}
