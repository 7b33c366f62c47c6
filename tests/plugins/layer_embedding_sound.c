/* A word embedding without a bug. */
#define BUG SOUND
#include "tests/plugins/layer_embedding.h"
