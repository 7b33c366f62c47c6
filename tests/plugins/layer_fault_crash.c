/* One of two ranks aborts. */
#define BUG CRASHES
#include "tests/plugins/layer_row.h"
