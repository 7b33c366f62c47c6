/* A word that occurs several times has the gradient of its last place. */
#define BUG DUPLICATES_LOST
#include "tests/plugins/layer_embedding.h"
