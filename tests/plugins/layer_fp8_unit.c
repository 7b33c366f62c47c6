/* The weight's unit is forgotten. */
#define BUG UNIT_FORGOTTEN
#include "tests/plugins/layer_fp8.h"
