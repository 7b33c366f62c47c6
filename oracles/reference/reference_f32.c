#include "oracles/reference/reference_impl.h"
