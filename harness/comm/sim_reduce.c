/* The data of an operation: moves them, rounds to the wire format, and adds in the order that the schedule decides. */
#include "harness/base/system/clock.h"
#include "harness/comm/sim_internal.h"

#include <string.h>

/* --- one hop of a reduction: acc = round(acc op round(x)), vectorised by the compiler -------------------------------- */

#define HOP(name, type, received, result)                                                                                                  \
  static void name(void *restrict acc, const void *restrict x, int64_t count) {                                                            \
    type *restrict a = acc;                                                                                                                \
    const type *restrict b = x;                                                                                                            \
    for (int64_t i = 0; i < count; i++) {                                                                                                  \
      const type u = a[i], v = received;                                                                                                   \
      a[i] = result;                                                                                                                       \
    }                                                                                                                                      \
  }
/* A NaN on either side stays; of two zeros the positive one wins, so that the order of the members does not show. */
#define LARGER (v > u || v != v ? v : (v == u && v == 0 ? u + v : u))
HOP(add_f32, float, b[i], u + v)
HOP(add_bf16, float, sf_bf16_round(b[i]), sf_bf16_round(u + v))
HOP(add_f16, float, sf_f16_round(b[i]), sf_f16_round(u + v))
HOP(add_f64, double, b[i], u + v)
HOP(max_f32, float, b[i], LARGER)
HOP(max_bf16, float, sf_bf16_round(b[i]), LARGER)
HOP(max_f16, float, sf_f16_round(b[i]), LARGER)
HOP(max_f64, double, b[i], LARGER)
#undef LARGER
#undef HOP

typedef void (*hop_fn)(void *restrict acc, const void *restrict x, int64_t count);

static hop_fn hop_of(enum sf_dtype wire, enum sf_reduce reduce) {
  static const hop_fn hops[SF_WIRE_DTYPE_COUNT][2] = {
      [SF_F32] = {add_f32, max_f32},
      [SF_BF16] = {add_bf16, max_bf16},
      [SF_F16] = {add_f16, max_f16},
      [SF_F64] = {add_f64, max_f64},
  };
  return hops[wire][reduce == SF_REDUCE_MAX];
}

void sim_copy_to_wire(void *out, const void *in, int64_t count, enum sf_dtype wire) {
  if (count == 0) return;
  if (!sf_dtype_is_packed(wire)) {
    memmove(out, in, (size_t)count * sf_dtype_held_bytes(wire));
    return;
  }
  float *to = out;
  const float *from = in;
  if (wire == SF_BF16)
    for (int64_t i = 0; i < count; i++) to[i] = sf_bf16_round(from[i]);
  else
    for (int64_t i = 0; i < count; i++) to[i] = sf_f16_round(from[i]);
}

/* In-place calls still need the contents of their buffer. The fp64 pattern is a NaN as a double and in its low float. */
void sim_poison(const struct sf_comm_call *call) {
  if (call->recv == call->send) return;
  if (call->wire == SF_F64) {
    const uint64_t pattern = UINT64_C(0x7ff5a5a57fa5a5a5);
    unsigned char *to = call->recv;
    for (int64_t i = 0; i < call->receives; i++) memcpy(to + 8 * i, &pattern, 8);
  } else {
    const uint32_t pattern = 0x7fa5a5a5u;
    unsigned char *to = call->recv;
    for (int64_t i = 0; i < call->receives; i++) memcpy(to + 4 * i, &pattern, 4);
  }
}

/* --- reductions ------------------------------------------------------------------------------------------------- */

/* Members are added in the order order[(start + s) % size], s = 0, 1, ..., one after the other or as a binary tree. */
struct reduction {
  struct sf_sim *sim;
  struct sim_op *op;
  hop_fn hop;
  size_t held_bytes;
  const int32_t *order;
  int32_t start;
  bool tree;
};

static const char *member_data(const struct reduction *r, int32_t step, int64_t at) {
  int32_t place = r->start + step;
  if (place >= r->op->size) place -= r->op->size;
  return (const char *)r->op->parts[r->order[place]].source + (size_t)at * r->held_bytes;
}

static void *scratch_block(const struct reduction *r, int32_t level) { return r->sim->scratch + (size_t)level * SIM_BLOCK; }

/* A binary counter of partial sums: level k holds the sum of 2^k members. */
static void reduce_tree(const struct reduction *r, int64_t at, int64_t count, enum sf_dtype wire) {
  int32_t depth = 0;
  for (int32_t s = 0; s < r->op->size; s++) {
    sim_copy_to_wire(scratch_block(r, depth++), member_data(r, s, at), count, wire);
    for (int32_t carry = s + 1; (carry & 1) == 0; carry >>= 1, depth--)
      r->hop(scratch_block(r, depth - 2), scratch_block(r, depth - 1), count);
  }
  for (; depth > 1; depth--) r->hop(scratch_block(r, depth - 2), scratch_block(r, depth - 1), count);
}

/* Reduces elements [at, at + count), count <= SIM_BLOCK, into scratch block 0. */
static void *reduce_block(const struct reduction *r, int64_t at, int64_t count) {
  const struct sf_comm_call *call = &r->op->parts[0].call;
  void *acc = scratch_block(r, 0);
  if (r->tree) {
    reduce_tree(r, at, count, call->wire);
  } else {
    sim_copy_to_wire(acc, member_data(r, 0, at), count, call->wire);
    for (int32_t s = 1; s < r->op->size; s++) r->hop(acc, member_data(r, s, at), count);
  }
  if (call->reduce != SF_REDUCE_AVG) return acc;
  if (call->wire == SF_F64) {
    double *values = acc;
    for (int64_t i = 0; i < count; i++) values[i] *= 1.0 / r->op->size;
  } else {
    float *values = acc;
    const float scale = 1.0f / (float)r->op->size;
    for (int64_t i = 0; i < count; i++) values[i] = sf_round(values[i] * scale, call->wire);
  }
  return acc;
}

enum algorithm { LINEAR, RING, TREE };

/* Chooses as a real library does: by the kind and size of the call, not by when or between whom it happens. The same call made again
 * (recomputation) and the same call of a parallel group (replicas of one tensor over tp, each reduced over its own dp group) thus round in
 * the same way, and programs may rely on that. Another schedule gives other orders. */
static uint64_t order_hash(const struct sf_sim *sim, const struct sim_op *op) {
  const struct sf_comm_call *call = &op->parts[0].call;
  const uint64_t what = (uint64_t)call->op << 32 | (uint64_t)call->wire << 16 | (uint64_t)call->reduce;
  return sf_mix64(sf_hash_u64(sf_hash_u64(sf_hash_u64(sim->options.schedule, what), (uint64_t)op->size), (uint64_t)call->count));
}

/* Schedule 0 adds in group order. */
static enum algorithm choose_order(struct sf_sim *sim, struct sim_op *op, struct reduction *r) {
  const int32_t size = op->size;
  int32_t *order = op->group->order;
  for (int32_t i = 0; i < size; i++) order[i] = i;
  *r = (struct reduction){.sim = sim,
                          .op = op,
                          .order = order,
                          .hop = hop_of(op->parts[0].call.wire, op->parts[0].call.reduce),
                          .held_bytes = sf_dtype_held_bytes(op->parts[0].call.wire)};
  if (sim->options.schedule == 0 || size == 1) return LINEAR;
  uint64_t hash = order_hash(sim, op);
  const enum algorithm algorithm = (enum algorithm)(hash % 3);
  hash = sf_mix64(hash);
  if (algorithm != LINEAR) {
    r->start = (int32_t)(hash % (uint64_t)size);
    r->tree = algorithm == TREE;
    return algorithm;
  }
  for (int32_t i = size - 1; i > 0; i--, hash = sf_mix64(hash + 1)) {
    const int32_t j = (int32_t)(hash % (uint64_t)(i + 1)), swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
  }
  return algorithm;
}

static void deliver(struct sim_op *op, const void *data, int64_t at, int64_t count, size_t held_bytes) {
  const size_t offset = (size_t)at * held_bytes, bytes = (size_t)count * held_bytes;
  for (int32_t i = 0; i < op->size; i++)
    if (op->parts[i].written) memcpy((char *)op->parts[i].call.recv + offset, data, bytes);
  if (op->result != NULL) memcpy((char *)op->result + offset, data, bytes);
}

/* Chunk c of a ring is reduced starting from the member after c (as NCCL's ring does: its last hop is at member c), from any rotation of
 * the ring. Chunks of fewer than 16 elements would only cost time. */
static void all_reduce(struct sf_sim *sim, struct sim_op *op) {
  struct reduction r;
  const bool ring = choose_order(sim, op, &r) == RING;
  const int64_t count = op->parts[0].call.count;
  int64_t chunk = ring ? (count + op->size - 1) / op->size : count;
  if (ring && chunk < 16) chunk = 16;
  const int32_t rotation = r.start;
  int64_t at = 0;
  for (int64_t c = 0; at < count; c++) {
    const int64_t end = at + chunk < count ? at + chunk : count;
    if (ring) r.start = (int32_t)((c + 1 + rotation) % op->size);
    while (at < end) {
      const int64_t block = end - at < SIM_BLOCK ? end - at : SIM_BLOCK;
      deliver(op, reduce_block(&r, at, block), at, block, r.held_bytes);
      at += block;
    }
  }
}

static void reduce_scatter(struct sf_sim *sim, struct sim_op *op) {
  struct reduction r;
  const bool ring = choose_order(sim, op, &r) == RING;
  const int64_t count = op->parts[0].call.count;
  const int32_t rotation = r.start;
  for (int32_t c = 0; c < op->size; c++) {
    if (ring) r.start = (c + 1 + rotation) % op->size;
    for (int64_t at = 0; at < count; at += SIM_BLOCK) {
      const int64_t block = count - at < SIM_BLOCK ? count - at : SIM_BLOCK;
      const void *data = reduce_block(&r, c * count + at, block);
      const size_t offset = (size_t)at * r.held_bytes, bytes = (size_t)block * r.held_bytes;
      if (op->parts[c].written) memcpy((char *)op->parts[c].call.recv + offset, data, bytes);
      if (op->result != NULL) memcpy((char *)op->result + (size_t)(c * count) * r.held_bytes + offset, data, bytes);
    }
  }
}

/* --- moves ------------------------------------------------------------------------------------------------------ */

static void all_gather(struct sim_op *op) {
  const struct sf_comm_call *call = &op->parts[0].call;
  const size_t bytes = (size_t)call->count * sf_dtype_held_bytes(call->wire);
  if (bytes == 0) return;
  char *first = call->recv;
  for (int32_t i = 0; i < op->size; i++) sim_copy_to_wire(first + (size_t)i * bytes, op->parts[i].source, call->count, call->wire);
  for (int32_t i = 1; i < op->size; i++) memcpy(op->parts[i].call.recv, first, bytes * (size_t)op->size);
}

static void broadcast(struct sim_op *op) {
  const struct sf_comm_call *call = &op->parts[0].call;
  const size_t bytes = (size_t)call->count * sf_dtype_held_bytes(call->wire);
  if (bytes == 0) return;
  void *root = op->parts[call->root].call.recv;
  sim_copy_to_wire(root, root, call->count, call->wire);
  for (int32_t i = 0; i < op->size; i++)
    if (i != call->root) memcpy(op->parts[i].call.recv, root, bytes);
}

/* received[i]: number of elements in member i's buffer so far; senders come in group order, which is the order of the pieces. */
static void all_to_all(struct sf_sim *sim, struct sim_op *op) {
  const enum sf_dtype wire = op->parts[0].call.wire;
  const size_t held_bytes = sf_dtype_held_bytes(wire);
  int64_t *received = sim_buffer_take(sim, (size_t)op->size * sizeof *received);
  memset(received, 0, (size_t)op->size * sizeof *received);
  for (int32_t from = 0; from < op->size; from++) {
    const struct sf_comm_call *call = &op->parts[from].call;
    const char *piece = op->parts[from].source;
    for (int32_t to = 0; to < op->size; to++) {
      const int64_t count = call->send_counts[to];
      if (count == 0) continue;
      sim_copy_to_wire((char *)op->parts[to].call.recv + (size_t)received[to] * held_bytes, piece, count, wire);
      received[to] += count;
      piece += (size_t)count * held_bytes;
    }
  }
  sim_buffer_give(sim, received);
}

static void message(struct sf_sim *sim, struct sim_op *op) {
  struct sim_part *send = &op->parts[0], *recv = &op->parts[1];
  const struct sf_comm_call *call = &send->call;
  if (recv->written) {
    sim_copy_to_wire(recv->call.recv, send->source, call->count, call->wire);
  } else if (send->staged != NULL) {
    op->result = send->staged;
    send->staged = NULL;
  } else {
    op->result = sim_buffer_take(sim, (size_t)call->count * sf_dtype_held_bytes(call->wire));
    sim_copy_to_wire(op->result, send->source, call->count, call->wire);
  }
}

/* Marks destinations that may be written now; if some may not, a reduction keeps its result for them. */
static void mark_written(struct sf_sim *sim, struct sim_op *op) {
  bool all = true;
  for (int32_t i = 0; i < op->size; i++) {
    struct sim_part *part = &op->parts[i];
    part->written = sim_call_writes(&part->call) && (part->waiting || !part->write_late);
    all = all && part->written;
  }
  const struct sf_comm_call *call = &op->parts[0].call;
  if (!all && (call->op == SF_COMM_ALL_REDUCE || call->op == SF_COMM_REDUCE_SCATTER))
    op->result = sim_buffer_take(sim, (size_t)call->sends * sf_dtype_held_bytes(call->wire));
}

void sim_op_execute(struct sf_sim *sim, struct sim_op *op) {
  const double start = sim->options.measure ? sf_clock_seconds() : 0;
  mark_written(sim, op);
  switch (op->parts[0].call.op) {
  case SF_COMM_ALL_REDUCE:
    all_reduce(sim, op);
    break;
  case SF_COMM_REDUCE_SCATTER:
    reduce_scatter(sim, op);
    break;
  case SF_COMM_ALL_GATHER:
    all_gather(op);
    break;
  case SF_COMM_BROADCAST:
    broadcast(op);
    break;
  case SF_COMM_ALL_TO_ALL:
    all_to_all(sim, op);
    break;
  case SF_COMM_SEND:
    message(sim, op);
    break;
  case SF_COMM_RECV:
  case SF_COMM_BARRIER:
  case SF_COMM_OP_COUNT:
    break;
  }
  if (!sim->options.measure) return;
  const double spent = sf_clock_seconds() - start;
  sim->report.seconds_reduce += spent;
  sim->clock_mark += spent;
}

void sim_part_write_late(struct sf_sim *sim, struct sim_part *part) {
  const double start = sim->options.measure ? sf_clock_seconds() : 0;
  const size_t bytes = (size_t)part->call.count * sf_dtype_held_bytes(part->call.wire);
  const size_t piece = part->call.op == SF_COMM_REDUCE_SCATTER ? (size_t)(part - part->op->parts) : 0;
  if (bytes > 0) memcpy(part->call.recv, (const char *)part->op->result + piece * bytes, bytes);
  part->written = true;
  if (!sim->options.measure) return;
  const double spent = sf_clock_seconds() - start;
  sim->report.seconds_reduce += spent;
  sim->clock_mark += spent;
}
