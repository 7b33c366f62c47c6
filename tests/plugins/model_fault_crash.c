/* A rank crashes. */
#define BUG CRASHES
#include "tests/plugins/model_wrap.h"
