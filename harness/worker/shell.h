/* Launchers' command lines for /bin/sh; words in them: sf_shell_append (base/sinks.h). */
#ifndef SF_WORKER_SHELL_H
#define SF_WORKER_SHELL_H

#include "harness/base/bytes.h"

/* What starts ranks where nobody says otherwise. */
extern const char *const sf_shell_launcher_default;
/* SF_EUSAGE when the command does not say where the number of ranks goes, {n}. */
enum sf_status sf_shell_launcher_check(const char *launcher, struct sf_error *error) SF_MUST_USE;
/* Appends a launcher's command with its {n} replaced. */
void sf_shell_launcher(struct sf_text *out, const char *launcher, int32_t ranks);

#endif
