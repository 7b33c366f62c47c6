/* The first rank of tp sums one element less. */
#define BUG OTHER_COUNT
#include "tests/plugins/layer_row.h"
