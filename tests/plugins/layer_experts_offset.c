/* Behind an expert without rows the rows of another one are read. */
#define BUG NEIGHBOURS_ROWS
#include "tests/plugins/layer_experts.h"
