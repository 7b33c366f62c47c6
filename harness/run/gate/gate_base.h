/* Asking the base revision whether it shows a finding too: another shardfuzz, or this one over another checkout of the framework. */
#ifndef SF_RUN_GATE_BASE_H
#define SF_RUN_GATE_BASE_H

#include "harness/base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum { SF_GATE_NOTE_TEXT = 200 };

/* What replays a case as the base would. Members may be NULL. */
struct sf_gate_base {
  const char *program;               /* a shardfuzz executable, or the folder it lies in; NULL: this program */
  const char *target;                /* of a framework */
  const char *framework_path;        /* the framework of the base revision */
  const char *launcher;              /* the command that starts its ranks */
  double seconds;                    /* that one replay may take */
  const volatile sig_atomic_t *stop; /* NULL; or a replay ends once it is not zero */
};
/* Whether there is a base to ask. */
static inline bool sf_gate_has_base(const struct sf_gate_base *base) { return base->program != NULL || base->framework_path != NULL; }

/* SF_EINPUT when the program cannot be run, SF_EUSAGE when the framework's path is no folder. */
enum sf_status sf_gate_base_check(const struct sf_gate_base *base, struct sf_error *error) SF_MUST_USE;
/* Replays a case with the base and compares the signature on its last line of output. note receives a line when the base could not judge
 * the case (it does not know a field, ended badly, or did not answer in its time), "" otherwise; the answer is then false. The base and
 * every process that it started have ended on return, within two seconds of a stop. SF_ECANCELLED when stopped. SF_EIO when it could not be
 * started. */
enum sf_status sf_gate_base_has(bool *has, char note[SF_GATE_NOTE_TEXT], const struct sf_gate_base *base, const char *case_path,
                                const char *signature) SF_MUST_USE;

#endif
