/* With context parallelism each rank takes its tokens for contiguous ones. */
#define BUG CONTIGUOUS_CHUNKS
#include "tests/plugins/layer_attention.h"
