/* --trace DIR: writes what a run traced, one safetensors file per rank (rank-00000.safetensors), names = canonical ids, in
 * the format of targets/trace_format.md, for `shardfuzz check`. */
#ifndef SF_RUN_TRACE_DUMP_H
#define SF_RUN_TRACE_DUMP_H

#include "harness/run/trial/chunk_log.h"
#include "harness/spec/case.h"

struct sf_trace_dump;
/* Copies the case. SF_ENOMEM. */
enum sf_status sf_trace_dump_create(struct sf_trace_dump **out, const struct sf_case *c) SF_MUST_USE;
/* Copies the tensor. Memory failure is remembered for _save. */
void sf_trace_dump_add(struct sf_trace_dump *dump, const struct sf_catalog *catalog, int32_t rank, struct sf_trace_id id,
                       const struct sf_shard_map *map, const float *data, int64_t rows, int64_t cols);
/* Writes all ranks' files into a directory, which is made if need be; files of further ranks from an earlier run are removed. */
enum sf_status sf_trace_dump_save(struct sf_trace_dump *dump, const char *directory, struct sf_error *error) SF_MUST_USE;
void sf_trace_dump_destroy(struct sf_trace_dump *dump); /* takes NULL */

/* All of the above for what a run of c has left in a log. */
enum sf_status sf_trace_dump_log(const struct sf_chunk_log *log, const struct sf_case *c, const char *directory,
                                 struct sf_error *error) SF_MUST_USE;

#endif
