/* Changes a weight. */
#define BUG CHANGES_WEIGHT
#include "tests/plugins/layer_row.h"
