/* What a trial of an operation showed, as plain data. */
#ifndef SF_RUN_OP_OUTCOME_H
#define SF_RUN_OP_OUTCOME_H

#include "oracles/judge/judge.h"
#include "oracles/ops/judge.h"

struct sf_op_outcome {
  enum sf_verdict verdict;   /* a crash, a hang and a limit of the machine are told by the parent of the process that ran it */
  enum sf_finding_class cls; /* of a finding */
  int32_t operand;           /* -1: none */
  int64_t row, col;
  double got, want, bound; /* of a tolerance finding; bound before storing */
  int32_t code;            /* a signal, or what the function returned */
  int64_t judged, elements;
  struct sf_op_error error; /* of the operand, of a tolerance finding */
  char said[160]; /* GUARD: where; ROUNDING: the mode that was left; CRASH: what was touched beside an operand, else what had been printed
                     last; INCONCLUSIVE: which limit */
};

#endif
