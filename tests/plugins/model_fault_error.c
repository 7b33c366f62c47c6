/* It returns an error. */
#define BUG RETURNS_ERROR
#include "tests/plugins/model_wrap.h"
