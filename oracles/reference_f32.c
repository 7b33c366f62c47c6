#include "oracles/reference_impl.h"
