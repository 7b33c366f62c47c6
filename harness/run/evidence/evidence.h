/* What a run showed tensor by tensor, for pages: how far each tensor is off, the wrong ones as pictures, and how its ranks stand together.
 * It is the same for the built-in layers and for traces. */
#ifndef SF_RUN_EVIDENCE_H
#define SF_RUN_EVIDENCE_H

#include "harness/check/check.h"

#include <stdio.h>

enum { SF_EVIDENCE_NAME = 240, SF_EVIDENCE_REASON = 40, SF_EVIDENCE_RANKS = 256, SF_EVIDENCE_TENSORS = 200000 };

struct sf_evidence_tensor {
  char name[SF_EVIDENCE_NAME]; /* canonical: s0/mb0/fwd/act/MODULE/0. What is too long ends in a hash */
  double share;                /* the error over what is allowed, of the tensor or of its worst row: above 1 it is wrong */
  bool judged, flagged;
  char why_not[SF_EVIDENCE_REASON]; /* "" when judged */
};
struct sf_evidence_picture {
  char name[SF_EVIDENCE_NAME]; /* of the tensor */
  struct sf_picture picture;
};
/* A kind of process group: the lowest rank of each rank's group. */
struct sf_evidence_group {
  char name[32]; /* "tp" */
  int32_t of_rank[SF_EVIDENCE_RANKS];
};
enum { SF_EVIDENCE_GROUPS = 16 };

struct sf_evidence {
  int32_t tensor_count, picture_count, group_count;
  int32_t ranks;                      /* at most SF_EVIDENCE_RANKS are told of */
  struct sf_evidence_tensor *tensors; /* in the reference's order of execution */
  struct sf_evidence_picture *pictures;
  struct sf_evidence_group groups[SF_EVIDENCE_GROUPS];
};

void sf_evidence_destroy(struct sf_evidence *evidence); /* zeroes it; takes what is zeroed */
/* NULL: there is none of this tensor. */
const struct sf_picture *sf_evidence_find_picture(const struct sf_evidence *evidence, const char *tensor);

/* Fills a zeroed evidence: ranks and groups of a case's layout; of a framework's case only the ranks are known. */
void sf_evidence_of_layout(struct sf_evidence *evidence, const struct sf_case *c);
/* Fills a zeroed evidence with a judgement of the case. SF_ENOMEM. */
enum sf_status sf_evidence_of_judgement(struct sf_evidence *evidence, const struct sf_case *c, const struct sf_catalog *catalog,
                                        const struct sf_judgement *judgement) SF_MUST_USE;
/* Fills a zeroed evidence with a judged trace, and the pictures of its culprits. SF_ENOMEM. */
enum sf_status sf_evidence_of_check(struct sf_evidence *evidence, const struct sf_check_report *report,
                                    const struct sf_trace_set *candidate) SF_MUST_USE;
/* Copies a picture. SF_ENOMEM. */
enum sf_status sf_evidence_add_picture(struct sf_evidence *evidence, const char *tensor, const struct sf_picture *picture) SF_MUST_USE;

/* From a process to the one that started it: replaces what is in the file. It is for this very program to read. */
void sf_evidence_write(FILE *to, const struct sf_evidence *evidence);
/* Reads a zeroed evidence. False, and it stays as it is: nothing whole was written, or memory ran out. */
bool sf_evidence_read(struct sf_evidence *evidence, FILE *from);

#endif
