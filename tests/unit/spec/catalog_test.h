/* What tests of the catalogue share: a LLaMA-like case, and checks of one parameter and of a module's traced tensors. */
#ifndef SF_TESTS_UNIT_SPEC_CATALOG_TEST_H
#define SF_TESTS_UNIT_SPEC_CATALOG_TEST_H

#include "harness/spec/catalog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static inline struct sf_case llama_case(void) {
  struct sf_case c;
  sf_case_init(&c);
  c.model = (struct sf_model){.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .head_dim = 6, .ffn = 20, .vocab = 30,
                              .vocab_padded = 32, .seq = 10, .norm = SF_NORM_RMS, .activation = SF_ACT_SWIGLU, .positions = SF_POS_ROTARY};
  c.precision.compute = SF_BF16;
  c.train.steps = 2, c.train.microbatches = 3, c.train.microbatch_size = 2;
  return c;
}

static inline struct sf_catalog *create(const struct sf_case *c) {
  struct sf_catalog *catalog = NULL;
  assert_int_equal(sf_case_validate(c, NULL), SF_OK);
  assert_int_equal(sf_catalog_create(&catalog, c), SF_OK);
  return catalog;
}

struct param_row {
  const char *name;
  int64_t rows, cols;
  enum sf_cut row_cut, col_cut;
  float scale, offset;
  bool frozen, decayed;
};

static inline void check_param(const struct sf_catalog *catalog, int32_t index, const struct param_row *row) {
  const struct sf_param *param = &catalog->params[index];
  assert_string_equal(param->name, row->name);
  const bool same = param->shape.rows == row->rows && param->shape.cols == row->cols && param->row_cut == row->row_cut &&
                    param->col_cut == row->col_cut && param->scale == row->scale && param->offset == row->offset &&
                    param->frozen == row->frozen && param->decayed == row->decayed;
  if (!same)
    fail_msg("%s: %d x %d, cuts %d %d, scale %g, offset %g", param->name, (int)param->shape.rows, (int)param->shape.cols, param->row_cut,
             param->col_cut, (double)param->scale, (double)param->offset);
  const size_t owner = strlen(catalog->modules[param->module].name);
  assert_memory_equal(param->name, catalog->modules[param->module].name, owner);
  assert_int_equal(param->name[owner], '.');
}

struct spec_row {
  enum sf_module_class cls;
  int64_t act_rows, act_cols;
  enum sf_cut act_row_cut, act_col_cut;
  int64_t grad_cols; /* 0: has no act_grad */
  enum sf_cut grad_row_cut, grad_col_cut;
};
#define NONE SF_CUT_NONE
#define EVEN SF_CUT_EVEN
#define QKV SF_CUT_QKV
#define GATE_UP SF_CUT_GATE_UP
#define SEQUENCE SF_CUT_SEQUENCE
#define TOKENS SF_CUT_TOKENS

static inline void check_specs(const struct sf_catalog *catalog, const struct spec_row *rows, int count) {
  for (int i = 0; i < count; i++) {
    const bool in_layer = rows[i].cls >= SF_MODULE_INPUT_LAYERNORM && rows[i].cls <= SF_MODULE_MLP_BDA;
    struct sf_trace_id id = {.step = 1, .microbatch = 2, .pass = SF_PASS_FWD, .kind = SF_KIND_ACT};
    struct sf_trace_spec spec;
    id.subject = sf_catalog_module(catalog, rows[i].cls, in_layer ? 1 : -1);
    assert_true(sf_trace_spec(&spec, catalog, id));
    const bool act = spec.shape.rows == rows[i].act_rows && spec.shape.cols == rows[i].act_cols && spec.row_cut == rows[i].act_row_cut &&
                     spec.col_cut == rows[i].act_col_cut && spec.module == id.subject;
    if (!act) fail_msg("act of %s: %d x %d", sf_modules[rows[i].cls].name, (int)spec.shape.rows, (int)spec.shape.cols);
    assert_int_equal(spec.promised, rows[i].cls == SF_MODULE_LOSS ? SF_F32 : SF_BF16);
    id.kind = SF_KIND_ACT_GRAD, id.pass = SF_PASS_BWD;
    assert_int_equal(sf_trace_spec(&spec, catalog, id), rows[i].grad_cols != 0);
    if (rows[i].grad_cols == 0) continue;
    const bool grad = spec.shape.rows == 20 && spec.shape.cols == rows[i].grad_cols && spec.row_cut == rows[i].grad_row_cut &&
                      spec.col_cut == rows[i].grad_col_cut && spec.module == id.subject && spec.promised == SF_BF16;
    if (!grad) fail_msg("act_grad of %s: %d x %d", sf_modules[rows[i].cls].name, (int)spec.shape.rows, (int)spec.shape.cols);
  }
}

#endif
