#include "oracles/ops/op.h"

#include "harness/base/assert.h"

#include <string.h>

static const struct sf_op *const groups[] = {sf_ops_elementwise, sf_ops_sums,  sf_ops_norm,          sf_ops_softmax, sf_ops_block_softmax,
                                             sf_ops_activation,  sf_ops_rows,  sf_ops_cross_entropy, sf_ops_update};
enum { GROUPS = sizeof groups / sizeof groups[0] };

int32_t sf_op_count(void) {
  int32_t count = 0;
  for (int g = 0; g < GROUPS; g++)
    for (const struct sf_op *op = groups[g]; op->name; op++) count++;
  return count;
}

const struct sf_op *sf_op_at(int32_t index) {
  for (int g = 0; g < GROUPS; g++)
    for (const struct sf_op *op = groups[g]; op->name; op++)
      if (index-- == 0) return op;
  SF_ASSERT(!"an operation of the table");
  return NULL;
}

const struct sf_op *sf_op_find(const char *name) {
  for (int g = 0; g < GROUPS; g++)
    for (const struct sf_op *op = groups[g]; op->name; op++)
      if (strcmp(op->name, name) == 0) return op;
  return NULL;
}

int32_t sf_op_index(const struct sf_op *op) {
  for (int32_t i = 0, count = sf_op_count(); i < count; i++)
    if (sf_op_at(i) == op) return i;
  SF_ASSERT(!"an operation of the table");
  return -1;
}
