/* Command lines for /bin/sh. */
#ifndef SF_WORKER_SHELL_H
#define SF_WORKER_SHELL_H

#include "harness/base/bytes.h"

/* Appends word in quotes, so that the shell takes it as it is. */
void sf_shell_quote(struct sf_text *out, const char *word);
/* Appends a launcher's command with its {n} replaced. */
void sf_shell_launcher(struct sf_text *out, const char *launcher, int32_t ranks);

#endif
