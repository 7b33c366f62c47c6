/* Does not come back for more than 16 tokens. */
#define BUG HANGS
#include "tests/plugins/layer_row.h"
