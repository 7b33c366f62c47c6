/* What a case means in ranks: mesh, groups, per-rank shapes, memory. */
#ifndef SF_RUN_DESCRIBE_H
#define SF_RUN_DESCRIBE_H

#include "harness/base/bytes.h"
#include "harness/spec/case.h"

/* Appends the description for people. SF_ENOMEM, or SF_EINPUT for a case that is not valid. */
enum sf_status sf_describe_case(struct sf_text *out, const struct sf_case *c, struct sf_error *error) SF_MUST_USE;

#endif
