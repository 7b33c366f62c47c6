/* Operations at the gate: cases of the corpus, and a campaign in the place of one over layers. */
#ifndef SF_RUN_OP_GATE_H
#define SF_RUN_OP_GATE_H

#include "harness/run/opfuzz/op_campaign.h"
#include "harness/run/opfuzz/op_opened.h"

struct sf_op_gate_options {
  struct sf_op_run_options run;            /* of the corpus; target: a library in the place of those that its cases of plugins name */
  const struct sf_op_campaign_options *campaign; /* NULL: the gate fuzzes something else */
};

/* Whether a corpus file's case can be run. SF_EINPUT, SF_EUSAGE. */
enum sf_status sf_op_gate_check(const char *path, const struct sf_op_gate_options *options, struct sf_error *error) SF_MUST_USE;

struct sf_op_gate_answer {
  bool as_expected;
  bool is_gone;    /* a case of a plugin that passes although a finding was expected: the library has been mended */
  char expected[128], seen[128]; /* signatures; "" = none */
  char text[1400];               /* what was expected and what was seen, when it is not */
  double seconds;
};
enum sf_status sf_op_gate_replay(struct sf_op_gate_answer *out, const char *path, const struct sf_op_gate_options *options,
                                 struct sf_error *error) SF_MUST_USE;

#endif
