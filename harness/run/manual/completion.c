#include "harness/run/manual/manual.h"

#include "harness/spec/case.h"

#include <string.h>

/* What may stand behind an option. */
enum values { VALUES_NONE, VALUES_CHOICES, VALUES_FIELDS, VALUES_LIST, VALUES_FILES };

/* Options whose values `shardfuzz list` prints. */
static const struct { const char *option, *list; } listed[] = {{"preset", "presets"}, {"plant", "plants"}, {"target", "targets"}};

/* The list that has an option's values, or NULL. */
static const char *list_of(const struct sf_option *option) {
  for (size_t i = 0; i < sizeof listed / sizeof listed[0]; i++)
    if (strcmp(listed[i].option, option->name) == 0) return listed[i].list;
  return NULL;
}

static bool is_path(const char *value) { return value && (strstr(value, "FILE") || strstr(value, "DIR") || strstr(value, ".json")); }

/* Whether the usage names the words that a command's arguments may be, "presets|targets"; else they are files. */
static bool has_words(const struct sf_command *command) {
  return command->arguments && strchr(command->arguments, '|') && !is_path(command->arguments);
}

static enum values values_of(const struct sf_option *option) {
  if (option->type == SF_OPTION_FLAG) return VALUES_NONE;
  if (option->choices) return VALUES_CHOICES;
  if (option->type == SF_OPTION_KEY_VALUE) return VALUES_FIELDS;
  if (list_of(option)) return VALUES_LIST;
  return is_path(option->value) ? VALUES_FILES : VALUES_NONE;
}


static void append_words(struct sf_text *out, const char *const *words) {
  for (int32_t i = 0; words[i]; i++) sf_text_append(out, "%s%s", i ? " " : "", words[i]);
}

/* "a|b" as "a b". */
static void append_split(struct sf_text *out, const char *words) {
  for (const char *at = words; *at; at++) sf_text_append(out, "%c", *at == '|' ? ' ' : *at);
}

static void append_fields(struct sf_text *out) {
  for (int i = 0; i < sf_case_field_count; i++) sf_text_append(out, "%s%s=", i ? " " : "", sf_case_fields[i].path);
}

/* --- bash ---------------------------------------------------------------------------------------------------------- */

static void bash_values(struct sf_text *out, const struct sf_command *command, const struct sf_option *option) {
  const enum values values = values_of(option);
  if (option->type == SF_OPTION_FLAG) return;
  sf_text_append(out, "  %s:--%s", command->name, option->name);
  if (option->letter) sf_text_append(out, " | %s:-%c", command->name, option->letter);
  sf_text_append(out, ") ");
  if (values == VALUES_CHOICES) {
    sf_text_append(out, "words=\"");
    append_words(out, option->choices);
    sf_text_append(out, "\"");
  } else if (values == VALUES_LIST) {
    sf_text_append(out, "words=$(_shardfuzz_list %s)", list_of(option));
  } else {
    sf_text_append(out, values == VALUES_FIELDS ? "words=$fields" : values == VALUES_FILES ? "files=1" : "words=");
  }
  sf_text_append(out, " ;;\n");
}

static void bash_words(struct sf_text *out, const struct sf_command *command) {
  sf_text_append(out, "  %s:*) words=\"", command->name);
  for (int32_t i = 0; i < command->option_count; i++) sf_text_append(out, "--%s ", command->options[i].name);
  sf_text_append(out, "--help\"; arguments=\"");
  if (has_words(command)) append_split(out, command->arguments);
  sf_text_append(out, "\"; files=%d ;;\n", command->arguments && !has_words(command));
}

void sf_completion_bash(struct sf_text *out, const struct sf_manual *manual) {
  sf_text_append(out,
                 "# Completion of shardfuzz %s for bash; made by `shardfuzz manual`.\n"
                 "_shardfuzz_list() { \"${COMP_WORDS[0]}\" list \"$1\" 2>/dev/null | cut -d ' ' -f 1; }\n"
                 "_shardfuzz() {\n"
                 "  local current=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} words= arguments= files=0 fields\n"
                 "  if [ \"$current\" = = ]; then current=; fi # bash takes --option=value for three words\n"
                 "  if [ \"${COMP_WORDS[COMP_CWORD]}\" != = ] && [ \"$option\" = = ]; then option=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
                 "  fields=\"",
                 manual->version);
  append_fields(out);
  sf_text_append(out, "\"\n  case ${COMP_WORDS[1]}:$option in\n  *:shardfuzz | *:*/shardfuzz | help:help) words=\"");
  for (int32_t i = 0; i < manual->command_count; i++) sf_text_append(out, "%s ", manual->commands[i]->name);
  sf_text_append(out, "help --help --version\" ;;\n");
  for (int32_t i = 0; i < manual->command_count; i++) {
    const struct sf_command *command = manual->commands[i];
    for (int32_t k = 0; k < command->option_count; k++) bash_values(out, command, &command->options[k]);
    bash_words(out, command);
  }
  sf_text_append(out, "  esac\n"
                      "  case $current in -*) files=0 ;; *) words=${arguments:-$words} ;; esac\n"
                      "  if [ $files -eq 1 ]; then\n"
                      "    compopt -o filenames 2>/dev/null\n"
                      "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
                      "  else\n"
                      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                      "    case ${COMPREPLY[0]} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
                      "  fi\n"
                      "}\n"
                      "complete -F _shardfuzz shardfuzz\n");
}

/* --- zsh ----------------------------------------------------------------------------------------------------------- */

/* Help inside of a quoted specification of _arguments: a bracket would end it, and a quote the quotes. */
static void zsh_text(struct sf_text *out, const char *text) {
  for (const char *at = text; *at; at++) {
    if (*at == '\'')
      sf_text_append(out, "'\\''");
    else if (strchr("[]:\\", *at))
      sf_text_append(out, "\\%c", *at);
    else
      sf_text_append(out, "%c", *at);
  }
}

/* ":what:action" of a value. */
static void zsh_value(struct sf_text *out, const struct sf_option *option) {
  const enum values values = values_of(option);
  if (option->type == SF_OPTION_FLAG) return;
  sf_text_append(out, ":");
  zsh_text(out, option->value ? option->value : "value");
  sf_text_append(out, ":");
  if (values == VALUES_CHOICES) {
    sf_text_append(out, "(");
    append_words(out, option->choices);
    sf_text_append(out, ")");
  } else if (values == VALUES_LIST) {
    sf_text_append(out, "{compadd -- $(_shardfuzz_list %s)}", list_of(option));
  } else {
    sf_text_append(out, values == VALUES_FIELDS ? "{compadd -S \"\" -- $fields}" : values == VALUES_FILES ? "_files" : " ");
  }
}

static void zsh_option(struct sf_text *out, const struct sf_option *option, const char *dashes, const char *name) {
  const bool repeats = option->type == SF_OPTION_TEXTS || option->type == SF_OPTION_KEY_VALUE;
  sf_text_append(out, " \\\n      '%s%s%s%s[", repeats ? "*" : "", dashes, name,
                 option->type == SF_OPTION_FLAG ? ""
                 : strlen(dashes) == 2          ? "="
                                                : "");
  zsh_text(out, option->help);
  sf_text_append(out, "]");
  zsh_value(out, option);
  sf_text_append(out, "'");
}

static void zsh_command(struct sf_text *out, const struct sf_command *command) {
  sf_text_append(out, "  %s) _arguments '--help[show its options]'", command->name);
  for (int32_t i = 0; i < command->option_count; i++) {
    const char letter[] = {command->options[i].letter, '\0'};
    zsh_option(out, &command->options[i], "--", command->options[i].name);
    if (*letter) zsh_option(out, &command->options[i], "-", letter);
  }
  if (has_words(command)) {
    sf_text_append(out, " \\\n      '*:what:(");
    append_split(out, command->arguments);
    sf_text_append(out, ")'");
  } else if (command->arguments) {
    sf_text_append(out, " \\\n      '*:%s:_files'", command->arguments);
  }
  sf_text_append(out, " ;;\n");
}

void sf_completion_zsh(struct sf_text *out, const struct sf_manual *manual) {
  sf_text_append(out,
                 "#compdef shardfuzz\n# Completion of shardfuzz %s for zsh; made by `shardfuzz manual`.\n"
                 "_shardfuzz_list() { shardfuzz list $1 2>/dev/null | cut -d ' ' -f 1 }\n"
                 "_shardfuzz() {\n"
                 "  local command\n"
                 "  local -a commands=(\n",
                 manual->version);
  for (int32_t i = 0; i < manual->command_count; i++) {
    sf_text_append(out, "    '%s:", manual->commands[i]->name);
    zsh_text(out, manual->commands[i]->summary);
    sf_text_append(out, "'\n");
  }
  sf_text_append(out, "    'help:show the options of a command'\n  )\n  local -a fields=(");
  append_fields(out);
  sf_text_append(out, ")\n"
                      "  if (( CURRENT == 2 )) || [[ $words[2] == help ]]; then\n"
                      "    _describe command commands\n"
                      "    return\n"
                      "  fi\n"
                      "  command=$words[2]\n"
                      "  shift words\n"
                      "  (( CURRENT-- ))\n"
                      "  case $command in\n");
  for (int32_t i = 0; i < manual->command_count; i++) zsh_command(out, manual->commands[i]);
  sf_text_append(out, "  esac\n}\n_shardfuzz \"$@\"\n");
}
