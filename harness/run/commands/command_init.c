/* init: the files that a repository needs for a gate. */
#include "harness/base/assert.h"
#include "harness/base/bytes.h"
#include "harness/base/sinks.h"
#include "harness/base/system/directories.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum ci_system { CI_GITHUB, CI_GITLAB, CI_CRON, CI_COUNT };
static const char *const system_names[] = {"github", "gitlab", "cron", NULL}; /* in that order */
SF_ASSERT_ENTRIES(system_names, CI_COUNT + 1);

struct init_flags {
  struct sf_texts folders;
  int32_t system;
  const char *target, *repository;
};

static const struct sf_option options[] = {
    SF_CHOICE_AT(struct init_flags, "ci", system, system_names, "what runs the gate; default: github"),
    SF_OPTION_AT(struct init_flags, "target", TEXT, target, "T", "the code under test (shardfuzz list targets)"),
    SF_OPTION_AT(struct init_flags, "repository", TEXT, repository, "OWNER/NAME",
                 "for github: the repository that shardfuzz's own sources are in"),
};

/* Texts of the files: @T@ stands for the target, @R@ for the repository. Both are checked to have no blanks, quotes or line ends. */
static const char github[] = "# Written by shardfuzz init. A pull request fails only on findings that shardfuzz/known.json does not name.\n"
                             "name: shardfuzz\n"
                             "on: pull_request\n"
                             "permissions:\n"
                             "  contents: read\n"
                             "\n"
                             "jobs:\n"
                             "  gate:\n"
                             "    runs-on: ubuntu-24.04\n"
                             "    timeout-minutes: 40\n"
                             "    steps:\n"
                             "      - uses: actions/checkout@v4\n"
                             "      # Build the code under test here, if it is a plugin.\n"
                             "      - uses: @R@/ci/examples/gate@main\n"
                             "        with:\n"
                             "          target: \"@T@\"\n"
                             "          corpus: shardfuzz/corpus\n"
                             "          known: shardfuzz/known.json\n"
                             "          time: 10m\n";
static const char gitlab[] =
    "# Written by shardfuzz init. A merge request fails only on findings that shardfuzz/known.json does not name.\n"
    "# Include it from .gitlab-ci.yml. The image must have shardfuzz on its PATH.\n"
    "shardfuzz-gate:\n"
    "  stage: test\n"
    "  timeout: 40m\n"
    "  rules:\n"
    "    - if: $CI_PIPELINE_SOURCE == \"merge_request_event\"\n"
    "  script:\n"
    "    - shardfuzz gate --target \"@T@\" --corpus shardfuzz/corpus --allow-empty-corpus --known shardfuzz/known.json\n"
    "      --time 10m --out findings --junit gate.xml --summary gate.md --codequality codequality.json\n"
    "  artifacts:\n"
    "    when: always\n"
    "    paths: [findings, gate.md]\n"
    "    reports:\n"
    "      junit: gate.xml\n"
    "      codequality: codequality.json\n";
static const char cron[] =
    "#!/bin/sh\n"
    "# Written by shardfuzz init, for a line of a crontab. Prints something only when the gate does not pass, so that cron sends\n"
    "# mail only then. SHARDFUZZ names the program.\n"
    "cd \"$(dirname \"$0\")/..\" || exit 2\n"
    "\"${SHARDFUZZ:-shardfuzz}\" gate --target \"@T@\" --corpus shardfuzz/corpus --allow-empty-corpus --known shardfuzz/known.json \\\n"
    "  --time \"${SHARDFUZZ_TIME:-1h}\" --seed \"$(date +%s)\" --out findings --summary gate.md >gate.log 2>&1\n"
    "code=$?\n"
    "if [ $code -ne 0 ]; then cat gate.log; fi\n"
    "exit $code\n";
static const char known[] = "[]\n";
static const char corpus[] = "Cases that `shardfuzz gate` replays first. Put the `min.json` of a mended finding here, with\n"
                             "`\"expect\": {\"verdict\": \"PASS\"}`: it guards against the bug's return.\n";

static const struct {
  const char *path, *text, *next;
} systems[] = {
    [CI_GITHUB] = {".github/workflows/shardfuzz.yml", github, "commit these files; the gate runs on the next pull request"},
    [CI_GITLAB] = {"shardfuzz.gitlab-ci.yml", gitlab, "commit these files, and add to .gitlab-ci.yml: include: shardfuzz.gitlab-ci.yml"},
    [CI_CRON] = {"shardfuzz/gate.sh", cron, "name shardfuzz/gate.sh in a crontab, for example: 0 2 * * * PATH/shardfuzz/gate.sh"},
};

struct file {
  const char *path, *text;
  bool is_program;
};
enum { FILES = 3 };

/* A word that may stand in double quotes of YAML and of a shell. */
static enum sf_status check_word(const char *option, const char *word, struct sf_error *error) {
  const char *wrong = strpbrk(word, "\"'\\`$ \t\n\r");
  if (!wrong) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--%s: \"%.100s\" has a blank, a quote or a dollar sign: write the file by hand", option, word);
}

static enum sf_status check(const struct init_flags *flags, struct sf_error *error) {
  if (!flags->target) return sf_error_set(error, SF_EUSAGE, "--target T is missing: what the gate tests (shardfuzz list targets)");
  enum sf_status status = check_word("target", flags->target, error);
  if (status == SF_OK && flags->repository) status = check_word("repository", flags->repository, error);
  if (status != SF_OK) return status;
  const char *slash = flags->repository ? strchr(flags->repository, '/') : NULL;
  if (flags->system == CI_GITHUB && (!slash || slash == flags->repository || !slash[1] || strchr(slash + 1, '/')))
    return sf_error_set(error, SF_EUSAGE, "--repository OWNER/NAME is missing: the repository on GitHub that shardfuzz's sources are in");
  if (flags->system != CI_GITHUB && flags->repository) return sf_error_set(error, SF_EUSAGE, "--repository is only for --ci github");
  return SF_OK;
}

static void fill_in(struct sf_text *out, const char *text, const struct init_flags *flags) {
  for (const char *at = text; *at; at++) {
    const char *word = strncmp(at, "@T@", 3) == 0 ? flags->target : strncmp(at, "@R@", 3) == 0 ? flags->repository : NULL;
    sf_text_append(out, word ? "%s" : "%.1s", word ? word : at);
    if (word) at += 2;
  }
}

static enum sf_status place_of(char out[SF_PATH_TEXT], const char *folder, const char *path, struct sf_error *error) {
  const bool is_here = strcmp(folder, ".") == 0;
  const int length = snprintf(out, SF_PATH_TEXT, "%s%s%s", is_here ? "" : folder, is_here ? "" : "/", path);
  return length < SF_PATH_TEXT ? SF_OK : sf_error_set(error, SF_EUSAGE, "the path is too long: %.60s..", folder);
}

/* Nothing is written if one of the files is there. */
static enum sf_status check_places(const char *folder, const struct file *files, struct sf_error *error) {
  char path[SF_PATH_TEXT];
  struct stat info;
  if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode)) return sf_error_set(error, SF_EINPUT, "%s: not a folder", folder);
  for (int i = 0; i < FILES; i++) {
    const enum sf_status status = place_of(path, folder, files[i].path, error);
    if (status != SF_OK) return status;
    if (lstat(path, &info) == 0) return sf_error_set(error, SF_EUSAGE, "%s: exists already; nothing was written", path);
  }
  return SF_OK;
}

static enum sf_status write_file(const char *folder, const struct file *file, const struct init_flags *flags, struct sf_error *error) {
  char path[SF_PATH_TEXT], parent[SF_PATH_TEXT];
  struct sf_text text = {0};
  enum sf_status status = place_of(path, folder, file->path, error);
  snprintf(parent, sizeof parent, "%s", path);
  char *slash = strrchr(parent, '/');
  if (slash) *slash = '\0';
  if (status == SF_OK && slash) status = sf_make_directories(parent, error);
  fill_in(&text, file->text, flags);
  if (status == SF_OK && text.failed) status = SF_ENOMEM;
  if (status == SF_OK) status = sf_bytes_write_file(path, text.data, text.length, error);
  if (status == SF_OK && file->is_program && chmod(path, 0755) != 0)
    status = sf_error_set(error, SF_EIO, "%s: cannot be made executable", path);
  if (status == SF_OK) sf_print(stdout, "wrote %s\n", path);
  sf_text_destroy(&text);
  return status;
}

static int run(void *context) {
  const struct init_flags *flags = context;
  const char *folder = flags->folders.count ? flags->folders.items[0] : ".";
  const struct file files[FILES] = {{systems[flags->system].path, systems[flags->system].text, flags->system == CI_CRON},
                                    {"shardfuzz/known.json", known, false},
                                    {"shardfuzz/corpus/README.md", corpus, false}};
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = check(flags, &error);
  if (status == SF_OK) status = check_places(folder, files, &error);
  for (int i = 0; i < FILES && status == SF_OK; i++) status = write_file(folder, &files[i], flags, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  sf_print(stdout, "next: %s\n", systems[flags->system].next);
  return 0;
}

const struct sf_command sf_command_init = {
    .name = "init",
    .summary = "write the files that a repository needs for a gate",
    .arguments = "[DIR]",
    .help =
        "Writes a workflow that runs shardfuzz gate, an empty list of known findings and a folder for a corpus into DIR, by default the\n"
        "working directory. Overwrites nothing.",
    SF_OPTIONS_ARE(options),
    SF_ARGUMENTS_ARE(0, 1, struct init_flags, folders),
    .flags_bytes = sizeof(struct init_flags),
    .run = run,
};
