/* Where each rank of an MPI campaign stands, in a file beside the store ("STORE.rank-R") that outlives the job. */
#ifndef SF_RUN_RANK_PAGE_H
#define SF_RUN_RANK_PAGE_H

#include "harness/run/worker.h"

struct sf_rank_page {
  struct sf_worker_page worker;
  int64_t index;            /* case in progress; -1 = one that is being shrunk */
  volatile int32_t active;  /* a case is in progress */
  volatile int32_t hung;    /* its deadline passed */
  volatile int32_t failed;  /* `failure` holds what the communicator reported */
  struct sf_outcome failure;
};

/* Maps this rank's file, made if missing; what an earlier job left in it stays until _begin. Also installs the handlers of fatal signals
 * and of the deadline. */
enum sf_status sf_rank_page_open(struct sf_rank_page **out, const char *store_path, int32_t rank, struct sf_error *error) SF_MUST_USE;
/* From here on the rank counts as hung after `seconds`: the page says so and the process ends, and with it the job. */
void sf_rank_page_begin(struct sf_rank_page *page, int64_t index, double seconds);
void sf_rank_page_end(struct sf_rank_page *page);
void sf_rank_page_fail(struct sf_rank_page *page, const struct sf_outcome *failure);
/* remove_file: the campaign ended well. Takes NULL. */
void sf_rank_page_close(struct sf_rank_page *page, bool remove_file);

/* What ended an earlier job of this store, from all its ranks' files; they are marked as read. False when no case was in progress, or when
 * the job was ended from outside. The outcome has class, rank, label and text only. */
bool sf_rank_pages_read(const char *store_path, int64_t *index, struct sf_outcome *outcome);

#endif
