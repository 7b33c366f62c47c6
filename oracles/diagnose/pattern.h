/* Which tensors of a run are wrong, as a rule: "all 3 main gradients of biases from step 1 on are wrong". */
#ifndef SF_ORACLES_PATTERN_H
#define SF_ORACLES_PATTERN_H

#include "harness/spec/catalog.h"

enum { SF_PATTERN_TEXT = 200, SF_PATTERN_CLASS_TEXT = 96 };

/* A tensor that is wrong, or known to be right. */
struct sf_pattern_tensor {
  bool is_wrong;
  enum sf_kind kind;
  int64_t step, microbatch;        /* microbatch: 0 where the tensor is of all */
  int32_t layer;                   /* -1: none, or there is only one */
  char cls[SF_PATTERN_CLASS_TEXT]; /* what its module is called in all layers, "linear_qkv"; "" where it has none */
  bool is_norm, is_bias, is_expert;
  bool is_whole, is_cut; /* of parameters, and only where there is tensor parallelism: whether its ranks hold the same, or parts */
};

/* Says of the kind of tensor `first` which of its tensors are wrong, in the shortest rule that holds for all of these and for no right one.
 * first: the place of a wrong tensor among the `count`. "" where fewer than two are wrong, or no such rule holds. */
void sf_pattern_say(char out[SF_PATTERN_TEXT], const struct sf_pattern_tensor *tensors, int32_t count, int32_t first);

#endif
