/* The bias's gradient is summed over tp here, and once more at the end of the step. */
#define BUG BIAS_GRAD_TWICE
#include "tests/plugins/layer_row.h"
