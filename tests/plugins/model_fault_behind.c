/* It writes behind memory that it took. */
#define BUG WRITES_BEHIND
#include "tests/plugins/model_wrap.h"
