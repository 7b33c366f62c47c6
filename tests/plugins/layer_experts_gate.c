/* Where experts are cut over etp, gate and up have changed places. */
#define BUG GATE_UP_SWAPPED
#include "tests/plugins/layer_experts.h"
