/* A row-parallel linear without a bug that starts its reductions and waits for them. */
#define BUG SOUND
#define ASYNC 1
#include "tests/plugins/layer_row.h"
