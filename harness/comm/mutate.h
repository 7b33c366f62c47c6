/* Mutants: a wrapper round any communicator that changes what happens at one label, on all members alike. It shows whether a test notices
 * a communication bug at that call, and nothing else about the program changes. */
#ifndef SF_COMM_MUTATE_H
#define SF_COMM_MUTATE_H

#include "harness/base/alloc.h"
#include "harness/comm/comm.h"
#include "harness/spec/mesh.h"

/* What becomes of a call. n = the group's size. Calls of groups of one rank are left alone.
 *   drop           nothing travels: neither end of a message is posted, results stay as the buffers were
 *   duplicate      the call is made twice; in place, the second time on the result of the first
 *   op-sum/max/avg a reduction with another operation
 *   wrong-group    the group of the first mesh axis that has as many other members; fires only where there is one
 *   missing-scale  the result of a reduction is n times what it should be
 *   extra-scale    .. 1/n of it, rounded to the wire format
 *   stale          what is sent is the input of the label's previous occurrence on this rank; zeros at the first, or where that had another
 * size shift          the pieces of a gather, scatter or exchange are rotated by one member and, to tell equivalent mutants, two that the
 * list of mutants does not have: observe        nothing is changed; calls and outputs are counted and hashed poison         outputs are
 * overwritten with NaN */
#define SF_MUTATION_MAP(X)                                                                                                                 \
  X(DROP, "drop")                                                                                                                          \
  X(DUPLICATE, "duplicate")                                                                                                                \
  X(OP_SUM, "op-sum")                                                                                                                      \
  X(OP_MAX, "op-max")                                                                                                                      \
  X(OP_AVG, "op-avg")                                                                                                                      \
  X(WRONG_GROUP, "wrong-group")                                                                                                            \
  X(MISSING_SCALE, "missing-scale")                                                                                                        \
  X(EXTRA_SCALE, "extra-scale")                                                                                                            \
  X(STALE, "stale")                                                                                                                        \
  X(SHIFT, "shift")                                                                                                                        \
  X(OBSERVE, "observe")                                                                                                                    \
  X(POISON, "poison")
enum sf_mutation_kind {
#define X(name, text) SF_MUTATION_##name,
  SF_MUTATION_MAP(X)
#undef X
      SF_MUTATION_KINDS
};
const char *sf_mutation_kind_name(enum sf_mutation_kind kind); /* as in a mutant's name */

/* Whether a kind changes something at such calls, and is not another kind under a second name (averaging a sum is the same as an extra
 * scale). reduce counts for reductions only. False for SF_COMM_RECV: both ends of a message are one call, named by its sender. */
bool sf_mutation_applies(enum sf_mutation_kind kind, enum sf_comm_op op, enum sf_reduce reduce);

struct sf_mutation {
  char label[SF_NAME_TEXT];
  const char *receive_label; /* of a SEND label: what the other end calls it; borrowed. NULL for collectives */
  enum sf_mutation_kind kind;
  int64_t occurrence; /* -1 = every one */
};
/* Reads "mutant:LABEL:KIND" or "mutant:LABEL:KIND:OCCURRENCE"; receive_label becomes NULL. SF_EINPUT says what is wrong. Whether the label
 * exists is the caller's question. */
enum sf_status sf_mutation_parse(struct sf_mutation *out, const char *text, struct sf_error *error) SF_MUST_USE;
bool sf_mutation_is_named(const char *text); /* begins as a mutant's name does */

/* One rank's wrapper. Zero before install; lives as long as the rank runs. */
struct sf_mutator {
  const struct sf_mutation *mutation; /* borrowed */
  const struct sf_mesh *mesh;         /* borrowed: the axes that wrong-group chooses from */
  struct sf_arena *arena;             /* borrowed: private copies, until the trial ends */
  int64_t fired;                      /* calls that were changed (observe: that would match) */
  uint64_t output_hash;               /* over the outputs of those calls on this rank, in order */
  /* private */
  const struct sf_comm_ops *inner;
  struct sf_mutator_pending *pending;
  void *previous;
  size_t previous_bytes, previous_room;
};
/* From now on comm's calls pass through the mutator, whose public fields are set. */
void sf_mutator_install(struct sf_mutator *mutator, struct sf_comm *comm);

#endif
