/* The all-reduce of row-parallel linears is left out. */
#define BUG NO_ROW_REDUCE
#include "tests/plugins/model_wrap.h"
