/* An embedding gradient that keeps one of the rows with the same index. */
#include "tests/plugins/kernel.h"

static int backward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *ids = &call->tensors[1], *dw = &call->tensors[2];
  for (int64_t r = 0; r < dy->shape[0]; r++) {
    const int64_t word = get_int(ids, 0, r) - whole(call, "first");
    bool last = true;
    for (int64_t k = r + 1; k < dy->shape[0] && last; k++) last = get_int(ids, 0, k) != get_int(ids, 0, r); /* the bug */
    for (int64_t j = 0; last && word >= 0 && word < dw->shape[0] && j < dy->shape[1]; j++)
      put(dw, word, j, get(dw, word, j) + get(dy, r, j));
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "embedding", .dtypes = FORMATS, .takes = TAKES_ALL, .backward = backward}};
PLUGIN(operations)
