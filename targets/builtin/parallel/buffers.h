/* Buffers of a rank, reused by size: a microbatch's activations go back when its backward has used them, so that memory follows the number
 * of microbatches in flight. Lives in the trial's arena; never freed by itself. */
#ifndef SF_TARGETS_BUFFERS_H
#define SF_TARGETS_BUFFERS_H

#include "targets/target.h"

enum { SF_BUFFER_CLASSES_MAX = 96 };
struct sf_buffer_header;
struct sf_buffers {
  struct sf_arena *arena;
  struct sf_comm *comm; /* where the rank leaves when memory is out */
  int32_t class_count;
  struct {
    int64_t count;
    struct sf_buffer_header *free_list;
  } classes[SF_BUFFER_CLASSES_MAX];
};

/* An empty pool over the rank's arena, which is what frees its memory. */
struct sf_buffers sf_buffers_create(const struct sf_rank_env *env);
/* A buffer of `count` floats, 64-byte aligned, all NaN if the arena poisons; what is given back is too, at once. Never NULL: leaves the
 * rank with SF_ENOMEM. */
float *sf_buffers_take(struct sf_buffers *buffers, int64_t count);
/* The same with a copy of x, or with zeros. */
float *sf_buffers_copy(struct sf_buffers *buffers, const float *x, int64_t count);
float *sf_buffers_take_zeros(struct sf_buffers *buffers, int64_t count);
/* The same for anything else: int32 indices, counts. */
void *sf_buffers_take_bytes(struct sf_buffers *buffers, size_t size_bytes);
int32_t *sf_buffers_take_indices(struct sf_buffers *buffers, int64_t count);
void sf_buffers_give_bytes(struct sf_buffers *buffers, void *buffer); /* takes NULL */
void sf_buffers_give(struct sf_buffers *buffers, float *buffer);      /* takes NULL */
/* Gives back all that a record holds, and zeroes it. The record, with the records inside it, has nothing but pointers to buffers, or NULL.
 */
void sf_buffers_give_record(struct sf_buffers *buffers, void *record, size_t size_bytes);

/* Arena memory that lives as long as the trial; leaves the rank with SF_ENOMEM. Not zeroed. */
void *sf_rank_alloc(const struct sf_rank_env *env, size_t size_bytes);
float *sf_rank_alloc_zeros(const struct sf_rank_env *env, int64_t count); /* the same for floats, zeroed */

#endif
