/* manual: man pages and completions, which the build installs. */
#include "harness/base/sinks.h"
#include "harness/base/system/directories.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/support/version.h"

#include <stdio.h>
#include <string.h>

struct manual_flags {
  struct sf_texts arguments;
};

/* Writes PREFIX/FOLDER/NAME, and makes the folder. Takes the text. */
static enum sf_status write_text(const char *prefix, const char *folder, const char *name, struct sf_text *text, struct sf_error *error) {
  char path[SF_PATH_TEXT];
  enum sf_status status = SF_OK;
  if (text->failed) status = sf_error_set(error, SF_ENOMEM, "out of memory");
  if (status == SF_OK && snprintf(path, sizeof path, "%s/%s", prefix, folder) >= (int)sizeof path)
    status = sf_error_set(error, SF_EUSAGE, "%.80s..: the path is too long", prefix);
  if (status == SF_OK) status = sf_make_directories(path, error);
  if (status == SF_OK && snprintf(path, sizeof path, "%s/%s/%s", prefix, folder, name) >= (int)sizeof path)
    status = sf_error_set(error, SF_EUSAGE, "%.80s..: the path is too long", prefix);
  if (status == SF_OK) status = sf_bytes_write_file(path, text->data, text->length, error);
  sf_text_destroy(text);
  return status;
}

static enum sf_status write_commands(const char *prefix, const struct sf_manual *about, struct sf_error *error) {
  enum sf_status status = SF_OK;
  for (int32_t i = 0; i < about->command_count && status == SF_OK; i++) {
    struct sf_text page = {0};
    char name[64];
    sf_man_command(&page, about, about->commands[i]);
    snprintf(name, sizeof name, "shardfuzz-%s.1", about->commands[i]->name);
    status = write_text(prefix, "share/man/man1", name, &page, error);
  }
  return status;
}

static int manual(void *context) {
  static const struct {
    const char *folder, *name;
    void (*append)(struct sf_text *out, const struct sf_manual *about);
  } files[] = {{"share/man/man1", "shardfuzz.1", sf_man_program},
               {"share/man/man7", "shardfuzz-fields.7", sf_man_fields},
               {"share/bash-completion/completions", "shardfuzz", sf_completion_bash},
               {"share/zsh/site-functions", "_shardfuzz", sf_completion_zsh}};
  const struct manual_flags *flags = context;
  const struct sf_manual about = {sf_version, sf_commands, sf_command_count, sf_exit_codes, sf_exit_code_count};
  const char *prefix = flags->arguments.items[0];
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = write_commands(prefix, &about, &error);
  for (size_t i = 0; i < sizeof files / sizeof files[0] && status == SF_OK; i++) {
    struct sf_text text = {0};
    files[i].append(&text, &about);
    status = write_text(prefix, files[i].folder, files[i].name, &text, &error);
  }
  return status == SF_OK ? 0 : sf_exit_failure(status, &error);
}

const struct sf_command sf_command_manual = {
    .name = "manual",
    .summary = "write the man pages and completions",
    .arguments = "PREFIX",
    .help =
        "Writes man pages, and completions for bash and zsh, below PREFIX/share, where the shells look for them if PREFIX is /usr/local.",
    SF_ARGUMENTS_ARE(1, 1, struct manual_flags, arguments),
    .flags_bytes = sizeof(struct manual_flags),
    .run = manual,
};
