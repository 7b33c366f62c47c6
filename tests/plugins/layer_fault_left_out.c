/* The first rank of tp leaves out the reduction. */
#define BUG LEAVES_RANK_OUT
#include "tests/plugins/layer_row.h"
