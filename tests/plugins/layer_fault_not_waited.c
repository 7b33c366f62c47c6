/* An all-reduce is started and never waited for. */
#define BUG NEVER_WAITS
#define ASYNC 1
#include "tests/plugins/layer_row.h"
