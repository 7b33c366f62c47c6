#include "harness/run/support/version.h"

#include "sf_commit.h" /* made at build time (ci/commit.cmake) */

const char *sf_version(void) { return SF_VERSION; }
const char *sf_version_commit(void) { return SF_COMMIT; }
