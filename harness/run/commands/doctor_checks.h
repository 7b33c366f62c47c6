/* What of this machine shardfuzz can use, and what to do about what it lacks. */
#ifndef SF_RUN_DOCTOR_CHECKS_H
#define SF_RUN_DOCTOR_CHECKS_H

#include "harness/base/status.h"

#include <stdint.h>

/* How a check came out. */
#define SF_HEALTH_MAP(X)                                                                                                                   \
  X(SF_HEALTH_OK, "ok", "it is there")                                                                                                     \
  X(SF_HEALTH_ABSENT, "absent", "it is not there, and only some options need it")                                                          \
  X(SF_HEALTH_PROBLEM, "problem", "a campaign with default options needs it")
#define SF_HEALTH_ENUM(constant, text, meaning) constant,
enum sf_health { SF_HEALTH_MAP(SF_HEALTH_ENUM) SF_HEALTH_COUNT };
#undef SF_HEALTH_ENUM

struct sf_health_check {
  const char *name;
  enum sf_health health;
  char found[320];  /* what is there, or why it is not */
  char advice[320]; /* what to do; empty if all is well */
};
enum { SF_HEALTH_CHECKS_MAX = 40 };

/* "ok", "absent", "problem". */
const char *sf_health_name(enum sf_health health);
/* Looks at the machine and returns the number of checks. Starts processes that end at once (GPU, Python), and writes a temporary file. */
int32_t sf_health_checks(struct sf_health_check out[SF_HEALTH_CHECKS_MAX]);

#endif
