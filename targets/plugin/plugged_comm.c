/* The communicator as plugins see it: groups by number, memory in a format's own bytes. */
#include "targets/plugin/plugged_host.h"

#include <unistd.h>

enum { ELEMENTS_MAX = 1 << 30 };

/* The checks of every call, and its parts. */
struct part {
  struct sf_plugged_host *host;
  struct sf_comm *comm;
  const struct sf_group *group;
  const char *label;
  enum sf_dtype dtype;
  bool packed;
};

static struct part part_of(const struct shardfuzz_comm *given, enum sf_comm_op op, int32_t group, int64_t count, uint32_t dtype) {
  struct sf_plugged_host *host = given->host;
  const char *name = sf_comm_op_name(op);
  sf_plugged_enter(host);
  if (group < 0 || group >= SHARDFUZZ_GROUPS || host->groups[group]->size == 0)
    sf_plugged_fail(host, SF_MANNER_ARGUMENT, "called %s on group %d, which does not exist", name, group);
  if (count < 0 || count > ELEMENTS_MAX) sf_plugged_fail(host, SF_MANNER_ARGUMENT, "called %s with %lld elements", name, (long long)count);
  if (dtype > SHARDFUZZ_F64) sf_plugged_fail(host, SF_MANNER_ARGUMENT, "called %s with format %u, which does not travel", name, dtype);
  return (struct part){.host = host,
                       .comm = host->env->comm,
                       .group = host->groups[group],
                       .label = host->labels[op],
                       .dtype = (enum sf_dtype)dtype,
                       .packed = sf_dtype_is_packed((enum sf_dtype)dtype)};
}

static int32_t rank_of(const struct part *part, int32_t member, const char *name) {
  if (member < 0 || member >= part->group->size)
    sf_plugged_fail(part->host, SF_MANNER_ARGUMENT, "called %s with member %d of a group of %d", name, member, part->group->size);
  return part->group->ranks[member];
}

/* The plugin's memory itself, or floats instead of it. */
static void *floats_of(const struct part *part, const void *data, int64_t count) {
  if (!part->packed) return (void *)(uintptr_t)data;
  float *floats = sf_plugged_take(part->host, "message", (size_t)count * sizeof *floats);
  sf_plugged_unpack(floats, data, count, part->dtype);
  return floats;
}
static void *room_for(const struct part *part, void *data, int64_t count) {
  return part->packed ? sf_plugged_take(part->host, "message", (size_t)count * sizeof(float)) : data;
}
static void pack_back(const struct part *part, void *data, const void *floats, int64_t count) {
  if (part->packed) sf_plugged_pack(data, floats, count, part->dtype);
}
/* Gives back the floats, if they were a piece of the host. */
static void give_floats(const struct part *part, void *floats) {
  if (!part->packed || floats == NULL) return;
  sf_plugged_give(part->host, floats);
}

static enum sf_reduce reduction(const struct part *part, uint32_t reduce) {
  if (reduce > SHARDFUZZ_MAX) sf_plugged_fail(part->host, SF_MANNER_ARGUMENT, "called a reduction of kind %u", reduce);
  return reduce == SHARDFUZZ_SUM ? SF_REDUCE_SUM : SF_REDUCE_MAX;
}

/* --- calls that block ------------------------------------------------------------------------------------------------- */

static void all_reduce(const struct shardfuzz_comm *comm, int32_t group, void *data, int64_t count, uint32_t dtype, uint32_t reduce) {
  const struct part part = part_of(comm, SF_COMM_ALL_REDUCE, group, count, dtype);
  const enum sf_reduce kind = reduction(&part, reduce);
  void *floats = floats_of(&part, data, count);
  sf_all_reduce(part.comm, part.group, floats, count, part.dtype, kind, part.label);
  pack_back(&part, data, floats, count);
  give_floats(&part, floats);
  sf_plugged_leave(part.host);
}

static void reduce_scatter(const struct shardfuzz_comm *comm, int32_t group, void *out, const void *in, int64_t count, uint32_t dtype,
                           uint32_t reduce) {
  const struct part part = part_of(comm, SF_COMM_REDUCE_SCATTER, group, count, dtype);
  const enum sf_reduce kind = reduction(&part, reduce);
  void *from = floats_of(&part, in, count * part.group->size), *to = room_for(&part, out, count);
  sf_reduce_scatter(part.comm, part.group, to, from, count, part.dtype, kind, part.label);
  pack_back(&part, out, to, count);
  give_floats(&part, to);
  give_floats(&part, from);
  sf_plugged_leave(part.host);
}

static void all_gather(const struct shardfuzz_comm *comm, int32_t group, void *out, const void *in, int64_t count, uint32_t dtype) {
  const struct part part = part_of(comm, SF_COMM_ALL_GATHER, group, count, dtype);
  const int64_t all = count * part.group->size;
  void *from = floats_of(&part, in, count), *to = room_for(&part, out, all);
  sf_all_gather(part.comm, part.group, to, from, count, part.dtype, part.label);
  pack_back(&part, out, to, all);
  give_floats(&part, to);
  give_floats(&part, from);
  sf_plugged_leave(part.host);
}

static void broadcast(const struct shardfuzz_comm *comm, int32_t group, void *data, int64_t count, int32_t root, uint32_t dtype) {
  const struct part part = part_of(comm, SF_COMM_BROADCAST, group, count, dtype);
  (void)rank_of(&part, root, "broadcast");
  void *floats = floats_of(&part, data, count);
  sf_broadcast(part.comm, part.group, floats, count, root, part.dtype, part.label);
  pack_back(&part, data, floats, count);
  give_floats(&part, floats);
  sf_plugged_leave(part.host);
}

static int64_t sum_counts(const struct part *part, const int64_t *counts) {
  int64_t sum = 0;
  for (int32_t i = 0; i < part->group->size; i++) {
    if (counts[i] < 0 || counts[i] > ELEMENTS_MAX)
      sf_plugged_fail(part->host, SF_MANNER_ARGUMENT, "called all_to_all with %lld elements", (long long)counts[i]);
    sum += counts[i];
  }
  return sum;
}

static void all_to_all(const struct shardfuzz_comm *comm, int32_t group, void *out, const int64_t *out_counts, const void *in,
                       const int64_t *in_counts, uint32_t dtype) {
  const struct part part = part_of(comm, SF_COMM_ALL_TO_ALL, group, 0, dtype);
  const int64_t sent = sum_counts(&part, in_counts), received = sum_counts(&part, out_counts);
  void *from = floats_of(&part, in, sent), *to = room_for(&part, out, received);
  sf_all_to_all(part.comm, part.group, to, out_counts, from, in_counts, part.dtype, part.label);
  pack_back(&part, out, to, received);
  give_floats(&part, to);
  give_floats(&part, from);
  sf_plugged_leave(part.host);
}

static void send_to(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, const void *data, int64_t count,
                    uint32_t dtype) {
  const struct part part = part_of(comm, SF_COMM_SEND, group, count, dtype);
  const int32_t peer = rank_of(&part, member, "send");
  void *floats = floats_of(&part, data, count);
  sf_send(part.comm, peer, tag, floats, count, part.dtype, part.label);
  give_floats(&part, floats);
  sf_plugged_leave(part.host);
}

static void receive(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, void *data, int64_t count,
                    uint32_t dtype) {
  const struct part part = part_of(comm, SF_COMM_RECV, group, count, dtype);
  const int32_t peer = rank_of(&part, member, "recv");
  void *floats = room_for(&part, data, count);
  sf_recv(part.comm, peer, tag, floats, count, part.dtype, part.label);
  pack_back(&part, data, floats, count);
  give_floats(&part, floats);
  sf_plugged_leave(part.host);
}

static void barrier(const struct shardfuzz_comm *comm, int32_t group) {
  const struct part part = part_of(comm, SF_COMM_BARRIER, group, 0, SHARDFUZZ_F32);
  sf_barrier(part.comm, part.group, part.label);
  sf_plugged_leave(part.host);
}

/* --- calls that are started --------------------------------------------------------------------------------------------- */

/* An open call; from and to: buffers that replace the plugin's own memory, which then gets the contents of `to`. */
struct sf_plugged_pending {
  struct sf_plugged_pending *next;
  struct part part;
  sf_request request;
  void *from, *to, *data;
  int64_t count;
};

static void finish(const struct sf_plugged_pending *pending) {
  if (pending->data != NULL) pack_back(&pending->part, pending->data, pending->to, pending->count);
  if (pending->from != pending->to) give_floats(&pending->part, pending->from);
  give_floats(&pending->part, pending->to);
}

/* Until the call is complete, the plugin sees NaNs in place of the result. */
static uint64_t started(const struct sf_plugged_pending *pending) {
  struct sf_plugged_host *host = pending->part.host;
  if (pending->request == 0) {
    finish(pending);
    sf_plugged_leave(host);
    return 0;
  }
  if (pending->data != NULL && pending->part.packed) memset(pending->data, 0xff, sf_plugged_bytes(pending->count, pending->part.dtype));
  struct sf_plugged_pending *kept = sf_buffers_take_bytes(host->buffers, sizeof *kept);
  *kept = *pending;
  kept->next = host->pending;
  host->pending = kept;
  sf_plugged_leave(host);
  return kept->request;
}

static uint64_t start_all_reduce(const struct shardfuzz_comm *comm, int32_t group, void *data, int64_t count, uint32_t dtype,
                                 uint32_t reduce) {
  struct sf_plugged_pending p = {.part = part_of(comm, SF_COMM_ALL_REDUCE, group, count, dtype), .data = data, .count = count};
  const enum sf_reduce kind = reduction(&p.part, reduce);
  p.from = p.to = floats_of(&p.part, data, count);
  p.request = sf_iall_reduce(p.part.comm, p.part.group, p.to, count, p.part.dtype, kind, p.part.label);
  return started(&p);
}

static uint64_t start_reduce_scatter(const struct shardfuzz_comm *comm, int32_t group, void *out, const void *in, int64_t count,
                                     uint32_t dtype, uint32_t reduce) {
  struct sf_plugged_pending p = {.part = part_of(comm, SF_COMM_REDUCE_SCATTER, group, count, dtype), .data = out, .count = count};
  const enum sf_reduce kind = reduction(&p.part, reduce);
  p.from = floats_of(&p.part, in, count * p.part.group->size);
  p.to = room_for(&p.part, out, count);
  p.request = sf_ireduce_scatter(p.part.comm, p.part.group, p.to, p.from, count, p.part.dtype, kind, p.part.label);
  return started(&p);
}

static uint64_t start_send(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, const void *data, int64_t count,
                           uint32_t dtype) {
  struct sf_plugged_pending p = {.part = part_of(comm, SF_COMM_SEND, group, count, dtype), .count = count};
  const int32_t peer = rank_of(&p.part, member, "send");
  p.from = floats_of(&p.part, data, count);
  p.request = sf_isend(p.part.comm, peer, tag, p.from, count, p.part.dtype, p.part.label);
  return started(&p);
}

static uint64_t start_recv(const struct shardfuzz_comm *comm, int32_t group, int32_t member, int32_t tag, void *data, int64_t count,
                           uint32_t dtype) {
  struct sf_plugged_pending p = {.part = part_of(comm, SF_COMM_RECV, group, count, dtype), .data = data, .count = count};
  const int32_t peer = rank_of(&p.part, member, "recv");
  p.to = room_for(&p.part, data, count);
  p.request = sf_irecv(p.part.comm, peer, tag, p.to, count, p.part.dtype, p.part.label);
  return started(&p);
}

static void wait_for(const struct shardfuzz_comm *comm, uint64_t request) {
  struct sf_plugged_host *host = comm->host;
  struct sf_plugged_pending **at = &host->pending;
  if (request == 0) return;
  sf_plugged_enter(host);
  while (*at != NULL && (*at)->request != request) at = &(*at)->next;
  if (*at == NULL) sf_plugged_fail(host, SF_MANNER_REQUEST, "waited for a call that it had not started, or had waited for");
  struct sf_plugged_pending *pending = *at;
  *at = pending->next;
  sf_wait(host->env->comm, request);
  finish(pending);
  sf_buffers_give_bytes(host->buffers, pending);
  sf_plugged_leave(host);
}

void sf_plugged_comm_check(const struct sf_plugged_host *host) {
  if (host->pending != NULL) sf_plugged_fail(host, SF_MANNER_REQUEST, "started %s and did not wait for it", host->pending->part.label);
}

void sf_plugged_comm_fill(struct sf_plugged_host *host, const struct sf_parallel_state *p) {
  const struct sf_group *groups[SHARDFUZZ_GROUPS] = {
      [SHARDFUZZ_GROUP_TP] = &p->tp,        [SHARDFUZZ_GROUP_CP] = &p->cp, [SHARDFUZZ_GROUP_DP] = &p->dp,
      [SHARDFUZZ_GROUP_DP_CP] = &p->dp_cp,  [SHARDFUZZ_GROUP_PP] = &p->pp, [SHARDFUZZ_GROUP_TP_CP] = &p->tp_cp,
      [SHARDFUZZ_GROUP_WORLD] = &p->world,  [SHARDFUZZ_GROUP_EP] = &p->ep, [SHARDFUZZ_GROUP_ETP] = &p->etp,
      [SHARDFUZZ_GROUP_EXPERT_DP] = &p->edp};
  for (int i = 0; i < SHARDFUZZ_GROUPS; i++) {
    host->groups[i] = groups[i];
    host->members[i] = (struct shardfuzz_member){groups[i]->size, groups[i]->index};
  }
  host->process = getpid();
  host->comm = (struct shardfuzz_comm){.size_bytes = sizeof host->comm,
                                       .group_count = SHARDFUZZ_GROUPS,
                                       .groups = host->members,
                                       .host = host,
                                       .all_reduce = all_reduce,
                                       .reduce_scatter = reduce_scatter,
                                       .all_gather = all_gather,
                                       .broadcast = broadcast,
                                       .all_to_all = all_to_all,
                                       .send = send_to,
                                       .recv = receive,
                                       .barrier = barrier,
                                       .start_all_reduce = start_all_reduce,
                                       .start_reduce_scatter = start_reduce_scatter,
                                       .start_send = start_send,
                                       .start_recv = start_recv,
                                       .wait = wait_for};
}
