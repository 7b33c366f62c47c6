/* Every rank runs forever. */
#define BUG HANGS
#include "tests/plugins/model_wrap.h"
