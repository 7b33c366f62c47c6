#include "harness/worker/shell.h"

#include <string.h>

void sf_shell_launcher(struct sf_text *out, const char *launcher, int32_t ranks) {
  for (const char *hole; (hole = strstr(launcher, "{n}")) != NULL; launcher = hole + 3) {
    sf_text_append(out, "%.*s%d", (int)(hole - launcher), launcher, ranks);
  }
  sf_text_append(out, "%s", launcher);
}
