/* merge, list and describe. */
#include "generators/presets.h"
#include "harness/base/nearest.h"
#include "harness/base/sinks.h"
#include "harness/comm/manner.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/describe.h"
#include "harness/run/manual/manual.h"
#include "harness/run/opfuzz/op_report.h"
#include "harness/run/plugins/plugin_probe.h"
#include "harness/run/store/store.h"
#include "harness/run/trial/features.h"
#include "harness/run/trial/mutants.h"
#include "oracles/diagnose/diagnose.h"
#include "oracles/judge/judge.h"
#include "targets/builtin/faults/plants.h"
#include "targets/plugin/plugin_target.h"
#include "targets/target.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES_SHOWN = 12 };

struct info_flags {
  struct sf_texts arguments;
};

/* --- merge ----------------------------------------------------------------------------------------------------- */

static int merge(void *context) {
  const struct info_flags *flags = context;
  struct sf_error error = {SF_OK, ""};
  struct sf_store_merge_report report;
  const enum sf_status status =
      sf_store_merge(&report, flags->arguments.items[0], flags->arguments.items + 1, flags->arguments.count - 1, false, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  sf_print(stdout, "%" PRId64 " verdicts, %" PRId64 " of them in more than one store, %" PRId64 " in conflict\n", report.verdicts,
           report.duplicates, report.conflicts);
  if (report.conflicts) sf_print(stdout, "first conflict: %s\n", report.first_conflict);
  if (report.campaigns > 1)
    sf_print(stdout, "%" PRId64 " campaigns, which differ in their seeds: %s\n", report.campaigns, report.seeds);
  return report.conflicts ? 1 : 0;
}

const struct sf_command sf_command_merge = {
    .name = "merge",
    .summary = "join the stores of one campaign's jobs, or of campaigns with different seeds",
    .arguments = "OUT IN...",
    .help = "Joins stores into a new one. Jobs of one campaign had the same options and --seed, and each its own --share K/N; a case that\n"
            "lies in several stores counts once. Campaigns that differ in their --seed alone stay apart: the cases of the second seed are\n"
            "numbered from 1000000000, those of the third from 2000000000. Such a store can be reported, and not resumed.",
    SF_ARGUMENTS_ARE(2, 100000, struct info_flags, arguments),
    .flags_bytes = sizeof(struct info_flags),
    .run = merge,
};

/* --- list ------------------------------------------------------------------------------------------------------ */

struct list_flags {
  struct sf_common_flags common;
  bool formulas;
  struct sf_texts arguments;
};

static const struct sf_option list_options[] = {
    SF_TARGET_OPTIONS(struct list_flags, common),
    SF_OPTION_AT(struct list_flags, "formulas", FLAG, formulas, NULL, "for operations: shapes, formats, formulas and conventions"),
};

static void list_presets(void) {
  for (int i = 0; i < sf_preset_count; i++) sf_print(stdout, "%-20s %s\n", sf_presets[i].name, sf_presets[i].summary);
}

static void list_targets(void) {
  sf_print(stdout, "%-20s %s\n", sf_target_builtin.name, "the Megatron-style layers of this program");
  for (const struct sf_framework_known *known = sf_frameworks; known->name; known++)
    sf_print(stdout, "%-20s %s\n", known->name, known->what);
  sf_print(stdout, "%-20s %s\n", "worker:CMD", "a framework that CMD drives (targets/worker.md)");
  sf_print(stdout, "%-20s %s\n", "op:NAME, op:all", "operations of the device (shardfuzz list operations)");
  sf_print(stdout, "%-20s %s\n", "plugin:./LIB.so", "operations, layers or the model of a shared library (shardfuzz/plugin.h)");
}

static void list_plants(void) {
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) {
    const struct sf_plant *plant = sf_plant_of((enum sf_fault)fault);
    sf_print(stdout, "%-30s %s%s%s\n", plant->id, plant->what, *plant->source ? "; " : "", plant->source);
  }
}

static void list_mutants(void) {
  for (int32_t i = 0; i < sf_mutant_count(); i++) {
    char name[SF_NAME_TEXT];
    sf_mutant_name(name, i);
    sf_print(stdout, "%s\n", name);
  }
}

static void list_features(void) {
  for (int i = 0; i < sf_feature_count; i++) sf_print(stdout, "%s\n", sf_features[i].name);
}

static void print_fields(const struct sf_description *description) {
  for (int32_t i = 0; i < sf_description_field_count(description); i++) {
    sf_print(stdout, "%-44s", sf_description_field_path(description, i));
    const int64_t count = sf_description_choice_count(description, i);
    for (int64_t k = 0; k < count; k++) {
      if (k == CHOICES_SHOWN && count > CHOICES_SHOWN + 1) k = count - 1, sf_print(stdout, " ..");
      char *text = sf_description_choice_text(description, i, k);
      sf_print(stdout, " %s", text ? text : "?");
      free(text);
    }
    sf_print(stdout, "\n");
  }
}

static int list_framework(const struct list_flags *flags) {
  struct sf_error error = {SF_OK, ""};
  static struct sf_common_framework framework;
  const enum sf_status status = sf_common_framework_start(&framework, &flags->common, flags->common.target, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  const struct sf_description *description = sf_framework_description(framework.first);
  print_fields(description);
  for (int32_t i = 0; i < sf_description_rule_count(description); i++) {
    const char *reason = sf_description_rule_reason(description, i); /* rules of one reason follow each other */
    if (i == 0 || strcmp(reason, sf_description_rule_reason(description, i - 1)) != 0) sf_print(stdout, "refused: %s\n", reason);
  }
  return 0;
}

static void print_operations(bool formulas) {
  struct sf_text text = {0};
  sf_op_list(&text, formulas);
  sf_print_lines(stdout, text.data);
  sf_text_destroy(&text);
}

static void list_operations(void) { print_operations(false); }

/* The words of reports, made from the lists that define the enums. */
struct word {
  const char *name, *meaning;
};
#define WORD(constant, text, meaning) {text, meaning},
#define WORD_OF_NAME(name, meaning) {#name, meaning},
static const struct word verdict_words[] = {SF_VERDICT_MAP(WORD_OF_NAME){NULL, NULL}};
static const struct word class_words[] = {SF_CLASS_MAP(WORD){NULL, NULL}};
static const struct word kind_words[] = {SF_KIND_MAP(WORD){NULL, NULL}};
static const struct word diagnosis_words[] = {SF_DIAGNOSIS_MAP(WORD){NULL, NULL}};
static const struct word manner_words[] = {SF_MANNER_LIST(WORD){NULL, NULL}};
#undef WORD
#undef WORD_OF_NAME

static void list_words(void) {
  static const struct {
    const char *what;
    const struct word *words;
  } groups[] = {{"verdict of a case", verdict_words},
                {"class of a finding", class_words},
                {"kind of a tensor", kind_words},
                {"diagnosis", diagnosis_words},
                {"manner of a crash or a mismatch", manner_words}};
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    if (i) sf_print(stdout, "\n");
    sf_print(stdout, "%s\n", groups[i].what);
    for (const struct word *word = groups[i].words; word->name; word++)
      if (*word->name) sf_print(stdout, "  %-18s %s\n", word->name, word->meaning);
  }
}

static void list_fields(void) {
  struct sf_text values = {0};
  int order[SF_CASE_FIELDS_MAX];
  sf_case_field_order(order);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[order[i]];
    values.length = 0;
    sf_field_values(&values, field);
    sf_print(stdout, "%-29s %-24s %s\n", field->path, values.data ? values.data : "", field->meaning);
  }
  sf_text_destroy(&values);
}

/* The ranges of the fields that a plugin of layers or a model takes. */
static int list_plugin(const char *target) {
  static struct sf_plugin_range ranges[SF_PLUGIN_RANGES_MAX];
  struct sf_error error = {SF_OK, ""};
  int32_t count = 0;
  const enum sf_status status = sf_plugin_probe_ranges(ranges, &count, target, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  for (int32_t i = 0; i < count; i++) {
    sf_print(stdout, "%-44s %" PRId64, ranges[i].path, ranges[i].lo);
    if (ranges[i].hi == INT64_MAX)
      sf_print(stdout, "..\n");
    else
      sf_print(stdout, ranges[i].hi > ranges[i].lo ? "..%" PRId64 "\n" : "\n", ranges[i].hi);
  }
  return 0;
}

static int list_operations_of(const char *target) {
  static struct sf_op_target made;
  struct sf_error error = {SF_OK, ""};
  struct sf_text text = {0};
  const enum sf_status status = sf_op_target_make(&made, target, SF_OP_ELEMENTS, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  sf_op_list_target(&text, &made);
  sf_print_lines(stdout, text.data);
  sf_text_destroy(&text);
  return 0;
}

static int list_features_of(const struct list_flags *flags, const char *target) {
  if (sf_op_target_is_one(target)) return list_operations_of(target);
  return sf_plugin_target_path(target) ? list_plugin(target) : list_framework(flags);
}

static int refuse_operations_of(const char *target) {
  struct sf_error error = {SF_OK, ""};
  return sf_exit_failure(
      sf_error_set(&error, SF_EUSAGE, "--target %.200s has no operations: op:NAME, op:all or a plugin of operations has", target), &error);
}

static int list(void *context) {
  static const struct {
    const char *name;
    void (*print)(void);
  } lists[] = {{"presets", list_presets}, {"targets", list_targets},   {"plants", list_plants},         {"mutants", list_mutants},
               {"fields", list_fields},   {"features", list_features}, {"operations", list_operations}, {"words", list_words}};
  const struct list_flags *flags = context;
  const char *wanted = flags->arguments.items[0], *target = flags->common.target;
  if (target && strcmp(wanted, "operations") == 0) {
    if (!sf_op_target_is_one(target)) return refuse_operations_of(target);
    if (!flags->formulas) return list_operations_of(target);
  }
  if (target && strcmp(wanted, "features") == 0 && strcmp(target, sf_target_builtin.name) != 0) return list_features_of(flags, target);
  if (flags->formulas && strcmp(wanted, "operations") != 0) {
    struct sf_error error;
    sf_error_set(&error, SF_EUSAGE, "--formulas is only for operations: shardfuzz list operations --formulas");
    return sf_exit_failure(SF_EUSAGE, &error);
  }
  if (flags->formulas) {
    print_operations(true);
    return 0;
  }
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    if (strcmp(lists[i].name, wanted) != 0) continue;
    lists[i].print();
    return 0;
  }
  struct sf_error error;
  struct sf_nearest nearest = sf_nearest_to(wanted);
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) sf_nearest_offer(&nearest, lists[i].name);
  sf_error_set(&error, SF_EUSAGE, "there is no list '%s': presets, targets, plants, mutants, fields, features, operations or words%s",
               wanted, sf_nearest_text(&nearest));
  return sf_exit_failure(SF_EUSAGE, &error);
}

const struct sf_command sf_command_list = {
    .name = "list",
    .summary = "list presets, targets, plants, features or words",
    .arguments = "presets|targets|plants|mutants|fields|features|operations|words",
    .help =
        "Prints one line for each entry. fields: the fields of a case of layers, for --set. features with --target: for a framework its\n"
        "fields, their choices and what its worker refuses; for a plugin of layers or a model the ranges of the fields that it takes.\n"
        "operations with --target: which cases of each operation the target takes. words: what the names in reports mean.",
    SF_OPTIONS_ARE(list_options),
    SF_ARGUMENTS_ARE(1, 1, struct list_flags, arguments),
    .flags_bytes = sizeof(struct list_flags),
    .set_defaults = sf_common_defaults,
    .run = list,
};

/* --- describe -------------------------------------------------------------------------------------------------- */

static int describe(void *context) {
  static struct sf_case c;
  const struct info_flags *flags = context;
  struct sf_error error = {SF_OK, ""};
  struct sf_text text = {0};
  enum sf_status status = sf_input_status(sf_case_read(&c, flags->arguments.items[0], &error));
  if (status == SF_OK) status = sf_describe_case(&text, &c, &error);
  if (status == SF_OK) sf_print_lines(stdout, text.data);
  sf_text_destroy(&text);
  return status == SF_OK ? 0 : sf_exit_failure(status, &error);
}

const struct sf_command sf_command_describe = {
    .name = "describe",
    .summary = "show mesh, groups and shapes of a case",
    .arguments = "CASE.json",
    .help =
        "Shows what a case means: model, mesh, groups, what each rank holds; for an operation its operands, their shapes, formats and "
        "values, and its formula.",
    SF_ARGUMENTS_ARE(1, 1, struct info_flags, arguments),
    .flags_bytes = sizeof(struct info_flags),
    .run = describe,
};
