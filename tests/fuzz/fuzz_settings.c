/* Bytes as a command line, an argument on each line: of `fuzz`, whose --set and --time each argument is too. What is refused gives one
 * line. */
#include "generators/codec.h"
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/commands/commands.h"

#include <string.h>

enum { ARGUMENTS_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(enum sf_status status, const struct sf_error *error) {
  if (status == SF_OK) return;
  SF_ASSERT(status == SF_EUSAGE || status == SF_EINPUT);
  SF_ASSERT(*error->text != '\0' && strchr(error->text, '\n') == NULL);
}

static void check_setting(const char *text) {
  static struct sf_space space;
  struct sf_error error = {SF_OK, ""};
  int64_t number = 0;
  enum sf_status status = sf_duration_from_text(&number, text, 1, INT64_C(1) << 40, "--time", &error);
  check_error(status, &error);
  if (status == SF_OK) SF_ASSERT(number >= 1 && number <= INT64_C(1) << 40);
  status = sf_int_from_text(&number, text, -5, 1000, "--cases", &error);
  check_error(status, &error);
  if (status == SF_OK) SF_ASSERT(number >= -5 && number <= 1000);
  sf_space_init(&space);
  check_error(sf_space_set(&space, text, &error), &error);
}

static const struct sf_command *command_of(const char *name) {
  for (int32_t i = 0; i < sf_command_count; i++)
    if (strcmp(sf_commands[i]->name, name) == 0) return sf_commands[i];
  return NULL;
}

static void check_command(int count, char *const *arguments) {
  const struct sf_command *command = command_of("fuzz");
  struct sf_error error = {SF_OK, ""};
  bool wants_help = false;
  void *flags = sf_alloc(command->flags_bytes);
  SF_ASSERT(flags != NULL);
  command->set_defaults(flags);
  check_error(sf_command_parse(command, flags, &wants_help, count, arguments, &error), &error);
  sf_command_clear(command, flags);
  sf_free(flags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = sf_alloc(size + 1), *rest = NULL, *arguments[ARGUMENTS_MAX + 1];
  int count = 0;
  SF_ASSERT(text != NULL);
  memcpy(text, data, size);
  text[size] = '\0';
  for (char *word = strtok_r(text, "\n", &rest); word && count < ARGUMENTS_MAX; word = strtok_r(NULL, "\n", &rest))
    arguments[count++] = word;
  arguments[count] = NULL;
  for (int i = 0; i < count; i++) check_setting(arguments[i]);
  check_command(count, arguments);
  sf_free(text);
  return 0;
}
