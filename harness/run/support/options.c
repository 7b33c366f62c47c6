#include "harness/run/support/options.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/nearest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- values ---------------------------------------------------------------------------------------------------------------- */

/* Reads the decimal digits at the start of *text and moves it past them. False when there are none or the number does not fit. */
static bool digits_read(int64_t *out, const char **text) {
  int64_t value = 0;
  const char *at = *text;
  for (; *at >= '0' && *at <= '9'; at++) {
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *at - '0', &value)) return false;
  }
  if (at == *text) return false;
  *text = at;
  *out = value;
  return true;
}

enum sf_status sf_int_from_text(int64_t *out, const char *text, int64_t min, int64_t max, const char *what, struct sf_error *error) {
  const char *at = text;
  const bool negative = min < 0 && at[0] == '-';
  int64_t value = 0;
  if (negative) at++;
  const bool is_number = digits_read(&value, &at) && *at == '\0';
  if (negative) value = -value;
  if (!is_number || value < min || value > max) {
    return sf_error_set(error, SF_EUSAGE, "%s: \"%s\" is not a whole number from %" PRId64 " to %" PRId64, what, text, min, max);
  }
  *out = value;
  return SF_OK;
}

/* The largest first, in the order of a duration's parts. */
static const struct {
  const char *text;
  int64_t ms;
} units[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
enum { UNIT_OF_BARE_NUMBERS = 2, UNIT_COUNT = sizeof units / sizeof units[0] };

/* Reads the unit's name and moves *text past it; UNIT_COUNT if there is none. */
static size_t unit_read(const char **text) {
  size_t length = 0, unit = 0;
  while ((*text)[length] >= 'a' && (*text)[length] <= 'z') length++;
  while (unit < UNIT_COUNT && (strlen(units[unit].text) != length || memcmp(units[unit].text, *text, length) != 0)) unit++;
  *text += length;
  return unit;
}

/* "1h30m": each part of a smaller unit than the one before it. False when it is no duration or does not fit. */
static bool duration_read(int64_t *out_ms, const char *text) {
  int64_t sum = 0;
  for (size_t next = 0; *text != '\0' || next == 0;) {
    int64_t value = 0;
    if (!digits_read(&value, &text)) return false;
    const size_t unit = next == 0 && *text == '\0' ? UNIT_OF_BARE_NUMBERS : unit_read(&text);
    if (unit < next || unit == UNIT_COUNT) return false;
    if (__builtin_mul_overflow(value, units[unit].ms, &value) || __builtin_add_overflow(sum, value, &sum)) return false;
    next = unit + 1;
  }
  *out_ms = sum;
  return true;
}

enum sf_status sf_duration_from_text(int64_t *out_ms, const char *text, int64_t min_ms, int64_t max_ms, const char *what,
                                     struct sf_error *error) {
  int64_t value = 0;
  if (!duration_read(&value, text)) {
    return sf_error_set(error, SF_EUSAGE, "%s: \"%s\" is not a duration such as 500ms, 90s, 10m or 1h30m", what, text);
  }
  if (value < min_ms || value > max_ms) {
    return sf_error_set(error, SF_EUSAGE, "%s: \"%s\" is not between %" PRId64 "ms and %" PRId64 "ms", what, text, min_ms, max_ms);
  }
  *out_ms = value;
  return SF_OK;
}

enum sf_status sf_key_value_split(char *key, size_t key_size, const char **value, const char *text, struct sf_error *error) {
  const char *equals = strchr(text, '=');
  const size_t length = equals == NULL ? 0 : (size_t)(equals - text);
  if (length == 0) return sf_error_set(error, SF_EUSAGE, "\"%s\" is not KEY=VALUE", text);
  if (length >= key_size) return sf_error_set(error, SF_EUSAGE, "\"%s\": the key is too long", text);
  memcpy(key, text, length);
  key[length] = '\0';
  *value = equals + 1;
  return SF_OK;
}

/* --- storing --------------------------------------------------------------------------------------------------------------- */

static enum sf_status texts_add(struct sf_texts *texts, const char *text, struct sf_error *error) {
  const char **grown = sf_grown(texts->items, texts->count, sizeof *grown);
  if (grown == NULL) return sf_error_set(error, SF_ENOMEM, "out of memory");
  grown[texts->count] = text;
  texts->items = grown;
  texts->count++;
  return SF_OK;
}

static enum sf_status choice_store(int32_t *out, const struct sf_option *option, const char *text, const char *what,
                                   struct sf_error *error) {
  struct sf_text known = {0};
  struct sf_nearest nearest = sf_nearest_to(text);
  for (int32_t i = 0; option->choices[i] != NULL; i++) {
    sf_nearest_offer(&nearest, option->choices[i]);
    if (strcmp(option->choices[i], text) == 0) {
      *out = i;
      sf_text_destroy(&known);
      return SF_OK;
    }
    sf_text_append(&known, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
  }
  const enum sf_status status = sf_error_set(error, SF_EUSAGE, "%s: \"%s\" is none of: %s%s", what, text,
                                             known.data == NULL ? "" : known.data, sf_nearest_text(&nearest));
  sf_text_destroy(&known);
  return status;
}

/* what: the option as the user wrote it, for the message. */
static enum sf_status option_store(const struct sf_option *option, void *target, const char *text, const char *what,
                                   struct sf_error *error) {
  void *const at = (char *)target + option->offset;
  const int64_t max = option->min == 0 && option->max == 0 ? INT64_MAX : option->max;
  switch (option->type) {
  case SF_OPTION_FLAG:
    *(bool *)at = true;
    return SF_OK;
  case SF_OPTION_INT:
    return sf_int_from_text(at, text, option->min, max, what, error);
  case SF_OPTION_DURATION:
    return sf_duration_from_text(at, text, option->min, max, what, error);
  case SF_OPTION_CHOICE:
    return choice_store(at, option, text, what, error);
  case SF_OPTION_CALL:
    return option->call(target, text, error);
  case SF_OPTION_KEY_VALUE:
    if (strchr(text, '=') == NULL || text[0] == '=') return sf_error_set(error, SF_EUSAGE, "%s: \"%s\" is not KEY=VALUE", what, text);
    return texts_add(at, text, error);
  case SF_OPTION_TEXT:
  case SF_OPTION_TEXTS:
    if (text[0] == '\0') return sf_error_set(error, SF_EUSAGE, "%s: the value is empty", what);
    if (option->type == SF_OPTION_TEXTS) return texts_add(at, text, error);
    *(const char **)at = text;
    return SF_OK;
  }
  SF_ASSERT(!"an option of no type");
  return SF_EUSAGE;
}

/* --- parsing --------------------------------------------------------------------------------------------------------------- */

/* One command line being read. */
struct reader {
  const struct sf_command *command;
  void *target;
  int argc, at;
  char *const *argv;
  struct sf_error *error;
};

/* The option that "--name", "--name=value" or "-n" means, NULL for none. *name_length: of the part before "=". */
static const struct sf_option *option_find(const struct sf_command *command, const char *word, size_t *name_length) {
  *name_length = strcspn(word, "=");
  for (int32_t i = 0; i < command->option_count; i++) {
    const struct sf_option *option = &command->options[i];
    const bool is_long =
        strncmp(word, "--", 2) == 0 && strlen(option->name) == *name_length - 2 && strncmp(word + 2, option->name, *name_length - 2) == 0;
    const bool is_short = option->letter != 0 && word[1] == option->letter && word[2] == '\0';
    if (is_long || is_short) return option;
  }
  return NULL;
}

/* what: the option as the user wrote it, without its value. */
static enum sf_status option_refuse(const struct reader *reader, const char *what) {
  const struct sf_command *command = reader->command;
  struct sf_nearest nearest = sf_nearest_to(what + strspn(what, "-"));
  for (int32_t i = 0; i < command->option_count; i++) sf_nearest_offer(&nearest, command->options[i].name);
  if (*nearest.best) return sf_error_set(reader->error, SF_EUSAGE, "unknown option %s; did you mean --%s?", what, nearest.best);
  return sf_error_set(reader->error, SF_EUSAGE, "unknown option %s (shardfuzz %s --help lists them)", what, command->name);
}

static enum sf_status option_read(struct reader *reader) {
  const char *word = reader->argv[reader->at++];
  size_t name_length = 0;
  const struct sf_option *option = option_find(reader->command, word, &name_length);
  const char *value = word[name_length] == '=' ? word + name_length + 1 : NULL;
  char what[64];
  snprintf(what, sizeof what, "%.*s", (int)name_length, word);
  if (option == NULL) return option_refuse(reader, what);
  if (option->type == SF_OPTION_FLAG) {
    if (value != NULL) return sf_error_set(reader->error, SF_EUSAGE, "%s takes no value", what);
  } else if (value == NULL) {
    if (reader->at == reader->argc) return sf_error_set(reader->error, SF_EUSAGE, "%s needs a value", what);
    value = reader->argv[reader->at++];
  }
  return option_store(option, reader->target, value, what, reader->error);
}

static bool help_wanted(int argc, char *const *argv) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  }
  return false;
}

static enum sf_status argument_read(struct reader *reader, int32_t *argument_count) {
  const struct sf_command *command = reader->command;
  const char *word = reader->argv[reader->at++];
  if (*argument_count == command->argument_max) {
    return sf_error_set(reader->error, SF_EUSAGE, "unexpected argument \"%s\"", word);
  }
  ++*argument_count;
  return texts_add((struct sf_texts *)(void *)((char *)reader->target + command->argument_offset), word, reader->error);
}

enum sf_status sf_command_parse(const struct sf_command *command, void *target, bool *wants_help, int argc, char *const *argv,
                                struct sf_error *error) {
  struct reader reader = {.command = command, .target = target, .argc = argc, .argv = argv, .error = error};
  bool options_ended = false;
  int32_t argument_count = 0;
  *wants_help = help_wanted(argc, argv);
  if (*wants_help) return SF_OK;
  while (reader.at < argc) {
    const char *word = argv[reader.at];
    enum sf_status status = SF_OK;
    if (!options_ended && strcmp(word, "--") == 0) {
      options_ended = true;
      reader.at++;
    } else if (!options_ended && word[0] == '-' && word[1] != '\0') {
      status = option_read(&reader);
    } else {
      status = argument_read(&reader, &argument_count);
    }
    if (status != SF_OK) return status;
  }
  if (argument_count < command->argument_min) {
    return sf_error_set(error, SF_EUSAGE, "%s is missing (usage: shardfuzz %s [options] %s)",
                        command->argument_min == 1 ? "an argument" : "some argument", command->name, command->arguments);
  }
  return SF_OK;
}

static void texts_clear(struct sf_texts *texts) {
  sf_free(texts->items);
  *texts = (struct sf_texts){0};
}

void sf_command_clear(const struct sf_command *command, void *target) {
  for (int32_t i = 0; i < command->option_count; i++) {
    const struct sf_option *option = &command->options[i];
    if (option->type == SF_OPTION_TEXTS || option->type == SF_OPTION_KEY_VALUE)
      texts_clear((struct sf_texts *)(void *)((char *)target + option->offset));
  }
  if (command->argument_max > 0) texts_clear((struct sf_texts *)(void *)((char *)target + command->argument_offset));
}

/* --- help ------------------------------------------------------------------------------------------------------------------ */

enum { HELP_COLUMN = 26, HELP_WIDTH = 100 };

static const char *const value_words[] = {
    [SF_OPTION_FLAG] = NULL,     [SF_OPTION_INT] = "N",      [SF_OPTION_DURATION] = "TIME",
    [SF_OPTION_TEXT] = "TEXT",   [SF_OPTION_TEXTS] = "TEXT", [SF_OPTION_KEY_VALUE] = "KEY=VALUE",
    [SF_OPTION_CHOICE] = "NAME", [SF_OPTION_CALL] = "VALUE",
};

void sf_option_usage(struct sf_text *out, const struct sf_option *option) {
  if (option->letter != 0) sf_text_append(out, "-%c, ", option->letter);
  sf_text_append(out, "--%s", option->name);
  if (option->type == SF_OPTION_CHOICE && option->value == NULL) {
    for (int32_t i = 0; option->choices[i] != NULL; i++) sf_text_append(out, "%c%s", i == 0 ? ' ' : '|', option->choices[i]);
    return;
  }
  const char *value = option->value != NULL ? option->value : value_words[option->type];
  if (value != NULL) sf_text_append(out, " %s", value);
}

/* Words of text from column HELP_COLUMN on, broken before HELP_WIDTH. */
static void wrapped_append(struct sf_text *out, const char *text) {
  size_t column = HELP_COLUMN;
  for (const char *at = text; *at != '\0';) {
    const size_t length = strcspn(at, " ");
    if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
      sf_text_append(out, "\n%*s", HELP_COLUMN, "");
      column = HELP_COLUMN;
    } else if (column > HELP_COLUMN) {
      sf_text_append(out, " ");
      column++;
    }
    sf_text_append(out, "%.*s", (int)length, at);
    column += length;
    at += length + strspn(at + length, " ");
  }
  sf_text_append(out, "\n");
}

static void option_help(struct sf_text *out, const struct sf_option *option) {
  const size_t before = out->length;
  sf_text_append(out, "  ");
  sf_option_usage(out, option);
  const size_t used = out->length - before;
  if (used + 2 > HELP_COLUMN) {
    sf_text_append(out, "\n%*s", HELP_COLUMN, "");
  } else {
    sf_text_append(out, "%*s", HELP_COLUMN - (int)used, "");
  }
  wrapped_append(out, option->help);
}

void sf_command_help(struct sf_text *out, const struct sf_command *command) {
  sf_text_append(out, "usage: shardfuzz %s%s%s%s\n\n%s\n", command->name, command->option_count > 0 ? " [options]" : "",
                 command->arguments == NULL ? "" : " ", command->arguments == NULL ? "" : command->arguments, command->help);
  if (command->option_count > 0) sf_text_append(out, "\noptions:\n");
  for (int32_t i = 0; i < command->option_count; i++) option_help(out, &command->options[i]);
}
