/* What one trial showed, as plain data: it crosses process borders and lands in the store and in reports. */
#ifndef SF_RUN_OUTCOME_H
#define SF_RUN_OUTCOME_H

#include "harness/base/bytes.h"
#include "harness/comm/comm.h"
#include "harness/run/evidence/tally.h"
#include "harness/run/opfuzz/op_outcome.h"
#include "harness/run/trial/pattern.h"
#include "harness/run/trial/signature.h"
#include "oracles/diagnose/diagnose.h"
#include "oracles/judge/flat_bound.h"

/* A key holds class, kind and module, "tolerance/main_grad/" and 95 bytes, and the mode; a signature the axes too, and both a name in a
 * folder. */
enum { SF_SHRINK_KEY_TEXT = 160, SF_MODULE_TEXT = 96, SF_TENSOR_NAME_TEXT = 480 };
#define SF_KEY_ISOLATED "+isolated" /* behind a shrink key */

/* A wrong tensor of a case, beside the one that the outcome is about. It is wrong by itself, whatever its module was given. Fields as in
 * struct sf_outcome. */
struct sf_culprit {
  enum sf_finding_class cls;
  char shrink_key[SF_SHRINK_KEY_TEXT], signature[SF_SIGNATURE_TEXT], first_id[SF_TENSOR_NAME_TEXT], module[SF_MODULE_TEXT], text[480];
  int32_t kind, module_class, finding, rank;
  int64_t row;
  double error, noise, ratio;
  struct sf_diagnosis diagnosis;
};
enum { SF_FURTHER_MAX = 7, SF_SHOWN_TEXT = 3072 };

struct sf_outcome {
  enum sf_status status; /* SF_OK, or why the harness could not judge the case; then nothing below holds but `text` */
  enum sf_verdict verdict;
  bool lacked;               /* of INCONCLUSIVE: the machine lacked something, such as memory; another run may well have it */
  enum sf_finding_class cls; /* of the finding that is told of, the first one unless sf_outcome_turn_to chose another; this and all below
                                only when verdict is FINDING */
  enum sf_manner manner;     /* of a failure; else SF_MANNER_NONE */
  char shrink_key[SF_SHRINK_KEY_TEXT]; /* class/kind/module class, or class/comm-manner/label: what shrinking must keep */
  char signature[SF_SIGNATURE_TEXT];   /* sf_signature_make */
  char first_id[SF_TENSOR_NAME_TEXT];  /* canonical id of the tensor; "" for findings without one. What is too long, here and below, ends in
                                          a hash (base/names.h) */
  int32_t kind, module_class;          /* enum sf_kind, enum sf_module_class; -1 = none */
  char module[SF_MODULE_TEXT];         /* name of the module to blame, or the layer part of a communication label */
  char label[96];                      /* communication label for deadlock, mismatch, crash, hang */
  int32_t rank;                        /* -1 = all of them */
  int64_t row;
  double error, noise, ratio;
  int32_t finding; /* its place among the judgement's findings; 0 for what has none */
  int32_t finding_count;
  int32_t further_count; /* culprits beside it, each with a shrink key of its own */
  struct sf_culprit further[SF_FURTHER_MAX];
  char pattern[SF_PATTERN_TEXT]; /* sf_pattern_of; "" where there is none */
  char shown[SF_SHOWN_TEXT];     /* the shrink keys of all wrong tensors of the case, culprits or not, a line each; as many as fit */
  char text[1200];               /* one paragraph for people; also the reason of a SKIP or INCONCLUSIVE */
  struct sf_diagnosis
      diagnosis; /* what the error looks like; text "" where nobody asked or nothing can be said. In no key, in no signature */
  struct sf_op_outcome operation; /* of a case of an operation */
  /* always */
  int32_t ranks, checked, unchecked;
  struct sf_tally tally;
  int64_t mutant_fired;       /* calls that a mutant changed, over all ranks */
  uint64_t mutant_outputs;    /* hash of what those calls gave, rank by rank */
  uint64_t trace_hash;        /* over every traced byte in order; 0 unless asked for */
  struct sf_flat_result flat; /* zero unless asked for, and where nothing was compared */
  bool flat_finds_plant;      /* flat.beyond > 0, and without the plant it would be 0 */
  double seconds;             /* wall time of the trial, its share of the reference included */
};

/* Fills class, key, signature, names and numbers from a judgement with findings: those of the first finding. It adds the other tensors that
 * are wrong by themselves, one for each tensor and each shrink key, as many as there is room for: those up to the first from which later
 * ones may follow. In isolated mode that is one that no given tensor replaced, end to end one that was not compared with what the
 * reference makes of the candidate's own tensors. */
void sf_outcome_from_judgement(struct sf_outcome *out, const struct sf_case *c, const struct sf_catalog *catalog,
                               const struct sf_judgement *judgement);
/* Makes the outcome one about this culprit: fills in what the two structs share. */
void sf_outcome_tell_of(struct sf_outcome *out, const struct sf_culprit *culprit);
/* The culprit that the outcome is about. */
struct sf_culprit sf_outcome_told_of(const struct sf_outcome *outcome);
/* Adds a culprit unless its key is there already, or there is no room. */
void sf_outcome_add_culprit(struct sf_outcome *out, const struct sf_culprit *culprit);
/* Makes the outcome one about its culprit with this shrink key (sf_outcome_same_failure); the one it was about takes that culprit's place.
 * False: the outcome is not a finding or has no such culprit, and stays as it is. */
bool sf_outcome_turn_to(struct sf_outcome *outcome, const char *shrink_key);
/* The same with the culprit that a case expects, if it is there. */
void sf_outcome_turn_to_expected(struct sf_outcome *outcome, const struct sf_expect *expect);
/* A copy that is about culprit number `which`: 0 the one it is about now, the others as they stand in `further`. */
struct sf_outcome sf_outcome_of_culprit(const struct sf_outcome *outcome, int32_t which);
/* A finding that is not numerical: the communicator's report, a crash or a hang. label and text are copied. */
void sf_outcome_from_failure(struct sf_outcome *out, const struct sf_case *c, enum sf_finding_class cls, enum sf_manner manner,
                             int32_t rank, const char *label, const char *text);
/* Whether MPI ranks that saw this cannot go on: the communication under test failed on them, or they themselves did. A case that every
 * rank refuses alike (SF_EINPUT) does not break them. */
bool sf_outcome_breaks_ranks(const struct sf_outcome *outcome);
/* Whether a failure of this class cut the run off: a program died, or a worker said what it must not. */
static inline bool sf_class_cuts_off(enum sf_finding_class cls) { return cls == SF_CLASS_CRASH || cls == SF_CLASS_PROTOCOL; }
/* Whether the run came to its end: it passed, or failed in a way that the process lived to tell. A crash, a hang, lack of memory, and a
 * case that was not run or could not be judged do not say whether another failure repeats. */
bool sf_outcome_ran_to_its_end(const struct sf_outcome *outcome);
/* SF_ENOMEM becomes INCONCLUSIVE, with lacked: lack of memory says nothing about the code under test, and the next case may be
 * smaller. Ranks that were broken stay broken. */
void sf_outcome_excuse_memory(struct sf_outcome *outcome);
/* Whether two shrink keys are of the same failure. The key of a framework's finding names the mode, since a finding that is counted in one
 * mode says nothing about the other; shrinking may change the mode. */
bool sf_outcome_same_failure(const char *key, const char *other_key);
enum { SF_DIAGNOSIS_LINE_TEXT = 360 };
/* A diagnosis as people read it, "scale: scaled by 2"; "" when there is none. */
void sf_diagnosis_line(char out[SF_DIAGNOSIS_LINE_TEXT], const struct sf_diagnosis *diagnosis);
/* Appends the lines "worst" and "wrong": where a tensor of this kind (enum sf_kind) is off by most, and how much of it is wrong. Nothing
 * where the numbers are not known. */
void sf_numbers_append(struct sf_text *out, const struct sf_numbers *numbers, int32_t kind);
/* Why the harness could not judge the case. */
struct sf_error sf_outcome_error(const struct sf_outcome *outcome);
/* Whether a key is among those of an outcome's `shown`. */
bool sf_outcome_shown_has(const char *shown, const char *shrink_key);
/* Whether the outcome is as the case's `expect` says (verdict, and if a signature is given a culprit with it); true when the case expects
 * nothing. */
bool sf_outcome_as_expected(const struct sf_outcome *outcome, const struct sf_expect *expect);

#endif
