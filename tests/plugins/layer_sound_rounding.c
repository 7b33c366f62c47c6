/* Rounds toward zero while it waits for the other ranks, and puts that back. */
#define BUG ROUNDS_INSIDE
#include "tests/plugins/layer_row.h"
