/* It hands over rows beyond the tensor. */
#define BUG FOREIGN_ROWS
#include "tests/plugins/model_wrap.h"
