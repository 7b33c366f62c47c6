/* Names of traced tensors: s<step>/mb<microbatch>/<pass>/<kind>/<subject>/<call> (targets/trace_format.md). */
#ifndef SF_CHECK_TRACE_NAME_H
#define SF_CHECK_TRACE_NAME_H

#include "harness/spec/catalog.h"

struct sf_trace_name {
  int64_t step, microbatch;
  enum sf_pass pass;
  enum sf_kind kind;
  const char *subject; /* inside the name, not terminated */
  int32_t subject_length;
};

/* False when text is no such name. A call may be followed by #N: the Nth tensor under that name. */
bool sf_trace_name_parse(struct sf_trace_name *out, const char *text);
/* Whether the name's subject is this text, whole. */
bool sf_trace_name_is_subject(const struct sf_trace_name *name, const char *subject);

#endif
