/* The same whose keys and values pass round the ranks of context parallelism. */
#define RING 1
#include "tests/plugins/layer_attention.h"
