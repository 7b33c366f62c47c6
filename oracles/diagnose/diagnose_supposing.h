/* Inside the diagnosis: runs of the reference with a supposed mistake. */
#ifndef SF_ORACLES_DIAGNOSE_SUPPOSING_H
#define SF_ORACLES_DIAGNOSE_SUPPOSING_H

#include "oracles/diagnose/diagnose_related.h"

struct sf_supposing {
  struct sf_related_list *list;
  const struct sf_slot *slot;
  struct sf_expectations *expectations;
  const struct sf_case *c; /* what the reference runs */
};

/* What is said of a supposition. */
struct sf_wording {
  enum sf_diagnosis_class cls;
  const char *cause;
  char name[128], without[64]; /* as in struct sf_diagnosis_related */
  double factor;               /* 0, or what an input is scaled by, said behind the name */
  int32_t variant, rank;       /* as there; variant 0: all ranks make the mistake, and hold the same logical tensor */
};

/* Runs the reference so and adds what it makes, unless that is far from what the candidate has. c: NULL for the case itself; supposed:
 * NULL for no mistake. Returns whether the tensor becomes another one. */
bool sf_suppose(const struct sf_supposing *s, const struct sf_case *c, const struct sf_supposed *supposed,
                const struct sf_wording *wording);

/* What each rank has of a sequence's positions, or of the columns of the vocabulary. */
struct sf_parts {
  const char *axes; /* "tp", "cp", "tp x cp" */
  int32_t count;
  int32_t *of, *local; /* [size], of each position or column: the part that has it, and its number there */
  bool by_tp, by_cp;   /* what parts count: the tp index, the cp index, or tp index + tp x cp index */
};
enum { SF_WAYS_MAX = 2 };
/* diagnose_own_part.c: positions by the axes that cut them: cp, and tp with sequence parallelism. Returns how many ways there are. */
int32_t sf_parts_of_tokens(struct sf_parts ways[SF_WAYS_MAX], struct sf_related_list *list);

/* The part of a rank. */
int32_t sf_part_of_rank(const struct sf_parts *parts, const struct sf_related_list *list, int32_t rank);

/* diagnose_read.c: the tensor of a module that this one reads comes in another order, or rounded. id: of the tensor; what: "the output of
 * mlp.router". */
void sf_suppose_reading(const struct sf_supposing *s, int32_t module, struct sf_trace_id id, const char *what);
/* diagnose_read.c: scores of attention are scaled by a number that is fitted. */
void sf_suppose_score_scale(const struct sf_supposing *s);
/* diagnose_read.c: the module's weights are other ones. */
void sf_suppose_weights(const struct sf_supposing *s);
/* diagnose_own_part.c: each rank computes something from its own tokens or columns alone. */
void sf_suppose_own_part(const struct sf_supposing *s);
/* diagnose_own_part.c: tokens are taken to stand elsewhere in their sequence. */
void sf_suppose_positions(const struct sf_supposing *s);
/* diagnose_own_part.c: tokens, labels or the loss mask are in another order. */
void sf_suppose_data_order(const struct sf_supposing *s);
/* diagnose_own_part.c: query heads take the keys and values of another group. */
void sf_suppose_groups(const struct sf_supposing *s);

#endif
