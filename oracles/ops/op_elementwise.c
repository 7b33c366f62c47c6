/* Additions, casts and dropout: one rounding in fp32, or two. */
#include "oracles/ops/op_internal.h"

enum { ROWS, COLS, COUNT = 0 }; /* dimensions */

const float sf_op_factors[6] = {1.0f, 0.5f, -0.3f, 3.7f, 1024.0f, 0.0f};
/* 1000 / (1000 - milli) for 0, 100, 500 and 999. */
static const float keep_factors[4] = {1.0f, 1.11111116f, 2.0f, 1000.0f};

static void bias_add(struct sf_op_view *view) {
  const int64_t cols = view->at[0].cols;
  for (int64_t r = 0; r < view->at[0].rows; r++)
    for (int64_t j = 0; j < cols; j++)
      view->at[2].want[r * cols + j] = sf_op_once((double)view->at[0].x[r * cols + j] + (double)view->at[1].x[j]);
}

static void add(struct sf_op_view *view) {
  for (int64_t i = 0; i < sf_op_elements(view, 0); i++)
    view->at[2].want[i] = sf_op_once((double)view->at[0].x[i] + (double)view->at[1].x[i]);
}

static void drop(struct sf_op_view *view) {
  const double factor = sf_op_real(view, 0);
  for (int64_t i = 0; i < sf_op_elements(view, 0); i++)
    view->at[2].want[i] = view->at[1].x[i] > 0.0f ? sf_op_once(factor * (double)view->at[0].x[i]) : sf_num(0);
}

static void drop_add(struct sf_op_view *view) {
  const struct sf_num factor = sf_num(sf_op_real(view, 0));
  for (int64_t i = 0; i < sf_op_elements(view, 0); i++) {
    const struct sf_num branch = view->at[2].x[i] > 0.0f ? sf_num_mul(factor, sf_op_in(view, 1, i)) : sf_num(0);
    view->at[3].want[i] = sf_num_add(sf_op_in(view, 0, i), branch);
  }
}

static void axpy(struct sf_op_view *view) {
  const struct sf_num factor = sf_num(sf_op_real(view, 0));
  for (int64_t i = 0; i < sf_op_elements(view, 0); i++)
    view->at[1].want[i] = sf_num_add(sf_op_in(view, 1, i), sf_num_mul(factor, sf_op_in(view, 0, i)));
}

static void scale(struct sf_op_view *view) {
  const double factor = sf_op_real(view, 0);
  for (int64_t i = 0; i < sf_op_elements(view, 0); i++) view->at[0].want[i] = sf_op_once(factor * (double)view->at[0].x[i]);
}

static void round_to_store(struct sf_op_view *view) {
  for (int64_t i = 0; i < sf_op_elements(view, 0); i++) view->at[1].want[i] = sf_op_in(view, 0, i);
}

static void cast_f8(struct sf_op_view *view) {
  const double factor = sf_op_real(view, 0);
  for (int64_t i = 0; i < sf_op_elements(view, 0); i++) view->at[1].want[i] = sf_op_once(factor * (double)view->at[0].x[i]);
}

const struct sf_op sf_ops_elementwise[] = {
    {SF_OP_ALONE("bias_add"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"bias", SF_OP_IN, SF_OP_INPUT}, {"y", SF_OP_OUT, SF_OP_STORED, .in_place = 1}),
     SF_OP_DIMS("rows", "cols"),
     .sizes = {SF_OP_MATRIX(ROWS, COLS), SF_OP_VECTOR(COLS), SF_OP_MATRIX(ROWS, COLS)},
     .formula = "y[i,j] = x[i,j] + bias[j]",
     .reference = bias_add},
    {SF_OP_ALONE("add"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"a", SF_OP_IN, SF_OP_INPUT}, {"b", SF_OP_IN, SF_OP_INPUT}, {"out", SF_OP_OUT, SF_OP_STORED, .in_place = 1}),
     SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "out = a + b",
     .reference = add},
    {SF_OP_ALONE("drop"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"kept", SF_OP_IN, SF_OP_FLOAT, SF_OP_MASK},
                    {"y", SF_OP_OUT, SF_OP_STORED, .in_place = 1}),
     SF_OP_DIMS("count"),
     SF_OP_ATTRS({"factor", 3, keep_factors}),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "y = factor x where kept, else 0\n"
                "kept is 1 or 0; factor is given, 1 / (1 - p). The backward is the same call with dy for x.",
     .reference = drop},
    {SF_OP_ALONE("drop_add"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT},
                    {"branch", SF_OP_IN, SF_OP_INPUT},
                    {"kept", SF_OP_IN, SF_OP_FLOAT, SF_OP_MASK},
                    {"out", SF_OP_OUT, SF_OP_STORED, .in_place = 2}),
     SF_OP_DIMS("count"),
     SF_OP_ATTRS({"factor", 3, keep_factors}),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "out = x + factor branch where kept, else x",
     .reference = drop_add},
    {SF_OP_ALONE("axpy"),
     .stores = SF_OP_STORES_ALL,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"out", SF_OP_INOUT, SF_OP_FLOAT}),
     SF_OP_DIMS("count"),
     SF_OP_ATTRS({"factor", 5, sf_op_factors}),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "out = out + factor x",
     .reference = axpy},
    {SF_OP_ALONE("scale"),
     .stores = SF_OP_STORES_F32,
     SF_OP_OPERANDS({"x", SF_OP_INOUT, SF_OP_FLOAT}),
     SF_OP_DIMS("count"),
     SF_OP_ATTRS({"factor", 5, sf_op_factors}),
     .sizes = {SF_OP_VECTOR(COUNT)},
     .formula = "x = factor x",
     .reference = scale},
    {SF_OP_ALONE("round"),
     .casts = true,
     .stores = SF_OP_STORES_ALL | SF_OP_STORES_F8,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"out", SF_OP_OUT, SF_OP_STORED, .bits = true}),
     SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "out = x in the case's format: nearest, ties to even; zeros keep their sign; fp8 saturates, infinities too",
     .reference = round_to_store},
    {SF_OP_ALONE("cast_f8"),
     .casts = true,
     .stores = SF_OP_STORES_F8,
     SF_OP_OPERANDS({"x", SF_OP_IN, SF_OP_INPUT}, {"out", SF_OP_OUT, SF_OP_STORED, .in_place = 1, .bits = true}),
     SF_OP_DIMS("count"),
     SF_OP_ATTRS({"factor", 5, sf_op_factors}),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula =
         "out = factor x in E4M3 or E5M2; the product in fp32, then nearest, ties to even\n"
         "factor is the scale, largest number of the format / amax, say: it multiplies. Beyond 448 (E4M3, the kind without infinity) or "
         "57344 (E5M2),\n"
         "infinities too, the largest number with its sign; NaN stays NaN.",
     .reference = cast_f8},
    {0},
};
