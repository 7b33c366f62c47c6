/* The mask of a shard lets its last row not through. */
#define BUG LAST_ROW_MASKED
#include "tests/plugins/layer_embedding.h"
