/* When the running maximum changes, the context summed so far is not multiplied. */
#define BUG NO_RESCALE
#include "tests/plugins/layer_attention.h"
