/* Names of traced tensors: s<step>/mb<microbatch>/<pass>/<kind>/<subject>/<call> (targets/trace_format.md). */
#ifndef SF_CHECK_TRACE_NAME_H
#define SF_CHECK_TRACE_NAME_H

#include "harness/base/status.h"
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

/* Writes the part of the subject that is the same in all layers: "mlp.experts.weight" for "decoder.layers.3.mlp.experts.1.weight" and for
 * "mtp.layers.0.transformer_layer.mlp.experts.1.weight"; what is too long ends in a hash. SF_ENOMEM: out is "". */
enum sf_status sf_trace_name_module(char *out, size_t size, const struct sf_trace_name *name) SF_MUST_USE;
/* The subject's first number that is no expert's: 3 of that one; -1 where it has none. */
int32_t sf_trace_name_layer(const struct sf_trace_name *name);

#endif
