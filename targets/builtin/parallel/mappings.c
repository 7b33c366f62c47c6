#include "targets/builtin/parallel/mappings.h"

float *sf_mapping_gather(struct sf_rank_run *run, const struct sf_group *group, const float *part, int64_t count, enum sf_dtype dtype,
                         const char *label) {
  float *full = sf_buffers_take(&run->acts, count * group->size);
  sf_all_gather(run->env->comm, group, full, part, count, dtype, label);
  return full;
}

float *sf_mapping_split(struct sf_rank_run *run, int32_t index, float *full, int64_t count) {
  float *part = sf_buffers_copy(&run->acts, full + index * count, count);
  sf_buffers_give(&run->acts, full);
  return part;
}

float *sf_mapping_reduce(struct sf_rank_run *run, const struct sf_group *group, bool sp, float *full, int64_t local, enum sf_dtype dtype,
                         const struct sf_mapping_reduction *calls) {
  if (group->size == 1) return full;
  if (!sp) {
    sf_all_reduce(run->env->comm, group, full, local, dtype, SF_REDUCE_SUM, calls->all_reduce);
    return full;
  }
  float *part = sf_buffers_take(&run->acts, local);
  sf_reduce_scatter(run->env->comm, group, part, full, local, dtype, SF_REDUCE_SUM, calls->reduce_scatter);
  sf_buffers_give(&run->acts, full);
  return part;
}

void sf_mapping_own_tokens(const struct sf_rank_run *run, void *out, const void *whole) {
  const struct sf_dim_map *rows = &run->map_gathered.rows;
  char *next = out;
  for (int32_t i = 0; i < rows->count; i++) {
    const size_t size_bytes = (size_t)rows->runs[i].len * sizeof(int32_t);
    memcpy(next, (const char *)whole + (size_t)rows->runs[i].start * sizeof(int32_t), size_bytes);
    next += size_bytes;
  }
}

void sf_ring_start(struct sf_rank_run *run, struct sf_ring *ring, const struct sf_group *group, const struct sf_ring_message *message,
                   const float *at_hand, float *spare, int64_t count) {
  const int32_t size = group->size, next = group->ranks[(group->index + 1) % size],
                previous = group->ranks[(group->index + size - 1) % size];
  ring->send = sf_isend(run->env->comm, next, message->tag, at_hand, count, message->dtype, message->send);
  ring->recv = sf_irecv(run->env->comm, previous, message->tag, spare, count, message->dtype, message->recv);
}

void sf_ring_finish(struct sf_rank_run *run, const struct sf_ring *ring, float **at_hand, float **spare) {
  sf_wait(run->env->comm, ring->send);
  sf_wait(run->env->comm, ring->recv);
  float *arrived = *spare;
  *spare = *at_hand;
  *at_hand = arrived;
}
