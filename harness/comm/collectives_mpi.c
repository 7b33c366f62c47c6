/* Collectives over Open MPI. Our own operators are commutative bit for bit (a NaN result is always the same NaN, of two zeros the positive
 * one is the maximum). Each of Open MPI's all-reduce algorithms either computes an element at one member (reduce and broadcast, ring) or
 * combines the same two partial results on both sides of a pair (recursive doubling, Rabenseifner), so all members hold the same bits. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "harness/comm/mpi_internal.h"

#include <stdio.h>
#include <string.h>

/* --- operators: inout = in op inout ----------------------------------------------------------------------------- */

static inline float same_nan(float x) { return x == x ? x : __builtin_nanf(""); }
static inline double same_nan_f64(double x) { return x == x ? x : __builtin_nan(""); }

static inline float larger(float a, float b) {
  if (a != a || b != b) return __builtin_nanf("");
  if (a == 0 && b == 0) return a + b;
  return a > b ? a : b;
}

void mpi_pack(uint16_t *out, const float *values, int64_t count, enum sf_dtype dtype) {
  if (dtype == SF_BF16)
    for (int64_t i = 0; i < count; i++) out[i] = sf_bf16_bits(sf_bf16_round(values[i]));
  else
    for (int64_t i = 0; i < count; i++) out[i] = sf_f16_bits(sf_f16_round(values[i]));
}

static void sum_f32(void *in, void *inout, int *count, MPI_Datatype *type) {
  (void)type;
  const float *a = in;
  float *b = inout;
  for (int i = 0; i < *count; i++) b[i] = same_nan(a[i] + b[i]);
}

/* bf16 and fp16: compute in fp32, then round. */
#define PACKED_OPERATOR(name, format, result)                                                                                              \
  static void name(void *in, void *inout, int *count, MPI_Datatype *type) {                                                                \
    (void)type;                                                                                                                            \
    const uint16_t *a = in;                                                                                                                \
    uint16_t *b = inout;                                                                                                                   \
    for (int i = 0; i < *count; i++) {                                                                                                     \
      const float u = sf_##format##_value(a[i]), v = sf_##format##_value(b[i]);                                                            \
      b[i] = sf_##format##_bits(sf_##format##_round(result));                                                                              \
    }                                                                                                                                      \
  }
PACKED_OPERATOR(sum_bf16, bf16, same_nan(u + v))
PACKED_OPERATOR(sum_f16, f16, same_nan(u + v))
PACKED_OPERATOR(max_bf16, bf16, larger(u, v))
PACKED_OPERATOR(max_f16, f16, larger(u, v))
#undef PACKED_OPERATOR

static void sum_f64(void *in, void *inout, int *count, MPI_Datatype *type) {
  (void)type;
  const double *a = in;
  double *b = inout;
  for (int i = 0; i < *count; i++) b[i] = same_nan_f64(a[i] + b[i]);
}

static void max_f32(void *in, void *inout, int *count, MPI_Datatype *type) {
  (void)type;
  const float *a = in;
  float *b = inout;
  for (int i = 0; i < *count; i++) b[i] = larger(a[i], b[i]);
}

static void max_f64(void *in, void *inout, int *count, MPI_Datatype *type) {
  (void)type;
  const double *a = in;
  double *b = inout;
  for (int i = 0; i < *count; i++) {
    const double either = a[i] > b[i] ? a[i] : b[i];
    b[i] = a[i] != a[i] || b[i] != b[i] ? __builtin_nan("") : a[i] == 0 && b[i] == 0 ? a[i] + b[i] : either;
  }
}

enum sf_status mpi_ops_create(struct sf_mpi *mpi) {
  static MPI_User_function *const sums[SF_WIRE_DTYPE_COUNT] = {
      [SF_F32] = sum_f32, [SF_BF16] = sum_bf16, [SF_F16] = sum_f16, [SF_F64] = sum_f64};
  static MPI_User_function *const maxima[SF_WIRE_DTYPE_COUNT] = {
      [SF_F32] = max_f32, [SF_BF16] = max_bf16, [SF_F16] = max_f16, [SF_F64] = max_f64};
  for (int d = 0; d < SF_WIRE_DTYPE_COUNT; d++) mpi->sums[d] = mpi->maxima[d] = MPI_OP_NULL;
  for (int d = 0; d < SF_WIRE_DTYPE_COUNT; d++) {
    if (MPI_Op_create(sums[d], 1, &mpi->sums[d]) != MPI_SUCCESS) return SF_EIO;
    if (MPI_Op_create(maxima[d], 1, &mpi->maxima[d]) != MPI_SUCCESS) return SF_EIO;
  }
  return SF_OK;
}

void mpi_ops_destroy(struct sf_mpi *mpi) {
  for (int d = 0; d < SF_WIRE_DTYPE_COUNT; d++) {
    if (mpi->sums[d] != MPI_OP_NULL && mpi->sums[d] != NULL) MPI_Op_free(&mpi->sums[d]);
    if (mpi->maxima[d] != MPI_OP_NULL && mpi->maxima[d] != NULL) MPI_Op_free(&mpi->maxima[d]);
  }
}

MPI_Op mpi_op_of(const struct sf_mpi *mpi, const struct sf_comm_call *call) {
  return call->reduce == SF_REDUCE_MAX ? mpi->maxima[call->wire] : mpi->sums[call->wire];
}

/* --- communicators ---------------------------------------------------------------------------------------------- */

static void groups_grow(struct sf_mpi *mpi, const struct sf_comm_call *call) {
  const uint64_t mask = 2 * mpi->group_mask + 1;
  struct mpi_group *groups = sf_alloc((mask + 1) * sizeof *groups);
  if (groups == NULL) mpi_leave(mpi, SF_ENOMEM, call->label, "no memory for the table of communicators");
  for (uint64_t i = 0; i <= mpi->group_mask; i++) {
    if (mpi->groups[i].key == 0) continue;
    uint64_t slot = mpi->groups[i].key & mask;
    while (groups[slot].key != 0) slot = (slot + 1) & mask;
    groups[slot] = mpi->groups[i];
  }
  sf_free(mpi->groups);
  mpi->groups = groups;
  mpi->group_mask = mask;
}

/* All members come here at the first use of a group, as in NCCL. */
static MPI_Comm comm_create(struct sf_mpi *mpi, const struct sf_group *group, uint64_t key, const struct sf_comm_call *call) {
  int *ranks = mpi_scratch(mpi, 0, (size_t)group->size * sizeof *ranks);
  for (int32_t i = 0; i < group->size; i++) ranks[i] = mpi->first + group->ranks[i];
  MPI_Group all, members;
  MPI_Comm comm = MPI_COMM_NULL;
  mpi_must(mpi, MPI_Comm_group(mpi->messages, &all), call);
  mpi_must(mpi, MPI_Group_incl(all, group->size, ranks, &members), call);
  const int code = MPI_Comm_create_group(mpi->messages, members, (int)(key % 30000), &comm);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  mpi_must(mpi, code, call);
  mpi_must(mpi, MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), call);
  return comm;
}

MPI_Comm mpi_group_comm(struct sf_mpi *mpi, const struct sf_group *group, const struct sf_comm_call *call) {
  const uint64_t key = sf_hash_u64(group->key, (uint64_t)mpi->first) | 1;
  if (4 * (mpi->group_count + 1) > 3 * (mpi->group_mask + 1)) groups_grow(mpi, call);
  uint64_t slot = key & mpi->group_mask;
  for (; mpi->groups[slot].key != 0; slot = (slot + 1) & mpi->group_mask) {
    if (mpi->groups[slot].key != key) continue;
    SF_ASSERT_EQ(mpi->groups[slot].size, group->size);
    return mpi->groups[slot].comm;
  }
  const MPI_Comm comm = comm_create(mpi, group, key, call);
  mpi->groups[slot] = (struct mpi_group){.key = key, .size = group->size, .comm = comm};
  mpi->group_count++;
  return comm;
}

/* --- agreement -------------------------------------------------------------------------------------------------- */

/* Fills in the call's fingerprint and its negation, so that one minimum over the members gives the smallest and the largest fingerprint.
 * All-to-all counts are compared piece by piece. */
void mpi_fingerprint(int64_t out[2], const struct sf_comm_call *call) {
  uint64_t hash = sf_hash_u64((uint64_t)call->op, call->op == SF_COMM_ALL_TO_ALL ? 0 : (uint64_t)call->count);
  hash = sf_hash_u64(hash, (uint64_t)call->wire << 8 | (uint64_t)call->reduce);
  hash = sf_hash_u64(hash, (uint64_t)call->root);
  out[0] = (int64_t)(hash >> 2);
  out[1] = -out[0];
}

struct mpi_summary mpi_summary_of(const struct sf_comm_call *call, int32_t rank) {
  struct mpi_summary summary = {.count = call->count,
                                .rank = rank,
                                .op = (int32_t)call->op,
                                .wire = (int32_t)call->wire,
                                .reduce = (int32_t)call->reduce,
                                .root = call->root,
                                .occurrence = call->occurrence};
  snprintf(summary.label, sizeof summary.label, "%s", call->label);
  return summary;
}

bool mpi_same_call(const struct mpi_summary *a, const struct mpi_summary *b) {
  return a->op == b->op && a->wire == b->wire && a->reduce == b->reduce && a->root == b->root &&
         (a->count == b->count || a->op == SF_COMM_ALL_TO_ALL);
}

enum sf_manner mpi_manner_of(const struct mpi_summary *a, const struct mpi_summary *b) {
  const struct mpi_summary *const of[2] = {a, b};
  struct sf_comm_call calls[2] = {0};
  for (int i = 0; i < 2; i++) {
    calls[i].op = (enum sf_comm_op)of[i]->op;
    calls[i].wire = (enum sf_dtype)of[i]->wire;
    calls[i].reduce = (enum sf_reduce)of[i]->reduce;
    calls[i].root = of[i]->root;
  }
  return sf_manner_of_calls(&calls[0], &calls[1]);
}

void mpi_summary_text(char text[160], const struct mpi_summary *s) {
  snprintf(text, 160, "rank %d calls %s '%.60s' #%u (%lld x %s, %s, root %d)", s->rank, sf_comm_op_name((enum sf_comm_op)s->op), s->label,
           s->occurrence, (long long)s->count, sf_dtype_name((enum sf_dtype)s->wire), sf_reduce_name((enum sf_reduce)s->reduce), s->root);
}

void mpi_report_disagreement(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  int size = 0;
  mpi_must(mpi, MPI_Comm_size(comm, &size), call);
  const struct mpi_summary mine = mpi_summary_of(call, mpi->comm.rank);
  struct mpi_summary *all = mpi_scratch(mpi, 0, (size_t)size * sizeof *all);
  mpi_must(mpi, MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, comm), call);
  int other = 1;
  while (other < size - 1 && mpi_same_call(&all[0], &all[other])) other++;
  char first_text[160], other_text[160];
  mpi_summary_text(first_text, &all[0]);
  mpi_summary_text(other_text, &all[other]);
  mpi->report->rank = all[0].rank; /* the same on all members, as the label is: any of them may be the first to report */
  mpi->report->manner = mpi_manner_of(&all[0], &all[other]);
  mpi_leave(mpi, SF_EMISMATCH, all[0].label, "%s, %s", first_text, other_text);
}

/* All members meet here, so none waits long in the blocking MPI call that follows. */
static void check_agreement(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  int64_t fingerprint[2];
  MPI_Request check;
  mpi_fingerprint(fingerprint, call);
  mpi_must(mpi, MPI_Iallreduce(MPI_IN_PLACE, fingerprint, 2, MPI_INT64_T, MPI_MIN, comm, &check), call);
  mpi_must(mpi, mpi_wait_for(&check, MPI_STATUS_IGNORE), call);
  if (fingerprint[0] != -fingerprint[1]) mpi_report_disagreement(mpi, comm, call);
}

/* Only its receiver knows which piece differs; the last such receiver in the group tells the others. */
static void check_pieces(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  const int32_t size = call->group->size;
  int64_t *sent = mpi_scratch(mpi, 0, (size_t)size * sizeof *sent);
  mpi_must(mpi, MPI_Alltoall(call->send_counts, 1, MPI_INT64_T, sent, 1, MPI_INT64_T, comm), call);
  int64_t piece[3] = {-1, 0, 0};
  for (int32_t from = 0; from < size; from++)
    if (sent[from] != call->recv_counts[from]) {
      piece[0] = from;
      piece[1] = sent[from];
      piece[2] = call->recv_counts[from];
    }
  int teller = piece[0] >= 0 ? call->group->index : -1;
  mpi_must(mpi, MPI_Allreduce(MPI_IN_PLACE, &teller, 1, MPI_INT, MPI_MAX, comm), call);
  if (teller < 0) return;
  mpi->report->manner = SF_MANNER_COUNT;
  mpi_must(mpi, MPI_Bcast(piece, 3, MPI_INT64_T, teller, comm), call);
  mpi_leave(mpi, SF_EMISMATCH, call->label, "rank %d sends %lld elements to rank %d in all_to_all '%s' #%u, which expects %lld",
            call->group->ranks[piece[0]], (long long)piece[1], call->group->ranks[teller], call->label, call->occurrence,
            (long long)piece[2]);
}

/* --- data ------------------------------------------------------------------------------------------------------- */

/* The buffer to send: the caller's, or its bf16 or fp16 values packed into scratch 0. */
static const void *outgoing(struct sf_mpi *mpi, const struct sf_comm_call *call, int64_t count) {
  if (!sf_dtype_is_packed(call->wire)) return call->send;
  uint16_t *wire = mpi_scratch(mpi, 0, (size_t)count * sizeof *wire);
  mpi_pack(wire, call->send, count, call->wire);
  return wire;
}

/* The buffer to receive into: the caller's, or scratch 1. */
static void *incoming(struct sf_mpi *mpi, const struct sf_comm_call *call, int64_t count) {
  return sf_dtype_is_packed(call->wire) ? mpi_scratch(mpi, 1, (size_t)count * sizeof(uint16_t)) : call->recv;
}

void mpi_finish_reduction(const struct sf_comm_call *call, const uint16_t *wire, int64_t count, int32_t size) {
  if (wire != NULL) sf_unpack(call->recv, wire, count, call->wire);
  if (call->reduce != SF_REDUCE_AVG) return;
  if (call->wire == SF_F64) {
    double *values = call->recv;
    for (int64_t i = 0; i < count; i++) values[i] *= 1.0 / size;
  } else {
    float *values = call->recv;
    for (int64_t i = 0; i < count; i++) values[i] = sf_round(values[i] * (1.0f / (float)size), call->wire);
  }
}

static void all_reduce(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  const int count = mpi_count(mpi, call->count, call);
  void *data = call->recv;
  if (sf_dtype_is_packed(call->wire)) {
    data = mpi_scratch(mpi, 0, (size_t)count * sizeof(uint16_t));
    mpi_pack(data, call->send, count, call->wire);
  }
  mpi_must(mpi, MPI_Allreduce(MPI_IN_PLACE, data, count, mpi_type_of(call->wire), mpi_op_of(mpi, call), comm), call);
  mpi_finish_reduction(call, sf_dtype_is_packed(call->wire) ? data : NULL, count, call->group->size);
}

static void reduce_scatter(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  const int count = mpi_count(mpi, call->count * call->group->size, call) / call->group->size;
  const void *out = outgoing(mpi, call, call->count * call->group->size);
  void *in = incoming(mpi, call, count);
  mpi_must(mpi, MPI_Reduce_scatter_block(out, in, count, mpi_type_of(call->wire), mpi_op_of(mpi, call), comm), call);
  mpi_finish_reduction(call, sf_dtype_is_packed(call->wire) ? in : NULL, count, call->group->size);
}

static void all_gather(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  const int64_t total = call->count * call->group->size;
  const int count = mpi_count(mpi, total, call) / call->group->size;
  const void *out = outgoing(mpi, call, count);
  void *in = incoming(mpi, call, total);
  mpi_must(mpi, MPI_Allgather(out, count, mpi_type_of(call->wire), in, count, mpi_type_of(call->wire), comm), call);
  if (sf_dtype_is_packed(call->wire)) sf_unpack(call->recv, in, total, call->wire);
}

static void broadcast(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  const int count = mpi_count(mpi, call->count, call);
  void *data = incoming(mpi, call, count);
  if (sf_dtype_is_packed(call->wire) && call->group->index == call->root) mpi_pack(data, call->send, count, call->wire);
  mpi_must(mpi, MPI_Bcast(data, count, mpi_type_of(call->wire), call->root, comm), call);
  if (sf_dtype_is_packed(call->wire)) sf_unpack(call->recv, data, count, call->wire);
}

/* Fills counts and starts of the pieces; returns their total. */
static int64_t lay_out(struct sf_mpi *mpi, int *counts, int *starts, const int64_t *wanted, const struct sf_comm_call *call) {
  int64_t total = 0;
  for (int32_t i = 0; i < call->group->size; i++) {
    counts[i] = mpi_count(mpi, wanted[i], call);
    starts[i] = mpi_count(mpi, total, call);
    total += wanted[i];
  }
  return mpi_count(mpi, total, call);
}

static void all_to_all(struct sf_mpi *mpi, MPI_Comm comm, const struct sf_comm_call *call) {
  const size_t size = (size_t)call->group->size, table_bytes = (4 * size * sizeof(int) + 63) / 64 * 64;
  /* The tables lie before the packed data, both in scratch 0. */
  int *table = mpi_scratch(mpi, 0, table_bytes + (size_t)call->count * sizeof(uint16_t));
  int *send_counts = table, *send_starts = table + size, *recv_counts = table + 2 * size, *recv_starts = table + 3 * size;
  const int64_t sent = lay_out(mpi, send_counts, send_starts, call->send_counts, call);
  const int64_t received = lay_out(mpi, recv_counts, recv_starts, call->recv_counts, call);
  const void *out = call->send;
  void *in = incoming(mpi, call, received);
  if (sf_dtype_is_packed(call->wire)) {
    uint16_t *wire = (uint16_t *)((char *)table + table_bytes);
    mpi_pack(wire, call->send, sent, call->wire);
    out = wire;
  }
  const MPI_Datatype type = mpi_type_of(call->wire);
  mpi_must(mpi, MPI_Alltoallv(out, send_counts, send_starts, type, in, recv_counts, recv_starts, type, comm), call);
  if (sf_dtype_is_packed(call->wire)) sf_unpack(call->recv, in, received, call->wire);
}

void mpi_collective(struct sf_mpi *mpi, const struct sf_comm_call *call) {
  const MPI_Comm comm = mpi_group_comm(mpi, call->group, call);
  check_agreement(mpi, comm, call);
  if (call->op == SF_COMM_ALL_TO_ALL) check_pieces(mpi, comm, call);
  if (call->op == SF_COMM_BARRIER) mpi_must(mpi, MPI_Barrier(comm), call);
  if (call->op == SF_COMM_ALL_TO_ALL) all_to_all(mpi, comm, call);
  if (call->count == 0) return;
  if (call->op == SF_COMM_ALL_REDUCE) all_reduce(mpi, comm, call);
  if (call->op == SF_COMM_REDUCE_SCATTER) reduce_scatter(mpi, comm, call);
  if (call->op == SF_COMM_ALL_GATHER) all_gather(mpi, comm, call);
  if (call->op == SF_COMM_BROADCAST) broadcast(mpi, comm, call);
}
