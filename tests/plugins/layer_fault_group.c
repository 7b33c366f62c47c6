/* Sums over a group that does not exist. */
#define BUG NO_SUCH_GROUP
#include "tests/plugins/layer_row.h"
