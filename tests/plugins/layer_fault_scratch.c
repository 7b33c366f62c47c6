/* Writes behind its scratch memory. */
#define BUG WRITES_BEHIND_SCRATCH
#include "tests/plugins/layer_row.h"
