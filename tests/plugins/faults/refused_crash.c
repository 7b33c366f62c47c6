/* Crashes as soon as it is asked what it declares. */
#include "tests/plugins/kernel.h"

#include <stdlib.h>

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) { abort(); }
