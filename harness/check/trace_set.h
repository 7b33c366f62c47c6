/* A folder of trace files, one per rank (targets/trace_format.md): headers and metadata in memory, values in the files. */
#ifndef SF_CHECK_TRACE_SET_H
#define SF_CHECK_TRACE_SET_H

#include "harness/check/piece.h"
#include "harness/check/trace_name.h"

/* A logical tensor and who holds it. */
struct sf_trace_tensor {
  const char *text; /* its name */
  struct sf_trace_name name;
  int32_t dim_count;
  int64_t dims[SF_ST_DIMS_MAX];
  int64_t count, rows, cols; /* a row is what lies along the last dimension */
  enum sf_dtype dtype;       /* that of the lowest rank */
  bool mixed;                /* ranks hold it in different types */
  struct sf_piece *pieces;   /* by rank; never NULL */
  struct sf_piece *last;
  int32_t odd_shape_rank; /* first rank that gives it another shape, -1 = none */
  int32_t odd_dim_count;  /* that shape */
  int64_t odd_dims[SF_ST_DIMS_MAX];
};

/* A kind of process group of the framework: "tp". */
struct sf_trace_group {
  char name[32];
  int32_t size;     /* of the largest */
  int32_t *of_rank; /* the lowest rank of its group; a rank that names none is alone */
};
enum { SF_TRACE_GROUPS_MAX = 16 };

bool sf_tensor_same_shape(const struct sf_trace_tensor *a, const struct sf_trace_tensor *b); /* logical shapes */

struct sf_trace_set {
  char *path;
  bool isolated;
  bool anchored;       /* a reference, or a perturbed run of it, that was given a candidate's own tensors */
  bool close_replicas; /* replicas may differ by rounding: every rank computes its own */
  int32_t ranks;
  struct sf_st_open *files;
  int32_t group_count;
  struct sf_trace_group groups[SF_TRACE_GROUPS_MAX];
  int32_t count;
  struct sf_trace_tensor *tensors; /* in execution order of rank 0, then what only rank 1 has, .. */
  /* inside */
  int32_t capacity, table_size;
  int32_t *table; /* open addressing by name; -1 = free */
  struct sf_arena *arena;
};

/* Strict: the folder has every rank's file and no others, and each file describes all of its tensors and no others. SF_EINPUT or
 * SF_ENOTFOUND with one line; SF_ENOMEM, SF_EIO. *out is written only on success. */
enum sf_status sf_trace_set_open(struct sf_trace_set *out, const char *path, struct sf_error *error) SF_MUST_USE;
void sf_trace_set_close(struct sf_trace_set *set);                                                 /* takes NULL and what is zeroed */
const char *sf_trace_set_mode(const struct sf_trace_set *set);                                     /* "e2e", "isolated" or "anchored" */
const struct sf_trace_tensor *sf_trace_set_find(const struct sf_trace_set *set, const char *name); /* NULL when there is none */

#endif
