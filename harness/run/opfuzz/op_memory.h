/* The memory of one case: operands with guards round them, a snapshot of all of it, the dense inputs, what came out and what was wanted.
 *
 * Guards, the space between rows and outputs before the call hold a signalling NaN, which no operation makes and any reading shows. A
 * plugin's operands each lie between walls that cannot be touched (harness/base/system/walled.h) and end at the one behind them; those of
 * the CPU device lie side by side between two walls, those of others in the device's memory. Rows that are far apart are watched
 * themselves, what lies between them is not: only pages that are touched cost memory. */
#ifndef SF_RUN_OP_MEMORY_H
#define SF_RUN_OP_MEMORY_H

#include "harness/base/alloc.h"
#include "harness/base/system/walled.h"
#include "harness/run/opfuzz/case/op_case.h"

struct sf_op_place {
  char *at;            /* the first element; NULL when the operand is left out, or has neither rows nor columns */
  int64_t rows, cols, ld;
  size_t size_bytes;   /* of an element */
  enum sf_op_element element;
  enum sf_dtype dtype; /* of numbers: how they are held and, in an output, rounded; SF_F64 of a double */
  size_t begin, end;   /* region with its guards, in the snapshot; empty where it is another operand's */
  char *region;        /* the same where it lies; NULL: far */
  bool far;            /* its rows lie in memory of their own; the region then holds them one after the other, each between guards */
  size_t home, pitch;  /* far: beginning of the region that has its rows, bytes of a row and its guards */
};

struct sf_op_memory {
  int64_t capacity;  /* elements of all operands together */
  char *mapping, *arena;
  const struct sf_memory *from; /* NULL: the mapping is our own */
  struct sf_walled_pool *walled; /* NULL: operands lie in the arena */
  size_t mapping_bytes, arena_bytes, arena_used, snapshot_bytes, used; /* used: of the snapshot */
  char *far_mapping;   /* address space for one operand whose rows are far apart, made when one is drawn; NULL: none */
  bool far_used;
  char *snapshot;
  float *dense;
  struct sf_num *want;
  double *got[2];    /* of two runs */
  struct sf_op_place places[SF_OP_OPERANDS_MAX];
  struct sf_op_view view;
  double *results[SF_OP_OPERANDS_MAX]; /* where an output's values of the first run begin in got[0] */
};

/* max_elements: the largest case that fits. from: where operands are put (borrowed), without walls then; NULL: a mapping. walled: each
 * between walls of its own. SF_ENOMEM. */
enum sf_status sf_op_memory_create(struct sf_op_memory *out, int64_t max_elements, const struct sf_memory *from, bool walled) SF_MUST_USE;
void sf_op_memory_destroy(struct sf_op_memory *memory); /* takes what is zeroed */

/* Lays out a valid case and fills it. packed: numbers are held in their own formats (plugins), not as floats on their grid (the device). */
void sf_op_memory_fill(struct sf_op_memory *memory, const struct sf_op_target *target, const struct sf_op_case *c,
                       const struct sf_op_shape *shapes);
/* Reads outputs into got[run] and restores what was there before the call. Returns the index of an output with an element that was not
 * written (*element: which one), -1 if all were. */
int32_t sf_op_memory_collect(struct sf_op_memory *memory, int run, int64_t *element);
/* After a collect: the operand whose region was changed outside of outputs; -1 if none was. *inside: the change is in an input's element,
 * not in a guard. *offset: elements from the operand's first one. */
int32_t sf_op_memory_damage(struct sf_op_memory *memory, bool *inside, int64_t *offset);
/* Where an address lies, for people: "12 bytes behind output y", "between rows of input x"; no further away than the walls. Returns the
 * operand, -1 when none is near. Of operands that share memory it names the output if the access `writes`. May be called by a signal
 * handler. */
int32_t sf_op_memory_where(char *out, size_t size, const struct sf_op_memory *memory, const char *address, bool writes);

#endif
