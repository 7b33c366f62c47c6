/* The commands, and what main shares with them. */
#ifndef SF_RUN_COMMANDS_H
#define SF_RUN_COMMANDS_H

#include "harness/run/manual/manual.h"

#include <stdio.h>

extern const struct sf_command sf_command_fuzz, sf_command_replay, sf_command_shrink, sf_command_gate, sf_command_check, sf_command_noise,
    sf_command_anchors, sf_command_power, sf_command_space, sf_command_merge, sf_command_status, sf_command_init, sf_command_list,
    sf_command_describe, sf_command_report, sf_command_worker, sf_command_doctor;
/* All commands that users see, in the order of the help, and the exit codes that they have. */
extern const struct sf_command *const sf_commands[];
extern const int32_t sf_command_count;
extern const struct sf_exit_code sf_exit_codes[];
extern const int32_t sf_exit_code_count;
/* Writes man pages and completions: for the build, not for users. */
extern const struct sf_command sf_command_manual;
/* A whole command: parses the arguments after its name, prints the help when asked, runs, and frees what the flags own. Returns the exit
 * code. */
int sf_command_main(const struct sf_command *command, int argc, char **argv);
/* A rank of a launched set; started by shardfuzz itself. */
int sf_command_mpi_worker(int argc, char **argv);

/* What this program is, which commit it was built from, and which ranks, devices and kernels it has here: a line each. */
void sf_print_version(FILE *to);

/* Where results for people go: stdout, and with --json, whose object is the last line of stdout, stderr. Errors and progress always go to
 * stderr. */
FILE *sf_people(bool json);
/* Prints "shardfuzz: text" on stderr, behind what was printed to stdout. */
void sf_complain(const char *text);
/* Prints "shardfuzz: text" on stderr and returns the exit code of a failure. */
int sf_exit_failure(enum sf_status status, const struct sf_error *error);

#endif
