#include "targets/builtin/parallel/buffers.h"

#include "harness/base/assert.h"

/* Lies 64 bytes before the buffer, which keeps the buffer's alignment. */
struct sf_buffer_header {
  struct sf_buffer_header *next;
  int32_t size_class;
};
enum { HEADER_BYTES = 64, GRAIN = 16 };

void *sf_rank_alloc(const struct sf_rank_env *env, size_t size_bytes) {
  void *memory = sf_arena_alloc(env->arena, size_bytes > 0 ? size_bytes : 1);
  if (memory == NULL) sf_comm_fail(env->comm, SF_ENOMEM, "rank's arena: %zu bytes refused", size_bytes);
  return memory;
}

float *sf_rank_alloc_zeros(const struct sf_rank_env *env, int64_t count) {
  return memset(sf_rank_alloc(env, (size_t)count * sizeof(float)), 0, (size_t)count * sizeof(float));
}

struct sf_buffers sf_buffers_create(const struct sf_rank_env *env) {
  return (struct sf_buffers){.arena = env->arena, .comm = env->comm};
}

static int32_t size_class_of(struct sf_buffers *buffers, int64_t count) {
  for (int32_t i = 0; i < buffers->class_count; i++)
    if (buffers->classes[i].count == count) return i;
  SF_ASSERT_LT(buffers->class_count, SF_BUFFER_CLASSES_MAX);
  buffers->classes[buffers->class_count].count = count;
  buffers->classes[buffers->class_count].free_list = NULL;
  return buffers->class_count++;
}

float *sf_buffers_take(struct sf_buffers *buffers, int64_t count) {
  const int64_t rounded = (count + GRAIN - 1) / GRAIN * GRAIN;
  const int32_t size_class = size_class_of(buffers, rounded);
  struct sf_buffer_header *node = buffers->classes[size_class].free_list;
  if (node != NULL) {
    buffers->classes[size_class].free_list = node->next;
  } else {
    const size_t bytes = HEADER_BYTES + (size_t)rounded * sizeof(float);
    node = sf_arena_alloc(buffers->arena, bytes);
    if (node == NULL) sf_comm_fail(buffers->comm, SF_ENOMEM, "rank's arena: %zu bytes refused", bytes);
    node->size_class = size_class;
  }
  node->next = NULL;
  return (float *)((char *)node + HEADER_BYTES);
}

void sf_buffers_give(struct sf_buffers *buffers, float *buffer) {
  if (buffer == NULL) return;
  struct sf_buffer_header *node = (struct sf_buffer_header *)(void *)((char *)buffer - HEADER_BYTES);
  sf_poison(buffer, (size_t)buffers->classes[node->size_class].count * sizeof *buffer);
  node->next = buffers->classes[node->size_class].free_list;
  buffers->classes[node->size_class].free_list = node;
}

float *sf_buffers_copy(struct sf_buffers *buffers, const float *x, int64_t count) {
  return memcpy(sf_buffers_take(buffers, count), x, (size_t)count * sizeof *x);
}

float *sf_buffers_take_zeros(struct sf_buffers *buffers, int64_t count) {
  return memset(sf_buffers_take(buffers, count), 0, (size_t)count * sizeof(float));
}

void sf_buffers_give_record(struct sf_buffers *buffers, void *record, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes; at += sizeof(void *)) {
    void *buffer;
    memcpy(&buffer, (const char *)record + at, sizeof buffer);
    sf_buffers_give_bytes(buffers, buffer);
  }
  memset(record, 0, size_bytes);
}

void *sf_buffers_take_bytes(struct sf_buffers *buffers, size_t size_bytes) {
  return sf_buffers_take(buffers, (int64_t)((size_bytes + sizeof(float) - 1) / sizeof(float)));
}

int32_t *sf_buffers_take_indices(struct sf_buffers *buffers, int64_t count) {
  return sf_buffers_take_bytes(buffers, (size_t)count * sizeof(int32_t));
}

void sf_buffers_give_bytes(struct sf_buffers *buffers, void *buffer) { sf_buffers_give(buffers, buffer); }
