/* What an all-reduce brings is read before it was waited for. */
#define BUG READS_EARLY
#define ASYNC 1
#include "tests/plugins/layer_row.h"
