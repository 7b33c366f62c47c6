/* Goes on rounding toward zero after it has returned. */
#define BUG LEAVES_ROUNDING
#include "tests/plugins/layer_row.h"
