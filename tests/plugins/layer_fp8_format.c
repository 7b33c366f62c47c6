/* The gradient is cast to E4M3. */
#define BUG GRAD_IN_E4M3
#include "tests/plugins/layer_fp8.h"
