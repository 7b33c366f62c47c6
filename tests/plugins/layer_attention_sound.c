/* Core attention without a bug. */
#define BUG SOUND
#include "tests/plugins/layer_attention.h"
