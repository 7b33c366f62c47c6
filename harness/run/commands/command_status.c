/* status: where a campaign stands, told by its store. */
#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/run/campaign/standing.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/store/store.h"
#include "harness/run/support/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct status_flags {
  struct sf_texts stores;
  bool watch, json, prometheus;
  char path[SF_PATH_TEXT]; /* of the store, which may have been given by its folder */
};

static const struct sf_option options[] = {
    SF_OPTION_AT(struct status_flags, "watch", FLAG, watch, NULL, "go on until the campaign has ended"),
    SF_OPTION_AT(struct status_flags, "json", FLAG, json, NULL, "print one JSON object; with --watch one for each look"),
    SF_OPTION_AT(struct status_flags, "prometheus", FLAG, prometheus, NULL,
                 "print Prometheus's text format, for the textfile collector of a node exporter"),
};

static int print_json(const struct sf_standing *standing, const char *path) {
  json_t *object = sf_json_of_standing(standing);
  if (object && json_object_set_new(object, "store", sf_json_text(path)) != 0) json_decref(object), object = NULL;
  return sf_exit_json(object, SF_STANDING_DIGITS, 0);
}

static int print_prometheus(const struct sf_standing *standing, const char *path) {
  struct sf_text text = {0};
  sf_standing_prometheus(&text, standing, path);
  const bool failed = text.failed;
  if (!failed) sf_print_lines(stdout, text.data);
  sf_text_destroy(&text);
  return failed ? sf_exit_failure(SF_ENOMEM, NULL) : 0;
}

static int print_people(const struct sf_standing *standing, const char *path) {
  struct sf_screen_line lines[SF_STANDING_LINES];
  const int32_t count = sf_standing_screen(lines, standing, path, (double)time(NULL));
  for (int32_t i = 0; i < count; i++) sf_print(stdout, "%-11s%s\n", lines[i].label, lines[i].text);
  return 0;
}

static int print_once(const struct status_flags *flags, const struct sf_standing *standing) {
  const char *path = flags->path;
  return flags->json ? print_json(standing, path) : flags->prometheus ? print_prometheus(standing, path) : print_people(standing, path);
}

static void draw(struct sf_progress *progress, const struct sf_standing *standing, const char *path, double now) {
  struct sf_screen_line lines[SF_STANDING_LINES];
  const int32_t width = sf_progress_screen_width(progress, SF_STANDING_LINES);
  struct sf_text line = {0};
  if (width > 0) {
    sf_progress_draw(progress, now, lines, sf_standing_screen(lines, standing, path, (double)time(NULL)), width);
    return;
  }
  sf_standing_line(&line, standing);
  if (!line.failed) sf_progress_show(progress, now, "%s", line.data);
  sf_text_destroy(&line);
}

/* Looks once a second until the campaign has ended or the user has seen enough. */
static int watch(const struct status_flags *flags) {
  struct sf_error error = {SF_OK, ""};
  struct sf_standing standing;
  struct sf_progress progress = sf_progress_begin(stdout, isatty(STDOUT_FILENO), 0);
  const char *path = flags->path;
  for (int64_t second = 0;; second++) {
    const enum sf_status status = sf_standing_read(&standing, path, &error);
    if (status != SF_OK) {
      sf_progress_end(&progress);
      return sf_exit_failure(status, &error);
    }
    if (standing.state != SF_CAMPAIGN_RUNNING || sf_interrupted) break;
    int code = 0;
    if (flags->json || flags->prometheus)
      code = print_once(flags, &standing);
    else if (second == 0 || sf_progress_is_due(&progress, (double)second))
      draw(&progress, &standing, path, (double)second);
    if (code != 0 || fflush(stdout) != 0) return code ? code : 3;
    sleep(1);
  }
  sf_progress_end(&progress);
  return print_once(flags, &standing);
}

/* A folder stands for its newest store. */
static enum sf_status find_store(struct status_flags *flags, struct sf_error *error) {
  const char *given = flags->stores.items[0];
  struct stat info;
  if (stat(given, &info) == 0 && S_ISDIR(info.st_mode)) {
    if (sf_common_newest_store(flags->path, sizeof flags->path, given)) return SF_OK;
    return sf_error_set(error, SF_EINPUT, "%s: there is no campaign's store (campaign-*.sqlite) in this folder", given);
  }
  if (snprintf(flags->path, sizeof flags->path, "%s", given) < (int)sizeof flags->path) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: the path is too long", given);
}

static int run(void *context) {
  struct status_flags *flags = context;
  struct sf_error error = {SF_OK, ""};
  struct sf_standing standing;
  if (flags->json && flags->prometheus)
    return sf_exit_failure(sf_error_set(&error, SF_EUSAGE, "--json and --prometheus: choose one"), &error);
  enum sf_status status = find_store(flags, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  if (flags->watch) {
    sf_watch_interrupts();
    return watch(flags);
  }
  status = sf_standing_read(&standing, flags->path, &error);
  return status == SF_OK ? print_once(flags, &standing) : sf_exit_failure(status, &error);
}

const struct sf_command sf_command_status = {
    .name = "status",
    .summary = "show where a campaign stands, while it runs or later",
    .arguments = "STORE|DIR",
    .help = "Shows where the campaign of a store stands: from another terminal, or from another node that sees the file.\n"
            "A folder (--out of fuzz) stands for its newest store.\n"
            "Exits with 0, whatever the campaign has found.",
    SF_OPTIONS_ARE(options),
    SF_ARGUMENTS_ARE(1, 1, struct status_flags, stores),
    .flags_bytes = sizeof(struct status_flags),
    .run = run,
};
