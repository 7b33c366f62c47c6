/* Keys of earlier documents are seen. */
#define BUG ACROSS_DOCUMENTS
#include "tests/plugins/layer_attention.h"
