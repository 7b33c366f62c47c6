/* The memory of one case: operands with guards round them, a snapshot of all of it, the dense inputs, what came out and what was wanted.
 *
 * Guards, the space between rows and outputs before the call hold a signalling NaN, which no operation makes and any reading shows. Memory that
 * cannot be touched lies before and behind all operands, but for those that lie in a device's own memory. Rows that are far apart are watched
 * themselves, what lies between them is not: only pages that are touched cost memory. */
#ifndef SF_RUN_OP_MEMORY_H
#define SF_RUN_OP_MEMORY_H

#include "harness/base/alloc.h"
#include "harness/run/opfuzz/op_case.h"

struct sf_op_place {
  char *at;            /* the first element; NULL when the operand is left out, or has neither rows nor columns */
  int64_t rows, cols, ld;
  size_t size_bytes;   /* of an element */
  enum sf_op_element element;
  enum sf_dtype dtype; /* of numbers: how they are held and, in an output, rounded; SF_F64 of a double */
  size_t begin, end;   /* region with its guards, from the beginning of the arena */
  bool far;            /* its rows lie in memory of their own; the region then holds them one after the other, each between guards */
  size_t home, pitch;  /* far: beginning of the region that has its rows, bytes of a row and its guards */
};

struct sf_op_memory {
  int64_t capacity;  /* elements of all operands together */
  char *mapping, *arena;
  const struct sf_memory *from; /* NULL: the mapping is our own */
  size_t mapping_bytes, arena_bytes, used;
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

/* max_elements: the largest case that fits. from: where operands are put (borrowed), without walls then; NULL: a mapping. SF_ENOMEM. */
enum sf_status sf_op_memory_create(struct sf_op_memory *out, int64_t max_elements, const struct sf_memory *from) SF_MUST_USE;
void sf_op_memory_destroy(struct sf_op_memory *memory);

/* Lays out a valid case and fills it. packed: numbers are held in their own formats (plugins), not as floats on their grid (the device). */
void sf_op_memory_fill(struct sf_op_memory *memory, const struct sf_op_target *target, const struct sf_op_case *c, const struct sf_op_shape *shapes);
/* Everything as it was before the first call. */
void sf_op_memory_restore(struct sf_op_memory *memory);
/* Reads outputs into got[run]. Returns the index of an output of which an element was not written (*element: which), -1 if all were. */
int32_t sf_op_memory_collect(struct sf_op_memory *memory, int run, int64_t *element);
/* After a collect: the operand whose region was changed outside of outputs, -1 if none. *inside: an input's element, not a guard. *offset:
 * elements from its first one. */
int32_t sf_op_memory_damage(struct sf_op_memory *memory, bool *inside, int64_t *offset);

#endif
