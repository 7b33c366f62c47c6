/* The all-reduce of the forward is left out. */
#define BUG NO_ALL_REDUCE
#include "tests/plugins/layer_row.h"
