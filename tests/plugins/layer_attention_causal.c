/* In the last block of a row the key behind the query is seen. */
#define BUG SEES_NEXT_KEY
#include "tests/plugins/layer_attention.h"
