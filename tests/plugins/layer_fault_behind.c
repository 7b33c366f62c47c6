/* Writes behind its output. */
#define BUG WRITES_BEHIND
#include "tests/plugins/layer_row.h"
