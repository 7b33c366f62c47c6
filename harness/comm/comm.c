#include "harness/comm/comm.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct sf_group sf_group_create(const int32_t *ranks, int32_t size, int32_t index) {
  SF_ASSERT_LT(index, size);
  SF_ASSERT_LE(0, index);
  uint64_t key = sf_mix64((uint64_t)size);
  for (int32_t i = 0; i < size; i++) key = sf_hash_u64(key, (uint64_t)ranks[i]);
  return (struct sf_group){.size = size, .index = index, .ranks = ranks, .key = key};
}

#define TEXT(name, text) text,
const char *sf_comm_op_name(enum sf_comm_op op) {
  static const char *const names[] = {SF_COMM_OP_MAP(TEXT)};
  return (unsigned)op < SF_COMM_OP_COUNT ? names[op] : "unknown";
}

const char *sf_reduce_name(enum sf_reduce reduce) {
  static const char *const names[] = {SF_REDUCE_MAP(TEXT)};
  return (unsigned)reduce < SF_REDUCE_COUNT ? names[reduce] : "unknown";
}
#undef TEXT

void sf_comm_fail(struct sf_comm *comm, enum sf_status status, const char *format, ...) {
  char text[640];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  comm->ops->fail(comm, status, SF_MANNER_REFUSED, text);
}

void sf_comm_fail_in(struct sf_comm *comm, enum sf_status status, enum sf_manner manner, const char *format, ...) {
  char text[640];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  comm->ops->fail(comm, status, manner, text);
}

/* Open addressing by label address. Nothing sees the table's order, so addresses reach no result. */
static uint32_t count_occurrence(struct sf_comm *comm, const char *label) {
  const uint64_t mask = SF_COMM_LABELS_MAX - 1;
  uint64_t slot = sf_mix64((uint64_t)(uintptr_t)label) & mask;
  for (int probes = 0; probes < SF_COMM_LABELS_MAX; probes++, slot = (slot + 1) & mask) {
    if (comm->labels[slot].label == NULL) comm->labels[slot].label = label;
    if (comm->labels[slot].label == label) return comm->labels[slot].count++;
  }
  sf_comm_fail(comm, SF_ENOTSUP, "rank %d uses more than %d labels", comm->rank, SF_COMM_LABELS_MAX);
}

void sf_comm_show_progress(struct sf_comm *comm, const char *label) {
  comm->last_label = label;
  if (comm->progress == NULL) return;
  comm->progress->rank = comm->rank;
  const size_t room = sizeof comm->progress->label - 1, length = strnlen(label, room);
  memcpy(comm->progress->label, label, length);
  comm->progress->label[length] = '\0';
}

static void count_elements(struct sf_comm_call *call) {
  const int64_t size = call->group != NULL ? call->group->size : 1;
  call->sends = call->op == SF_COMM_RECV ? 0 : call->op == SF_COMM_REDUCE_SCATTER ? call->count * size : call->count;
  call->receives = call->op == SF_COMM_SEND ? 0 : call->op == SF_COMM_ALL_GATHER ? call->count * size : call->count;
  if (call->op != SF_COMM_ALL_TO_ALL) return;
  call->receives = 0;
  for (int64_t i = 0; i < size; i++) call->receives += call->recv_counts[i];
}

/* The common part of every call: asserts, counts, logs and shows it, then passes it to the backend. */
static sf_request start_call(struct sf_comm *comm, struct sf_comm_call *call, bool blocking) {
  SF_ASSERT(call->label != NULL);
  SF_ASSERT_LE(0, call->count);
  SF_ASSERT((int)call->wire >= 0 && call->wire < SF_WIRE_DTYPE_COUNT);
  if (call->group != NULL) {
    SF_ASSERT_LT(call->group->index, call->group->size);
    SF_ASSERT_EQ(call->group->ranks[call->group->index], comm->rank);
  } else {
    SF_ASSERT_LE(0, call->peer);
    SF_ASSERT_LT(call->peer, comm->world);
  }
  call->occurrence = count_occurrence(comm, call->label);
  sf_comm_show_progress(comm, call->label);
  if (call->count > SF_COMM_COUNT_MAX)
    sf_comm_fail_in(comm, SF_ERANK, SF_MANNER_ARGUMENT, "%s of %" PRId64 " elements: no tensor is that large", sf_comm_op_name(call->op),
                    call->count);
  count_elements(call);
  if (comm->progress != NULL) comm->progress->in_call = 1;
  const sf_request request = comm->ops->start(comm, call, blocking);
  if (comm->progress != NULL) comm->progress->in_call = 0;
  return request;
}

static sf_request all_reduce(struct sf_comm *comm, const struct sf_group *group, void *data, int64_t count, enum sf_dtype wire,
                             enum sf_reduce reduce, const char *label, bool blocking) {
  struct sf_comm_call call = {
      .op = SF_COMM_ALL_REDUCE, .group = group, .send = data, .recv = data, .count = count, .wire = wire, .reduce = reduce, .label = label};
  return start_call(comm, &call, blocking);
}

void sf_all_reduce(struct sf_comm *comm, const struct sf_group *group, void *data, int64_t count, enum sf_dtype wire, enum sf_reduce reduce,
                   const char *label) {
  (void)all_reduce(comm, group, data, count, wire, reduce, label, true);
}

sf_request sf_iall_reduce(struct sf_comm *comm, const struct sf_group *group, void *data, int64_t count, enum sf_dtype wire,
                          enum sf_reduce reduce, const char *label) {
  return all_reduce(comm, group, data, count, wire, reduce, label, false);
}

static sf_request reduce_scatter(struct sf_comm *comm, const struct sf_group *group, void *recv, const void *send, int64_t count,
                                 enum sf_dtype wire, enum sf_reduce reduce, const char *label, bool blocking) {
  struct sf_comm_call call = {.op = SF_COMM_REDUCE_SCATTER, .group = group, .send = send, .recv = recv, .count = count, .wire = wire};
  call.reduce = reduce, call.label = label;
  return start_call(comm, &call, blocking);
}

void sf_reduce_scatter(struct sf_comm *comm, const struct sf_group *group, void *recv, const void *send, int64_t count, enum sf_dtype wire,
                       enum sf_reduce reduce, const char *label) {
  (void)reduce_scatter(comm, group, recv, send, count, wire, reduce, label, true);
}

sf_request sf_ireduce_scatter(struct sf_comm *comm, const struct sf_group *group, void *recv, const void *send, int64_t count,
                              enum sf_dtype wire, enum sf_reduce reduce, const char *label) {
  return reduce_scatter(comm, group, recv, send, count, wire, reduce, label, false);
}

void sf_all_gather(struct sf_comm *comm, const struct sf_group *group, void *recv, const void *send, int64_t count, enum sf_dtype wire,
                   const char *label) {
  struct sf_comm_call call = {
      .op = SF_COMM_ALL_GATHER, .group = group, .send = send, .recv = recv, .count = count, .wire = wire, .label = label};
  start_call(comm, &call, true);
}

void sf_broadcast(struct sf_comm *comm, const struct sf_group *group, void *data, int64_t count, int32_t root, enum sf_dtype wire,
                  const char *label) {
  SF_ASSERT_LE(0, root);
  SF_ASSERT_LT(root, group->size);
  struct sf_comm_call call = {
      .op = SF_COMM_BROADCAST, .group = group, .root = root, .send = data, .recv = data, .count = count, .wire = wire, .label = label};
  start_call(comm, &call, true);
}

void sf_all_to_all(struct sf_comm *comm, const struct sf_group *group, void *recv, const int64_t *recv_counts, const void *send,
                   const int64_t *send_counts, enum sf_dtype wire, const char *label) {
  struct sf_comm_call call = {.op = SF_COMM_ALL_TO_ALL,
                              .group = group,
                              .send = send,
                              .recv = recv,
                              .send_counts = send_counts,
                              .recv_counts = recv_counts,
                              .wire = wire,
                              .label = label};
  for (int32_t i = 0; i < group->size; i++) {
    SF_ASSERT_LE(0, send_counts[i]);
    SF_ASSERT_LE(0, recv_counts[i]);
    call.count += send_counts[i];
  }
  start_call(comm, &call, true);
}

void sf_barrier(struct sf_comm *comm, const struct sf_group *group, const char *label) {
  struct sf_comm_call call = {.op = SF_COMM_BARRIER, .group = group, .wire = SF_F32, .label = label};
  start_call(comm, &call, true);
}

static struct sf_comm_call send_call(int32_t peer, int32_t tag, const void *data, int64_t count, enum sf_dtype wire, const char *label) {
  return (struct sf_comm_call){.op = SF_COMM_SEND, .peer = peer, .tag = tag, .send = data, .count = count, .wire = wire, .label = label};
}

static struct sf_comm_call recv_call(int32_t peer, int32_t tag, void *data, int64_t count, enum sf_dtype wire, const char *label) {
  return (struct sf_comm_call){.op = SF_COMM_RECV, .peer = peer, .tag = tag, .recv = data, .count = count, .wire = wire, .label = label};
}

void sf_send(struct sf_comm *comm, int32_t peer, int32_t tag, const void *data, int64_t count, enum sf_dtype wire, const char *label) {
  struct sf_comm_call call = send_call(peer, tag, data, count, wire, label);
  start_call(comm, &call, true);
}

void sf_recv(struct sf_comm *comm, int32_t peer, int32_t tag, void *data, int64_t count, enum sf_dtype wire, const char *label) {
  struct sf_comm_call call = recv_call(peer, tag, data, count, wire, label);
  start_call(comm, &call, true);
}

sf_request sf_isend(struct sf_comm *comm, int32_t peer, int32_t tag, const void *data, int64_t count, enum sf_dtype wire,
                    const char *label) {
  struct sf_comm_call call = send_call(peer, tag, data, count, wire, label);
  return start_call(comm, &call, false);
}

sf_request sf_irecv(struct sf_comm *comm, int32_t peer, int32_t tag, void *data, int64_t count, enum sf_dtype wire, const char *label) {
  struct sf_comm_call call = recv_call(peer, tag, data, count, wire, label);
  return start_call(comm, &call, false);
}

void sf_wait(struct sf_comm *comm, sf_request request) {
  if (request == 0) return;
  if (comm->progress != NULL) comm->progress->in_call = 1;
  comm->ops->wait(comm, request);
  if (comm->progress != NULL) comm->progress->in_call = 0;
}
