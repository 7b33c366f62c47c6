#include "harness/worker/shell.h"

#include <string.h>

const char *const sf_shell_launcher_default = "mpirun --oversubscribe -n {n}";

enum sf_status sf_shell_launcher_check(const char *launcher, struct sf_error *error) {
  if (strstr(launcher, "{n}")) return SF_OK;
  return sf_error_set(
      error, SF_EUSAGE,
      "--launcher '%.100s': {n} is missing, which stands for the number of ranks; for example --launcher 'mpirun --oversubscribe -n {n}'",
      launcher);
}

void sf_shell_launcher(struct sf_text *out, const char *launcher, int32_t ranks) {
  for (const char *hole; (hole = strstr(launcher, "{n}")) != NULL; launcher = hole + 3) {
    sf_text_append(out, "%.*s%d", (int)(hole - launcher), launcher, ranks);
  }
  sf_text_append(out, "%s", launcher);
}
