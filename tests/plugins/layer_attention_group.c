/* The gradients of a key and a value have what one of its group's query heads gives, not the sum. */
#define BUG ONE_HEADS_GRAD
#include "tests/plugins/layer_attention.h"
