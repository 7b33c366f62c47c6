/* What a command found, for those who look at it somewhere else: the test view of a CI system, the summary page of a job.
 *
 * A command makes one report out of its result. The formats are a table (SF_REPORT_FORMAT_MAP): a new one is a row and a file with its
 * function, and every command that makes a report has its option. All texts are copied and may be anybody's: each format makes them safe.
 */
#ifndef SF_RUN_REPORT_H
#define SF_RUN_REPORT_H

#include "harness/base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum sf_report_outcome {
  SF_REPORT_PASSED,
  SF_REPORT_FAILED, /* what was tested is wrong */
  SF_REPORT_ERROR,  /* it could not be tested */
  SF_REPORT_OUTCOME_COUNT
};

/* One thing that was tested. Texts without data are missing. */
struct sf_report_item {
  const char *group; /* which kind of thing: "corpus", "fuzz"; the program's own text, borrowed */
  const char *state; /* what became of it, in a word or two: "new", "known"; the same */
  enum sf_report_outcome outcome;
  bool has_command; /* `next` is a command line */
  bool is_quiet; /* nothing is to be said of it: formats for people leave it out */
  double seconds;
  struct sf_text name;    /* a signature, a file */
  struct sf_text message; /* one line that says by itself what is wrong */
  struct sf_text text;    /* the whole story, in several lines */
  struct sf_text next;    /* what to do about it: a command line for a shell, or a sentence */
  struct sf_text file;    /* path of the case that shows it */
  struct sf_text minimal; /* what is in that file */
  struct sf_text figures; /* HTML that is safe already: what formats for a browser show of it beside the texts */
};

/* One thing that is true of the whole run. */
struct sf_report_fact {
  const char *name;     /* "seed"; the program's own text, borrowed */
  struct sf_text value; /* in our words */
  struct sf_text said;  /* behind it, in somebody else's */
};

struct sf_report {
  const char *title; /* "shardfuzz gate" */
  bool passed;
  struct sf_text nothing; /* why nothing could be said, one line; without data: something could */
  struct sf_report_fact *facts;
  int32_t fact_count;
  struct sf_report_item *items;
  int32_t item_count;
  struct sf_text figures; /* as of an item: of the whole run */
  bool failed; /* memory ran out: the report is not complete, and sf_report_write says so */
};

/* Adds an item and returns it, to be filled before the next one is added; when memory is out, one that is thrown away. */
struct sf_report_item *sf_report_add(struct sf_report *report, const char *group, const char *state, enum sf_report_outcome outcome);
/* Names the file of the case that shows the item; of an item that failed its content is taken too, unless it is large or not there. */
void sf_report_case(struct sf_report_item *item, const char *path);
/* Adds a fact: the format makes its value; said: NULL, or somebody else's words behind it. */
void sf_report_fact(struct sf_report *report, const char *name, const char *said, const char *format, ...) SF_PRINTF(4, 5);
/* Adds a quiet item for a campaign as a whole. nothing: "", or why nothing could be judged; then the item is an error, and the report says
 * so too. */
void sf_report_campaign(struct sf_report *report, double seconds, const char *nothing);
void sf_report_destroy(struct sf_report *report); /* frees all texts; takes a zeroed one */

/* The formats: member and option, and what the help says. Each has a function sf_report_append_OPTION. */
#define SF_REPORT_FORMAT_MAP(X, ...)                                                                                                       \
  X(junit, "write JUnit XML", __VA_ARGS__)                                                                                                 \
  X(summary, "write a Markdown summary", __VA_ARGS__)                                                                                      \
  X(sarif, "write SARIF 2.1.0", __VA_ARGS__)                                                                                               \
  X(annotations, "write annotations for GitHub Actions, which a step has to print", __VA_ARGS__)                                           \
  X(codequality, "write a Code Quality report for GitLab", __VA_ARGS__)                                                       \
  X(html, "write a page for a browser, with pictures", __VA_ARGS__)

/* Where each format goes; NULL: nowhere. */
struct sf_report_paths {
#define SF_REPORT_PATH(format, ...) const char *format;
  SF_REPORT_FORMAT_MAP(SF_REPORT_PATH, )
#undef SF_REPORT_PATH
};
/* Rows of an option table, for the member of type struct sf_report_paths inside `owner`. */
#define SF_REPORT_OPTION(format, text, owner, member) SF_OPTION_AT(owner, #format, TEXT, member.format, "FILE", text),
#define SF_REPORT_OPTIONS(owner, member) SF_REPORT_FORMAT_MAP(SF_REPORT_OPTION, owner, member)

#define SF_APPEND(format, ...) enum sf_status sf_report_append_##format(struct sf_text *out, const struct sf_report *report) SF_MUST_USE;
/* sf_report_append_FORMAT of each: appends the report, whose texts it makes safe for its readers. SF_ENOMEM. */
SF_REPORT_FORMAT_MAP(SF_APPEND, )
#undef SF_APPEND

/* Whether every file can be written (sf_output_check). Before hours of work. */
enum sf_status sf_report_check(const struct sf_report_paths *paths, struct sf_error *error) SF_MUST_USE;
/* Writes all formats that were asked for, each file whole or not at all. SF_ENOMEM, and as sf_bytes_write_file fails. */
enum sf_status sf_report_write(const struct sf_report *report, const struct sf_report_paths *paths, struct sf_error *error) SF_MUST_USE;

#endif
