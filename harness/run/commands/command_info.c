/* merge, list and describe. */
#include "generators/presets.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/describe.h"
#include "harness/run/campaign/features.h"
#include "harness/run/power/mutants.h"
#include "harness/run/store/store.h"
#include "targets/plants.h"
#include "targets/target.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct info_flags { struct sf_texts arguments; };

/* --- merge ----------------------------------------------------------------------------------------------------- */

static const struct sf_command merge_command = {
    .name = "merge",
    .arguments = "OUT IN...",
    .help = "Joins the stores of one campaign, run on several machines, into a new one.",
    .argument_min = 2,
    .argument_max = 100000,
    .argument_offset = offsetof(struct info_flags, arguments),
};

int sf_command_merge(int argc, char **argv) {
  struct info_flags flags = {{NULL, 0}};
  struct sf_error error = {SF_OK, ""};
  struct sf_store_merge_report report;
  const int ended = sf_command_begin(&merge_command, &flags, argc, argv);
  if (ended >= 0) return ended;
  const enum sf_status status = sf_store_merge(&report, flags.arguments.items[0], flags.arguments.items + 1, flags.arguments.count - 1, &error);
  sf_command_clear(&merge_command, &flags);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  fprintf(stderr, "%" PRId64 " verdicts, %" PRId64 " of them in more than one store, %" PRId64 " in conflict\n", report.verdicts, report.duplicates, report.conflicts);
  if (report.conflicts) fprintf(stderr, "first conflict: %s\n", report.first_conflict);
  return report.conflicts ? 1 : 0;
}

/* --- list ------------------------------------------------------------------------------------------------------ */

static const struct sf_command list_command = {
    .name = "list",
    .arguments = "presets|targets|plants|mutants|features",
    .help = "Prints one line for each.",
    .argument_min = 1,
    .argument_max = 1,
    .argument_offset = offsetof(struct info_flags, arguments),
};

static void list_presets(void) {
  for (int i = 0; i < sf_preset_count; i++) printf("%-20s %s\n", sf_presets[i].name, sf_presets[i].summary);
}

static void list_targets(void) { printf("%-20s %s\n", sf_target_builtin.name, "the Megatron-style layers of this program"); }

static void list_plants(void) {
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) {
    const struct sf_plant *plant = sf_plant_of((enum sf_fault)fault);
    printf("%-30s %s%s%s\n", plant->id, plant->what, *plant->source ? "; " : "", plant->source);
  }
}

static void list_mutants(void) {
  for (int32_t i = 0; i < sf_mutant_count(); i++) {
    char name[SF_NAME_TEXT];
    sf_mutant_name(name, i);
    printf("%s\n", name);
  }
}

static void list_features(void) {
  for (int i = 0; i < sf_feature_count; i++) printf("%s\n", sf_features[i].name);
}

int sf_command_list(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*print)(void);
  } lists[] = {{"presets", list_presets}, {"targets", list_targets}, {"plants", list_plants}, {"mutants", list_mutants}, {"features", list_features}};
  struct info_flags flags = {{NULL, 0}};
  const int ended = sf_command_begin(&list_command, &flags, argc, argv);
  if (ended >= 0) return ended;
  int code = 2;
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    if (strcmp(lists[i].name, flags.arguments.items[0]) != 0) continue;
    lists[i].print();
    code = 0;
  }
  if (code) fprintf(stderr, "shardfuzz: there is no list '%s': presets, targets, plants, mutants or features\n", flags.arguments.items[0]);
  sf_command_clear(&list_command, &flags);
  return code;
}

/* --- describe -------------------------------------------------------------------------------------------------- */

static const struct sf_command describe_command = {
    .name = "describe",
    .arguments = "CASE.json",
    .help = "Shows what a case means: model, mesh, groups, what each rank holds.",
    .argument_min = 1,
    .argument_max = 1,
    .argument_offset = offsetof(struct info_flags, arguments),
};

int sf_command_describe(int argc, char **argv) {
  static struct sf_case c;
  struct info_flags flags = {{NULL, 0}};
  struct sf_error error = {SF_OK, ""};
  struct sf_text text = {0};
  const int ended = sf_command_begin(&describe_command, &flags, argc, argv);
  if (ended >= 0) return ended;
  enum sf_status status = sf_input_status(sf_case_read(&c, flags.arguments.items[0], &error));
  if (status == SF_OK) status = sf_describe_case(&text, &c, &error);
  sf_command_clear(&describe_command, &flags);
  if (status == SF_OK) fputs(text.data, stdout);
  sf_text_destroy(&text);
  return status == SF_OK ? 0 : sf_exit_failure(status, &error);
}
