/* The window is one key too wide. */
#define BUG WINDOW_TOO_WIDE
#include "tests/plugins/layer_attention.h"
