/* The store of a campaign: one SQLite file (WAL mode) with exactly one verdict for each judged case index, the findings, and how far
 * indices have been handed out. Neighbours that passed may share a row. It can be opened by people with any SQLite tool while a campaign
 * runs.
 *
 * Promises, also after SIGKILL or a power cut: an index that sf_store_lease handed out is below the stored high-water mark; a batch is in
 * the file whole or not at all; so every index below the mark has one verdict or none, and one without is handed out again, first.
 *
 * One process writes: opening for writing refuses while another process does. A forked child must not touch its parent's store. One thread
 * at a time. Texts handed in are copied; texts handed to callbacks are borrowed for the call. Empty texts and NULL are the same.
 *
 * Failures: SF_EUSAGE (the caller asked for what does not go together), SF_EINPUT (the file is no store, damaged or unreadable), SF_EIO
 * (disk full, write failed, locked), SF_ENOMEM. A failed write loses the whole open batch and nothing else; the store stays usable. */
#ifndef SF_RUN_STORE_H
#define SF_RUN_STORE_H

#include "harness/run/trial/features.h"
#include "oracles/diagnose/diagnose.h"

#include <stdbool.h>
#include <stdint.h>

enum sf_store_mode {
  SF_STORE_CREATE, /* a new file; one that exists is refused */
  SF_STORE_RESUME, /* continues a store of the same campaign and share, or creates it; one of an earlier version gets what this one adds */
  SF_STORE_READ,   /* never changes what is stored; campaign, features and share are not looked at */
  SF_STORE_PEEK,   /* READ for sf_store_standing alone, many times a minute: rows are not checked */
};

enum { SF_STORE_FEATURES_MAX = SF_FEATURES_MAX, SF_STORE_REASON_TEXT = 512 };
enum { SF_STORE_SHARE_BLOCK = 1024 }; /* where nothing else is said, and in stores of before blocks had a size of their own */

struct sf_store_options {
  const char *path;
  enum sf_store_mode mode;
  const char *campaign;             /* canonical text of the options that determine the cases: lines "key=value\n" */
  const char *const *feature_names; /* name of bit i of the feature masks; no newlines */
  int32_t feature_count;            /* at most SF_STORE_FEATURES_MAX */
  int32_t share_index, share_count; /* this store's share of the indices: blocks b of share_block indices with
                                       b % share_count == share_index; share_count 0 = 1 = all of them */
  int64_t share_block;              /* 0: SF_STORE_SHARE_BLOCK */
  int64_t size_bytes_max;           /* the file may not grow beyond this (whole pages); 0 = no limit */
};

struct sf_store;
/* Checks that the file is a sound store, and that it was made with these options; names the first option that differs. */
enum sf_status sf_store_open(struct sf_store **out, const struct sf_store_options *options, struct sf_error *error) SF_MUST_USE;
/* Discards an open batch. Takes NULL. */
void sf_store_close(struct sf_store *store);
/* Removes the file of a store that nobody has open, and what SQLite may have left beside it. */
void sf_store_remove_files(const char *path);

/* --- indices ----------------------------------------------------------------------------------------------------------- */

/* Hands out the indices [*first, *first + *count), *count <= want, below end: first those that an earlier process was given and did not
 * judge, in order, then new ones. Durable before it returns; commits the open batch too. *count is 0 when none is left below end. */
enum sf_status sf_store_lease(struct sf_store *store, int64_t *first, int64_t *count, int64_t want, int64_t end,
                              struct sf_error *error) SF_MUST_USE;

/* --- a batch: adds, then commit --------------------------------------------------------------------------------------------- */

struct sf_store_verdict {
  int64_t index; /* below the high-water mark */
  int64_t count; /* 0, or so many cases from index on passed, and have this row together; numbers are of all of them */
  enum sf_verdict verdict;
  int32_t cls; /* enum sf_finding_class; -1 = none */
  const char *shrink_key, *signature, *label, *module;
  int32_t rank;          /* -1 = none */
  int32_t ranks, layers; /* world size and decoder layers of the case */
  struct sf_feature_mask features;
  int64_t checked, unchecked; /* tensors */
  double seconds;
  bool flaky;
  double closest;       /* of a clean tensor, as in struct sf_tally; 0 where nobody noted it */
  const char *unjudged; /* the same; NULL where nobody noted it */
  const char *reason;   /* one line: why the case was skipped or is inconclusive; NULL in a store of before this was kept */
};
/* SF_EUSAGE when the index has a row already; no case may lie in two rows. */
enum sf_status sf_store_add_verdict(struct sf_store *store, const struct sf_store_verdict *verdict, struct sf_error *error) SF_MUST_USE;

struct sf_store_finding {
  const char *signature, *shrink_key;
  const char *what;                          /* what is wrong, in a line; older stores have the line "what" of their reports */
  int64_t index;                             /* the case it was seen in */
  const char *case_json, *min_json, *report; /* case_json is required; min_json: NULL while not shrunk */
  int64_t min_index;                         /* the case that min_json was shrunk from */
  int32_t trials, trials_max;                /* that shrinking to it took, of at most so many; 0: it was not shrunk, or nobody noted it */
  bool minimal;                              /* no single step makes it smaller */
  struct sf_diagnosis diagnosis; /* of the smallest case; text "" when there is none, class UNKNOWN where this version does not know it */
  const char *shown;             /* shrink keys that the smallest case shows, a line each (sf_outcome); NULL: not noted */
  const char *steps;             /* the way of shrinking to min_json (process/shrink_steps.h); NULL: not noted */
  const char *contrast;          /* why the smallest case fails (process/contrast_text.h); NULL: not noted */
  bool known;                    /* on the list of known findings */
  int64_t count;                 /* out only: cases with this signature */
  const char *folder;            /* out only: as sf_store_set_folder set it; NULL when it was not set */
};
/* One row per signature, which does not depend on the order of adding: the case is that of the smallest index; min_json, diagnosis,
 * what, shown and report are those of the smallest index that was shrunk, or of the smallest of all as long as none was. A diagnosis stays
 * if the new one has none. */
enum sf_status sf_store_add_finding(struct sf_store *store, const struct sf_store_finding *finding, struct sf_error *error) SF_MUST_USE;
/* A culprit of a case beside the one that its verdict row tells of. */
struct sf_store_further {
  int64_t index;
  const char *shrink_key, *signature; /* not empty */
};
/* One row for each shrink key of a case; one that is there already stays. */
enum sf_status sf_store_add_further(struct sf_store *store, const struct sf_store_further *further, struct sf_error *error) SF_MUST_USE;
/* Notes in which folder the files of a signature are, for good, and also before there is a finding. Durable before it returns; commits the
 * open batch too. */
enum sf_status sf_store_set_folder(struct sf_store *store, const char *signature, const char *folder, struct sf_error *error) SF_MUST_USE;
/* Copies it; "" when it was not set. */
enum sf_status sf_store_folder(struct sf_store *store, char *out, size_t size, const char *signature, struct sf_error *error) SF_MUST_USE;
typedef enum sf_status (*sf_store_visit_folder)(void *context, const char *signature, const char *folder);
/* Folders of signatures that have no finding: of runs that were killed before they stored it. By ascending signature. */
enum sf_status sf_store_each_unused_folder(struct sf_store *store, sf_store_visit_folder visit, void *context,
                                           struct sf_error *error) SF_MUST_USE;
/* Counts one more shrink of a key. */
enum sf_status sf_store_add_shrink(struct sf_store *store, const char *shrink_key, struct sf_error *error) SF_MUST_USE;
/* How often a key was shrunk, the open batch included. */
enum sf_status sf_store_shrink_count(struct sf_store *store, int64_t *out, const char *shrink_key, struct sf_error *error) SF_MUST_USE;

/* Notes which pairs of settings ran together (sf_cover_count_append), in place of what was noted before. */
enum sf_status sf_store_set_pairs(struct sf_store *store, const char *pairs, struct sf_error *error) SF_MUST_USE;
/* Copies that note, for sf_free; "" when there is none. */
enum sf_status sf_store_pairs(struct sf_store *store, char **out, struct sf_error *error) SF_MUST_USE;
/* The options that the store was made with, as they were given to sf_store_open; lives as long as the store. */
const char *sf_store_campaign(const struct sf_store *store);
/* The campaign's seed, or those of several campaigns that were joined, as "1" or "1,2"; "" where its options have no seed. */
void sf_store_seeds(char *out, size_t size, const struct sf_store *store);

/* Makes the batch durable. Nothing happens when there is none. */
enum sf_status sf_store_commit(struct sf_store *store, struct sf_error *error) SF_MUST_USE;

/* --- what the campaign says of itself ------------------------------------------------------------------------------------------- */

/* Keeps a text (of struct sf_standing), in the open batch. */
enum sf_status sf_store_set_standing(struct sf_store *store, const char *text, struct sf_error *error) SF_MUST_USE;
/* That text, for sf_free; "" in a store that has none: of an earlier version, or merged. */
enum sf_status sf_store_standing(struct sf_store *store, char **out, struct sf_error *error) SF_MUST_USE;
/* Whether a process has the store open for writing, as far as the file system passes locks on. */
bool sf_store_has_writer(const char *path);

/* --- reading (the open batch included) ------------------------------------------------------------------------------------------ */

struct sf_store_summary {
  int64_t cases; /* with a verdict */
  int64_t by_verdict[SF_VERDICT_SKIP + 1];
  int64_t by_class[SF_CLASS_COUNT]; /* of the rows with a finding class */
  int64_t flaky;
  int64_t signatures, signatures_known;
  int64_t checked, unchecked;                /* tensors, summed */
  double seconds;                            /* summed over cases: more than the wall time when jobs run side by side */
  int64_t by_feature[SF_STORE_FEATURES_MAX]; /* cases with bit i set */
  int64_t high_water;
  char skip_reason[SF_STORE_REASON_TEXT],
      inconclusive_reason[SF_STORE_REASON_TEXT]; /* of the highest index that has one; "" when none has */
};
/* Reads every verdict row. *out is written only on success. */
enum sf_status sf_store_summarise(struct sf_store *store, struct sf_store_summary *out, struct sf_error *error) SF_MUST_USE;

/* Calls visit for each row until it returns something other than SF_OK, which is then the result. The visitor may not write to the store.
 */
typedef enum sf_status (*sf_store_visit_verdict)(void *context, const struct sf_store_verdict *verdict);
typedef enum sf_status (*sf_store_visit_finding)(void *context, const struct sf_store_finding *finding);
/* By ascending index. */
enum sf_status sf_store_each_verdict(struct sf_store *store, sf_store_visit_verdict visit, void *context,
                                     struct sf_error *error) SF_MUST_USE;
typedef enum sf_status (*sf_store_visit_further)(void *context, const struct sf_store_further *further);
/* By ascending index, then shrink key. */
enum sf_status sf_store_each_further(struct sf_store *store, sf_store_visit_further visit, void *context,
                                     struct sf_error *error) SF_MUST_USE;
/* By ascending index of the case, then signature. */
enum sf_status sf_store_each_finding(struct sf_store *store, sf_store_visit_finding visit, void *context,
                                     struct sf_error *error) SF_MUST_USE;
/* One finding; *found says whether there is one. Its texts live until the next call with this store. */
enum sf_status sf_store_find(struct sf_store *store, struct sf_store_finding *out, bool *found, const char *signature,
                             struct sf_error *error) SF_MUST_USE;

/* --- joining -------------------------------------------------------------------------------------------------------------------- */

struct sf_store_merge_report {
  int64_t verdicts;         /* of cases in the joined store */
  int64_t duplicates;       /* cases that an earlier input had already, and agreed */
  int64_t conflicts;        /* ... and did not agree (the case, verdict, class or signature): the earlier input's row was kept */
  char first_conflict[256]; /* one line; "" without conflicts */
  int64_t campaigns;        /* that differ in their seeds; 0 where the options have no seed */
  char seeds[200];          /* as sf_store_seeds gives them */
};
enum { SF_STORE_SEED_CASES = 1000000000 }; /* at most so many of each campaign, where several were joined */
/* Joins stores of one campaign, in order, into a new file that holds all shares; the inputs are not changed. Campaigns that differ in the
 * line "seed=" alone stay apart: case i of the k-th seed, counted from 0 in the order of the inputs, gets the index k x SF_STORE_SEED_CASES
 * + i, and nobody can resume the output. Inputs that differ in anything else are refused with SF_EUSAGE. one_folder: they wrote findings
 * below one folder, and the output notes where. The output appears whole or not at all. */
enum sf_status sf_store_merge(struct sf_store_merge_report *report, const char *out_path, const char *const *in_paths, int32_t in_count,
                              bool one_folder, struct sf_error *error) SF_MUST_USE;

#endif
