/* Experts without a bug. */
#define BUG SOUND
#include "tests/plugins/layer_experts.h"
