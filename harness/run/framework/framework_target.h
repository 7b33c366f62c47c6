/* Targets that are frameworks: `worker:CMD`, or a name whose worker comes with this project. */
#ifndef SF_RUN_FRAMEWORK_TARGET_H
#define SF_RUN_FRAMEWORK_TARGET_H

#include "harness/run/framework/framework.h"
#include "harness/worker/description.h"

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
/* The shell command of the target's worker. path: NULL, or a folder where Python looks for modules first, such as a checkout of the
 * framework. SF_EUSAGE: there is no such target, path is not a folder, or the command is too long. SF_EINPUT: the framework of the table
 * is not set up. */
enum sf_status sf_framework_command(char *out, size_t size, const char *target, const char *path, struct sf_error *error) SF_MUST_USE;

/* sf_framework_create for the process that reports: what a worker that does not describe itself has printed goes to stderr. */
enum sf_status sf_framework_open(struct sf_framework **out, const struct sf_framework_options *options, struct sf_error *error) SF_MUST_USE;

#endif
