#include "harness/base/alloc.h"
#include "tests/contract/comm_cases.h"

#include <math.h>

struct sf_group case_group_create(struct case_members *members, const struct sf_comm *comm, enum case_group kind) {
  int32_t size = 0, index = -1;
  for (int32_t step = 0; step < comm->world; step++) {
    const int32_t r = kind == GROUP_REVERSED ? comm->world - 1 - step : step;
    const bool inside = kind == GROUP_PARITY            ? r % 2 == comm->rank % 2
                        : kind == GROUP_BLOCKS_OF_THREE ? r / 3 == comm->rank / 3
                        : kind == GROUP_ALONE           ? r == comm->rank
                                                        : true;
    if (!inside) continue;
    if (r == comm->rank) index = size;
    members->ranks[size++] = r;
  }
  return sf_group_create(members->ranks, size, index);
}

float case_integer(uint64_t seed, int32_t rank, int64_t i) {
  return (float)((int64_t)(sf_hash_u64(sf_hash_u64(seed, (uint64_t)rank), (uint64_t)i) % 5) - 2);
}

float case_real(uint64_t seed, int32_t rank, int64_t i) {
  const uint64_t hash = sf_hash_u64(sf_hash_u64(seed, (uint64_t)rank), (uint64_t)i);
  return ldexpf((float)(int64_t)(hash >> 40) - 8388608.0f, (int)(hash % 7) - 24);
}

static const int64_t counts[] = {0, 1, 5, 37, 1500};
enum { COUNTS = 5, COUNT_MAX = 1500 };

static float at(const void *data, int64_t i, enum sf_dtype wire) {
  return wire == SF_F64 ? (float)((const double *)data)[i] : ((const float *)data)[i];
}

static void put(void *data, int64_t i, enum sf_dtype wire, float value) {
  if (wire == SF_F64)
    ((double *)data)[i] = value;
  else
    ((float *)data)[i] = value;
}

/* Exact: the sum of small integers is the same in any order and format. variant: format + SF_WIRE_DTYPE_COUNT x reduction. */
static void all_reduce_integers_exact(struct sf_comm *comm, struct case_rank *rank) {
  const enum sf_dtype wire = (enum sf_dtype)(rank->variant % SF_WIRE_DTYPE_COUNT);
  const enum sf_reduce reduce = (enum sf_reduce)(rank->variant / SF_WIRE_DTYPE_COUNT);
  double *data = sf_alloc(COUNT_MAX * sizeof *data);
  for (int kind = 0; kind < GROUP_KINDS; kind++)
    for (int c = 0; c < COUNTS; c++) {
      struct case_members members;
      const struct sf_group group = case_group_create(&members, comm, (enum case_group)kind);
      for (int64_t i = 0; i < counts[c]; i++) put(data, i, wire, case_integer(rank->seed, comm->rank, i));
      sf_all_reduce(comm, &group, data, counts[c], wire, reduce, "contract.all_reduce");
      case_note(rank, data, (size_t)counts[c] * sf_dtype_held_bytes(wire));
      for (int64_t i = 0; i < counts[c]; i++) {
        float sum = 0, max = -3;
        for (int32_t m = 0; m < group.size; m++) {
          const float x = case_integer(rank->seed, members.ranks[m], i);
          sum += x;
          max = x > max ? x : max;
        }
        const float avg = sf_round(sum * (1.0f / (float)group.size), wire);
        const float wanted = reduce == SF_REDUCE_SUM   ? sum
                             : reduce == SF_REDUCE_MAX ? max
                             : wire == SF_F64          ? (float)(sum * (1.0 / group.size))
                                                       : avg;
        case_check(rank, at(data, i, wire) == wanted, "kind %d element %lld: %g, expected %g", kind, (long long)i,
                   (double)at(data, i, wire), (double)wanted);
      }
    }
  sf_free(data);
}

/* Bit for bit the same on every member, and near the sum in fp64. variant: format. */
static void all_reduce_members_bit_equal(struct sf_comm *comm, struct case_rank *rank) {
  const enum sf_dtype wire = (enum sf_dtype)rank->variant; /* fp32, bf16, fp16 */
  enum { COUNT = 777 };
  float *data = sf_alloc(COUNT * sizeof *data), *all = sf_alloc((size_t)comm->world * COUNT * sizeof *all);
  for (int kind = 0; kind < GROUP_KINDS; kind++) {
    struct case_members members;
    const struct sf_group group = case_group_create(&members, comm, (enum case_group)kind);
    for (int64_t i = 0; i < COUNT; i++) data[i] = sf_round(case_real(rank->seed, comm->rank, i), wire);
    sf_all_reduce(comm, &group, data, COUNT, wire, SF_REDUCE_SUM, "contract.bits");
    case_note(rank, data, COUNT * sizeof *data);
    sf_all_gather(comm, &group, all, data, COUNT, SF_F32, "contract.bits.gather");
    for (int32_t m = 0; m < group.size; m++)
      case_check(rank, memcmp(all + (size_t)m * COUNT, data, COUNT * sizeof *data) == 0, "kind %d: member %d has other bits", kind, m);
    for (int64_t i = 0; i < COUNT; i++) {
      double sum = 0, size = 0;
      for (int32_t m = 0; m < group.size; m++) {
        const double x = (double)sf_round(case_real(rank->seed, members.ranks[m], i), wire);
        sum += x;
        size += fabs(x);
      }
      const double bound = 1.1 * (double)group.size * (sf_dtype_unit_roundoff(wire) * size + sf_dtype_least_error(wire));
      case_check(rank, fabs((double)data[i] - sum) <= bound, "kind %d element %lld: %g, expected %g", kind, (long long)i, (double)data[i],
                 sum);
    }
  }
  sf_free(data);
  sf_free(all);
}

static float nan_of(uint32_t payload) {
  const uint32_t bits = 0x7fc00000u | payload;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Long enough for backends to change their algorithm; different NaNs on the members. variant: format, and + 3 asynchronous. */
static void all_reduce_long_members_bit_equal(struct sf_comm *comm, struct case_rank *rank) {
  enum { COUNT = 60000 };
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  const enum sf_dtype wire = (enum sf_dtype)(rank->variant % 3);
  float *data = sf_alloc(COUNT * sizeof *data), *first = sf_alloc(COUNT * sizeof *first);
  for (int64_t i = 0; i < COUNT; i++) data[i] = i % 100 == 0 ? nan_of((uint32_t)comm->rank << 16) : case_real(rank->seed, comm->rank, i);
  if (rank->variant < 3)
    sf_all_reduce(comm, &group, data, COUNT, wire, SF_REDUCE_SUM, "contract.long");
  else
    sf_wait(comm, sf_iall_reduce(comm, &group, data, COUNT, wire, SF_REDUCE_SUM, "contract.long"));
  memcpy(first, data, COUNT * sizeof *first);
  sf_broadcast(comm, &group, first, COUNT, 0, SF_F32, "contract.long.broadcast");
  case_check(rank, memcmp(first, data, COUNT * sizeof *data) == 0, "bits differ from member 0's");
  case_check(rank, isnan(data[0]) && isnan(data[COUNT - 100]), "a NaN is lost");
  sf_free(data);
  sf_free(first);
}

static void all_reduce_max_special_values(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  const enum sf_dtype wire = (enum sf_dtype)rank->variant;
  const int32_t last = comm->world - 1;
  double data[4];
  put(data, 0, wire, comm->rank == last ? NAN : 1.0f);
  put(data, 1, wire, comm->rank == last ? 0.0f : -0.0f);
  put(data, 2, wire, comm->rank == 0 ? -INFINITY : -3.0f);
  put(data, 3, wire, comm->rank == 0 ? INFINITY : 3.0f);
  sf_all_reduce(comm, &group, data, 4, wire, SF_REDUCE_MAX, "contract.max");
  case_check(rank, isnan(at(data, 0, wire)), "a NaN is lost");
  case_check(rank, at(data, 1, wire) == 0 && !signbit(at(data, 1, wire)), "the larger zero is positive");
  case_check(rank, at(data, 2, wire) == (comm->world == 1 ? -INFINITY : -3.0f), "minus infinity against -3 gives %g",
             (double)at(data, 2, wire));
  case_check(rank, at(data, 3, wire) == INFINITY, "infinity is lost");
}

/* Every hop is rounded to bf16 or fp16, in group order. variant: format, and + 2 the average. */
static void all_reduce_packed_linear_model(struct sf_comm *comm, struct case_rank *rank) {
  enum { COUNT = 1200 };
  const enum sf_dtype wire = rank->variant % 2 == 0 ? SF_BF16 : SF_F16;
  const bool average = rank->variant >= 2;
  rank->skipped = !rank->group_order;
  if (rank->skipped) return;
  float *data = sf_alloc(COUNT * sizeof *data);
  for (int kind = 0; kind < GROUP_KINDS; kind++) {
    struct case_members members;
    const struct sf_group group = case_group_create(&members, comm, (enum case_group)kind);
    for (int64_t i = 0; i < COUNT; i++) data[i] = case_real(rank->seed, comm->rank, i);
    sf_all_reduce(comm, &group, data, COUNT, wire, average ? SF_REDUCE_AVG : SF_REDUCE_SUM, "contract.model");
    for (int64_t i = 0; i < COUNT; i++) {
      float sum = sf_round(case_real(rank->seed, members.ranks[0], i), wire);
      for (int32_t m = 1; m < group.size; m++) sum = sf_round(sum + sf_round(case_real(rank->seed, members.ranks[m], i), wire), wire);
      if (average) sum = sf_round(sum * (1.0f / (float)group.size), wire);
      case_check(rank, data[i] == sum, "kind %d element %lld: %g, expected %g", kind, (long long)i, (double)data[i], (double)sum);
    }
  }
  sf_free(data);
}

static void reduce_scatter_integers_exact(struct sf_comm *comm, struct case_rank *rank) {
  const enum sf_dtype wire = (enum sf_dtype)(rank->variant % SF_WIRE_DTYPE_COUNT);
  const enum sf_reduce reduce = rank->variant < SF_WIRE_DTYPE_COUNT ? SF_REDUCE_SUM : SF_REDUCE_AVG;
  double *send = sf_alloc(CASE_WORLD_MAX * 37 * sizeof *send), recv[37];
  for (int kind = 0; kind < GROUP_KINDS; kind++)
    for (int c = 0; c < 4; c++) {
      struct case_members members;
      const struct sf_group group = case_group_create(&members, comm, (enum case_group)kind);
      for (int64_t i = 0; i < counts[c] * group.size; i++) put(send, i, wire, case_integer(rank->seed, comm->rank, i));
      sf_reduce_scatter(comm, &group, recv, send, counts[c], wire, reduce, "contract.reduce_scatter");
      case_note(rank, recv, (size_t)counts[c] * sf_dtype_held_bytes(wire));
      for (int64_t i = 0; i < counts[c]; i++) {
        float sum = 0;
        for (int32_t m = 0; m < group.size; m++) sum += case_integer(rank->seed, members.ranks[m], group.index * counts[c] + i);
        if (reduce == SF_REDUCE_AVG)
          sum = wire == SF_F64 ? (float)(sum * (1.0 / group.size)) : sf_round(sum * (1.0f / (float)group.size), wire);
        case_check(rank, at(recv, i, wire) == sum, "kind %d element %lld: %g, expected %g", kind, (long long)i, (double)at(recv, i, wire),
                   (double)sum);
      }
      for (int64_t i = 0; i < counts[c] * group.size; i++)
        case_check(rank, at(send, i, wire) == case_integer(rank->seed, comm->rank, i), "the source was changed");
    }
  sf_free(send);
}

static void all_gather_order(struct sf_comm *comm, struct case_rank *rank) {
  const enum sf_dtype wire = (enum sf_dtype)rank->variant;
  double send[37], *recv = sf_alloc(CASE_WORLD_MAX * 37 * sizeof *recv);
  for (int kind = 0; kind < GROUP_KINDS; kind++)
    for (int c = 0; c < 4; c++) {
      struct case_members members;
      const struct sf_group group = case_group_create(&members, comm, (enum case_group)kind);
      for (int64_t i = 0; i < counts[c]; i++) put(send, i, wire, case_real(rank->seed, comm->rank, i));
      sf_all_gather(comm, &group, recv, send, counts[c], wire, "contract.all_gather");
      case_note(rank, recv, (size_t)(counts[c] * group.size) * sf_dtype_held_bytes(wire));
      for (int32_t m = 0; m < group.size; m++)
        for (int64_t i = 0; i < counts[c]; i++) {
          const float wanted = sf_round(case_real(rank->seed, members.ranks[m], i), wire), got = at(recv, m * counts[c] + i, wire);
          case_check(rank, got == wanted, "kind %d member %d element %lld: %g, expected %g", kind, m, (long long)i, (double)got,
                     (double)wanted);
        }
    }
  sf_free(recv);
}

static void broadcast_each_root(struct sf_comm *comm, struct case_rank *rank) {
  const enum sf_dtype wire = (enum sf_dtype)rank->variant;
  for (int kind = 0; kind < GROUP_KINDS; kind++) {
    struct case_members members;
    const struct sf_group group = case_group_create(&members, comm, (enum case_group)kind);
    for (int32_t root = 0; root < group.size; root++) {
      double data[19];
      for (int64_t i = 0; i < 19; i++) put(data, i, wire, case_real(rank->seed, comm->rank, i));
      sf_broadcast(comm, &group, data, 19, root, wire, "contract.broadcast");
      for (int64_t i = 0; i < 19; i++)
        case_check(rank, at(data, i, wire) == sf_round(case_real(rank->seed, members.ranks[root], i), wire), "kind %d root %d", kind, root);
    }
  }
}

/* Uneven pieces, some empty. */
static int64_t piece(int32_t from, int32_t to) { return (from * 3 + to * 5 + from * to) % 4; }

static void all_to_all_uneven(struct sf_comm *comm, struct case_rank *rank) {
  const enum sf_dtype wire = (enum sf_dtype)rank->variant;
  double *send = sf_alloc(CASE_WORLD_MAX * 4 * sizeof *send), *recv = sf_alloc(CASE_WORLD_MAX * 4 * sizeof *recv);
  for (int kind = 0; kind < GROUP_KINDS; kind++) {
    struct case_members members;
    const struct sf_group group = case_group_create(&members, comm, (enum case_group)kind);
    int64_t send_counts[CASE_WORLD_MAX], recv_counts[CASE_WORLD_MAX], n = 0;
    for (int32_t m = 0; m < group.size; m++) {
      send_counts[m] = piece(comm->rank, members.ranks[m]);
      recv_counts[m] = piece(members.ranks[m], comm->rank);
      for (int64_t i = 0; i < send_counts[m]; i++) put(send, n++, wire, case_real(rank->seed, comm->rank, 100 * members.ranks[m] + i));
    }
    sf_all_to_all(comm, &group, recv, recv_counts, send, send_counts, wire, "contract.all_to_all");
    n = 0;
    for (int32_t m = 0; m < group.size; m++)
      for (int64_t i = 0; i < recv_counts[m]; i++, n++)
        case_check(rank, at(recv, n, wire) == sf_round(case_real(rank->seed, members.ranks[m], 100 * comm->rank + i), wire),
                   "kind %d: element %lld from member %d", kind, (long long)i, m);
  }
  sf_free(send);
  sf_free(recv);
}

static void barrier_waits_for_all(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  rank->skipped = rank->shared == NULL;
  if (rank->shared != NULL) ++*rank->shared;
  sf_barrier(comm, &group, "contract.barrier");
  if (rank->shared != NULL) case_check(rank, *rank->shared == comm->world, "%d of %d had come", *rank->shared, comm->world);
}

static void calls_leave_label_and_progress(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  float value = 1;
  sf_all_reduce(comm, &group, &value, 1, SF_F32, SF_REDUCE_SUM, "contract.progress.all_reduce");
  case_check(rank, strcmp(comm->last_label, "contract.progress.all_reduce") == 0, "last label is %s", comm->last_label);
  case_check(rank, strcmp(comm->progress->label, "contract.progress.all_reduce") == 0, "progress shows %s", comm->progress->label);
  case_check(rank, comm->progress->rank == comm->rank, "progress shows rank %d", comm->progress->rank);
}

const struct comm_case comm_collective_cases[] = {
    {.name = "all_reduce_integers_exact", .body = all_reduce_integers_exact, .variants = 3 * SF_WIRE_DTYPE_COUNT, .world_min = 1},
    {.name = "all_reduce_members_bit_equal", .body = all_reduce_members_bit_equal, .variants = 3, .world_min = 1},
    {.name = "all_reduce_long_members_bit_equal", .body = all_reduce_long_members_bit_equal, .variants = 6, .world_min = 1},
    {.name = "all_reduce_max_special_values", .body = all_reduce_max_special_values, .variants = SF_WIRE_DTYPE_COUNT, .world_min = 1},
    {.name = "all_reduce_packed_linear_model", .body = all_reduce_packed_linear_model, .variants = 4, .world_min = 1},
    {.name = "reduce_scatter_integers_exact", .body = reduce_scatter_integers_exact, .variants = 2 * SF_WIRE_DTYPE_COUNT, .world_min = 1},
    {.name = "all_gather_order", .body = all_gather_order, .variants = SF_WIRE_DTYPE_COUNT, .world_min = 1},
    {.name = "broadcast_each_root", .body = broadcast_each_root, .variants = SF_WIRE_DTYPE_COUNT, .world_min = 1},
    {.name = "all_to_all_uneven", .body = all_to_all_uneven, .variants = SF_WIRE_DTYPE_COUNT, .world_min = 1},
    {.name = "barrier_waits_for_all", .body = barrier_waits_for_all, .variants = 1, .world_min = 1},
    {.name = "calls_leave_label_and_progress", .body = calls_leave_label_and_progress, .variants = 1, .world_min = 1},
    {.name = NULL},
};
