/* The oracle proper: collects what the ranks traced, checks its structure, compares it with the expectations, judges the optimizer step
 * from the candidate's own inputs, and orders what it found. Recipe and measurements: harness/docs/tolerance.md and
 * tests/bench/RESULTS.md. */
#ifndef SF_ORACLES_JUDGE_H
#define SF_ORACLES_JUDGE_H

#include "oracles/noise/expect.h"

/* X(constant, name, what it means to who reads a report) */
#define SF_CLASS_MAP(X)                                                                                                                    \
  X(NONFINITE, "nonfinite", "a NaN or an infinity where the reference has a number")                                                       \
  X(GAP, "gap", "elements that no rank holds")                                                                                             \
  X(OVERLAP, "overlap", "elements or tensors that a rank hands over although they are not its own, or hands over twice")                   \
  X(MAP, "map", "a tensor of the wrong shape, or a shard that is not the one that the rank must hold")                                     \
  X(CONFLICT, "conflict", "copies on several ranks that must be equal, and are not")                                                       \
  X(EXACT, "exact", "a wrong value where nothing rounds: small integers, copies, counters")                                                \
  X(TOLERANCE, "tolerance", "an error that rounding does not explain")                                                                     \
  X(BITS, "bits", "values that lie on the grid of a lower precision than promised")                                                        \
  X(UNWRITTEN, "unwritten", "of an operation: an element of an output still holds what was there before")                                  \
  X(GUARD, "guard", "of an operation: a write beside an operand")                                                                          \
  X(INPUT, "input", "of an operation: an input was changed")                                                                               \
  X(UNREPEATABLE, "unrepeatable", "of an operation: a second run of the same inputs gave other bits")                                      \
  X(ROUNDING, "rounding",                                                                                                                  \
    "a number rounded once more or once less than promised; of an operation: it left the thread's rounding mode changed")                  \
  X(REFUSED, "refused", "of an operation: the function returned an error")                                                                 \
  X(DEADLOCK, "deadlock", "ranks wait for each other for ever")                                                                            \
  X(MISMATCH, "mismatch", "ranks called different collectives, or one with different arguments")                                           \
  X(CRASH, "crash", "a program died, failed, or touched memory that it must not")                                                          \
  X(PROTOCOL, "protocol", "a worker's answer or trace is not what the protocol says")                                                      \
  X(HANG, "hang", "no end within the deadline")                                                                                            \
  X(FLAKY, "flaky", "a finding that did not show again in the same way; kept and counted, but not shrunk")
enum sf_finding_class {
#define X(name, text, meaning) SF_CLASS_##name,
  SF_CLASS_MAP(X)
#undef X
      SF_CLASS_COUNT
};
const char *sf_finding_class_name(enum sf_finding_class cls); /* the text above */

struct sf_finding {
  enum sf_finding_class cls;
  struct sf_trace_id id;
  int32_t module,
      ordinal;  /* the module to blame (index in the catalogue); ordinal in the reference's order, past its end for tensors that it lacks */
  int32_t rank; /* the rank concerned, -1 = the merged tensor */
  int64_t row;  /* worst row, -1 = whole tensor */
  double error, noise, ratio; /* absolute error, noise level, error / noise; by the worse of tensor and row */
  bool anchored;              /* compared with what the reference makes of the candidate's own tensors: its module made it wrong */
  char text[160];
};

enum { SF_DISTANCE_TEXT = 128 };
/* "error norm 0.76, reference norm 4.62 (16 %); rounding explains at most 1.1e-06". norm: NaN where it is not known. Returns out. */
const char *sf_distance_text(char out[SF_DISTANCE_TEXT], double error, double norm, double noise);

/* How one tensor fared; for tables, measurements and `--table`. */
struct sf_tensor_result {
  struct sf_trace_id id;
  const struct sf_expected *expected;
  double norm, noise;          /* of what it was compared with, and the noise level that was enough or all there is */
  double fro_ratio, row_ratio; /* error / noise, tensor and worst row */
  enum sf_level level;         /* of the perturbed runs that the noise level is of; NONE for kinds that are not judged by any */
  double rounding_share;       /* of rounding.c's alarm; 0 where bits need not agree, and where all do */
  bool judged;                 /* false: vacuous or ill-conditioned */
  bool flagged;
  const char *why_not; /* "ill-conditioned", "zero", "values alike", "overflow", "other loss scale", ..; NULL when judged */
};

/* The error of a tensor over what is allowed, of the whole or of its worst row; NaN where it is not a number. */
double sf_tensor_share(const struct sf_tensor_result *result);

struct sf_collector;
/* Collects the trace of one candidate run of case c (its layout decides who must hold what). expectations may be shared by several. */
enum sf_status sf_collector_create(struct sf_collector **out, const struct sf_case *c, struct sf_expectations *expectations) SF_MUST_USE;
void sf_collector_destroy(struct sf_collector *collector); /* takes NULL */
/* Ready for another layout of the same logical case; memory is kept. After SF_ENOMEM the collector can only be reset again or destroyed. */
enum sf_status sf_collector_reset(struct sf_collector *collector, const struct sf_case *c) SF_MUST_USE;
/* Whether the target rounds where the reference does and nowhere else, on a device whose orders of sums were measured: then tensors of
 * fewer bits than fp32 are also judged by how many of their elements differ at all (rounding.c). No, until this is called. */
void sf_collector_rounds_alike(struct sf_collector *collector, bool alike);
/* One rank's part of one tensor, as it arrived at the trace point; data is copied. Ranks may come in any order, one rank's in program
 * order: the judgement does not depend on it. Memory failure is remembered and reported by sf_judge. */
void sf_collector_add(struct sf_collector *collector, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map,
                      const float *data, int64_t rows, int64_t cols);
/* Merged logical tensor of an id, or NULL when not every rank's part of it arrived (or for a recomputed activation, which is compared as it
 * arrives and not kept). Of several replicas it is the lowest rank's; partial sums are added in rank order. */
const float *sf_collector_tensor(const struct sf_collector *collector, struct sf_trace_id id);

/* quick: from now on few perturbed runs decide about a tensor that is far beyond its bound. It is meant for shrinking: the failure was
 * judged with more of them before, and the smallest case is judged so afterwards. */
void sf_collector_be_quick(struct sf_collector *collector, bool quick);

struct sf_judgement {
  enum sf_verdict verdict;
  int32_t finding_count; /* ordered: the first is where the run first went wrong */
  struct sf_finding *findings;
  int32_t result_count; /* one per tensor compared */
  struct sf_tensor_result *results;
  int32_t checked, unchecked; /* tensors judged / not judged */
};
/* Compares everything that the collector has, and raises the expectations' level when something looks suspicious (adaptive draws).
 * complete: the run ended normally, so missing tensors are gaps. The result's memory belongs to the collector, until the next reset or
 * judgement. */
enum sf_status sf_judge(struct sf_collector *collector, bool complete, struct sf_judgement *out) SF_MUST_USE;

/* The safety factors of the recipe: the only place where they stand. row_e2e: of a framework's whole runs. */
struct sf_factors {
  double fro, row_e2e, row_isolated, ill_conditioned, norm_rel, loss_rel, adam_rel;
  /* Of the part of an error that lies along the tensor, where whole runs are compared by at least so many draws. Source: measured,
   * harness/docs/tolerance.md (traces that cannot be made again). */
  double along;
  int32_t along_draws;
  /* What a sum in fp32 may be off by in another order of its terms, in units of its roundoff, without a perturbed run that says so: far
   * less than any mistake, and most tensors of an anchored comparison then need no such run. */
  double sum_ulps;
  /* Of tensors whose bits should agree: the share of a row's elements that may differ, the share of the rows that may have more, and the
   * least number of rows, no two of them equal, that must have more. */
  double rounding_row, rounding_rows;
  int32_t rounding_rows_min;
};
extern const struct sf_factors sf_factors;
/* The factor by which distances of few draws are widened, since the largest of few is too small by chance; 1 from nine draws on. Source:
 * measured, harness/docs/tolerance.md (few perturbed runs) and tests/bench/oracles/bench_draws.py. */
double sf_draws_widening(int64_t draws);

#endif
