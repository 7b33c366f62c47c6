/* One case run and judged: twice with the same inputs, guards and inputs compared with what they were, outputs with the reference. */
#ifndef SF_RUN_OP_TRIAL_H
#define SF_RUN_OP_TRIAL_H

#include "harness/run/opfuzz/op_memory.h"
#include "oracles/ops/judge.h"

/* What a trial showed, by falling precedence. A crash, a hang and a limit of the machine are told by the parent of the process that ran it.
 */
#define SF_OP_CLASS_MAP(X)                                                                                                                 \
  X(SF_OP_PASSED, "pass", "nothing is wrong")                                                                                              \
  X(SF_OP_SKIPPED, "skip", "the plugin does not take the case")                                                                            \
  X(SF_OP_INCONCLUSIVE, "inconclusive", "a limit of the machine ended its process")                                                        \
  X(SF_OP_TOLERANCE, "tolerance", "an element is outside of its error interval")                                                           \
  X(SF_OP_UNWRITTEN, "unwritten", "an element of an output still holds what was there before")                                             \
  X(SF_OP_GUARD, "guard", "a write beside an operand")                                                                                     \
  X(SF_OP_INPUT_CHANGED, "input", "an input was changed")                                                                                  \
  X(SF_OP_UNREPEATABLE, "unrepeatable", "a second run of the same inputs gave other bits")                                                 \
  X(SF_OP_ROUNDING, "rounding", "the thread's floating-point mode was left changed")                                                       \
  X(SF_OP_REFUSED, "refused", "the function returned an error")                                                                            \
  X(SF_OP_CRASH, "crash", "the process died")                                                                                              \
  X(SF_OP_HANG, "hang", "no end within the deadline")
enum sf_op_class {
#define X(constant, text, meaning) constant,
  SF_OP_CLASS_MAP(X)
#undef X
      SF_OP_CLASS_COUNT
};
const char *sf_op_class_name(enum sf_op_class cls);
static inline bool sf_op_is_finding(enum sf_op_class cls) { return cls >= SF_OP_TOLERANCE; }

struct sf_op_outcome {
  int32_t cls;     /* enum sf_op_class */
  int32_t operand; /* -1: none */
  int64_t row, col;
  double got, want, bound; /* of a tolerance finding; bound before storing */
  int32_t code;            /* a signal, or what the function returned */
  int64_t judged, elements;
  struct sf_op_error error; /* of the operand, of a tolerance finding */
  char said[160]; /* GUARD: where; ROUNDING: the mode that was left; CRASH: what was touched beside an operand, else what had been printed
                     last; INCONCLUSIVE: which limit */
};

/* What is under test. returns 0, 1 for a case that is not for it, or another number. */
struct sf_op_runner {
  int (*call)(void *context, const struct sf_op_entry *entry, struct sf_op_memory *memory, const struct sf_op_case *c);
  void *context;
};

/* c: valid for the target, with at most the memory's capacity. measure: also fills outcome->error of what passed, for the operand that is
 * off by most ulps. */
void sf_op_trial_run(struct sf_op_outcome *outcome, struct sf_op_memory *memory, const struct sf_op_runner *runner,
                     const struct sf_op_target *target, const struct sf_op_case *c, bool measure);

/* "tolerance/norm_fwd/y": what shrinking keeps and findings are counted by. */
void sf_op_signature(char *out, size_t size, const struct sf_op *op, const struct sf_op_outcome *outcome);
/* Several lines that say what was found, or that nothing was. replay_path: NULL, or the case's file, to say how to replay it; with
 * replay_options, which may be NULL. */
void sf_op_report(struct sf_text *out, const struct sf_op_target *target, const struct sf_op_case *c, const struct sf_op_outcome *outcome,
                  const char *replay_path, const char *replay_options);

#endif
