/* Man pages and shell completions, made from the tables that parsing and help are made from. */
#ifndef SF_RUN_MANUAL_H
#define SF_RUN_MANUAL_H

#include "harness/run/support/options.h"

/* An exit code of the program, "0" or "130, 143", and what it means. */
struct sf_exit_code {
  const char *code, *meaning;
};

struct sf_manual {
  const char *version;
  const struct sf_command *const *commands;
  int32_t command_count;
  const struct sf_exit_code *exit_codes;
  int32_t exit_code_count;
};

/* Appends the page shardfuzz(1) as roff: commands and exit codes. */
void sf_man_program(struct sf_text *out, const struct sf_manual *manual);
/* shardfuzz-NAME(1): one command and its options. */
void sf_man_command(struct sf_text *out, const struct sf_manual *manual, const struct sf_command *command);
/* shardfuzz-fields(7): the fields of a case, for --set and for case files. */
void sf_man_fields(struct sf_text *out, const struct sf_manual *manual);

struct sf_field;
/* Appends the values that a field takes: "1..128", "rms|layer", "off|on", "none|embedding+qkv+..". */
void sf_field_values(struct sf_text *out, const struct sf_field *field);

/* Appends a script that completes commands, options, their values, and fields. Names of presets, targets and planted bugs are asked from
 * the program when they are needed. */
void sf_completion_bash(struct sf_text *out, const struct sf_manual *manual);
void sf_completion_zsh(struct sf_text *out, const struct sf_manual *manual);

#endif
