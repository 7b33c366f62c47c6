/* The gate of a pull request: replay the corpus, then fuzz for a while; fail only on what is new. */
#ifndef SF_RUN_GATE_H
#define SF_RUN_GATE_H

#include "harness/base/bytes.h"
#include "harness/run/campaign/campaign.h"
#include "harness/run/gate/gate_base.h"
#include "harness/run/report/report.h"

struct sf_gate_options {
  struct sf_campaign_options campaign; /* seed, known, out_dir, pool; store_path names a file that does not exist. seconds: of the whole
                                          gate, which replays the corpus first and fuzzes with what is left, confirms, shrinks and asks
                                          the base; 0 = no limit */
  bool allow_empty_corpus;             /* else a corpus without a case is SF_EINPUT */
  const char *corpus;                  /* folder of *.json cases with `expect`; NULL = none */
  struct sf_gate_base base;            /* zeros: none */
};

/* GONE: a case of the corpus, of a framework or of a plugin's operation, that passes although a finding was expected. The framework or the
 * library has been mended, which fails nobody's gate. NOT_RUN: a case of the corpus for which there was no time. STALE: a known finding
 * that was not seen although a case of the corpus that expects it was replayed. */
#define SF_GATE_STATE_MAP(X)                                                                                                               \
  X(OK, "ok")                                                                                                                              \
  X(NEW, "new")                                                                                                                            \
  X(KNOWN, "known")                                                                                                                        \
  X(IN_BASE, "also in base")                                                                                                               \
  X(UNEXPECTED, "not as expected")                                                                                                         \
  X(GONE, "gone")                                                                                                                          \
  X(NOT_RUN, "not replayed")                                                                                                               \
  X(STALE, "stale")
enum sf_gate_state {
#define X(name, text) SF_GATE_##name,
  SF_GATE_STATE_MAP(X)
#undef X
      SF_GATE_STATE_COUNT
};
struct sf_gate_item {
  char name[SF_PATH_TEXT]; /* corpus file, or signature of a finding or of a stale entry of the known list */
  enum sf_gate_state state;
  char cause[SF_SIGNATURE_TEXT]; /* of a finding: the name of the first one that has its cause (campaign/causes.h): its own where it is
                                    that; findings of one cause stand together */
  char text[1400];               /* why it fails; a report's first lines */
  char what[600];                /* what is wrong with a finding, in a line; else "" */
  char min_path[SF_PATH_TEXT];   /* of a finding */
  struct sf_diagnosis diagnosis; /* of a finding */
  double seconds;
  const struct sf_replay_way *replay; /* as in the campaign's options, borrowed; NULL: a corpus file with an operation */
};
struct sf_gate_result {
  int32_t corpus_count, corpus_failed, corpus_not_run;
  int32_t known_count, known_seen; /* entries of the known list */
  int32_t item_count;              /* corpus cases, then findings, then stale entries of the known list */
  struct sf_gate_item *items;
  struct sf_campaign_result campaign;
  char nothing[480];    /* "" or why the gate has seen too little (no time, nothing judged), one line; then it has not passed */
  int32_t failed_count; /* items that fail the gate; findings of one cause count once */
  bool passed;
};

/* Replays the corpus, fuzzes, asks the base of what is new, and lists stale entries. SF_OK whether the gate passed or not; else the
 * harness failed, *result is zeroed, and the error says why. SF_EIO when the campaign's `stop` was set: a gate that has not seen everything
 * cannot pass. */
enum sf_status sf_gate_run(const struct sf_gate_options *options, struct sf_gate_result *result, struct sf_error *error) SF_MUST_USE;
void sf_gate_destroy(struct sf_gate_result *result);      /* takes what is zeroed */
const char *sf_gate_state_text(enum sf_gate_state state); /* the text above */
/* Whether the item fails the gate. */
static inline bool sf_gate_item_fails(const struct sf_gate_item *item) {
  return item->state == SF_GATE_NEW || item->state == SF_GATE_UNEXPECTED;
}

/* The end of the items that have a cause in common with this one, which is the first of them. */
int32_t sf_gate_cause_end(const struct sf_gate_result *result, int32_t first);

/* "shardfuzz replay .." of a finding's smallest case, or of a case of the corpus. */
void sf_gate_append_replay(struct sf_text *out, const struct sf_gate_item *item);

/* Which run of the gate it is. */
struct sf_gate_identity {
  uint64_t seed;
  char seed_from[128]; /* where the seed comes from */
  char commit[64];     /* of the working directory; "" outside of git */
};
/* Fills a zeroed report, which the caller destroys, with the result: each case of the corpus, each finding, and the campaign as a whole. */
void sf_gate_report(struct sf_report *report, const struct sf_gate_result *result, const struct sf_gate_identity *identity);

#endif
