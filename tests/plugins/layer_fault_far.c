/* Writes 60,000 bytes behind its output. */
#define BUG WRITES_FAR
#include "tests/plugins/layer_row.h"
