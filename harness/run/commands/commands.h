/* The commands. Each takes the arguments after its name and returns the exit code:
 * 0 nothing found, 1 findings, 2 bad usage or input, 3 the harness itself failed. */
#ifndef SF_RUN_COMMANDS_H
#define SF_RUN_COMMANDS_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <stdio.h>

struct sf_command_entry {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *help; /* NULL: not listed */
};

/* As run of struct sf_command_entry. */
int sf_command_fuzz(int argc, char **argv);
int sf_command_replay(int argc, char **argv);
int sf_command_shrink(int argc, char **argv);
int sf_command_gate(int argc, char **argv);
int sf_command_check(int argc, char **argv);
int sf_command_noise(int argc, char **argv);
int sf_command_power(int argc, char **argv);
int sf_command_merge(int argc, char **argv);
int sf_command_list(int argc, char **argv);
int sf_command_describe(int argc, char **argv);
int sf_command_worker(int argc, char **argv);
/* A rank of a launched set; started by shardfuzz itself. */
int sf_command_mpi_worker(int argc, char **argv);

/* Where results for people go: stdout, and with --json, whose object is the last line of stdout, stderr. Errors and progress always go to
 * stderr. */
FILE *sf_people(bool json);
/* Prints "shardfuzz: text" on stderr, behind what was printed to stdout. */
void sf_complain(const char *text);
/* Prints "shardfuzz: text" on stderr and returns the exit code of a failure. */
int sf_exit_failure(enum sf_status status, const struct sf_error *error);

#endif
