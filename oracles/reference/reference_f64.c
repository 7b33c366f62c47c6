#define SF_REFERENCE_DOUBLE 1
#include "oracles/reference/reference_impl.h"
