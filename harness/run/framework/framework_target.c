#include "harness/run/framework/framework_target.h"

#include "harness/base/bytes.h"
#include "harness/base/sinks.h"
#include "harness/worker/shell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The environment's SHARDFUZZ_MEGATRON names another folder of ci/megatron.sh. */
const struct sf_framework_known sf_frameworks[] = {
    {"megatron-core", "\"${SHARDFUZZ_MEGATRON:-build-megatron}/bin/python\" -m megatron_core_target serve", "NVIDIA's Megatron Core on a CPU (ci/megatron.sh sets it up)"},
    {NULL, NULL, NULL},
};

static const char *known_command(const char *target) {
  for (const struct sf_framework_known *known = sf_frameworks; known->name; known++)
    if (strcmp(known->name, target) == 0) return known->command;
  return NULL;
}

static const char *worker_command(const char *target) { return strncmp(target, "worker:", 7) == 0 ? target + 7 : NULL; }

bool sf_framework_is_target(const char *target) { return worker_command(target) || known_command(target); }

enum sf_status sf_framework_command(char *out, size_t size, const char *target, const char *path, struct sf_error *error) {
  const char *command = worker_command(target) ? worker_command(target) : known_command(target);
  struct stat info;
  struct sf_text text = {0};
  if (!command) return sf_error_set(error, SF_EUSAGE, "'%.90s' is a framework whose worker this program does not know: --target 'worker:CMD' says how it is started", target);
  if (path && (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))) return sf_error_set(error, SF_EUSAGE, "--framework-path: %s is no folder", path);
  if (path) {
    sf_text_append(&text, "PYTHONPATH=");
    sf_shell_append(&text, path);
    sf_text_append(&text, "${PYTHONPATH:+:$PYTHONPATH} ");
  }
  sf_text_append(&text, "%s", command);
  const bool fits = !text.failed && snprintf(out, size, "%s", text.data) < (int)size;
  sf_text_destroy(&text);
  return fits ? SF_OK : sf_error_set(error, SF_EUSAGE, "--target: the worker's command is too long");
}

enum sf_status sf_framework_ask_description(struct sf_description **out, const struct sf_framework_options *options, struct sf_error *error) {
  struct sf_framework *framework = NULL;
  struct sf_worker_report report;
  enum sf_status status = sf_framework_create(&framework, &report, options, error);
  if (status != SF_OK) {
    struct sf_text said = {0};
    sf_line_append_all(&said, SF_SAID_PREFIX, report.output);
    sf_print_lines(stderr, said.data);
    sf_text_destroy(&said);
  }
  if (status == SF_OK) status = sf_description_create(out, sf_framework_described(framework), error);
  sf_worker_report_clear(&report);
  sf_framework_destroy(framework);
  return status;
}
