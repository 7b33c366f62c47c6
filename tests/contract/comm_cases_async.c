#include "harness/base/alloc.h"
#include "tests/contract/comm_cases.h"

#include <dlfcn.h>

/* Everybody to the next rank, blocking: even ranks send first. */
static void send_recv_ring(struct sf_comm *comm, struct case_rank *rank) {
  const enum sf_dtype wire = (enum sf_dtype)rank->variant;
  const int32_t next = (comm->rank + 1) % comm->world, previous = (comm->rank + comm->world - 1) % comm->world;
  double out[33], in[33];
  if (comm->world % 2 != 0) {
    rank->skipped = true;
    return;
  }
  for (int64_t i = 0; i < 33; i++)
    if (wire == SF_F64)
      out[i] = (double)case_real(rank->seed, comm->rank, i);
    else
      ((float *)out)[i] = case_real(rank->seed, comm->rank, i);
  if (comm->rank % 2 == 0) sf_send(comm, next, 7, out, 33, wire, "contract.ring.send");
  sf_recv(comm, previous, 7, in, 33, wire, "contract.ring.recv");
  if (comm->rank % 2 == 1) sf_send(comm, next, 7, out, 33, wire, "contract.ring.send");
  for (int64_t i = 0; i < 33; i++) {
    const float got = wire == SF_F64 ? (float)in[i] : ((float *)in)[i];
    case_check(rank, got == sf_round(case_real(rank->seed, previous, i), wire), "element %lld is %g", (long long)i, (double)got);
  }
}

/* Messages of one (source, destination, tag) arrive in order; those of another tag may be taken first. Also to oneself. */
static void messages_keep_order_per_tag(struct sf_comm *comm, struct case_rank *rank) {
  enum { MESSAGES = 6, TAGS = 3 };
  const int32_t next = (comm->rank + 1) % comm->world, previous = (comm->rank + comm->world - 1) % comm->world;
  float out[MESSAGES][TAGS], in[MESSAGES][TAGS];
  sf_request sends[MESSAGES][TAGS], recvs[MESSAGES][TAGS];
  for (int m = 0; m < MESSAGES; m++)
    for (int t = 0; t < TAGS; t++) {
      out[m][t] = (float)(1000 * comm->rank + 10 * m + t);
      sends[m][t] = sf_isend(comm, next, t, &out[m][t], 1, SF_F32, "contract.order.send");
    }
  for (int t = TAGS - 1; t >= 0; t--)
    for (int m = 0; m < MESSAGES; m++) recvs[m][t] = sf_irecv(comm, previous, t, &in[m][t], 1, SF_F32, "contract.order.recv");
  for (int m = MESSAGES - 1; m >= 0; m--)
    for (int t = 0; t < TAGS; t++) {
      sf_wait(comm, recvs[m][t]);
      sf_wait(comm, sends[m][t]);
      case_check(rank, in[m][t] == (float)(1000 * previous + 10 * m + t), "message %d of tag %d holds %g", m, t, (double)in[m][t]);
    }
}

/* A batch: all post all sends and receives, and wait afterwards. variant: format. */
static void batch_all_pairs(struct sf_comm *comm, struct case_rank *rank) {
  enum { COUNT = 21, PEERS = 12 };
  const int32_t peers = comm->world < PEERS ? comm->world : PEERS;
  const enum sf_dtype wire = (enum sf_dtype)rank->variant; /* fp32, bf16, fp16 */
  float out[PEERS][COUNT], in[PEERS][COUNT];
  sf_request requests[2 * PEERS];
  for (int32_t p = 0; p < peers; p++) {
    const int32_t to = (comm->rank + p) % comm->world, from = (comm->rank - p + comm->world) % comm->world;
    for (int64_t i = 0; i < COUNT; i++) out[p][i] = case_real(rank->seed, comm->rank * 64 + to, i);
    requests[2 * p] = sf_irecv(comm, from, 3, in[p], COUNT, wire, "contract.batch.recv");
    requests[2 * p + 1] = sf_isend(comm, to, 3, out[p], COUNT, wire, "contract.batch.send");
  }
  for (int32_t p = 0; p < 2 * peers; p++) sf_wait(comm, requests[p]);
  for (int32_t p = 0; p < peers; p++)
    for (int64_t i = 0; i < COUNT; i++) {
      const int32_t from = (comm->rank - p + comm->world) % comm->world;
      case_check(rank, in[p][i] == sf_round(case_real(rank->seed, from * 64 + comm->rank, i), wire), "from rank %d, element %lld", from,
                 (long long)i);
    }
  sf_wait(comm, 0);
}

/* Several reductions in flight on several groups; every rank waits in another order. */
static void all_reduces_in_flight(struct sf_comm *comm, struct case_rank *rank) {
  enum { FLIGHTS = 10, COUNT = 130 };
  const enum sf_dtype wire = (enum sf_dtype)rank->variant; /* fp32, bf16, fp16 */
  struct case_members members[FLIGHTS];
  struct sf_group groups[FLIGHTS];
  sf_request requests[FLIGHTS];
  float *data = sf_alloc(FLIGHTS * COUNT * sizeof *data);
  for (int f = 0; f < FLIGHTS; f++) {
    groups[f] = case_group_create(&members[f], comm, (enum case_group)(f % 3));
    for (int64_t i = 0; i < COUNT; i++) data[f * COUNT + i] = case_integer(rank->seed + (uint64_t)f, comm->rank, i);
    requests[f] = sf_iall_reduce(comm, &groups[f], data + f * COUNT, COUNT, wire, SF_REDUCE_SUM, "contract.flight");
  }
  const uint64_t turn = sf_hash_u64(rank->seed, (uint64_t)comm->rank);
  for (int k = 0; k < FLIGHTS; k++) {
    const int f = (int)((turn + (uint64_t)k * (turn % 2 ? 3 : 7)) % FLIGHTS);
    sf_wait(comm, requests[f]);
    for (int64_t i = 0; i < COUNT; i++) {
      float sum = 0;
      for (int32_t m = 0; m < groups[f].size; m++) sum += case_integer(rank->seed + (uint64_t)f, members[f].ranks[m], i);
      case_check(rank, data[f * COUNT + i] == sum, "flight %d element %lld: %g, expected %g", f, (long long)i, (double)data[f * COUNT + i],
                 (double)sum);
    }
  }
  sf_free(data);
}

/* Several reduce-scatters in flight; an average of integers has the same bits as from the blocking call. variant: format. */
static void reduce_scatters_in_flight(struct sf_comm *comm, struct case_rank *rank) {
  enum { FLIGHTS = 6, COUNT = 70 };
  const enum sf_dtype wire = (enum sf_dtype)rank->variant; /* fp32, bf16, fp16 */
  struct case_members members[FLIGHTS];
  struct sf_group groups[FLIGHTS];
  sf_request requests[FLIGHTS];
  float *send[FLIGHTS], recv[FLIGHTS][COUNT], again[COUNT];
  for (int f = 0; f < FLIGHTS; f++) {
    groups[f] = case_group_create(&members[f], comm, (enum case_group)(f % 3));
    send[f] = sf_alloc((size_t)(groups[f].size * COUNT) * sizeof *send[f]);
    for (int64_t i = 0; i < groups[f].size * COUNT; i++) send[f][i] = case_integer(rank->seed + (uint64_t)f, comm->rank, i);
    requests[f] = sf_ireduce_scatter(comm, &groups[f], recv[f], send[f], COUNT, wire, SF_REDUCE_SUM, "contract.scatter_flight");
  }
  const uint64_t turn = sf_hash_u64(rank->seed, (uint64_t)comm->rank);
  for (int k = 0; k < FLIGHTS; k++) sf_wait(comm, requests[(turn + (uint64_t)k * (turn % 2 ? 1 : 5)) % FLIGHTS]);
  for (int f = 0; f < FLIGHTS; f++) {
    for (int64_t i = 0; i < COUNT; i++) {
      float sum = 0;
      for (int32_t m = 0; m < groups[f].size; m++)
        sum += case_integer(rank->seed + (uint64_t)f, members[f].ranks[m], groups[f].index * COUNT + i);
      case_check(rank, recv[f][i] == sum, "flight %d element %lld: %g, expected %g", f, (long long)i, (double)recv[f][i], (double)sum);
    }
    const sf_request request = sf_ireduce_scatter(comm, &groups[f], recv[f], send[f], COUNT, wire, SF_REDUCE_AVG, "contract.scatter_again");
    sf_wait(comm, request);
    sf_reduce_scatter(comm, &groups[f], again, send[f], COUNT, wire, SF_REDUCE_AVG, "contract.scatter_again");
    case_check(rank, memcmp(recv[f], again, sizeof again) == 0, "flight %d has other bits than the blocking call", f);
    sf_free(send[f]);
  }
}

static void async_members_bit_equal(struct sf_comm *comm, struct case_rank *rank) {
  enum { COUNT = 300 };
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  const enum sf_dtype wire = (enum sf_dtype)rank->variant; /* fp32, bf16, fp16 */
  float data[COUNT], *all = sf_alloc((size_t)comm->world * COUNT * sizeof *all), barrier = 0;
  for (int64_t i = 0; i < COUNT; i++) data[i] = case_real(rank->seed, comm->rank, i);
  const sf_request request = sf_iall_reduce(comm, &group, data, COUNT, wire, SF_REDUCE_AVG, "contract.async_bits");
  if (comm->rank % 2 == 0) sf_wait(comm, request);
  sf_all_reduce(comm, &group, &barrier, 1, SF_F32, SF_REDUCE_SUM, "contract.async_bits.between");
  if (comm->rank % 2 == 1) sf_wait(comm, request);
  case_note(rank, data, sizeof data);
  sf_all_gather(comm, &group, all, data, COUNT, SF_F32, "contract.async_bits.gather");
  for (int32_t m = 0; m < group.size; m++)
    case_check(rank, memcmp(all + (size_t)m * COUNT, data, sizeof data) == 0, "member %d has other bits", m);
  sf_free(all);
}

/* Posting must not wait for the others: here rank 1 joins the reduction only after a message that rank 0 sends after posting. */
static void post_does_not_wait(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  float data = 1, token = 5;
  if (comm->rank != 0) sf_recv(comm, comm->rank - 1, 1, &token, 1, SF_F32, "contract.post.recv");
  const sf_request request = sf_iall_reduce(comm, &group, &data, 1, SF_F32, SF_REDUCE_SUM, "contract.post.all_reduce");
  if (comm->rank + 1 < comm->world) sf_send(comm, comm->rank + 1, 1, &token, 1, SF_F32, "contract.post.send");
  sf_wait(comm, request);
  case_check(rank, data == (float)comm->world && token == 5, "%g and %g", (double)data, (double)token);
}

/* Completing two reductions in opposite orders, with a message in between that the other needs to go on. */
static void waits_cross(struct sf_comm *comm, struct case_rank *rank) {
  struct case_members members;
  const struct sf_group group = case_group_create(&members, comm, GROUP_WORLD);
  float x = 1, y = 2, token = 0;
  const sf_request first = sf_iall_reduce(comm, &group, &x, 1, SF_F32, SF_REDUCE_SUM, "contract.cross.x");
  const sf_request second = sf_iall_reduce(comm, &group, &y, 1, SF_F32, SF_REDUCE_SUM, "contract.cross.y");
  if (comm->rank == 0) {
    sf_wait(comm, second);
    for (int32_t r = 1; r < comm->world; r++) sf_send(comm, r, 0, &y, 1, SF_F32, "contract.cross.send");
    sf_wait(comm, first);
  } else {
    sf_recv(comm, 0, 0, &token, 1, SF_F32, "contract.cross.recv");
    sf_wait(comm, first);
    sf_wait(comm, second);
    case_check(rank, token == 2 * (float)comm->world, "token is %g", (double)token);
  }
  case_check(rank, x == (float)comm->world && y == 2 * (float)comm->world, "%g and %g", (double)x, (double)y);
}

/* An asynchronous send must not need its own wait for the receiver to go on: each answers before it waits. */
static void answer_before_wait(struct sf_comm *comm, struct case_rank *rank) {
  const int32_t peer = comm->rank ^ 1;
  if (peer >= comm->world) return;
  float out = (float)comm->rank, in = -1, answer = -1;
  const sf_request send = sf_isend(comm, peer, 1, &out, 1, SF_F32, "contract.answer.question");
  sf_recv(comm, peer, 1, &in, 1, SF_F32, "contract.answer.hear");
  const sf_request back = sf_isend(comm, peer, 2, &in, 1, SF_F32, "contract.answer.answer");
  sf_recv(comm, peer, 2, &answer, 1, SF_F32, "contract.answer.learn");
  sf_wait(comm, send);
  sf_wait(comm, back);
  case_check(rank, in == (float)peer && answer == (float)comm->rank, "%g and %g", (double)in, (double)answer);
}

/* Rows and columns of a mesh reduced at the same time, and a message across. */
static void mesh_rows_and_columns(struct sf_comm *comm, struct case_rank *rank) {
  const int32_t columns = 2, rows = comm->world / 2;
  rank->skipped = comm->world % 2 != 0;
  if (rank->skipped) return;
  int32_t row[2], column[CASE_WORLD_MAX / 2];
  const int32_t r = comm->rank / columns, c = comm->rank % columns;
  for (int32_t i = 0; i < columns; i++) row[i] = r * columns + i;
  for (int32_t i = 0; i < rows; i++) column[i] = i * columns + c;
  const struct sf_group along = sf_group_create(row, columns, c), down = sf_group_create(column, rows, r);
  for (int turn = 0; turn < 5; turn++) {
    float a = (float)comm->rank, b = (float)(comm->rank + turn), in = -1, out = (float)turn;
    const sf_request request = sf_iall_reduce(comm, &down, &a, 1, SF_F32, SF_REDUCE_SUM, "contract.mesh.down");
    const sf_request send = sf_isend(comm, (comm->rank + 1) % comm->world, turn, &out, 1, SF_F32, "contract.mesh.send");
    sf_all_reduce(comm, &along, &b, 1, SF_F32, SF_REDUCE_MAX, "contract.mesh.along");
    sf_recv(comm, (comm->rank + comm->world - 1) % comm->world, turn, &in, 1, SF_F32, "contract.mesh.recv");
    sf_wait(comm, send);
    sf_wait(comm, request);
    case_check(rank, b == (float)(row[1] + turn), "along: %g", (double)b);
    case_check(rank, a == (float)(rows * (rows - 1) + rows * c), "down: %g", (double)a);
    case_check(rank, in == (float)turn, "message: %g", (double)in);
  }
}

/* As a rank's own work on the GPU does when it gets memory or launches a kernel for the first time. Nothing where the process has no
 * driver. */
static void wait_for_gpu(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int (*synchronize)(void) = NULL;
  if (driver == NULL) return;
  *(void **)&synchronize = dlsym(driver, "cuCtxSynchronize");
  if (synchronize != NULL) (void)synchronize();
  dlclose(driver);
}

/* What has been posted runs without its ranks: they may stand still until their GPUs have nothing more to do. */
static void gpu_is_waited_for_after_posts(struct sf_comm *comm, struct case_rank *rank) {
  const int32_t next = (comm->rank + 1) % comm->world, previous = (comm->rank + comm->world - 1) % comm->world;
  struct case_members members[2];
  struct sf_group groups[2];
  for (int i = 0; i < 2; i++) groups[i] = case_group_create(&members[i], comm, i == 0 ? GROUP_WORLD : GROUP_REVERSED);
  for (int32_t turn = 0; turn < 3; turn++) {
    float out = (float)(10 * comm->rank + turn), in = -1, sums[2] = {1, 2};
    sf_request reductions[2];
    const sf_request recv = sf_irecv(comm, previous, turn, &in, 1, SF_F32, "contract.gpu.recv"),
                     send = sf_isend(comm, next, turn, &out, 1, SF_F32, "contract.gpu.send");
    wait_for_gpu();
    for (int i = 0; i < 2; i++) {
      const int which = (comm->rank + i) % 2;
      reductions[which] = sf_iall_reduce(comm, &groups[which], &sums[which], 1, SF_F32, SF_REDUCE_SUM, "contract.gpu.reduce");
    }
    wait_for_gpu();
    sf_wait(comm, recv);
    wait_for_gpu();
    sf_wait(comm, send);
    for (int i = 0; i < 2; i++) sf_wait(comm, reductions[i]);
    case_check(rank, in == (float)(10 * previous + turn), "message: %g", (double)in);
    case_check(rank, sums[0] == (float)comm->world && sums[1] == (float)(2 * comm->world), "sums: %g and %g", (double)sums[0],
               (double)sums[1]);
  }
}

const struct comm_case comm_async_cases[] = {
    {.name = "send_recv_ring", .body = send_recv_ring, .variants = SF_WIRE_DTYPE_COUNT, .world_min = 1},
    {.name = "messages_keep_order_per_tag", .body = messages_keep_order_per_tag, .variants = 1, .world_min = 1},
    {.name = "batch_all_pairs", .body = batch_all_pairs, .variants = 3, .world_min = 1},
    {.name = "all_reduces_in_flight", .body = all_reduces_in_flight, .variants = 3, .world_min = 1},
    {.name = "reduce_scatters_in_flight", .body = reduce_scatters_in_flight, .variants = 3, .world_min = 1},
    {.name = "async_members_bit_equal", .body = async_members_bit_equal, .variants = 3, .world_min = 1},
    {.name = "post_does_not_wait", .body = post_does_not_wait, .variants = 1, .world_min = 1},
    {.name = "waits_cross", .body = waits_cross, .variants = 1, .world_min = 1},
    {.name = "answer_before_wait", .body = answer_before_wait, .variants = 1, .world_min = 2},
    {.name = "mesh_rows_and_columns", .body = mesh_rows_and_columns, .variants = 1, .world_min = 2},
    {.name = "gpu_is_waited_for_after_posts", .body = gpu_is_waited_for_after_posts, .variants = 1, .world_min = 1},
    {.name = NULL},
};
