/* The engine runs one trial after the other in this process: reference (shared by cases of one logical function), candidate, judgement. */
#ifndef SF_RUN_ENGINE_H
#define SF_RUN_ENGINE_H

#include "harness/comm/mpi.h"
#include "harness/device/device.h"
#include "harness/run/trial/outcome.h"
#include "targets/target.h"

struct sf_chunk_log;
struct sf_evidence;

struct sf_engine_options {
  enum sf_device_kind device;          /* the candidate's; the reference is computed on the CPU, but for large products */
  enum sf_cpu_gemm
      gemm; /* of the candidate's device; the reference uses BLAS (or loops where there is none) for what does not go to the device */
  struct sf_mpi *mpi;                  /* NULL: simulated ranks */
  int32_t mpi_first;                   /* first of the ranks of the job that a trial uses (sf_engine_set_ranks) */
  struct sf_comm_progress *progress;   /* may be NULL */
  volatile uint64_t *trace_key;        /* NULL, or where the key of the trace point just passed and its rank are noted */
  volatile int32_t *trace_rank;
  volatile int32_t *is_own;            /* NULL, or where is noted whether the engine's own part of a trial runs, and no code under test */
  double max_memory;                   /* bytes; a case that takes more is skipped (case_size.h). 0: no limit */
  double device_memory;                /* bytes of a GPU that the engine may take; 0: what is free now */
  bool hash_trace, measure;
};

/* Costs of the engine's life so far, in seconds of wall time. */
struct sf_engine_costs {
  int64_t trials, references, raised;  /* raised: candidates that needed more draws than the first */
  int64_t raised_runs;                  /* runs of the reference for them; their time is part of judge */
  double reference, candidate, collect, judge; /* collect (and the filling of isolated mode) is part of candidate under sim */
  double comm_reduce, comm_schedule;   /* of sim, with `measure` */
};

struct sf_engine;
/* Copies the options; what they point to must outlive the engine. SF_ENOMEM, or as sf_device_create. */
enum sf_status sf_engine_create(struct sf_engine **out, const struct sf_engine_options *options) SF_MUST_USE;
void sf_engine_destroy(struct sf_engine *engine); /* takes NULL */

/* Runs case c. It never fails: outcome->status says what went wrong in the harness. Under MPI every rank of the engine's range makes this
 * call with the same case; the outcome is complete on the first of them only, which judges. record: NULL, or a log that keeps everything
 * that is judged here, as it was traced. A crash of the target takes the process with it; use a worker (worker.h) where that must not
 * happen. */
void sf_engine_run(struct sf_engine *engine, const struct sf_case *c, struct sf_chunk_log *record, struct sf_outcome *outcome);

/* Diagnoses the finding of the outcome, which is that of the trial just run: fills outcome->diagnosis. c: the trial's case. record: NULL,
 * or a log of that trial. Without a log, simulated ranks run the case once more and keep the failing tensor's shards, and MPI ranks
 * diagnose nothing. The last trial's judgement stays valid. There is no diagnosis when the second run takes another way, or memory is out.
 */
void sf_engine_diagnose(struct sf_engine *engine, const struct sf_case *c, const struct sf_chunk_log *record, struct sf_outcome *outcome);
/* The same, and fills a zeroed evidence with what the judgement saw, the finding's tensor as a picture (evidence.h). It stays zeroed when
 * memory is out. */
void sf_engine_show(struct sf_engine *engine, const struct sf_case *c, const struct sf_chunk_log *record, struct sf_evidence *evidence,
                    struct sf_outcome *outcome);

/* Judges the trial just run by the flat bound (oracles/judge/flat_bound.h): fills outcome->flat, if the trial was compared here. */
void sf_engine_flat_bound(const struct sf_engine *engine, struct sf_outcome *outcome);

/* Whether the next trials are judged quickly (sf_collector_be_quick). */
void sf_engine_be_quick(struct sf_engine *engine, bool quick);
/* MPI: the range of ranks that the next trials use; the first of them judges. */
void sf_engine_set_ranks(struct sf_engine *engine, int32_t first);

/* Everything the last trial's comparison said; valid until the next trial. finding_count and result_count are 0 if it was not compared. */
const struct sf_judgement *sf_engine_judgement(const struct sf_engine *engine);
/* Of the last trial's case; valid until the next trial. NULL before the first. */
const struct sf_catalog *sf_engine_catalog(const struct sf_engine *engine);
const struct sf_engine_costs *sf_engine_costs(const struct sf_engine *engine); /* lives as long as the engine */

/* Called at each trace point of the candidate, before recording and filling. The collector sees what it writes; end to end the target goes
 * on with it. Benches corrupt tensors with it. */
typedef void (*sf_engine_tamper)(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                                 int64_t cols);
/* NULL switches it off. ctx is borrowed until the next call. */
void sf_engine_set_tamper(struct sf_engine *engine, sf_engine_tamper tamper, void *ctx);

/* Seconds on the monotonic clock. */
double sf_engine_now(void);

#endif
