/* Targets that are frameworks: `worker:CMD`, or a name whose worker comes with this project. */
#ifndef SF_RUN_FRAMEWORK_TARGET_H
#define SF_RUN_FRAMEWORK_TARGET_H

#include "harness/run/framework/framework.h"
#include "harness/worker/choices.h"

enum { SF_FRAMEWORK_COMMAND_TEXT = 2048 };

/* Names of the frameworks whose worker comes with this project, and one line about each; NULL-terminated by name. */
struct sf_framework_known {
  const char *name, *command, *what;
  const char *folder_variable, *folder; /* of Python with the framework: where the environment names another one, that */
  const char *setup;                    /* what makes the folder */
};
extern const struct sf_framework_known sf_frameworks[];

/* Whether a target's name is a framework's: "worker:CMD" or one of the table. */
bool sf_framework_is_target(const char *target);
/* The shell command of the target's worker. path: NULL, or a folder whose modules Python is to find first: the framework under test as it
 * lies in a checkout. SF_EUSAGE: no such target, a path that is no folder, a command that is too long. SF_EINPUT: the framework of the
 * table is not set up. */
enum sf_status sf_framework_command(char *out, size_t size, const char *target, const char *path, struct sf_error *error) SF_MUST_USE;

/* What a worker says of itself; it is started for the question and ended. What it printed goes to stderr if it does not answer. As
 * sf_framework_create fails. */
enum sf_status sf_framework_ask_description(struct sf_description **out, const struct sf_framework_options *options,
                                            struct sf_error *error) SF_MUST_USE;

#endif
