#define SF_REFERENCE_DOUBLE 1
#include "oracles/reference_impl.h"
