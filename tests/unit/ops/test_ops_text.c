/* What people are told of operations: sizes against the shapes that are drawn, formulas against the names that they must explain. */
#include "harness/base/pcg.h"
#include "oracles/ops/op.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct reading {
  const struct sf_op *op;
  const int64_t *dims, *attrs;
  const char *at;
};

static int64_t number_of(const struct reading *r, const char *name, size_t length) {
  for (int32_t i = 0; i < r->op->dim_count; i++)
    if (strlen(r->op->dims[i]) == length && strncmp(r->op->dims[i], name, length) == 0) return r->dims[i];
  for (int32_t i = 0; i < r->op->attr_count; i++)
    if (strlen(r->op->attrs[i].name) == length && strncmp(r->op->attrs[i].name, name, length) == 0) return r->attrs[i];
  fail_msg("%s: a size names '%.*s', which is neither dimension nor attribute", r->op->name, (int)length, name);
  return 0;
}

static size_t word_length(const char *text) {
  size_t length = 0;
  while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
  return length;
}

static int64_t read_sum(struct reading *r);

/* 2, rows, (repeat+1), ceil(rows/(repeat+1)) */
static int64_t read_term(struct reading *r) {
  const size_t length = word_length(r->at);
  if (*r->at == '(' || strncmp(r->at, "ceil(", 5) == 0) {
    const bool up = *r->at != '(';
    r->at += up ? 5 : 1;
    const int64_t value = read_sum(r);
    if (up && *r->at == '/') {
      r->at++;
      const int64_t by = read_term(r);
      assert_int_equal(*r->at++, ')');
      return (value + by - 1) / by;
    }
    assert_int_equal(*r->at++, ')');
    return value;
  }
  const char *word = r->at;
  r->at += length;
  return isdigit((unsigned char)*word) ? strtoll(word, NULL, 10) : number_of(r, word, length);
}

static int64_t read_sum(struct reading *r) {
  int64_t value = read_term(r);
  for (;;) {
    if (*r->at == '*') r->at++, value *= read_term(r);
    else if (*r->at == '+') r->at++, value += read_term(r);
    else return value;
  }
}

/* One alternative: "rows x cols", or with " if norm bias". False when its condition does not hold. */
static bool read_alternative(struct reading *r, struct sf_op_shape *out) {
  const int64_t first = read_sum(r);
  *out = (struct sf_op_shape){1, first};
  if (strncmp(r->at, " x ", 3) == 0) {
    r->at += 3;
    *out = (struct sf_op_shape){first, read_sum(r)};
  }
  if (strncmp(r->at, " if", 3) != 0) return true;
  bool holds = true;
  for (r->at += 3; *r->at == ' ';) {
    const size_t length = word_length(++r->at);
    holds &= number_of(r, r->at, length) != 0;
    r->at += length;
  }
  return holds;
}

static struct sf_op_shape read_size(struct reading *r) {
  struct sf_op_shape shape;
  for (;;) {
    const bool holds = read_alternative(r, &shape);
    if (holds) return shape;
    if (strncmp(r->at, ", else ", 7) != 0) break;
    r->at += 7;
  }
  return (struct sf_op_shape){0, 0};
}

static void test_op_sizes_random_dims_are_the_shapes(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(5, 1);
  for (int32_t i = 0; i < sf_op_count() * 200; i++) {
    const struct sf_op *op = sf_op_at(i % sf_op_count());
    int64_t dims[SF_OP_DIMS_MAX], attrs[SF_OP_ATTRS_MAX];
    struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
    for (int32_t k = 0; k < op->dim_count; k++) dims[k] = 1 + (int64_t)sf_pcg_below(&pcg, 40);
    for (int32_t k = 0; k < op->attr_count; k++) attrs[k] = (int64_t)sf_pcg_below(&pcg, (uint64_t)op->attrs[k].max + 1);
    if (!sf_op_shapes(shapes, op, dims, attrs)) continue;
    for (int32_t k = 0; k < op->operand_count; k++) {
      struct sf_text text = {0};
      sf_op_size_append(&text, op, k);
      assert_false(text.failed);
      struct reading r = {op, dims, attrs, text.data};
      const struct sf_op_shape said = read_size(&r);
      if (said.rows != shapes[k].rows || said.cols != shapes[k].cols)
        fail_msg("%s, %s: \"%s\" is %d x %d, the shape %d x %d", op->name, op->operands[k].name, text.data, (int)said.rows, (int)said.cols,
                 (int)shapes[k].rows, (int)shapes[k].cols);
      sf_text_destroy(&text);
    }
  }
}

static bool has_word(const char *text, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)); at += length) {
    const bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_'), ends = word_length(at) == length;
    if (begins && ends) return true;
  }
  return false;
}

/* The text that a formula refers to by "as forward" or "as block_softmax_stats". */
static const char *referred(const struct sf_op *op) {
  if (strstr(op->formula, "as block_softmax_stats")) return sf_op_find("block_softmax_stats")->formula;
  for (int32_t i = 0; strstr(op->formula, "as forward") && i < sf_op_count(); i++)
    if (sf_op_at(i) != op && strcmp(sf_op_at(i)->family, op->family) == 0) return sf_op_at(i)->formula;
  return "";
}

static bool is_explained(const struct sf_op *op, const char *name) {
  bool said = has_word(op->formula, name) || has_word(referred(op), name);
  for (int32_t k = 0; k < op->operand_count; k++) {
    struct sf_text size = {0};
    sf_op_size_append(&size, op, k);
    said |= has_word(size.data, name);
    sf_text_destroy(&size);
  }
  return said;
}

static void test_op_formulas_name_every_operand_and_attribute(void **state) {
  (void)state;
  for (int32_t i = 0; i < sf_op_count(); i++) {
    const struct sf_op *op = sf_op_at(i);
    assert_non_null(op->formula);
    for (const char *at = op->formula; *at; at++)
      if ((*at < ' ' && *at != '\n') || *at > '~') fail_msg("%s: the formula has a character that is not ASCII", op->name);
    for (int32_t k = 0; k < op->operand_count; k++)
      if (!has_word(op->formula, op->operands[k].name) && !has_word(referred(op), op->operands[k].name))
        fail_msg("%s: the formula does not name %s", op->name, op->operands[k].name);
    for (int32_t k = 0; k < op->attr_count; k++)
      if (!is_explained(op, op->attrs[k].name)) fail_msg("%s: nothing says what %s is", op->name, op->attrs[k].name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_op_sizes_random_dims_are_the_shapes),
      cmocka_unit_test(test_op_formulas_name_every_operand_and_attribute),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
