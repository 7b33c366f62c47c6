/* The commands. Their exit codes: 0 nothing found, 1 findings, 2 bad usage or input, 3 the harness itself failed. */
#ifndef SF_RUN_COMMANDS_H
#define SF_RUN_COMMANDS_H

#include "harness/run/support/options.h"

#include <stdio.h>

extern const struct sf_command sf_command_fuzz, sf_command_replay, sf_command_shrink, sf_command_gate, sf_command_check, sf_command_noise,
    sf_command_anchors, sf_command_power, sf_command_space, sf_command_merge, sf_command_status, sf_command_init, sf_command_list,
    sf_command_describe, sf_command_report, sf_command_worker;
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
