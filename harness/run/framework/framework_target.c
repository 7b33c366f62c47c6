#include "harness/run/framework/framework_target.h"

#include "harness/base/bytes.h"
#include "harness/base/sinks.h"
#include "harness/worker/shell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct sf_framework_known sf_frameworks[] = {
    {"megatron-core", "\"${SHARDFUZZ_MEGATRON:-build-megatron}/bin/python\" -m megatron_core_target serve",
     "NVIDIA's Megatron Core on a CPU (ci/frameworks.sh megatron-core sets it up)", "SHARDFUZZ_MEGATRON", "build-megatron",
     "ci/frameworks.sh megatron-core"},
    {"torch-dtensor", "\"${SHARDFUZZ_TORCH:-build-torch}/bin/python\" -m torch_dtensor_target",
     "PyTorch's operations on DTensors (ci/frameworks.sh torch-dtensor sets it up)", "SHARDFUZZ_TORCH", "build-torch",
     "ci/frameworks.sh torch-dtensor"},
    {"torch-train", "\"${SHARDFUZZ_TORCH:-build-torch}/bin/python\" -m torch_train_target",
     "PyTorch's own parallel training (ci/frameworks.sh torch-train sets it up)", "SHARDFUZZ_TORCH", "build-torch",
     "ci/frameworks.sh torch-train"},
    {"transformers", "\"${SHARDFUZZ_TRANSFORMERS:-build-transformers}/bin/python\" -m transformers_target",
     "parallel training with Hugging Face's transformers (ci/frameworks.sh transformers sets it up)", "SHARDFUZZ_TRANSFORMERS",
     "build-transformers", "ci/frameworks.sh transformers"},
    {"deepspeed", "\"${SHARDFUZZ_DEEPSPEED:-build-deepspeed}/bin/python\" -m deepspeed_target",
     "DeepSpeed's training engine on a CPU (ci/frameworks.sh deepspeed sets it up)", "SHARDFUZZ_DEEPSPEED", "build-deepspeed",
     "ci/frameworks.sh deepspeed"},
    {"open-clip", "\"${SHARDFUZZ_OPEN_CLIP:-build-open-clip}/bin/python\" -m open_clip_target",
     "contrastive training with open_clip's losses (ci/frameworks.sh open-clip sets it up)", "SHARDFUZZ_OPEN_CLIP", "build-open-clip",
     "ci/frameworks.sh open-clip"},
    {"marl-iql", "\"${SHARDFUZZ_MARL:-build-marl}/bin/python\" -m marl_iql_target",
     "independent Q-learning of several agents with torchrl (ci/frameworks.sh marl-iql sets it up)", "SHARDFUZZ_MARL", "build-marl",
     "ci/frameworks.sh marl-iql"},
    {"jax", "\"${SHARDFUZZ_JAX:-build-jax}/bin/python\" -m jax_target",
     "sharded programs of JAX on a CPU (ci/frameworks.sh jax sets it up)", "SHARDFUZZ_JAX", "build-jax", "ci/frameworks.sh jax"},
    {"torchtitan", "\"${SHARDFUZZ_TORCHTITAN:-build-torchtitan}/bin/python\" -m torchtitan_target",
     "torchtitan's Trainer on a CPU (ci/frameworks.sh torchtitan sets it up)", "SHARDFUZZ_TORCHTITAN", "build-torchtitan",
     "ci/frameworks.sh torchtitan"},
    {"neuronx-distributed", "\"${SHARDFUZZ_NEURONX:-build-neuronx}/bin/python\" -m neuronx_distributed_target",
     "AWS's neuronx-distributed on a CPU, from --framework-path (ci/frameworks.sh neuronx-distributed sets it up)", "SHARDFUZZ_NEURONX",
     "build-neuronx", "ci/frameworks.sh neuronx-distributed"},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

static const struct sf_framework_known *find_known(const char *target) {
  for (const struct sf_framework_known *known = sf_frameworks; known->name; known++)
    if (strcmp(known->name, target) == 0) return known;
  return NULL;
}

/* Checks that Python is there: the message of a launcher that does not find it would help nobody. */
static enum sf_status check_setup(const struct sf_framework_known *known, struct sf_error *error) {
  struct sf_text python = {0};
  const char *other = getenv(known->folder_variable);
  sf_text_append(&python, "%s/bin/python", other && *other ? other : known->folder);
  const enum sf_status status = python.failed ? SF_ENOMEM : access(python.data, X_OK) == 0 ? SF_OK : SF_EINPUT;
  if (status == SF_EINPUT)
    sf_error_set(error, status, "--target %s: %.200s is not there: run %s first, or let %s name the folder that it made", known->name,
                 python.data, known->setup, known->folder_variable);
  sf_text_destroy(&python);
  return status;
}

static const char *worker_command(const char *target) { return strncmp(target, "worker:", 7) == 0 ? target + 7 : NULL; }

bool sf_framework_is_target(const char *target) { return worker_command(target) || find_known(target); }

enum sf_status sf_framework_command(char *out, size_t size, const char *target, const char *path, struct sf_error *error) {
  const struct sf_framework_known *known = find_known(target);
  const char *command = known ? known->command : worker_command(target);
  struct stat info;
  struct sf_text text = {0};
  if (!command)
    return sf_error_set(error, SF_EUSAGE,
                        "'%.90s' is a framework whose worker this program does not know: start it with --target 'worker:CMD'", target);
  if (path && (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)))
    return sf_error_set(error, SF_EUSAGE, "--framework-path: %s is not a folder", path);
  const enum sf_status status = known ? check_setup(known, error) : SF_OK;
  if (status != SF_OK) return status;
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

enum sf_status sf_framework_open(struct sf_framework **out, const struct sf_framework_options *options, struct sf_error *error) {
  struct sf_worker_report report;
  const enum sf_status status = sf_framework_create(out, &report, options, error);
  if (status != SF_OK) {
    struct sf_text said = {0};
    sf_line_append_all(&said, SF_SAID_PREFIX, report.output);
    sf_print_lines(stderr, said.data);
    sf_text_destroy(&said);
  } else if (sf_description_note(sf_framework_description(*out))) {
    sf_print(stderr, "shardfuzz: %s\n", sf_description_note(sf_framework_description(*out)));
  }
  sf_worker_report_clear(&report);
  return status;
}
