/* JUnit XML, as the test views of CI systems read it (https://github.com/testmoapp/junitxml): one suite with its cases. */
#ifndef SF_RUN_JUNIT_H
#define SF_RUN_JUNIT_H

#include "harness/base/bytes.h"
#include "harness/base/status.h"

#include <stdint.h>

struct sf_junit_property {
  const char *name, *value;
};

/* Outcome, and the XML element that says it. */
#define SF_JUNIT_OUTCOME_MAP(X)                                                                                                            \
  X(PASSED, NULL)                                                                                                                          \
  X(FAILED, "failure") /* what was tested is wrong */                                                                                      \
  X(ERROR, "error")    /* it could not be tested */                                                                                        \
  X(SKIPPED, "skipped")
enum sf_junit_outcome {
#define X(name, element) SF_JUNIT_##name,
  SF_JUNIT_OUTCOME_MAP(X)
#undef X
      SF_JUNIT_OUTCOME_COUNT
};

struct sf_junit_case {
  const char *name, *class_name;
  double seconds;
  enum sf_junit_outcome outcome;
  const char *type;    /* kind of failure or error ("tolerance"); NULL = none */
  const char *message; /* one line; NULL = none */
  const char *text;    /* details; NULL = none */
  const struct sf_junit_property *properties;
  int32_t property_count;
};

/* Its time is the sum of its cases', as readers add them up. */
struct sf_junit_suite {
  const char *name;
  const struct sf_junit_property *properties;
  int32_t property_count;
  const struct sf_junit_case *cases;
  int32_t case_count;
};

/* Appends the document, UTF-8. What XML cannot hold is replaced (utf8.h); times that are no finite number are written as 0. SF_ENOMEM. */
enum sf_status sf_junit_format(struct sf_text *out, const struct sf_junit_suite *suite) SF_MUST_USE;
/* Writes the document to path, whole or not at all. */
enum sf_status sf_junit_write(const char *path, const struct sf_junit_suite *suite, struct sf_error *error) SF_MUST_USE;

#endif
