#include "harness/worker/shell.h"

#include <string.h>

void sf_shell_quote(struct sf_text *out, const char *word) {
  sf_text_append(out, "'");
  for (;;) {
    const size_t plain = strcspn(word, "'");
    sf_text_append(out, "%.*s", (int)plain, word);
    if (word[plain] == '\0') break;
    sf_text_append(out, "'\\''");
    word += plain + 1;
  }
  sf_text_append(out, "'");
}

void sf_shell_launcher(struct sf_text *out, const char *launcher, int32_t ranks) {
  for (const char *hole; (hole = strstr(launcher, "{n}")) != NULL; launcher = hole + 3) {
    sf_text_append(out, "%.*s%d", (int)(hole - launcher), launcher, ranks);
  }
  sf_text_append(out, "%s", launcher);
}
