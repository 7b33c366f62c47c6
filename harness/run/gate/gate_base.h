/* Asking the shardfuzz of the base revision whether it shows a finding too. */
#ifndef SF_RUN_GATE_BASE_H
#define SF_RUN_GATE_BASE_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { SF_GATE_NOTE_TEXT = 200 };

/* base: an executable, or the folder it lies in. SF_EINPUT when it cannot be run. */
enum sf_status sf_gate_base_check(const char *base, struct sf_error *error) SF_MUST_USE;
/* Replays a case with the base (launcher: NULL, or the command that starts its ranks) and compares the signature on its last line of output. note receives a line when the base could not judge
 * the case (it does not know a field, or ended badly), "" otherwise; the answer is then false. SF_EIO when it could not be started. */
enum sf_status sf_gate_base_has(bool *has, char note[SF_GATE_NOTE_TEXT], const char *base, const char *launcher, const char *case_path,
                                const char *signature) SF_MUST_USE;

#endif
