/* Returns an error for more than 8 tokens. */
#define BUG RETURNS_ERROR
#include "tests/plugins/layer_row.h"
