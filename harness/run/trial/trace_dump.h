/* --trace DIR: writes what a run traced, one safetensors file per rank (rank-00000.safetensors), names = canonical ids, in
 * the format of targets/trace_format.md, for `shardfuzz check`. */
#ifndef SF_RUN_TRACE_DUMP_H
#define SF_RUN_TRACE_DUMP_H

#include "harness/run/trial/chunk_log.h"
#include "harness/spec/case.h"

/* Writes what a run of c has left in a log into a directory, which is made if need be; files of further ranks from an earlier run are
 * removed. SF_ENOMEM, SF_EIO: the log is not whole, or a file cannot be written. */
enum sf_status sf_trace_dump_log(const struct sf_chunk_log *log, const struct sf_case *c, const char *directory,
                                 struct sf_error *error) SF_MUST_USE;

#endif
