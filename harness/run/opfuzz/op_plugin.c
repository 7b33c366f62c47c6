/* Which cases a plugin's entries take, and how a case is passed to it. */
#include "harness/run/opfuzz/op_device.h"
#include "targets/plugin/plugin.h"

#include <string.h>
#include <unistd.h>

/* Whether both take a common size of the dimension: a multiple of both numbers. */
static bool share_size(const struct sf_op_entry *a, const struct sf_op_entry *b, int32_t dim) {
  const int64_t least = a->op->dim_min[dim], max = a->dim_max[dim] < b->dim_max[dim] ? a->dim_max[dim] : b->dim_max[dim];
  const int64_t x = a->dim_multiple[dim], y = b->dim_multiple[dim];
  if (least <= 0) return true; /* 0 is a multiple of every number */
  for (int64_t size = (least + x - 1) / x * x; size <= max; size += x)
    if (size % y == 0) return true;
  return false;
}

static bool overlap(const struct sf_op_entry *a, const struct sf_op_entry *b) {
  if (a->op != b->op || !(a->stores & b->stores)) return false;
  for (int32_t i = 0; i < a->op->attr_count; i++)
    if (a->attr_fixed[i] >= 0 && b->attr_fixed[i] >= 0 && a->attr_fixed[i] != b->attr_fixed[i]) return false;
  for (int32_t i = 0; i < a->op->dim_count; i++)
    if (!share_size(a, b, i)) return false;
  return true;
}

enum sf_status sf_op_plugin_check_entry(const struct sf_op_target *target, const struct sf_op_entry *entry, struct sf_error *error) {
  for (int32_t i = 0; i < target->entry_count; i++)
    if (overlap(&target->entries[i], entry))
      return sf_error_set(
          error, SF_EINPUT,
          "operation %s is declared twice, with cases that both take: their formats, fixed attributes or limits must differ",
          entry->op->name);
  return SF_OK;
}

static const uint32_t dtype_numbers[SF_DTYPE_COUNT] = {
    [SF_F32] = SHARDFUZZ_F32, [SF_BF16] = SHARDFUZZ_BF16,     [SF_F16] = SHARDFUZZ_F16,
    [SF_F64] = SHARDFUZZ_F64, [SF_F8E4M3] = SHARDFUZZ_F8E4M3, [SF_F8E5M2] = SHARDFUZZ_F8E5M2};

static struct shardfuzz_type type_of(const struct sf_op_place *place) {
  static const struct shardfuzz_type types[SF_DTYPE_COUNT] = {
      [SF_F32] = {SHARDFUZZ_CODE_FLOAT, 32, 1},  [SF_BF16] = {SHARDFUZZ_CODE_BFLOAT, 16, 1},     [SF_F16] = {SHARDFUZZ_CODE_FLOAT, 16, 1},
      [SF_F64] = {SHARDFUZZ_CODE_FLOAT, 64, 1}, [SF_F8E4M3] = {SHARDFUZZ_CODE_F8E4M3FN, 8, 1}, [SF_F8E5M2] = {SHARDFUZZ_CODE_F8E5M2, 8, 1}};
  if (place->element == SF_OP_INT32) return (struct shardfuzz_type){SHARDFUZZ_CODE_INT, 32, 1};
  if (place->element == SF_OP_UINT16) return (struct shardfuzz_type){SHARDFUZZ_CODE_UINT, 16, 1};
  return types[place->dtype];
}

/* Lists live in this stack frame: a plugin that keeps a pointer reads memory that is gone. */
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
    tensors[i] = (struct shardfuzz_tensor){
        .data = place->at, .device = {1, 0}, .ndim = 2, .dtype = type_of(place), .shape = shape[i], .strides = strides[i]};
  }
  for (int32_t i = 0; i < op->attr_count; i++) {
    const int64_t value = c->field[SF_OP_ATTR + i];
    attributes[i] =
        (struct shardfuzz_attribute){op->attrs[i].name, value, op->attrs[i].reals ? (double)op->attrs[i].reals[value] : (double)value};
  }
  const struct shardfuzz_call call = {.size_bytes = sizeof call,
                                      .dtype = dtype_numbers[c->field[SF_OP_STORE]],
                                      .tensor_count = op->operand_count,
                                      .attribute_count = op->attr_count,
                                      .tensors = tensors,
                                      .attributes = attributes};
  const pid_t process = getpid();
  const int result = entry->backward ? declared->backward(&call) : declared->forward(&call);
  if (getpid() != process) _exit(0); /* this is a process that the plugin forked */
  return result;
}
