/* Leaves two processes behind, one of which comes back as well; then one of two ranks kills its process group. */
#define BUG FORKS
#include "tests/plugins/layer_row.h"
