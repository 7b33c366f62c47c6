/* The gradient norm sums data-parallel replicas too. */
#define BUG NORM_OVER_WORLD
#include "tests/plugins/model_wrap.h"
