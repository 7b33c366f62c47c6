/* Launchers' command lines for /bin/sh; words in them: sf_shell_append (base/sinks.h). */
#ifndef SF_WORKER_SHELL_H
#define SF_WORKER_SHELL_H

#include "harness/base/bytes.h"

/* Appends a launcher's command with its {n} replaced. */
void sf_shell_launcher(struct sf_text *out, const char *launcher, int32_t ranks);

#endif
