/* The bias is added before the sum, so by every rank. */
#define BUG BIAS_ON_EVERY_RANK
#include "tests/plugins/layer_row.h"
