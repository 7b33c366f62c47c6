/* Frees memory that it only borrows. */
#define BUG FREES_INPUT
#include "tests/plugins/layer_row.h"
