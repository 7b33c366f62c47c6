/* Gradients are not summed over data-parallel ranks. */
#define BUG DP_LEFT_OUT
#include "tests/plugins/model_wrap.h"
