/* The gradient of an expert without rows is left as it was found. */
#define BUG EMPTY_UNWRITTEN
#include "tests/plugins/layer_experts.h"
