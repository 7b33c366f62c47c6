/* The input's gradient of column-parallel linears is not summed. */
#define BUG NO_BACKWARD_REDUCE
#include "tests/plugins/model_wrap.h"
