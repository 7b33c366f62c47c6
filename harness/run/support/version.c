#include "harness/run/support/version.h"

/* The build gives both (harness/run/CMakeLists.txt). */
const char sf_version[] = SF_VERSION;
const char sf_version_commit[] = SF_COMMIT;
