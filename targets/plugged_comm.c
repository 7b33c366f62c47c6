/* The communicator as plugins see it: groups by number, memory in a format's own bytes. */
#include "targets/plugged_call.h"

enum { ELEMENTS_MAX = 1 << 30 };

/* What every call is checked for, and its parts. */
struct part {
  struct sf_plugged_call *call;
  struct sf_comm *comm;
  const struct sf_group *group;
  const char *label;
  enum sf_dtype dtype;
  bool packed;
};

static struct part part_of(const struct shardfuzz_layer_call *given, enum sf_comm_op op, int32_t group, int64_t count, uint32_t dtype) {
  struct sf_plugged_call *call = given->host;
  const char *name = sf_comm_op_name(op);
  if (group < 0 || group >= SHARDFUZZ_GROUPS) sf_plugged_fail(call, "called %s on group %d, which does not exist", name, group);
  if (count < 0 || count > ELEMENTS_MAX) sf_plugged_fail(call, "called %s with %lld elements", name, (long long)count);
  if (dtype > SHARDFUZZ_F64) sf_plugged_fail(call, "called %s with format %u, which does not travel", name, dtype);
  return (struct part){.call = call,
                       .comm = call->run->env->comm,
                       .group = call->groups[group],
                       .label = call->plugged->layer->calls[call->backward][op],
                       .dtype = (enum sf_dtype)dtype,
                       .packed = sf_dtype_is_packed((enum sf_dtype)dtype)};
}

static void check_member(const struct part *part, int32_t member, const char *name) {
  if (member < 0 || member >= part->group->size) sf_plugged_fail(part->call, "called %s with member %d of a group of %d", name, member, part->group->size);
}

/* The memory itself, or floats in its place. */
static void *floats_of(const struct part *part, const void *data, int64_t count) {
  if (!part->packed) return (void *)(uintptr_t)data;
  float *floats = sf_plugged_take(part->call, "message", (size_t)count * sizeof *floats);
  sf_plugged_unpack(floats, data, count, part->dtype);
  return floats;
}
static void *room_for(const struct part *part, void *data, int64_t count) {
  return part->packed ? sf_plugged_take(part->call, "message", (size_t)count * sizeof(float)) : data;
}
static void pack_back(const struct part *part, void *data, const void *floats, int64_t count) {
  if (part->packed) sf_plugged_pack(data, floats, count, part->dtype);
}
/* Floats were a piece of the call. */
static void give_floats(const struct part *part, void *floats) {
  if (!part->packed) return;
  sf_plugged_keep(part->call, floats);
  sf_plugged_give_kept(part->call->run, floats);
}

static enum sf_reduce reduction(const struct part *part, uint32_t reduce) {
  if (reduce > SHARDFUZZ_MAX) sf_plugged_fail(part->call, "called a reduction of kind %u", reduce);
  return reduce == SHARDFUZZ_SUM ? SF_REDUCE_SUM : SF_REDUCE_MAX;
}

static void all_reduce(const struct shardfuzz_layer_call *call, int32_t group, void *data, int64_t count, uint32_t dtype, uint32_t reduce) {
  const struct part part = part_of(call, SF_COMM_ALL_REDUCE, group, count, dtype);
  const enum sf_reduce kind = reduction(&part, reduce);
  void *floats = floats_of(&part, data, count);
  sf_all_reduce(part.comm, part.group, floats, count, part.dtype, kind, part.label);
  pack_back(&part, data, floats, count);
  give_floats(&part, floats);
}

static void reduce_scatter(const struct shardfuzz_layer_call *call, int32_t group, void *out, const void *in, int64_t count, uint32_t dtype, uint32_t reduce) {
  const struct part part = part_of(call, SF_COMM_REDUCE_SCATTER, group, count, dtype);
  const enum sf_reduce kind = reduction(&part, reduce);
  void *from = floats_of(&part, in, count * part.group->size), *to = room_for(&part, out, count);
  sf_reduce_scatter(part.comm, part.group, to, from, count, part.dtype, kind, part.label);
  pack_back(&part, out, to, count);
  give_floats(&part, to);
  give_floats(&part, from);
}

static void all_gather(const struct shardfuzz_layer_call *call, int32_t group, void *out, const void *in, int64_t count, uint32_t dtype) {
  const struct part part = part_of(call, SF_COMM_ALL_GATHER, group, count, dtype);
  const int64_t all = count * part.group->size;
  void *from = floats_of(&part, in, count), *to = room_for(&part, out, all);
  sf_all_gather(part.comm, part.group, to, from, count, part.dtype, part.label);
  pack_back(&part, out, to, all);
  give_floats(&part, to);
  give_floats(&part, from);
}

static void broadcast(const struct shardfuzz_layer_call *call, int32_t group, void *data, int64_t count, int32_t root, uint32_t dtype) {
  const struct part part = part_of(call, SF_COMM_BROADCAST, group, count, dtype);
  check_member(&part, root, "broadcast");
  void *floats = floats_of(&part, data, count);
  sf_broadcast(part.comm, part.group, floats, count, root, part.dtype, part.label);
  pack_back(&part, data, floats, count);
  give_floats(&part, floats);
}

static int64_t sum_counts(const struct part *part, const int64_t *counts) {
  int64_t sum = 0;
  for (int32_t i = 0; i < part->group->size; i++) {
    if (counts[i] < 0 || counts[i] > ELEMENTS_MAX) sf_plugged_fail(part->call, "called all_to_all with %lld elements", (long long)counts[i]);
    sum += counts[i];
  }
  return sum;
}

static void all_to_all(const struct shardfuzz_layer_call *call, int32_t group, void *out, const int64_t *out_counts, const void *in, const int64_t *in_counts, uint32_t dtype) {
  const struct part part = part_of(call, SF_COMM_ALL_TO_ALL, group, 0, dtype);
  const int64_t sent = sum_counts(&part, in_counts), received = sum_counts(&part, out_counts);
  void *from = floats_of(&part, in, sent), *to = room_for(&part, out, received);
  sf_all_to_all(part.comm, part.group, to, out_counts, from, in_counts, part.dtype, part.label);
  pack_back(&part, out, to, received);
  give_floats(&part, to);
  give_floats(&part, from);
}

static void send_to(const struct shardfuzz_layer_call *call, int32_t group, int32_t member, int32_t tag, const void *data, int64_t count, uint32_t dtype) {
  const struct part part = part_of(call, SF_COMM_SEND, group, count, dtype);
  check_member(&part, member, "send");
  void *floats = floats_of(&part, data, count);
  sf_send(part.comm, part.group->ranks[member], tag, floats, count, part.dtype, part.label);
  give_floats(&part, floats);
}

static void receive(const struct shardfuzz_layer_call *call, int32_t group, int32_t member, int32_t tag, void *data, int64_t count, uint32_t dtype) {
  const struct part part = part_of(call, SF_COMM_RECV, group, count, dtype);
  check_member(&part, member, "recv");
  void *floats = room_for(&part, data, count);
  sf_recv(part.comm, part.group->ranks[member], tag, floats, count, part.dtype, part.label);
  pack_back(&part, data, floats, count);
  give_floats(&part, floats);
}

static void barrier(const struct shardfuzz_layer_call *call, int32_t group) {
  const struct part part = part_of(call, SF_COMM_BARRIER, group, 0, SHARDFUZZ_F32);
  sf_barrier(part.comm, part.group, part.label);
}

void sf_plugged_comm_fill(struct sf_plugged_call *call) {
  const struct sf_parallel_state *p = &call->run->parallel;
  const struct sf_group *groups[SHARDFUZZ_GROUPS] = {[SHARDFUZZ_GROUP_TP] = &p->tp, [SHARDFUZZ_GROUP_CP] = &p->cp, [SHARDFUZZ_GROUP_DP] = &p->dp, [SHARDFUZZ_GROUP_DP_CP] = &p->dp_cp,
                                                     [SHARDFUZZ_GROUP_PP] = &p->pp, [SHARDFUZZ_GROUP_TP_CP] = &p->tp_cp, [SHARDFUZZ_GROUP_WORLD] = &p->world};
  for (int i = 0; i < SHARDFUZZ_GROUPS; i++) {
    call->groups[i] = groups[i];
    call->members[i] = (struct shardfuzz_member){groups[i]->size, groups[i]->index};
  }
  call->comm = (struct shardfuzz_comm){.size_bytes = sizeof call->comm,
                                       .group_count = SHARDFUZZ_GROUPS,
                                       .groups = call->members,
                                       .all_reduce = all_reduce,
                                       .reduce_scatter = reduce_scatter,
                                       .all_gather = all_gather,
                                       .broadcast = broadcast,
                                       .all_to_all = all_to_all,
                                       .send = send_to,
                                       .recv = receive,
                                       .barrier = barrier};
}
