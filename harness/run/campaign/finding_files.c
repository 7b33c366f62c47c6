#include "harness/run/campaign/finding_files.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/bytes.h"
#include "harness/base/names.h"
#include "harness/base/sinks.h"
#include "harness/base/system/directories.h"
#include "harness/run/process/subject.h"
#include "targets/target.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASE_FILE "case.json"
#define MIN_FILE "min.json"
#define SCRIPT_FILE "script.py"
#define REPORT_FILE "report.txt"

enum { SF_SHRINK_LINE_TEXT = 1400 };

struct sf_case sf_case_expecting(const struct sf_case *c, const struct sf_outcome *outcome) {
  struct sf_case copy = *c;
  copy.expect.present = true;
  snprintf(copy.expect.verdict, sizeof copy.expect.verdict, "%s", sf_verdict_name(outcome->verdict));
  snprintf(copy.expect.signature, sizeof copy.expect.signature, "%s", outcome->verdict == SF_VERDICT_FINDING ? outcome->signature : "");
  return copy;
}

void sf_finding_shrink_text(char *out, size_t size, const struct sf_job_result *shrunk) {
  static const char *const why_not[] = {
      [SF_SHRINK_CUT_NOT] = "the budget ran out",
      [SF_SHRINK_CUT_TIME] = "the time ran out",
      [SF_SHRINK_CUT_LACK] = "the machine lacked memory, processes or connections for a trial, several times in a row",
  };
  if (shrunk->end == SF_SHRINK_DONE && shrunk->is_explained) {
    snprintf(out, size, "not by itself: the smallest case of another finding explains it");
  } else if (shrunk->end == SF_SHRINK_DONE && shrunk->budget > 0) {
    snprintf(out, size, "in %d of at most %d trials; minimal: ", shrunk->evaluations, shrunk->budget);
    const size_t length = strlen(out);
    if (shrunk->minimal)
      snprintf(out + length, size - length, "yes");
    else
      snprintf(out + length, size - length, "no (%s)", why_not[shrunk->cut]);
  } else if (shrunk->end == SF_SHRINK_DONE) {
    snprintf(out, size, "no: the budget is 0 trials, so the case was only run again");
  } else if (shrunk->end == SF_SHRINK_FLAKY) {
    snprintf(out, size, "no: in a second run the case did not fail in the same way (flaky)");
  } else {
    snprintf(out, size, "no: %s: %.*s",
             shrunk->end == SF_SHRINK_LOST ? "the process that shrinks the case died several times in a row"
                                           : "the case was run several times to confirm it, and never ended",
             (int)strcspn(shrunk->outcome.text, "\n"), shrunk->outcome.text);
  }
}

void sf_finding_message(struct sf_text *out, const char *name, const char *what, const struct sf_diagnosis *diagnosis) {
  char line[SF_DIAGNOSIS_LINE_TEXT];
  size_t length = strcspn(what, "\n");
  if (length > 0 && what[length - 1] == ':') length--;
  sf_diagnosis_line(line, diagnosis);
  if (name) sf_text_append(out, "new finding %s: ", name);
  sf_line_append(out, "%.*s", (int)length, what);
  if (name && *line) sf_text_append(out, "; diagnosis: %s", line);
  if (name && *diagnosis->operation) sf_line_append(out, "; operation: %s", diagnosis->operation);
}

static void append_story(struct sf_text *text, const struct sf_finding_story *story) {
  char shrunk[SF_SHRINK_LINE_TEXT];
  if (story->in_campaign)
    sf_line_append(text, "found        in case %" PRId64 " of the campaign with seed %" PRIu64 "\n", story->index, story->seed);
  if (story->shrunk) {
    sf_finding_shrink_text(shrunk, sizeof shrunk, story->shrunk);
    sf_line_append(text, "shrunk       %s\n", shrunk);
  } else if (story->out_of_time) {
    sf_line_append(text, "shrunk       no: the time was over before the case could be run again and be shrunk\n");
  } else if (story->in_campaign) {
    sf_line_append(text, "shrunk       no: findings of this kind were shrunk often enough before\n");
  }
}

/* Which code was run, unless it is this program's. */
static void append_target(struct sf_text *text, const struct sf_case *c, const struct sf_finding_story *story) {
  const char *other = story && story->replay ? story->replay->target : NULL;
  if (other || (*c->target && strcmp(c->target, sf_target_builtin.name) != 0))
    sf_line_append(text, "target       %s\n", other ? other : c->target);
}

enum sf_status sf_finding_report(char **out, const struct sf_case *c, const struct sf_outcome *outcome,
                                 const struct sf_finding_story *story) {
  const struct sf_subject *subject = sf_subject_of(c);
  struct sf_text text = {0};
  char line[SF_DIAGNOSIS_LINE_TEXT], why[SF_CONTRAST_LINE_TEXT];
  sf_line_append(&text, "verdict      %s (%s)\n", sf_verdict_name(outcome->verdict), sf_finding_class_name(outcome->cls));
  sf_line_append(&text, "signature    %s\n", outcome->signature);
  subject->tell(&text, c, outcome);
  sf_diagnosis_line(line, &outcome->diagnosis);
  if (*line) sf_line_append(&text, "diagnosis    %s\n", line);
  if (*outcome->diagnosis.operation) sf_line_append(&text, "operation    %s\n", outcome->diagnosis.operation);
  if (*outcome->pattern) sf_line_append(&text, "pattern      %s\n", outcome->pattern);
  subject->tell_case(&text, c, outcome);
  append_target(&text, c, story);
  for (int32_t i = 0; i < outcome->further_count; i++) {
    const struct sf_culprit *other = &outcome->further[i];
    sf_line_append(&text, "also wrong   %s: %s (%s)\n", other->first_id, other->text, other->signature);
  }
  if (outcome->finding_count > 1 + outcome->further_count)
    sf_text_append(&text, "findings     %d wrong tensors in this run\n", outcome->finding_count);
  sf_contrast_line(why, story == NULL ? NULL : story->shrunk != NULL ? story->shrunk->contrast : story->contrast);
  if (*why) sf_line_append(&text, "contrast     %s\n", why);
  if (story) append_story(&text, story);
  if (story && story->replay_path) {
    sf_text_append(&text, "replay       ");
    sf_replay_append(&text, story->replay_path, story->replay, story->inside_mpi ? sf_case_ranks(c) : 0);
    sf_text_append(&text, "\n");
  }
  if (text.failed) {
    sf_text_destroy(&text);
    return SF_ENOMEM;
  }
  *out = text.data;
  return SF_OK;
}

const char *sf_finding_read_beside(struct sf_bytes *bytes, const char *path, const char *name) {
  enum { BYTES_MAX = 1 << 20 };
  char beside[SF_PATH_TEXT];
  const char *slash = strrchr(path, '/');
  const int folder = slash ? (int)(slash - path) + 1 : 0;
  if (strcmp(path + folder, MIN_FILE) != 0) return NULL;
  if (snprintf(beside, sizeof beside, "%.*s%s", folder, path, name) >= (int)sizeof beside) return NULL;
  return sf_bytes_read_file(bytes, beside, BYTES_MAX, NULL) == SF_OK ? (const char *)bytes->data : NULL;
}

void sf_finding_folder_name(char out[NAME_MAX + 1], const char *signature, int32_t number) {
  static const char flaky[] = "flaky/";
  enum { NUMBER_TEXT = 12 };
  const int32_t slashes = strncmp(signature, flaky, sizeof flaky - 1) == 0 ? 3 : 2;
  sf_name_fit_path(out, number > 1 ? NAME_MAX + 1 - NUMBER_TEXT : NAME_MAX + 1, signature, slashes);
  const size_t length = strlen(out);
  if (number > 1) snprintf(out + length, NAME_MAX + 1 - length, "-%d", number);
}

void sf_finding_directory(char *out, size_t size, const char *out_dir, const char *signature, const char *folder) {
  char name[NAME_MAX + 1];
  if (!folder || !*folder) sf_finding_folder_name(name, signature, 1);
  const int length = snprintf(out, size, "%s/%s", out_dir, folder && *folder ? folder : name);
  SF_ASSERT_LT(length, (int64_t)size);
}

void sf_finding_discard(const char *directory) {
  static const char *const names[] = {CASE_FILE, MIN_FILE, SCRIPT_FILE, SF_FINDING_STEPS_FILE, SF_CONTRAST_FILE, REPORT_FILE};
  char path[1200];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    sf_file_discard(path);
  }
  rmdir(directory);
}

static enum sf_status write_case(const char *directory, const char *name, const struct sf_case *c, const struct sf_outcome *outcome,
                                 struct sf_error *error) {
  char path[1200];
  const struct sf_case expecting = sf_case_expecting(c, outcome);
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return sf_case_write(&expecting, path, error);
}

static enum sf_status write_text(const char *directory, const char *name, const char *text, struct sf_error *error) {
  char path[1200];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return sf_bytes_write_file(path, text, strlen(text), error);
}

enum sf_status sf_finding_write(const char *directory, const struct sf_case *c, const struct sf_outcome *outcome,
                                const struct sf_finding_story *story, unsigned files, struct sf_error *error) {
  const struct sf_job_result *min = story->shrunk && story->shrunk->end == SF_SHRINK_DONE ? story->shrunk : NULL;
  struct sf_finding_story told = *story;
  char path[1200], *report = NULL;
  enum sf_status status = sf_make_directories(directory, error);
  if (status != SF_OK) return status;
  if (files & SF_FINDING_CASE) status = write_case(directory, CASE_FILE, c, outcome, error);
  if (status == SF_OK && min && files & SF_FINDING_MIN) status = write_case(directory, MIN_FILE, &min->min, &min->min_outcome, error);
  if (status == SF_OK && min && files & SF_FINDING_MIN && *min->script) status = write_text(directory, SCRIPT_FILE, min->script, error);
  if (status == SF_OK && min && files & SF_FINDING_MIN && *min->steps)
    status = write_text(directory, SF_FINDING_STEPS_FILE, min->steps, error);
  if (status == SF_OK && min && files & SF_FINDING_MIN && *min->contrast)
    status = write_text(directory, SF_CONTRAST_FILE, min->contrast, error);
  if (status != SF_OK || !(files & SF_FINDING_REPORT)) return status;
  snprintf(path, sizeof path, "%s/%s", directory, min ? MIN_FILE : CASE_FILE);
  told.replay_path = path;
  status = sf_finding_report(&report, min ? &min->min : c, min ? &min->min_outcome : outcome, &told);
  status = status == SF_OK ? write_text(directory, REPORT_FILE, report, error) : sf_error_set(error, status, "%s", sf_status_text(status));
  sf_free(report);
  return status;
}
