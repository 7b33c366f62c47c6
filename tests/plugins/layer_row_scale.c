/* The input's gradient is divided by the size of tp. */
#define BUG WRONG_SCALE
#include "tests/plugins/layer_row.h"
