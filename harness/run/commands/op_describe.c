/* Operations, what a target takes of them, and cases, for people. */
#include "harness/base/sinks.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/op_command.h"
#include "harness/run/opfuzz/op_device.h"
#include "harness/run/opfuzz/op_opened.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT(constant, text) text,
static const char *const role_names[] = {SF_OP_ROLE_MAP(TEXT)}, *const element_names[] = {SF_OP_ELEMENT_MAP(TEXT)},
                         *const fill_texts[] = {SF_OP_FILL_MAP(TEXT)};
#undef TEXT

static void print_dims(const struct sf_op *op) {
  sf_print(stdout, "(");
  for (int32_t k = 0; k < op->dim_count; k++) sf_print(stdout, "%s%s", k ? ", " : "", op->dims[k]);
  sf_print(stdout, ")");
}

/* "window 0..300", "alpha 1|0.125|-0.3|0" */
static void print_attr(const struct sf_op_attr *attr) {
  sf_print(stdout, " %s ", attr->name);
  if (!attr->reals) sf_print(stdout, "0..%" PRId64, attr->max);
  for (int64_t v = 0; attr->reals && v <= attr->max; v++) sf_print(stdout, "%s%.9g", v ? "|" : "", (double)attr->reals[v]);
}

static void list_line(const struct sf_op *op) {
  sf_print(stdout, "%s%s ", op->name, sf_op_device_has(op) ? "" : " [plugins only]");
  print_dims(op);
  for (int32_t k = 0; k < op->operand_count; k++)
    sf_print(stdout, "%s %s %s", k ? "," : ":", role_names[op->operands[k].role], op->operands[k].name);
  for (int32_t k = 0; k < op->attr_count; k++) {
    sf_print(stdout, "%s", k ? "," : "; attributes");
    print_attr(&op->attrs[k]);
  }
  sf_print(stdout, "\n");
}

/* --- formulas ---------------------------------------------------------------------------------------------------------------- */

static const char conventions[] =
    "Matrices are row-major, a vector is one row. in: read; out: every element is written; inout: read, then written. An operand that is left out has no elements.\n"
    "\"case\" is the case's format. Arithmetic is fp32, with sums in any order; what is stored is rounded once, nearest, ties to even. NaN and infinity come out as IEEE\n"
    "arithmetic has it. i is a row and j a column from 0 on; mean_j and sum_j go over a row. A plugin declares an operation by its name, or forward and backward\n"
    "together by that of the family.\n";

static const char *element_name(const struct sf_op *op, const struct sf_op_operand *operand) {
  return operand->element == SF_OP_INPUT && op->casts ? "fp32" : element_names[operand->element];
}

static void print_stores(uint32_t stores) {
  bool first = true;
  for (int32_t d = 0; d < SF_DTYPE_COUNT; d++) {
    if (!(stores >> d & 1)) continue;
    sf_print(stdout, "%s%s", first ? "" : ", ", sf_dtype_name((enum sf_dtype)d));
    first = false;
  }
}

/* Lines of text, indented. */
static void print_indented(const char *text) {
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, "\n");
    sf_print(stdout, "  %.*s\n", (int)length, at);
    at += length + (at[length] == '\n');
  }
}

static void print_formula(const struct sf_op *op) {
  sf_print(stdout, "\n%s ", op->name);
  print_dims(op);
  if (strcmp(op->family, op->name) != 0) sf_print(stdout, ", %s of %s", op->backward ? "backward" : "forward", op->family);
  sf_print(stdout, "; case format ");
  print_stores(op->stores);
  if (!sf_op_device_has(op)) sf_print(stdout, "; plugins only");
  sf_print(stdout, "\n");
  for (int32_t k = 0; k < op->operand_count; k++) {
    const struct sf_op_operand *o = &op->operands[k];
    const int8_t shares = o->in_place;
    sf_print(stdout, "  %-5s %-11s %-6s %s%s%s%s\n", role_names[o->role], o->name, element_name(op, o), op->sizes[k],
             o->strided ? "; rows may be apart" : "", shares ? "; may lie on " : "", shares ? op->operands[shares - 1].name : "");
  }
  for (int32_t k = 0; k < op->attr_count; k++) {
    sf_print(stdout, "%s", k ? "," : "  attributes");
    print_attr(&op->attrs[k]);
  }
  if (op->attr_count) sf_print(stdout, "\n");
  print_indented(op->formula);
}

void sf_op_list(bool formulas) {
  if (formulas) sf_print_lines(stdout, conventions);
  for (int32_t i = 0; i < sf_op_count(); i++) {
    if (formulas)
      print_formula(sf_op_at(i));
    else
      list_line(sf_op_at(i));
  }
}

/* --- what a target takes ------------------------------------------------------------------------------------------------------ */

static void print_entry(const struct sf_op_entry *entry) {
  const struct sf_op *op = entry->op;
  sf_print(stdout, "%-20s ", op->name);
  print_stores(entry->stores);
  for (int32_t i = 0; i < op->dim_count; i++) {
    if (entry->dim_max[i] < SF_OP_DIM_LIMIT) sf_print(stdout, "; %s up to %" PRId64, op->dims[i], entry->dim_max[i]);
    if (entry->dim_multiple[i] > 1) sf_print(stdout, "; %s a multiple of %" PRId64, op->dims[i], entry->dim_multiple[i]);
  }
  for (int32_t i = 0; i < op->attr_count; i++)
    if (entry->attr_fixed[i] >= 0) sf_print(stdout, "; %s %" PRId64, op->attrs[i].name, entry->attr_fixed[i]);
  sf_print(stdout, "%s%s%s\n", entry->strided ? "; strided" : "", entry->unaligned ? "; unaligned" : "",
           entry->in_place ? "; in place" : "");
}

int sf_op_list_target(const char *target, bool shown) {
  static struct sf_op_target made;
  struct sf_error error = {SF_OK, ""};
  const enum sf_status status = sf_op_target_make(&made, target, SF_OP_ELEMENTS, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  for (int32_t i = 0; shown && i < made.entry_count; i++) print_entry(&made.entries[i]);
  return 0;
}

/* --- a case ------------------------------------------------------------------------------------------------------------------- */

static void describe_values(const struct sf_op_case *c, const struct sf_op_operand *operand, int32_t i) {
  if (operand->role == SF_OP_OUT) return;
  const bool drawn = operand->fill == SF_OP_ANY || operand->fill == SF_OP_SCORE;
  sf_print(stdout, ", %s", drawn ? sf_op_value_name(SF_OP_VALUES + i, c->field[SF_OP_VALUES + i]) : fill_texts[operand->fill]);
  if (drawn && c->field[SF_OP_SPECIAL])
    sf_print(stdout, " with %s%s", sf_op_value_name(SF_OP_SPECIAL, c->field[SF_OP_SPECIAL]),
             c->field[SF_OP_SPECIAL] == SF_OP_MIXED ? " special values" : "");
}

static void describe_operand(const struct sf_op_case *c, const struct sf_op *op, const struct sf_op_shape *shape, bool plugin, int32_t i) {
  const struct sf_op_operand *o = &op->operands[i];
  sf_print(stdout, "%-12s %s", role_names[o->role], o->name);
  if (shape->rows == 0 && shape->cols == 0) {
    sf_print(stdout, ": left out\n");
    return;
  }
  const bool in_format = o->element == SF_OP_INPUT || o->element == SF_OP_STORED;
  const char *format =
      in_format ? sf_dtype_name((enum sf_dtype)c->field[o->role == SF_OP_OUT || o->element == SF_OP_STORED ? SF_OP_STORE : SF_OP_INPUTS])
                : element_names[o->element];
  sf_print(stdout, ": %" PRId64 " x %" PRId64 ", %s%s", shape->rows, shape->cols, format,
           in_format && !plugin && strcmp(format, "fp32") != 0 ? " numbers held in fp32" : "");
  describe_values(c, o, i);
  if (c->field[SF_OP_IN_PLACE] && o->in_place) sf_print(stdout, ", in the memory of %s", op->operands[o->in_place - 1].name);
  if (c->field[SF_OP_START + i]) sf_print(stdout, ", begins %" PRId64 " elements after an aligned address", c->field[SF_OP_START + i]);
  if (c->field[SF_OP_PAD + i]) sf_print(stdout, ", %" PRId64 " elements between rows", c->field[SF_OP_PAD + i]);
  sf_print(stdout, "\n");
}

static void describe_case(const struct sf_op_case *c, const struct sf_op *op, const struct sf_op_file *file,
                          const struct sf_op_shape *shapes) {
  const bool plugin = strncmp(file->target, "op:", 3) != 0;
  sf_print(stdout, "operation    %s of %s\ndimensions  ", op->name, file->target);
  for (int32_t i = 0; i < op->dim_count; i++) sf_print(stdout, " %s=%" PRId64, op->dims[i], c->field[SF_OP_DIM + i]);
  sf_print(stdout, "\n%s", op->attr_count ? "attributes  " : "");
  for (int32_t i = 0; i < op->attr_count; i++) {
    const int64_t value = c->field[SF_OP_ATTR + i];
    sf_print(stdout, " %s=%.9g", op->attrs[i].name, op->attrs[i].reals ? (double)op->attrs[i].reals[value] : (double)value);
  }
  sf_print(stdout, "%sformat       %s\n", op->attr_count ? "\n" : "", sf_dtype_name((enum sf_dtype)c->field[SF_OP_STORE]));
  sf_print(stdout, "special      %s\nseed         %" PRId64 "\n",
           c->field[SF_OP_SPECIAL] ? sf_op_value_name(SF_OP_SPECIAL, c->field[SF_OP_SPECIAL]) : "none", c->field[SF_OP_SEED]);
  for (int32_t i = 0; i < op->operand_count; i++) describe_operand(c, op, &shapes[i], plugin, i);
  if (*file->verdict) sf_print(stdout, "expected     %s%s%s\n", file->verdict, *file->signature ? " " : "", file->signature);
  sf_print(stdout, "\n");
  print_indented(op->formula);
}

int sf_op_describe_file(const char *path) {
  static struct sf_op_target target;
  struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
  struct sf_op_file file;
  struct sf_op_case c;
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_op_file_read(&file, path, &error);
  if (status == SF_OK && !sf_op_target_is_one(file.target))
    status = sf_error_set(&error, SF_EINPUT, "%s: target: op:NAME or plugin:LIB.so", path);
  if (status == SF_OK) sf_op_target_reference(&target, file.target, SF_OP_ELEMENTS_MOST);
  if (status == SF_OK) status = sf_op_file_case(&c, &file, &target, path, &error);
  if (status == SF_OK && sf_op_case_valid(&target, &c, shapes, &error)) describe_case(&c, sf_op_of(&target, &c), &file, shapes);
  sf_op_file_destroy(&file);
  return status == SF_OK ? 0 : sf_exit_failure(status, &error);
}
