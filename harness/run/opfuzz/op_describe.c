/* Describes operations, the cases of them that a target takes, and single cases. */
#include "harness/base/sinks.h"
#include "harness/run/opfuzz/op_device.h"
#include "harness/run/opfuzz/op_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT(constant, text) text,
static const char *const role_names[] = {SF_OP_ROLE_MAP(TEXT)}, *const element_names[] = {SF_OP_ELEMENT_MAP(TEXT)},
                         *const fill_texts[] = {SF_OP_FILL_MAP(TEXT)};
#undef TEXT

static void print_dims(struct sf_text *out, const struct sf_op *op) {
  sf_line_append(out, "(");
  for (int32_t k = 0; k < op->dim_count; k++) sf_line_append(out, "%s%s", k ? ", " : "", op->dims[k]);
  sf_line_append(out, ")");
}

/* "window 0..300", "alpha 1|0.125|-0.3|0" */
static void print_attr(struct sf_text *out, const struct sf_op_attr *attr) {
  sf_line_append(out, " %s ", attr->name);
  if (!attr->reals) sf_line_append(out, "0..%" PRId64, attr->max);
  for (int64_t v = 0; attr->reals && v <= attr->max; v++) sf_line_append(out, "%s%.9g", v ? "|" : "", (double)attr->reals[v]);
}

static void list_line(struct sf_text *out, const struct sf_op *op) {
  sf_line_append(out, "%s%s ", op->name, sf_op_device_has(op) ? "" : " [plugins only]");
  print_dims(out, op);
  for (int32_t k = 0; k < op->operand_count; k++)
    sf_line_append(out, "%s %s %s", k ? "," : ":", role_names[op->operands[k].role], op->operands[k].name);
  for (int32_t k = 0; k < op->attr_count; k++) {
    sf_line_append(out, "%s", k ? "," : "; attributes");
    print_attr(out, &op->attrs[k]);
  }
  sf_line_append(out, "\n");
}

/* --- formulas ---------------------------------------------------------------------------------------------------------------- */

static const char conventions[] =
    "Matrices are row-major, a vector is one row. in: read; out: every element is written; inout: read, then written. An operand that is "
    "left out has no elements.\n"
    "\"case\" is the case's format. Arithmetic is fp32, with sums in any order; what is stored is rounded once, nearest, ties to even. "
    "NaN and infinity come out as IEEE\n"
    "arithmetic has it. i is a row and j a column from 0 on; mean_j and sum_j go over a row. A plugin declares an operation by its name, "
    "or forward and backward\n"
    "together by that of the family.\n";

static const char *element_name(const struct sf_op *op, const struct sf_op_operand *operand) {
  return operand->element == SF_OP_INPUT && op->casts ? "fp32" : element_names[operand->element];
}

static void print_stores(struct sf_text *out, uint32_t stores) {
  bool first = true;
  for (int32_t d = 0; d < SF_DTYPE_COUNT; d++) {
    if (!(stores >> d & 1)) continue;
    sf_line_append(out, "%s%s", first ? "" : ", ", sf_dtype_name((enum sf_dtype)d));
    first = false;
  }
}

/* Lines of text, indented. */
static void print_indented(struct sf_text *out, const char *text) {
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, "\n");
    sf_line_append(out, "  %.*s\n", (int)length, at);
    at += length + (at[length] == '\n');
  }
}

static void print_formula(struct sf_text *out, const struct sf_op *op) {
  sf_line_append(out, "\n%s ", op->name);
  print_dims(out, op);
  if (strcmp(op->family, op->name) != 0) sf_line_append(out, ", %s of %s", op->backward ? "backward" : "forward", op->family);
  sf_line_append(out, "; case format ");
  print_stores(out, op->stores);
  if (!sf_op_device_has(op)) sf_line_append(out, "; plugins only");
  sf_line_append(out, "\n");
  for (int32_t k = 0; k < op->operand_count; k++) {
    const struct sf_op_operand *o = &op->operands[k];
    const int8_t shares = o->in_place;
    sf_line_append(out, "  %-5s %-11s %-6s ", role_names[o->role], o->name, element_name(op, o));
    sf_op_size_append(out, op, k);
    sf_line_append(out, "%s%s%s\n", o->strided ? "; rows may be apart" : "", shares ? "; may lie on " : "",
                   shares ? op->operands[shares - 1].name : "");
  }
  for (int32_t k = 0; k < op->attr_count; k++) {
    sf_line_append(out, "%s", k ? "," : "  attributes");
    print_attr(out, &op->attrs[k]);
  }
  if (op->attr_count) sf_line_append(out, "\n");
  print_indented(out, op->formula);
}

void sf_op_list(struct sf_text *out, bool formulas) {
  if (formulas) sf_text_append(out, "%s", conventions);
  for (int32_t i = 0; i < sf_op_count(); i++) {
    if (formulas)
      print_formula(out, sf_op_at(i));
    else
      list_line(out, sf_op_at(i));
  }
}

/* --- what a target takes ------------------------------------------------------------------------------------------------------ */

static void print_entry(struct sf_text *out, const struct sf_op_entry *entry) {
  const struct sf_op *op = entry->op;
  sf_line_append(out, "%-20s ", op->name);
  print_stores(out, entry->stores);
  for (int32_t i = 0; i < op->dim_count; i++) {
    if (entry->dim_max[i] < SF_OP_DIM_LIMIT) sf_line_append(out, "; %s up to %" PRId64, op->dims[i], entry->dim_max[i]);
    if (entry->dim_multiple[i] > 1) sf_line_append(out, "; %s a multiple of %" PRId64, op->dims[i], entry->dim_multiple[i]);
  }
  for (int32_t i = 0; i < op->attr_count; i++)
    if (entry->attr_fixed[i] >= 0) sf_line_append(out, "; %s %" PRId64, op->attrs[i].name, entry->attr_fixed[i]);
  sf_line_append(out, "%s%s%s\n", entry->strided ? "; strided" : "", entry->unaligned ? "; unaligned" : "",
                 entry->in_place ? "; in place" : "");
}

void sf_op_list_target(struct sf_text *out, const struct sf_op_target *target) {
  for (int32_t i = 0; i < target->entry_count; i++) print_entry(out, &target->entries[i]);
}

/* --- a case ------------------------------------------------------------------------------------------------------------------- */

static void describe_values(struct sf_text *out, const struct sf_op_case *c, const struct sf_op_operand *operand, int32_t i) {
  if (operand->role == SF_OP_OUT) return;
  const bool drawn = operand->fill == SF_OP_ANY || operand->fill == SF_OP_SCORE;
  sf_line_append(out, ", %s", drawn ? sf_op_value_name(SF_OP_VALUES + i, c->field[SF_OP_VALUES + i]) : fill_texts[operand->fill]);
  if (drawn && c->field[SF_OP_SPECIAL])
    sf_line_append(out, " with %s%s", sf_op_value_name(SF_OP_SPECIAL, c->field[SF_OP_SPECIAL]),
                   c->field[SF_OP_SPECIAL] == SF_OP_MIXED ? " special values" : "");
}

static void describe_operand(struct sf_text *out, const struct sf_op_case *c, const struct sf_op *op, const struct sf_op_shape *shape,
                             bool plugin, int32_t i) {
  const struct sf_op_operand *o = &op->operands[i];
  sf_line_append(out, "%-12s %s", role_names[o->role], o->name);
  if (shape->rows == 0 && shape->cols == 0) {
    sf_line_append(out, ": left out\n");
    return;
  }
  const bool in_format = o->element == SF_OP_INPUT || o->element == SF_OP_STORED;
  const char *format =
      in_format ? sf_dtype_name((enum sf_dtype)c->field[o->role == SF_OP_OUT || o->element == SF_OP_STORED ? SF_OP_STORE : SF_OP_INPUTS])
                : element_names[o->element];
  sf_line_append(out, ": %" PRId64 " x %" PRId64 ", %s%s", shape->rows, shape->cols, format,
                 in_format && !plugin && strcmp(format, "fp32") != 0 ? " numbers held in fp32" : "");
  describe_values(out, c, o, i);
  if (c->field[SF_OP_IN_PLACE] && o->in_place) sf_line_append(out, ", in the memory of %s", op->operands[o->in_place - 1].name);
  if (c->field[SF_OP_START + i]) sf_line_append(out, ", begins %" PRId64 " elements after an aligned address", c->field[SF_OP_START + i]);
  if (c->field[SF_OP_PAD + i]) sf_line_append(out, ", %" PRId64 " elements between rows", c->field[SF_OP_PAD + i]);
  sf_line_append(out, "\n");
}

static void describe_row(struct sf_text *out, const struct sf_op_case *c, const struct sf_op *op, const struct sf_case *whole,
                         const struct sf_op_shape *shapes) {
  const bool plugin = strncmp(whole->target, "op:", 3) != 0;
  sf_line_append(out, "operation    %s of %s\ndimensions  ", op->name, whole->target);
  for (int32_t i = 0; i < op->dim_count; i++) sf_line_append(out, " %s=%" PRId64, op->dims[i], c->field[SF_OP_DIM + i]);
  sf_line_append(out, "\n%s", op->attr_count ? "attributes  " : "");
  for (int32_t i = 0; i < op->attr_count; i++) {
    const int64_t value = c->field[SF_OP_ATTR + i];
    sf_line_append(out, " %s=%.9g", op->attrs[i].name, op->attrs[i].reals ? (double)op->attrs[i].reals[value] : (double)value);
  }
  sf_line_append(out, "%sformat       %s\n", op->attr_count ? "\n" : "", sf_dtype_name((enum sf_dtype)c->field[SF_OP_STORE]));
  sf_line_append(out, "special      %s\nseed         %" PRId64 "\n",
                 c->field[SF_OP_SPECIAL] ? sf_op_value_name(SF_OP_SPECIAL, c->field[SF_OP_SPECIAL]) : "none", c->field[SF_OP_SEED]);
  for (int32_t i = 0; i < op->operand_count; i++) describe_operand(out, c, op, &shapes[i], plugin, i);
  const struct sf_expect *expect = &whole->expect;
  if (expect->present) sf_line_append(out, "expected     %s%s%s\n", expect->verdict, *expect->signature ? " " : "", expect->signature);
  sf_line_append(out, "\n");
  print_indented(out, op->formula);
}

enum sf_status sf_op_describe(struct sf_text *out, const struct sf_case *c, struct sf_error *error) {
  static struct sf_op_target target;
  struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
  struct sf_op_case row;
  sf_op_target_reference(&target, c->target, SF_OP_ELEMENTS_MOST);
  const enum sf_status status = sf_op_case_of(&row, c, &target, error);
  if (status == SF_OK && sf_op_case_valid(&target, &row, shapes, error)) describe_row(out, &row, sf_op_of(&target, &row), c, shapes);
  return status;
}
