#include "harness/spec/modules.h"

/* --- short names of the rows -------------------------------------------------------------------------------------- */

enum {
  PLUGGABLE = SF_TRAIT_PLUGGABLE,
  INTEGER_ACT = SF_TRAIT_INTEGER_ACT,
  INTEGER_GRAD = SF_TRAIT_INTEGER_GRAD,
  INTEGERS = INTEGER_ACT | INTEGER_GRAD,
  NORM = SF_TRAIT_NORM | PLUGGABLE | INTEGERS,
  EMBEDS = SF_TRAIT_EMBEDDING | INTEGER_ACT,
  ADDS = SF_TRAIT_RESIDUAL_ADD | INTEGERS,
  LINEAR = SF_TRAIT_LINEAR,
  ADDS_GRAD = SF_TRAIT_ADDS_GRAD,
  COLUMN = SF_TRAIT_LINEAR | SF_TRAIT_COLUMN | ADDS_GRAD,
  ROW = SF_TRAIT_LINEAR | SF_TRAIT_ROW | SF_TRAIT_ADDS_ACT,
  EXPERT = SF_TRAIT_EXPERT | SF_TRAIT_ADDS_ACT | ADDS_GRAD,
  FP8 = SF_TRAIT_FP8,
  INTO_ATTENTION = SF_TRAIT_INTO_ATTENTION,
  GRAD_INTO_MEANS = SF_TRAIT_GRAD_INTO_MEANS
};

#define ALWAYS                                                                                                                             \
  { 0 }
#define HAS(field) SF_NEED(field, 1, INT64_MAX)
#define IS(field, value) SF_NEED(field, value, value)

#define TENSOR(rows, cols, row_cut, col_cut, promise)                                                                                      \
  { SF_SIZE_##rows, SF_SIZE_##cols, SF_CUT_##row_cut, SF_CUT_##col_cut, SF_PROMISE_##promise }
#define RESIDUAL TENSOR(TOKENS, HIDDEN, SEQUENCE, NONE, STREAM) /* the residual stream */
#define STREAM BY_SEQUENCE(HIDDEN)                              /* what joins it */
#define BY_SEQUENCE(cols) TENSOR(TOKENS, cols, SEQUENCE, NONE, STORED)
#define BY_TOKENS(cols, cut) TENSOR(TOKENS, cols, TOKENS, cut, STORED)
#define BY_HEADS BY_TOKENS(ATTENTION, EVEN)
#define FUSED BY_TOKENS(QKV, QKV)
#define LOGITS BY_TOKENS(VOCAB, EVEN)
#define OF_MEMORY(cols, row_cut, col_cut) TENSOR(MEMORY_ROWS, cols, row_cut, col_cut, STORED)
#define SCORES TENSOR(TOKENS, EXPERTS, SEQUENCE, NONE, F32)
#define TOKEN_LOSS TENSOR(ONE, TOKENS, NONE, TOKENS, F32)

#define PARAM(part, rows, cols, row_cut, col_cut, initial, when)                                                                           \
  { part, SF_SIZE_##rows, SF_SIZE_##cols, SF_CUT_##row_cut, SF_CUT_##col_cut, SF_INITIAL_##initial, when }
#define WEIGHT(rows, cols, row_cut, col_cut) PARAM("weight", rows, cols, row_cut, col_cut, FAN_IN, ALWAYS)
#define BIAS(cols, cut) PARAM("bias", ONE, cols, NONE, cut, SMALL, IS(model.bias, 1))
#define SCALE(part, cols) PARAM(part, ONE, cols, NONE, NONE, AROUND_1, ALWAYS)
#define SHIFT(part, cols) PARAM(part, ONE, cols, NONE, NONE, SMALL, IS(model.norm, SF_NORM_LAYER))
#define SCALES(cols) .frozen = SF_FROZEN_NORMS, .params = {SCALE("weight", cols), SHIFT("bias", cols)}

const struct sf_module_row sf_modules[SF_MODULE_CLASS_COUNT] = {
#define MODULE(class, text, ...) [SF_MODULE_##class] = {.name = text, .traits = __VA_ARGS__},
#include "harness/spec/modules.def"
#undef MODULE
};

/* --- what they are in a case -------------------------------------------------------------------------------------- */

int64_t sf_size_of(const struct sf_case *c, enum sf_size size) {
  switch (size) {
#define X(name, expression)                                                                                                                \
  case SF_SIZE_##name:                                                                                                                     \
    return expression;
    SF_SIZE_MAP(X)
#undef X
  case SF_SIZE_NONE:
    break;
  }
  return 0;
}

bool sf_need_holds(const struct sf_need *need, const struct sf_case *c) {
  if (need->path == NULL) return true;
  const char *at = (const char *)c + need->offset;
  const int64_t value = need->is_flag ? *(const bool *)at : *(const int64_t *)(const void *)at;
  return value >= need->lo && value <= need->hi;
}

bool sf_module_exists(enum sf_module_class cls, const struct sf_case *c) {
  const struct sf_need *needs = sf_modules[cls].needs;
  const bool first = sf_need_holds(&needs[0], c), second = sf_need_holds(&needs[1], c);
  return sf_module_is(cls, SF_TRAIT_ANY_NEED) ? first || second : first && second;
}

enum sf_cut sf_module_cut(enum sf_cut cut, const struct sf_case *c) {
  if (sf_case_fc1_parts(c) > 1) return cut;
  return cut == SF_CUT_GATE_UP ? SF_CUT_EVEN : cut == SF_CUT_EXPERTS_GATE_UP ? SF_CUT_EXPERTS : cut;
}
