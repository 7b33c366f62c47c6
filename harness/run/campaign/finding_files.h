/* The files of a finding: <out>/<signature>[-N]/{case.json, min.json, contrast.json, shrink.txt, report.txt}, and script.py where a
 * framework's worker wrote one. */
#ifndef SF_RUN_FINDING_FILES_H
#define SF_RUN_FINDING_FILES_H

#include "harness/base/bytes.h"
#include "harness/run/process/pool.h"
#include "harness/run/support/replay_way.h"

#include <limits.h>

/* What a report says besides the finding itself. Zeros, or NULL in place of all: nothing. */
struct sf_finding_story {
  const char *replay_path;            /* NULL, or the file of the case */
  const struct sf_replay_way *replay; /* NULL, or what a replay needs beside the case */
  bool inside_mpi;                    /* the replay is an MPI job of the case's ranks */
  bool out_of_time;                   /* not confirmed: the campaign's time was over */
  bool in_campaign;                   /* then the campaign's seed and the index of the case that was found, and that it was not shrunk */
  uint64_t seed;
  int64_t index;
  const struct sf_job_result *shrunk; /* NULL, or how a SHRINK job ended */
  const char *contrast;               /* without such a job: NULL, or what stands beside the case (SF_CONTRAST_FILE) */
};
/* The report for people: what failed, where first, by how much, and how to replay it. The caller frees *out with sf_free. */
enum sf_status sf_finding_report(char **out, const struct sf_case *c, const struct sf_outcome *outcome,
                                 const struct sf_finding_story *story) SF_MUST_USE;
/* Appends one line that says what is wrong without the report: "new finding NAME: WHAT; diagnosis: ..; operation: ..", WHAT being the first
 * line of `what`. name: NULL, or a new finding's, or else WHAT stands alone. */
void sf_finding_message(struct sf_text *out, const char *name, const char *what, const struct sf_diagnosis *diagnosis);
/* "in 87 of at most 300 trials; minimal: yes", or why it was not shrunk. */
void sf_finding_shrink_text(char *out, size_t size, const struct sf_job_result *shrunk);
#define SF_FINDING_STEPS_FILE "shrink.txt"
/* Which files of a folder a finding brings: script, steps of shrinking and contrast come with MIN, the report is of what is shown (the
 * smallest case where there is one).
 */
enum { SF_FINDING_CASE = 1, SF_FINDING_MIN = 2, SF_FINDING_REPORT = 4, SF_FINDING_ALL = 7 };
/* Makes the folder and writes case (and the smallest one and its script, if the story's shrink job ended with one) with `expect` set to
 * what was seen. The story's replay_path is set in here. */
enum sf_status sf_finding_write(const char *directory, const struct sf_case *c, const struct sf_outcome *outcome,
                                const struct sf_finding_story *story, unsigned files, struct sf_error *error) SF_MUST_USE;
/* Removes what sf_finding_write wrote, whole or half, and the folder if nothing else is in it. */
void sf_finding_discard(const char *directory);
/* What is known of how a smallest case was found, as in a job's result; "" or NULL: not noted. */
struct sf_shrunk_texts {
  const char *steps, *contrast;
};

/* What stands beside a smallest case of this path, in a file of the folder; NULL where there is no such file, or the path is of another
 * case. For sf_bytes_destroy. */
const char *sf_finding_read_beside(struct sf_bytes *bytes, const char *path, const char *name);
/* Name of a finding's folder: the signature, with '/' as '-'; a hash is added where another signature could have the same folder, or a name
 * is too long. number: 1, or "-2", "-3", ... is added: findings of that signature of other campaigns. */
void sf_finding_folder_name(char out[NAME_MAX + 1], const char *signature, int32_t number);
/* <out>/<folder>; folder "" or NULL: the name with the number 1. size: SF_OUT_TEXT + NAME_MAX + 1. */
void sf_finding_directory(char *out, size_t size, const char *out_dir, const char *signature, const char *folder);
/* Copies c with `expect` set to the outcome's verdict and signature. */
struct sf_case sf_case_expecting(const struct sf_case *c, const struct sf_outcome *outcome);

#endif
