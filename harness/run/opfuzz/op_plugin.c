/* A case handed to a plugin. */
#include "harness/run/opfuzz/op_device.h"
#include "targets/plugin/plugin.h"

#include <string.h>

static const uint32_t dtype_numbers[SF_DTYPE_COUNT] = {[SF_F32] = SHARDFUZZ_F32, [SF_BF16] = SHARDFUZZ_BF16,     [SF_F16] = SHARDFUZZ_F16,
                                                       [SF_F64] = SHARDFUZZ_F64, [SF_F8E4M3] = SHARDFUZZ_F8E4M3, [SF_F8E5M2] = SHARDFUZZ_F8E5M2};

static struct shardfuzz_type type_of(const struct sf_op_place *place) {
  static const struct shardfuzz_type types[SF_DTYPE_COUNT] = {
      [SF_F32] = {SHARDFUZZ_CODE_FLOAT, 32, 1},  [SF_BF16] = {SHARDFUZZ_CODE_BFLOAT, 16, 1},     [SF_F16] = {SHARDFUZZ_CODE_FLOAT, 16, 1},
      [SF_F64] = {SHARDFUZZ_CODE_FLOAT, 64, 1}, [SF_F8E4M3] = {SHARDFUZZ_CODE_F8E4M3FN, 8, 1}, [SF_F8E5M2] = {SHARDFUZZ_CODE_F8E5M2, 8, 1}};
  if (place->element == SF_OP_INT32) return (struct shardfuzz_type){SHARDFUZZ_CODE_INT, 32, 1};
  if (place->element == SF_OP_UINT16) return (struct shardfuzz_type){SHARDFUZZ_CODE_UINT, 16, 1};
  return types[place->dtype];
}

/* Lists live on this stack frame: a plugin that keeps a pointer reads what is no longer there. */
int sf_op_plugin_call(void *context, const struct sf_op_entry *entry, struct sf_op_memory *memory, const struct sf_op_case *c) {
  const struct sf_op *op = memory->view.op;
  const struct shardfuzz_operation *declared = sf_plugin_operation(context, entry->declared);
  struct shardfuzz_tensor tensors[SF_OP_OPERANDS_MAX];
  struct shardfuzz_attribute attributes[SF_OP_ATTRS_MAX];
  int64_t shape[SF_OP_OPERANDS_MAX][2], strides[SF_OP_OPERANDS_MAX][2];
  memset(tensors, 0, sizeof tensors);
  for (int32_t i = 0; i < op->operand_count; i++) {
    const struct sf_op_place *place = &memory->places[i];
    shape[i][0] = place->rows, shape[i][1] = place->cols;
    strides[i][0] = place->ld, strides[i][1] = 1;
    tensors[i] = (struct shardfuzz_tensor){.data = place->at, .device = {1, 0}, .ndim = 2, .dtype = type_of(place), .shape = shape[i], .strides = strides[i]};
  }
  for (int32_t i = 0; i < op->attr_count; i++) {
    const int64_t value = c->field[SF_OP_ATTR + i];
    attributes[i] = (struct shardfuzz_attribute){op->attrs[i].name, value, op->attrs[i].reals ? (double)op->attrs[i].reals[value] : (double)value};
  }
  const struct shardfuzz_call call = {.size_bytes = sizeof call, .dtype = dtype_numbers[c->field[SF_OP_STORE]], .tensor_count = op->operand_count,
                                      .attribute_count = op->attr_count, .tensors = tensors, .attributes = attributes};
  return entry->backward ? declared->backward(&call) : declared->forward(&call);
}
