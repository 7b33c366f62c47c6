/* A linear with products of fp8, without a bug. */
#define BUG SOUND
#include "tests/plugins/layer_fp8.h"
