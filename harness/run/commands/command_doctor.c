/* doctor: what of this machine can be used, and what to do about the rest. */
#include "harness/base/sinks.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/doctor_checks.h"
#include "harness/run/support/json.h"

#include <stdio.h>

struct doctor_flags {
  bool json;
};

static const struct sf_option options[] = {
    SF_OPTION_AT(struct doctor_flags, "json", FLAG, json, NULL, "print one JSON object as the last line of stdout"),
};

static void print_checks(FILE *to, const struct sf_health_check *checks, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    sf_print(to, "%-8s %-15s %s\n", sf_health_name(checks[i].health), checks[i].name, checks[i].found);
    if (*checks[i].advice) sf_print(to, "%-24s -> %s\n", "", checks[i].advice);
  }
}

static json_t *json_of(const struct sf_health_check *checks, int32_t count, int32_t problems) {
  json_t *all = json_array();
  for (int32_t i = 0; i < count; i++)
    json_array_append_new(all, json_pack("{s:s, s:s, s:o, s:o}", "name", checks[i].name, "state", sf_health_name(checks[i].health), "found",
                                         sf_json_text(checks[i].found), "advice", sf_json_text(checks[i].advice)));
  return json_pack("{s:o, s:i}", "checks", all, "problems", problems);
}

static int doctor(void *context) {
  const struct doctor_flags *flags = context;
  static struct sf_health_check checks[SF_HEALTH_CHECKS_MAX];
  const int32_t count = sf_health_checks(checks);
  int32_t problems = 0;
  for (int32_t i = 0; i < count; i++) problems += checks[i].health == SF_HEALTH_PROBLEM;
  FILE *to = sf_people(flags->json);
  print_checks(to, checks, count);
  if (problems)
    sf_print(to, "%d problem%s: a campaign with default options may not run well here\n", problems, sf_plural(problems));
  else
    sf_print(to, "all that a campaign with default options needs is here\n");
  const int code = problems ? 1 : 0;
  return flags->json ? sf_exit_json(json_of(checks, count, problems), 0, code) : code;
}

const struct sf_command sf_command_doctor = {
    .name = "doctor",
    .summary = "say what this machine lacks, and what to do about it",
    .help = "Looks at what shardfuzz can use here: cores, memory, limits of the shell, temporary folders, libraries, MPI, GPU, NCCL, the\n"
            "tracer for PyTorch and the environments of frameworks. What is absent is needed by some options alone. A problem is\n"
            "something that a campaign with default options needs; with one it exits 1.",
    SF_OPTIONS_ARE(options),
    .flags_bytes = sizeof(struct doctor_flags),
    .run = doctor,
};
