/* It hands over a tensor that there is not. */
#define BUG UNKNOWN_TENSOR
#include "tests/plugins/model_wrap.h"
