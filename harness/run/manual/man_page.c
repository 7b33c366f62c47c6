#include "harness/run/manual/manual.h"

#include "harness/spec/case.h"

#include <inttypes.h>

/* Text of a page: roff reads a dot or a quote at the beginning of a line as a request, and turns a plain "-" into a hyphen that cannot be
 * copied as an option. */
static void append_escaped(struct sf_text *out, const char *text) {
  bool begins_line = true;
  for (const char *at = text; *at != '\0'; at++) {
    if (begins_line && (*at == '.' || *at == '\'')) sf_text_append(out, "\\&");
    if (*at == '\\')
      sf_text_append(out, "\\e");
    else if (*at == '-')
      sf_text_append(out, "\\-");
    else
      sf_text_append(out, "%c", *at);
    begins_line = *at == '\n';
  }
}

static void append_text(struct sf_text *out, const char *text) {
  append_escaped(out, text);
  sf_text_append(out, "\n");
}

/* A term in bold, and what it means. */
static void append_item(struct sf_text *out, const char *term, const char *meaning) {
  sf_text_append(out, ".TP\n.B ");
  append_text(out, term);
  append_text(out, meaning);
}

static void append_head(struct sf_text *out, const struct sf_manual *manual, const char *title, int section, const char *summary) {
  sf_text_append(out, ".TH %s %d \"\" \"shardfuzz %s\"\n.SH NAME\n", title, section, manual->version);
  append_escaped(out, title);
  sf_text_append(out, " \\- ");
  append_text(out, summary);
}

static void append_exit_codes(struct sf_text *out, const struct sf_manual *manual) {
  sf_text_append(out, ".SH EXIT STATUS\n");
  for (int32_t i = 0; i < manual->exit_code_count; i++) append_item(out, manual->exit_codes[i].code, manual->exit_codes[i].meaning);
}

void sf_man_program(struct sf_text *out, const struct sf_manual *manual) {
  append_head(out, manual, "shardfuzz", 1, "find silent numerical bugs in distributed training code");
  sf_text_append(out, ".SH SYNOPSIS\n.B shardfuzz\n.I COMMAND\n[\n.I OPTION\n]...\n.SH DESCRIPTION\n");
  append_text(out,
              "Trains random small models in random parallel layouts and compares every tensor with a run on one device. The tolerance is\n"
              "measured for each case. What fails is made as small as possible, and saved in a file that one command replays.");
  sf_text_append(out, ".SH COMMANDS\nEach has a page of its own, for example\n.BR shardfuzz\\-fuzz (1).\n");
  for (int32_t i = 0; i < manual->command_count; i++) append_item(out, manual->commands[i]->name, manual->commands[i]->summary);
  append_exit_codes(out, manual);
  sf_text_append(out, ".SH SEE ALSO\n.BR shardfuzz\\-fields (7)");
  for (int32_t i = 0; i < manual->command_count; i++) sf_text_append(out, ",\n.BR shardfuzz\\-%s (1)", manual->commands[i]->name);
  sf_text_append(out, "\n");
}

void sf_man_command(struct sf_text *out, const struct sf_manual *manual, const struct sf_command *command) {
  struct sf_text words = {0};
  sf_text_append(&words, "shardfuzz-%s", command->name);
  append_head(out, manual, words.data ? words.data : "", 1, command->summary);
  sf_text_append(out, ".SH SYNOPSIS\n.B shardfuzz %s\n%s", command->name, command->option_count > 0 ? "[\n.I options\n]\n" : "");
  if (command->arguments) append_text(out, command->arguments);
  sf_text_append(out, ".SH DESCRIPTION\n");
  append_text(out, command->help);
  if (command->option_count > 0) sf_text_append(out, ".SH OPTIONS\n");
  for (int32_t i = 0; i < command->option_count; i++) {
    words.length = 0;
    sf_option_usage(&words, &command->options[i]);
    append_item(out, words.data ? words.data : "", command->options[i].help);
  }
  append_exit_codes(out, manual);
  sf_text_append(out, ".SH SEE ALSO\n.BR shardfuzz (1),\n.BR shardfuzz\\-fields (7)\n");
  sf_text_destroy(&words);
}

void sf_field_values(struct sf_text *out, const struct sf_field *field) {
  const char *separator = field->type == SF_FIELD_FLAGS ? "+" : "|";
  if (field->type == SF_FIELD_INT && field->max == INT64_MAX)
    sf_text_append(out, "%" PRId64 "..", field->min);
  else if (field->type == SF_FIELD_INT)
    sf_text_append(out, "%" PRId64 "..%" PRId64, field->min, field->max);
  else if (field->type == SF_FIELD_BOOL)
    sf_text_append(out, "off|on");
  else if (field->type == SF_FIELD_TEXT)
    sf_text_append(out, "TEXT");
  if (field->type == SF_FIELD_FLAGS) sf_text_append(out, "none|");
  for (int i = 0; field->names && field->names[i]; i++) sf_text_append(out, "%s%s", i ? separator : "", field->names[i]);
}

void sf_man_fields(struct sf_text *out, const struct sf_manual *manual) {
  struct sf_text words = {0};
  int order[SF_CASE_FIELDS_MAX];
  sf_case_field_order(order);
  append_head(out, manual, "shardfuzz-fields", 7, "fields of a case");
  sf_text_append(out, ".SH DESCRIPTION\n");
  append_text(out,
              "A case file is a JSON object with these fields; a dot stands for an object inside of it. The option --set fixes a field of\n"
              "a campaign's cases, or limits a number: --set layout.tp=1..4. A field that a file leaves out has its smallest value.");
  sf_text_append(out, ".SH FIELDS\n");
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[order[i]];
    words.length = 0;
    sf_text_append(&words, "%s ", field->path);
    sf_field_values(&words, field);
    append_item(out, words.data ? words.data : "", field->meaning);
  }
  sf_text_append(out, ".SH SEE ALSO\n.BR shardfuzz (1),\n.BR shardfuzz\\-fuzz (1)\n");
  sf_text_destroy(&words);
}
