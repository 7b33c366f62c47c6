/* One rank leaves out a reduction. */
#define BUG LEAVES_RANK_OUT
#include "tests/plugins/model_wrap.h"
