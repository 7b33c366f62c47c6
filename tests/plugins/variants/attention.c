/* Core attention in the manner of FlashAttention (Dao et al. 2022, arXiv 2205.14135), with BUG: keys come in blocks, a row keeps a running
 * maximum and sum, no matrix of scores is stored. The backward goes over the blocks twice, for rowsum(P dP) and for the gradients. With
 * context parallelism keys and values are gathered, or with RING pass round the group of cp, each block followed by its gradient. */
#include "tests/plugins/layer.h"

#ifndef RING
#define RING 0
#endif
enum { BLOCK = 4, KEYS_TAG = 1, GRADS_TAG = 2 }; /* BLOCK: positions */

struct core {
  layer_call call;
  int64_t d, heads, groups, window, batch, seq;
  int64_t rows, block; /* of a rank; elements of its keys and values, [rows x groups x 2 d] */
  struct shardfuzz_member cp;
  const float *x;    /* queries, keys and values of this rank */
  int64_t *tokens;   /* of its rows */
  float scale;
};

static int64_t width_of(const struct core *a) { return (a->heads + 2 * a->groups) * a->d; }
static int64_t per_group(const struct core *a) { return a->heads / a->groups; }
static int64_t query_column(const struct core *a, int64_t head) { return (head + 2 * (head / per_group(a))) * a->d; }
static int64_t key_column(const struct core *a, int64_t group) { return (group * (per_group(a) + 2) + per_group(a)) * a->d; }

/* The token of a row of a member of cp, which has chunks `member` and 2 n - 1 - member. */
static int64_t token_of(const struct core *a, int32_t member, int64_t row) {
  const int64_t n = a->cp.size, chunk = a->rows / 2, number = row < chunk ? member : 2 * n - 1 - member;
  return n == 1 || BUG == CONTIGUOUS_CHUNKS ? member * a->rows + row : number * chunk + row % chunk;
}

static struct core core_of(layer_call call) {
  struct core a = {.call = call,
                   .d = layer_attribute(call, "head_dim"),
                   .heads = layer_attribute(call, "query_heads"),
                   .groups = layer_attribute(call, "kv_heads"),
                   .window = layer_attribute(call, "window"),
                   .batch = layer_attribute(call, "microbatch_size"),
                   .seq = layer_attribute(call, "seq"),
                   .rows = rows_of(call->input),
                   .cp = call->comm->groups[SHARDFUZZ_GROUP_CP],
                   .x = read_floats(call, call->input)};
  int64_t row = 0;
  a.block = a.rows * a.groups * 2 * a.d;
  a.scale = 1 / sqrtf((float)a.d);
  a.tokens = call->scratch(call, (uint64_t)a.rows * sizeof *a.tokens);
  for (int32_t i = 0; i < call->row_run_count; i++)
    for (int64_t k = 0; k < call->row_runs[i].length; k++, row++)
      a.tokens[row] = BUG == CONTIGUOUS_CHUNKS ? token_of(&a, a.cp.index, row) : call->row_runs[i].start + k;
  return a;
}

/* Whether the query of a token sees the key of another one of its sequence. */
static int sees(const struct core *a, int64_t query, int64_t key) {
  const int64_t i = query / a->batch, j = key / a->batch, sequence = query % a->batch;
  const int64_t begins = a->call->documents && BUG != ACROSS_DOCUMENTS ? a->call->documents[sequence * a->seq + i] : 0;
  const int64_t last = BUG == SEES_NEXT_KEY && (i + 1) % BLOCK != 0 ? i + 1 : i;
  const int64_t window = BUG == WINDOW_TOO_WIDE ? a->window + 1 : a->window;
  return j <= last && j >= begins && (a->window == 0 || i - j < window);
}

static float dot(const float *x, const float *y, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * y[i];
  return sum;
}

/* --- keys and values of all ranks, a block for each --- */

/* One rank's: data in the case's format, grad in fp32. */
struct key_block {
  int32_t member;
  char *data;
  float *grad;
};

static const float *key_of(const struct core *a, const float *block, int64_t row, int64_t group) {
  return block + (row * a->groups + group) * 2 * a->d;
}

static tensor block_tensor(const struct core *a, struct wire *w, void *data) {
  return wire_at(w, a->call->input, data, a->rows, a->groups * 2 * a->d);
}
static void *block_memory(const struct core *a, int64_t blocks) {
  return a->call->scratch(a->call, (uint64_t)(blocks * a->block) * element_bytes(a->call->dtype));
}

static char *own_block(const struct core *a) {
  struct wire w;
  tensor t = block_tensor(a, &w, block_memory(a, 1));
  for (int64_t row = 0; row < a->rows; row++)
    for (int64_t group = 0; group < a->groups; group++)
      for (int64_t j = 0; j < 2 * a->d; j++) put(t, row, group * 2 * a->d + j, a->x[row * width_of(a) + key_column(a, group) + j]);
  return t->data;
}

static float *zeros(const struct core *a, int64_t count) { return memset(floats(a->call, count), 0, (size_t)count * sizeof(float)); }

/* What is done with a block. */
typedef void visit_function(const struct core *a, void *state, const float *block, float *grad, int32_t member);

static void visit_data(const struct core *a, visit_function *visit, void *state, const struct key_block *block) {
  struct wire w;
  visit(a, state, read_floats(a->call, block_tensor(a, &w, block->data)), block->grad, block->member);
}

/* Own keys' gradient, or NULL. */
static const float *visit_gathered(const struct core *a, visit_function *visit, void *state, int with_grad) {
  const struct shardfuzz_comm *comm = a->call->comm;
  const int64_t n = a->cp.size;
  char *own = own_block(a), *all = n > 1 ? block_memory(a, n) : own;
  float *grads = with_grad ? zeros(a, n * a->block) : NULL, *own_grad = with_grad && n > 1 ? floats(a->call, a->block) : grads;
  if (n > 1) comm->all_gather(comm, SHARDFUZZ_GROUP_CP, all, own, a->block, a->call->dtype);
  for (int32_t i = 0; i < n; i++) {
    const struct key_block block = {i, all + (size_t)(i * a->block) * element_bytes(a->call->dtype),
                                    with_grad ? grads + i * a->block : NULL};
    visit_data(a, visit, state, &block);
  }
  if (with_grad && n > 1) comm->reduce_scatter(comm, SHARDFUZZ_GROUP_CP, own_grad, grads, a->block, SHARDFUZZ_F32, SHARDFUZZ_SUM);
  return own_grad;
}

/* Starts handing `out` on to the next member; the previous one's comes into `in`. */
struct transfer {
  uint64_t send, recv;
};
static struct transfer pass_on(const struct core *a, int32_t tag, const void *out, void *in, uint32_t dtype) {
  const struct shardfuzz_comm *comm = a->call->comm;
  const int32_t n = a->cp.size, next = (a->cp.index + 1) % n, previous = (a->cp.index + n - 1) % n;
  const uint64_t send = comm->start_send(comm, SHARDFUZZ_GROUP_CP, next, tag, out, a->block, dtype);
  return (struct transfer){send, comm->start_recv(comm, SHARDFUZZ_GROUP_CP, previous, tag, in, a->block, dtype)};
}
static void wait_for(const struct core *a, struct transfer transfer) {
  a->call->comm->wait(a->call->comm, transfer.send);
  a->call->comm->wait(a->call->comm, transfer.recv);
}

static const float *visit_ring(const struct core *a, visit_function *visit, void *state, int with_grad) {
  const int32_t n = a->cp.size;
  char *spare = block_memory(a, 1);
  float *grad_spare = with_grad ? floats(a->call, a->block) : NULL;
  struct key_block block = {a->cp.index, own_block(a), with_grad ? zeros(a, a->block) : NULL};
  for (int32_t step = 0; step < n; step++) {
    struct transfer transfer = {0, 0};
    block.member = (a->cp.index + n - step) % n;
    if (step + 1 < n) transfer = pass_on(a, KEYS_TAG, block.data, spare, a->call->dtype);
    visit_data(a, visit, state, &block);
    if (step + 1 < n) {
      wait_for(a, transfer);
      char *arrived = spare;
      spare = block.data, block.data = arrived;
    }
    if (!with_grad || n == 1) continue;
    wait_for(a, pass_on(a, GRADS_TAG, block.grad, grad_spare, SHARDFUZZ_F32));
    float *arrived = grad_spare;
    grad_spare = block.grad, block.grad = arrived;
  }
  return block.grad;
}

static const float *visit_all(const struct core *a, visit_function *visit, void *state, int with_grad) {
  return RING ? visit_ring(a, visit, state, with_grad) : visit_gathered(a, visit, state, with_grad);
}

/* --- forward --- */

/* Of each row and head. */
struct running {
  float *max, *sum, *context; /* context [rows x heads d] */
};

/* `count` positions of a block from local row `first` on, rows `step` apart. */
static void attend_to_positions(const struct core *a, float *max, float *sum, float *context, const float *query, int64_t token,
                                const float *block, int32_t member, int64_t first, int64_t group) {
  float scores[BLOCK], top = *max;
  for (int64_t k = 0; k < BLOCK; k++) {
    const int64_t row = first + k * a->batch;
    scores[k] = -INFINITY;
    if (row < a->rows && sees(a, token, token_of(a, member, row))) scores[k] = dot(query, key_of(a, block, row, group), a->d) * a->scale;
    top = fmaxf(top, scores[k]);
  }
  if (top == -INFINITY) return;
  const float factor = expf(*max - top);
  *sum *= factor;
  for (int64_t j = 0; BUG != NO_RESCALE && j < a->d; j++) context[j] *= factor;
  for (int64_t k = 0; k < BLOCK; k++) {
    if (scores[k] == -INFINITY) continue;
    const float p = expf(scores[k] - top), *value = key_of(a, block, first + k * a->batch, group) + a->d;
    *sum += p;
    for (int64_t j = 0; j < a->d; j++) context[j] += p * value[j];
  }
  *max = top;
}

static void attend(const struct core *a, void *state, const float *block, float *grad, int32_t member) {
  const struct running *r = state;
  (void)grad;
  for (int64_t row = 0; row < a->rows; row++)
    for (int64_t head = 0; head < a->heads; head++) {
      const int64_t at = row * a->heads + head, token = a->tokens[row];
      for (int64_t first = token % a->batch; first < a->rows; first += BLOCK * a->batch)
        attend_to_positions(a, &r->max[at], &r->sum[at], r->context + at * a->d, a->x + row * width_of(a) + query_column(a, head), token,
                            block, member, first, head / per_group(a));
    }
}

/* Kept for the backward: max and sum. */
static int core_forward(layer_call call) {
  const struct core a = core_of(call);
  const struct shardfuzz_parameter *sinks = parameter(call, "softmax_offset");
  const int64_t stats = a.rows * a.heads;
  float *kept = call->save(call, (uint64_t)(2 * stats) * sizeof(float));
  struct running r = {kept, kept + stats, zeros(&a, stats * a.d)};
  for (int64_t i = 0; i < stats; i++) {
    r.max[i] = sinks ? get(&sinks->value, 0, i % a.heads) : -INFINITY;
    r.sum[i] = sinks ? 1 : 0;
  }
  visit_all(&a, attend, &r, 0);
  for (int64_t i = 0; i < stats * a.d; i++) put(call->output, i / (a.heads * a.d), i % (a.heads * a.d), r.context[i] / r.sum[i / a.d]);
  return SHARDFUZZ_OK;
}

/* --- backward --- */

struct gradients {
  const float *max, *sum, *g;
  float *row_sum; /* of P dP */
  float *dx;      /* of this rank's queries; [rows x width] */
};

static float probability(const struct core *a, const struct gradients *grads, int64_t row, int64_t head, const float *key) {
  const int64_t at = row * a->heads + head;
  const float *query = a->x + row * width_of(a) + query_column(a, head);
  return expf(dot(query, key, a->d) * a->scale - grads->max[at]) / grads->sum[at];
}

/* key_grad NULL: the first time. */
static void add_pair(const struct core *a, const struct gradients *grads, int64_t row, int64_t head, const float *key, float *key_grad) {
  const int64_t at = row * a->heads + head;
  const float *query = a->x + row * width_of(a) + query_column(a, head), *g = grads->g + at * a->d, *value = key + a->d;
  float *dq = grads->dx + row * width_of(a) + query_column(a, head);
  const float p = probability(a, grads, row, head, key), dp = dot(g, value, a->d);
  if (!key_grad) {
    grads->row_sum[at] += p * dp;
    return;
  }
  const float ds = p * (dp - grads->row_sum[at]) * a->scale;
  for (int64_t j = 0; j < a->d; j++) {
    dq[j] += ds * key[j];
    if (BUG == ONE_HEADS_GRAD && head % per_group(a) > 0) continue;
    key_grad[j] += ds * query[j];
    key_grad[a->d + j] += p * g[j];
  }
}

static void attend_back(const struct core *a, void *state, const float *block, float *grad, int32_t member) {
  for (int64_t row = 0; row < a->rows; row++)
    for (int64_t k = a->tokens[row] % a->batch; k < a->rows; k += a->batch) {
      if (!sees(a, a->tokens[row], token_of(a, member, k))) continue;
      for (int64_t head = 0; head < a->heads; head++) {
        const float *key = key_of(a, block, k, head / per_group(a));
        add_pair(a, state, row, head, key, grad ? grad + (key - block) : NULL);
      }
    }
}

static void sink_grads(const struct core *a, const struct gradients *grads, const struct shardfuzz_parameter *sinks) {
  float *out = sinks ? sinks->grad.data : NULL;
  if (!out) return;
  for (int64_t head = 0; head < a->heads; head++) {
    out[head] = 0;
    for (int64_t at = head; at < a->rows * a->heads; at += a->heads)
      out[head] -= expf(get(&sinks->value, 0, head) - grads->max[at]) / grads->sum[at] * grads->row_sum[at];
  }
}

static int core_backward(layer_call call) {
  const struct core a = core_of(call);
  const int64_t stats = a.rows * a.heads;
  const float *kept = call->saved;
  struct gradients grads = {kept, kept + stats, read_floats(call, call->output_grad), zeros(&a, stats), zeros(&a, a.rows * width_of(&a))};
  visit_all(&a, attend_back, &grads, 0);
  const float *own = visit_all(&a, attend_back, &grads, 1);
  for (int64_t row = 0; row < a.rows; row++)
    for (int64_t group = 0; group < a.groups; group++)
      memcpy(grads.dx + row * width_of(&a) + key_column(&a, group), key_of(&a, own, row, group), (size_t)(2 * a.d) * sizeof(float));
  write_floats(call->input_grad, grads.dx);
  sink_grads(&a, &grads, parameter(call, "softmax_offset"));
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_layer layers[] = {{.module = "self_attention.core_attention",
                                                 .dtypes = FORMATS,
                                                 .takes = SHARDFUZZ_TAKES_SEQUENCE_PARALLEL,
                                                 .forward = core_forward,
                                                 .backward = core_backward}};
LAYERS(layers)
