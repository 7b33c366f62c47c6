/* A row-parallel linear without a bug. */
#define BUG SOUND
#include "tests/plugins/layer_row.h"
