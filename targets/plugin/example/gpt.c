/* A plugin of a whole model: a decoder in fp32 with tensor and data parallelism, LayerNorm or RMSNorm, GELU, grouped heads, learned
 * positions or none.
 *
 *   cc -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o gpt.so gpt.c -lm
 *   shardfuzz fuzz --target plugin:./gpt.so --cases 1000
 */
#include <shardfuzz/plugin.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef const struct shardfuzz_model_call *model_call;

/* This rank's elements of a parameter, and what the optimizer keeps for them. */
struct parameter {
  const struct shardfuzz_model_parameter *whole;
  int32_t index;
  int replicated; /* all tp ranks have it */
  struct shardfuzz_run rows, cols;
  int64_t count;
  float *value, *wgrad, *main_grad, *m, *v;
};
struct linear {
  struct parameter *weight, *bias;
};
struct norm {
  struct parameter *weight, *bias; /* bias: LayerNorm's */
};
struct layer {
  struct norm norm1, norm2;
  struct linear qkv, proj, fc1, fc2;
  float *x, *a1, *qkv_out, *probs, *context, *x_mid, *a2, *fc1_out, *fc2_in; /* kept for the backward */
};
struct gpt {
  model_call call;
  struct shardfuzz_member tp, dp;
  int64_t layers, hidden, heads, kv_heads, dim, ffn, vocab, seq, batch, tokens,
      width; /* of this rank; width: of its fused queries, keys and values */
  int layer_norm;
  int64_t step, microbatch;
  uint32_t pass;
  int32_t parameter_count;
  struct parameter *parameters, *word, *position;
  struct layer *layer;
  struct norm final_norm;
  struct linear output;
  int32_t *ids, *labels;
  float *mask, *x, *normed, *logits, *max, *sum, *loss;
};

static int64_t field(const struct shardfuzz_attribute *fields, int32_t count, const char *name) {
  for (int32_t i = 0; i < count; i++)
    if (strcmp(fields[i].name, name) == 0) return fields[i].integer;
  return -1;
}
static int64_t of_case(const struct gpt *g, const char *name) { return field(g->call->fields, g->call->field_count, name); }
static float *room(const struct gpt *g, int64_t count) { return g->call->take(g->call, (uint64_t)count * sizeof(float)); }
static void done(const struct gpt *g, float *memory) { g->call->give(g->call, memory); }
static void sum_over_tp(const struct gpt *g, const char *place, float *data, int64_t count, uint32_t reduce) {
  g->call->place(g->call, place);
  g->call->comm->all_reduce(g->call->comm, SHARDFUZZ_GROUP_TP, data, count, SHARDFUZZ_F32, reduce);
}

/* --- building ------------------------------------------------------------------------------------------------------------ */

/* Rank `index` of tp has the index-th part of the rows or of the columns, or everything. NULL: the model has no such parameter. */
static struct parameter *own(struct gpt *g, int cut_rows, int cut_cols, const char *format, ...) {
  char name[96];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  for (int32_t i = 0; i < g->call->parameter_count; i++) {
    const struct shardfuzz_model_parameter *whole = &g->call->parameters[i];
    if (strcmp(whole->name, name) != 0) continue;
    struct parameter *p = &g->parameters[g->parameter_count++];
    const int64_t rows = cut_rows ? whole->shape[0] / g->tp.size : whole->shape[0],
                  cols = cut_cols ? whole->shape[1] / g->tp.size : whole->shape[1];
    *p = (struct parameter){.whole = whole, .index = i, .replicated = !cut_rows && !cut_cols, .count = rows * cols};
    p->rows = (struct shardfuzz_run){.start = cut_rows ? rows * g->tp.index : 0, .length = rows};
    p->cols = (struct shardfuzz_run){.start = cut_cols ? cols * g->tp.index : 0, .length = cols};
    float **const memory[] = {&p->value, &p->wgrad, &p->main_grad, &p->m, &p->v};
    for (size_t k = 0; k < sizeof memory / sizeof memory[0]; k++)
      *memory[k] = memset(room(g, p->count), 0, (size_t)p->count * sizeof(float));
    return p;
  }
  return NULL;
}

static struct norm own_norm(struct gpt *g, const char *format, int64_t layer) {
  char name[80];
  snprintf(name, sizeof name, format, (long)layer);
  return (struct norm){own(g, 0, 0, "%s.weight", name), own(g, 0, 0, "%s.bias", name)};
}
/* Column-parallel: the weight's rows and the bias are cut; row-parallel: the weight's columns. */
static struct linear own_linear(struct gpt *g, int column, const char *format, int64_t layer) {
  char name[80];
  snprintf(name, sizeof name, format, (long)layer);
  return (struct linear){own(g, column, !column, "%s.weight", name), own(g, 0, column, "%s.bias", name)};
}

static void create_layer(struct gpt *g, struct layer *l, int64_t index) {
  const int64_t t = g->tokens;
  l->norm1 = own_norm(g, "decoder.layers.%ld.input_layernorm", index);
  l->qkv = own_linear(g, 1, "decoder.layers.%ld.self_attention.linear_qkv", index);
  l->proj = own_linear(g, 0, "decoder.layers.%ld.self_attention.linear_proj", index);
  l->norm2 = own_norm(g, "decoder.layers.%ld.pre_mlp_layernorm", index);
  l->fc1 = own_linear(g, 1, "decoder.layers.%ld.mlp.linear_fc1", index);
  l->fc2 = own_linear(g, 0, "decoder.layers.%ld.mlp.linear_fc2", index);
  l->x = room(g, t * g->hidden), l->a1 = room(g, t * g->hidden), l->x_mid = room(g, t * g->hidden), l->a2 = room(g, t * g->hidden);
  l->qkv_out = room(g, t * g->width), l->context = room(g, t * g->heads * g->dim),
  l->probs = room(g, g->batch * g->heads * g->seq * g->seq);
  l->fc1_out = room(g, t * g->ffn), l->fc2_in = room(g, t * g->ffn);
}

static struct gpt *create(model_call call) {
  struct gpt *g = call->take(call, sizeof *g);
  memset(g, 0, sizeof *g);
  g->call = call, g->tp = call->comm->groups[SHARDFUZZ_GROUP_TP], g->dp = call->comm->groups[SHARDFUZZ_GROUP_DP];
  g->layers = of_case(g, "model.layers"), g->hidden = of_case(g, "model.hidden"), g->dim = of_case(g, "model.head_dim"),
  g->seq = of_case(g, "model.seq");
  g->heads = of_case(g, "model.heads") / g->tp.size, g->kv_heads = of_case(g, "model.kv_heads") / g->tp.size;
  g->ffn = of_case(g, "model.ffn") / g->tp.size, g->vocab = of_case(g, "model.vocab_padded") / g->tp.size;
  g->batch = of_case(g, "train.microbatch_size"), g->tokens = g->seq * g->batch, g->width = (g->heads + 2 * g->kv_heads) * g->dim;
  g->layer_norm = of_case(g, "model.norm") == 1;
  g->parameters = call->take(call, (uint64_t)call->parameter_count * sizeof *g->parameters);
  g->layer = call->take(call, (uint64_t)g->layers * sizeof *g->layer);
  g->word = own(g, 1, 0, "embedding.word_embeddings.weight");
  g->position = own(g, 0, 0, "embedding.position_embeddings.weight");
  for (int64_t i = 0; i < g->layers; i++) create_layer(g, &g->layer[i], i);
  g->final_norm = own_norm(g, "decoder.final_layernorm", 0);
  g->output = own_linear(g, 1, "output_layer", 0);
  g->ids = call->take(call, (uint64_t)g->tokens * sizeof *g->ids), g->labels = call->take(call, (uint64_t)g->tokens * sizeof *g->labels);
  g->mask = room(g, g->tokens), g->x = room(g, g->tokens * g->hidden), g->normed = room(g, g->tokens * g->hidden);
  g->logits = room(g, g->tokens * g->vocab), g->max = room(g, g->tokens), g->sum = room(g, g->tokens), g->loss = room(g, g->tokens);
  return g;
}

/* --- handing over ----------------------------------------------------------------------------------------------------------- */

static void trace_scalar(const struct gpt *g, const char *name, double value) {
  float number = (float)value;
  const struct shardfuzz_point point = {.traced = SHARDFUZZ_TRACED_SCALAR, .step = g->step, .subject = name, .dtype = SHARDFUZZ_F32};
  g->call->trace(g->call, &point, &number);
}

static void trace_parameter(const struct gpt *g, uint32_t what, const struct parameter *p, float *data) {
  const struct shardfuzz_point point = {.traced = what,
                                        .pass = g->pass,
                                        .step = g->step,
                                        .microbatch = g->microbatch,
                                        .subject = p->whole->name,
                                        .dtype = SHARDFUZZ_F32,
                                        .rows = &p->rows,
                                        .cols = &p->cols,
                                        .row_count = 1,
                                        .col_count = 1};
  g->call->trace(g->call, &point, data);
}

/* data [rows x cols]: with `cut` this rank's columns of tp, else all of them. layer -1: the name is whole. */
static void trace(const struct gpt *g, const char *name, int64_t layer, float *data, int64_t rows, int64_t cols, int cut) {
  char module[96];
  if (layer < 0) snprintf(module, sizeof module, "%s", name);
  else snprintf(module, sizeof module, "decoder.layers.%ld.%s", (long)layer, name);
  const struct shardfuzz_run row_run = {.length = rows}, col_run = {.start = cut ? cols * g->tp.index : 0, .length = cols};
  const struct shardfuzz_point point = {.traced = g->pass == SHARDFUZZ_PASS_FORWARD ? SHARDFUZZ_TRACED_ACT : SHARDFUZZ_TRACED_ACT_GRAD,
                                        .pass = g->pass,
                                        .step = g->step,
                                        .microbatch = g->microbatch,
                                        .subject = module,
                                        .dtype = SHARDFUZZ_F32,
                                        .rows = &row_run,
                                        .cols = &col_run,
                                        .row_count = 1,
                                        .col_count = 1};
  g->call->trace(g->call, &point, data);
}

/* --- pieces ----------------------------------------------------------------------------------------------------------------- */

/* y [tokens x out] = x [tokens x in] W^T + b */
static void linear_forward(float *y, const float *x, const struct parameter *weight, const struct parameter *bias, int64_t tokens) {
  const int64_t in = weight->cols.length, out = weight->rows.length;
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t j = 0; j < out; j++) {
      float sum = 0;
      for (int64_t k = 0; k < in; k++) sum += x[t * in + k] * weight->value[j * in + k];
      y[t * out + j] = bias ? sum + bias->value[j] : sum;
    }
}

static void add_gradient(struct gpt *g, struct parameter *p) {
  trace_parameter(g, SHARDFUZZ_TRACED_WGRAD, p, p->wgrad);
  for (int64_t i = 0; i < p->count; i++) p->main_grad[i] += p->wgrad[i];
}

/* dx [tokens x in] = dy [tokens x out] W; the parameters' gradients. */
static void linear_backward(struct gpt *g, float *dx, const float *dy, const float *x, struct linear *l) {
  const int64_t in = l->weight->cols.length, out = l->weight->rows.length, tokens = g->tokens;
  float *dw = memset(l->weight->wgrad, 0, (size_t)l->weight->count * sizeof(float));
  memset(dx, 0, (size_t)(tokens * in) * sizeof *dx);
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t j = 0; j < out; j++)
      for (int64_t k = 0; k < in; k++) {
        dx[t * in + k] += dy[t * out + j] * l->weight->value[j * in + k];
        dw[j * in + k] += dy[t * out + j] * x[t * in + k];
      }
  add_gradient(g, l->weight);
  if (l->bias == NULL) return;
  memset(l->bias->wgrad, 0, (size_t)l->bias->count * sizeof(float));
  for (int64_t i = 0; i < tokens * out; i++) l->bias->wgrad[i % out] += dy[i];
  add_gradient(g, l->bias);
}

static void statistics(const struct gpt *g, const float *x, float *mean, float *rstd) {
  double sum = 0, squares = 0;
  for (int64_t j = 0; j < g->hidden; j++) sum += x[j];
  *mean = g->layer_norm ? (float)(sum / (double)g->hidden) : 0.0f;
  for (int64_t j = 0; j < g->hidden; j++) squares += ((double)x[j] - *mean) * ((double)x[j] - *mean);
  *rstd = (float)(1 / sqrt(squares / (double)g->hidden + 1e-5));
}

static void norm_forward(const struct gpt *g, float *y, const float *x, const struct norm *norm) {
  for (int64_t t = 0; t < g->tokens; t++, x += g->hidden, y += g->hidden) {
    float mean, rstd;
    statistics(g, x, &mean, &rstd);
    for (int64_t j = 0; j < g->hidden; j++) y[j] = (x[j] - mean) * rstd * norm->weight->value[j] + (norm->bias ? norm->bias->value[j] : 0);
  }
}

static void norm_backward(struct gpt *g, float *dx, const float *dy, const float *x, struct norm *norm) {
  const int64_t h = g->hidden;
  float *dw = memset(norm->weight->wgrad, 0, (size_t)h * sizeof(float)),
        *db = norm->bias ? memset(norm->bias->wgrad, 0, (size_t)h * sizeof(float)) : NULL;
  for (int64_t t = 0; t < g->tokens; t++, x += h, dy += h, dx += h) {
    float mean, rstd;
    double sum = 0, dot = 0;
    statistics(g, x, &mean, &rstd);
    for (int64_t j = 0; j < h; j++) {
      const float x_hat = (x[j] - mean) * rstd, scaled = dy[j] * norm->weight->value[j];
      dw[j] += dy[j] * x_hat;
      if (db) db[j] += dy[j];
      sum += scaled, dot += (double)scaled * x_hat;
    }
    const float g_mean = g->layer_norm ? (float)(sum / (double)h) : 0, g_dot = (float)(dot / (double)h);
    for (int64_t j = 0; j < h; j++) dx[j] = (dy[j] * norm->weight->value[j] - g_mean - (x[j] - mean) * rstd * g_dot) * rstd;
  }
  add_gradient(g, norm->weight);
  if (norm->bias) add_gradient(g, norm->bias);
}

/* Query head `head` of sequence b: where its queries, keys, values and contexts begin, and what is between two positions. */
struct head {
  int64_t query, key, value, context, step, context_step, probs;
};
static struct head head_at(const struct gpt *g, int64_t b, int64_t head) {
  const int64_t queries = g->heads / g->kv_heads, group = head / queries, first = b * g->width + group * (queries + 2) * g->dim;
  return (struct head){.query = first + head % queries * g->dim, .key = first + queries * g->dim, .value = first + (queries + 1) * g->dim,
                       .context = (b * g->heads + head) * g->dim, .step = g->batch * g->width, .context_step = g->batch * g->heads * g->dim,
                       .probs = (b * g->heads + head) * g->seq * g->seq};
}

static float dot(const float *x, const float *y, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * y[i];
  return sum;
}

static void attention_forward(const struct gpt *g, struct layer *l) {
  memset(l->context, 0, (size_t)(g->tokens * g->heads * g->dim) * sizeof(float));
  for (int64_t n = 0; n < g->batch * g->heads; n++) {
    const struct head h = head_at(g, n / g->heads, n % g->heads);
    for (int64_t i = 0; i < g->seq; i++) {
      float *p = l->probs + h.probs + i * g->seq, max = -INFINITY;
      double sum = 0;
      for (int64_t j = 0; j <= i; j++) {
        p[j] = dot(l->qkv_out + h.query + i * h.step, l->qkv_out + h.key + j * h.step, g->dim) / sqrtf((float)g->dim);
        max = p[j] > max ? p[j] : max;
      }
      for (int64_t j = 0; j <= i; j++) sum += p[j] = expf(p[j] - max);
      for (int64_t j = 0; j <= i; j++) {
        p[j] /= (float)sum;
        for (int64_t k = 0; k < g->dim; k++) l->context[h.context + i * h.context_step + k] += p[j] * l->qkv_out[h.value + j * h.step + k];
      }
    }
  }
}

static void attention_backward(const struct gpt *g, float *dqkv, const float *dcontext, const struct layer *l) {
  float *ds = room(g, g->seq);
  const float scale = 1 / sqrtf((float)g->dim);
  memset(dqkv, 0, (size_t)(g->tokens * g->width) * sizeof *dqkv);
  for (int64_t n = 0; n < g->batch * g->heads; n++) {
    const struct head h = head_at(g, n / g->heads, n % g->heads);
    for (int64_t i = 0; i < g->seq; i++) {
      const float *p = l->probs + h.probs + i * g->seq, *dc = dcontext + h.context + i * h.context_step,
                  *q = l->qkv_out + h.query + i * h.step;
      float *dq = dqkv + h.query + i * h.step;
      double sum = 0;
      for (int64_t j = 0; j <= i; j++) sum += p[j] * (ds[j] = dot(dc, l->qkv_out + h.value + j * h.step, g->dim));
      for (int64_t j = 0; j <= i; j++) {
        const float s = p[j] * (ds[j] - (float)sum) * scale;
        for (int64_t k = 0; k < g->dim; k++) {
          dq[k] += s * l->qkv_out[h.key + j * h.step + k];
          dqkv[h.key + j * h.step + k] += s * q[k];
          dqkv[h.value + j * h.step + k] += p[j] * dc[k];
        }
      }
    }
  }
  done(g, ds);
}

static void add(float *y, const float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) y[i] += x[i];
}

/* --- forward ---------------------------------------------------------------------------------------------------------------- */

static void embed(struct gpt *g) {
  const int64_t h = g->hidden, count = g->tokens * h, first = g->word->rows.start;
  for (int64_t t = 0; t < g->tokens; t++) {
    const int64_t row = g->ids[t] - first;
    if (row >= 0 && row < g->vocab) memcpy(g->x + t * h, g->word->value + row * h, (size_t)h * sizeof(float));
    else memset(g->x + t * h, 0, (size_t)h * sizeof(float));
  }
  sum_over_tp(g, "embedding", g->x, count, SHARDFUZZ_SUM);
  trace(g, "embedding.word_embeddings", -1, g->x, g->tokens, h, 0);
  if (g->position == NULL) return;
  for (int64_t t = 0; t < g->tokens; t++) add(g->x + t * h, g->position->value + t / g->batch * h, h);
  trace(g, "embedding", -1, g->x, g->tokens, h, 0);
}

/* A row-parallel linear's output joins the residual stream: y = x + sum over tp of in W^T + b. */
static void branch(const struct gpt *g, float *y, const float *x, const float *in, const struct linear *linear, const char *name,
                   const char *join, int64_t layer) {
  const int64_t count = g->tokens * g->hidden;
  linear_forward(y, in, linear->weight, NULL, g->tokens);
  sum_over_tp(g, "row_parallel.fwd", y, count, SHARDFUZZ_SUM);
  for (int64_t i = 0; linear->bias && i < count; i++) y[i] += linear->bias->value[i % g->hidden];
  trace(g, name, layer, y, g->tokens, g->hidden, 0);
  add(y, x, count);
  trace(g, join, layer, y, g->tokens, g->hidden, 0);
}

static void layer_forward(struct gpt *g, struct layer *l, int64_t index) {
  const int64_t t = g->tokens, h = g->hidden;
  memcpy(l->x, g->x, (size_t)(t * h) * sizeof(float));
  norm_forward(g, l->a1, l->x, &l->norm1);
  trace(g, "input_layernorm", index, l->a1, t, h, 0);
  linear_forward(l->qkv_out, l->a1, l->qkv.weight, l->qkv.bias, t);
  trace(g, "self_attention.linear_qkv", index, l->qkv_out, t, g->width, 1);
  attention_forward(g, l);
  trace(g, "self_attention.core_attention", index, l->context, t, g->heads * g->dim, 1);
  branch(g, l->x_mid, l->x, l->context, &l->proj, "self_attention.linear_proj", "self_attn_bda", index);
  norm_forward(g, l->a2, l->x_mid, &l->norm2);
  trace(g, "pre_mlp_layernorm", index, l->a2, t, h, 0);
  linear_forward(l->fc1_out, l->a2, l->fc1.weight, l->fc1.bias, t);
  trace(g, "mlp.linear_fc1", index, l->fc1_out, t, g->ffn, 1);
  for (int64_t i = 0; i < t * g->ffn; i++) l->fc2_in[i] = 0.5f * l->fc1_out[i] * erfcf(-l->fc1_out[i] * 0.70710678f);
  trace(g, "mlp.activation", index, l->fc2_in, t, g->ffn, 1);
  branch(g, g->x, l->x_mid, l->fc2_in, &l->fc2, "mlp.linear_fc2", "mlp_bda", index);
}

/* Loss of each token, from this rank's columns of the logits and three reductions. */
static void cross_entropy(struct gpt *g) {
  const int64_t v = g->vocab, first = g->output.weight->rows.start;
  for (int64_t t = 0; t < g->tokens; t++) {
    g->max[t] = -INFINITY;
    for (int64_t j = 0; j < v; j++) g->max[t] = g->logits[t * v + j] > g->max[t] ? g->logits[t * v + j] : g->max[t];
  }
  sum_over_tp(g, "cross_entropy", g->max, g->tokens, SHARDFUZZ_MAX);
  for (int64_t t = 0; t < g->tokens; t++) {
    const int64_t label = g->labels[t] - first;
    double sum = 0;
    for (int64_t j = 0; j < v; j++) sum += expf(g->logits[t * v + j] - g->max[t]);
    g->sum[t] = (float)sum;
    g->loss[t] = label >= 0 && label < v ? g->logits[t * v + label] - g->max[t] : 0;
  }
  sum_over_tp(g, "cross_entropy", g->sum, g->tokens, SHARDFUZZ_SUM);
  sum_over_tp(g, "cross_entropy", g->loss, g->tokens, SHARDFUZZ_SUM);
  for (int64_t t = 0; t < g->tokens; t++) g->loss[t] = logf(g->sum[t]) - g->loss[t];
  trace(g, "loss", -1, g->loss, 1, g->tokens, 0);
}

static void forward(struct gpt *g) {
  g->pass = SHARDFUZZ_PASS_FORWARD;
  g->call->data(g->call, g->step, g->microbatch, g->ids, g->labels, g->mask);
  embed(g);
  for (int64_t i = 0; i < g->layers; i++) layer_forward(g, &g->layer[i], i);
  norm_forward(g, g->normed, g->x, &g->final_norm);
  trace(g, "decoder.final_layernorm", -1, g->normed, g->tokens, g->hidden, 0);
  linear_forward(g->logits, g->normed, g->output.weight, NULL, g->tokens);
  trace(g, "output_layer", -1, g->logits, g->tokens, g->vocab, 1);
  cross_entropy(g);
}

/* --- backward --------------------------------------------------------------------------------------------------------------- */

/* The input's gradient of a column-parallel linear, summed over tp. */
static void column_backward(struct gpt *g, float *dx, const float *dy, const float *x, struct linear *l, const char *name, int64_t layer) {
  linear_backward(g, dx, dy, x, l);
  sum_over_tp(g, "column_parallel.bwd", dx, g->tokens * g->hidden, SHARDFUZZ_SUM);
  trace(g, name, layer, dx, g->tokens, g->hidden, 0);
}

/* The stream's gradient goes round the branch and through it: grad += gradient through the norm of `through`. */
static void join_backward(struct gpt *g, float *grad, const float *through, const float *x, struct norm *norm, const char *name,
                          const char *join, int64_t layer) {
  float *dx = room(g, g->tokens * g->hidden);
  norm_backward(g, dx, through, x, norm);
  trace(g, name, layer, dx, g->tokens, g->hidden, 0);
  add(grad, dx, g->tokens * g->hidden);
  trace(g, join, layer, grad, g->tokens, g->hidden, 0);
  done(g, dx);
}

static void layer_backward(struct gpt *g, struct layer *l, int64_t index, float *grad) {
  const int64_t t = g->tokens;
  float *wide = room(g, t * g->ffn), *dx = room(g, t * g->hidden), *dcontext = room(g, t * g->heads * g->dim),
        *dqkv = room(g, t * g->width);
  linear_backward(g, wide, grad, l->fc2_in, &l->fc2);
  trace(g, "mlp.linear_fc2", index, wide, t, g->ffn, 1);
  for (int64_t i = 0; i < t * g->ffn; i++) {
    const float x = l->fc1_out[i];
    wide[i] *= 0.5f * erfcf(-x * 0.70710678f) + x * 0.39894228f * expf(-0.5f * x * x);
  }
  trace(g, "mlp.activation", index, wide, t, g->ffn, 1);
  column_backward(g, dx, wide, l->a2, &l->fc1, "mlp.linear_fc1", index);
  join_backward(g, grad, dx, l->x_mid, &l->norm2, "pre_mlp_layernorm", "mlp_bda", index);
  linear_backward(g, dcontext, grad, l->context, &l->proj);
  trace(g, "self_attention.linear_proj", index, dcontext, t, g->heads * g->dim, 1);
  attention_backward(g, dqkv, dcontext, l);
  trace(g, "self_attention.core_attention", index, dqkv, t, g->width, 1);
  column_backward(g, dx, dqkv, l->a1, &l->qkv, "self_attention.linear_qkv", index);
  join_backward(g, grad, dx, l->x, &l->norm1, "input_layernorm", "self_attn_bda", index);
  done(g, wide), done(g, dx), done(g, dcontext), done(g, dqkv);
}

static void embed_backward(struct gpt *g, const float *grad) {
  const int64_t h = g->hidden;
  memset(g->word->wgrad, 0, (size_t)g->word->count * sizeof(float));
  for (int64_t t = 0; t < g->tokens; t++) {
    const int64_t row = g->ids[t] - g->word->rows.start;
    if (row >= 0 && row < g->vocab) add(g->word->wgrad + row * h, grad + t * h, h);
  }
  add_gradient(g, g->word);
  if (g->position == NULL) return;
  memset(g->position->wgrad, 0, (size_t)g->position->count * sizeof(float));
  for (int64_t t = 0; t < g->tokens; t++) add(g->position->wgrad + t / g->batch * h, grad + t * h, h);
  add_gradient(g, g->position);
}

static void backward(struct gpt *g) {
  const int64_t v = g->vocab, first = g->output.weight->rows.start, count = g->tokens * g->hidden;
  float *dlogits = room(g, g->tokens * v), *dx = room(g, count), *grad = room(g, count);
  g->pass = SHARDFUZZ_PASS_BACKWARD;
  for (int64_t i = 0; i < g->tokens * v; i++) {
    const int64_t t = i / v;
    dlogits[i] = (expf(g->logits[i] - g->max[t]) / g->sum[t] - (g->labels[t] - first == i % v ? 1.0f : 0.0f)) * g->mask[t];
  }
  trace(g, "loss", -1, dlogits, g->tokens, v, 1);
  column_backward(g, dx, dlogits, g->normed, &g->output, "output_layer", -1);
  norm_backward(g, grad, dx, g->x, &g->final_norm);
  trace(g, "decoder.final_layernorm", -1, grad, g->tokens, g->hidden, 0);
  for (int64_t i = g->layers; i-- > 0;) layer_backward(g, &g->layer[i], i, grad);
  embed_backward(g, grad);
  done(g, dlogits), done(g, dx), done(g, grad);
}

/* --- a step ------------------------------------------------------------------------------------------------------------------ */

static void adam(struct gpt *g, struct parameter *p, float clip, double beta1, double beta2) {
  const float lr = (float)((double)of_case(g, "train.lr_micro") * 1e-6),
              decay = p->whole->flags & SHARDFUZZ_DECAYED ? (float)of_case(g, "train.weight_decay_milli") / 1000 : 0;
  const float bias1 = (float)(1 - pow(beta1, (double)(g->step + 1))), bias2 = (float)(1 - pow(beta2, (double)(g->step + 1)));
  for (int64_t i = 0; i < p->count; i++) {
    const float grad = clip * p->main_grad[i], old = p->value[i];
    p->m[i] = (float)beta1 * p->m[i] + (float)(1 - beta1) * grad;
    p->v[i] = (float)beta2 * p->v[i] + (float)(1 - beta2) * (grad * grad);
    p->value[i] = old - lr * (p->m[i] / bias1 / (sqrtf(p->v[i] / bias2) + 1e-8f) + decay * old);
    p->wgrad[i] = p->value[i] - old;
  }
  trace_parameter(g, SHARDFUZZ_TRACED_PARAM_DELTA, p, p->wgrad);
}

/* sums: of the losses and of the tokens that count, over this rank's microbatches. */
static void optimize(struct gpt *g, double sums[2]) {
  const struct shardfuzz_comm *comm = g->call->comm;
  const double limit = (double)of_case(g, "train.clip_milli") / 1000, beta1 = (double)of_case(g, "train.beta1_milli") / 1000,
               beta2 = (double)of_case(g, "train.beta2_milli") / 1000;
  double squares = 0;
  g->call->place(g->call, "gradients");
  comm->all_reduce(comm, SHARDFUZZ_GROUP_DP, sums, 2, SHARDFUZZ_F64, SHARDFUZZ_SUM);
  trace_scalar(g, "loss", sums[0] / sums[1]);
  trace_scalar(g, "tokens", sums[1]);
  for (int32_t i = 0; i < g->parameter_count; i++) {
    struct parameter *p = &g->parameters[i];
    comm->all_reduce(comm, SHARDFUZZ_GROUP_DP, p->main_grad, p->count, SHARDFUZZ_F32, SHARDFUZZ_SUM);
    for (int64_t k = 0; k < p->count; k++) p->main_grad[k] *= (float)(1 / sums[1]);
    trace_parameter(g, SHARDFUZZ_TRACED_MAIN_GRAD, p, p->main_grad);
    for (int64_t k = 0; (!p->replicated || g->tp.index == 0) && k < p->count; k++) squares += (double)p->main_grad[k] * p->main_grad[k];
  }
  g->call->place(g->call, "grad_norm");
  comm->all_reduce(comm, SHARDFUZZ_GROUP_TP, &squares, 1, SHARDFUZZ_F64, SHARDFUZZ_SUM);
  const double norm = sqrt(squares), clip = limit > 0 && limit / (norm + 1e-6) < 1 ? limit / (norm + 1e-6) : 1;
  trace_scalar(g, "grad_norm", norm);
  trace_scalar(g, "clip", clip);
  for (int32_t i = 0; i < g->parameter_count; i++) adam(g, &g->parameters[i], (float)clip, beta1, beta2);
}

static void begin_step(struct gpt *g) {
  for (int32_t i = 0; i < g->parameter_count; i++) {
    struct parameter *p = &g->parameters[i];
    if (g->step == 0) g->call->parameter(g->call, p->index, 0, &p->rows, 1, &p->cols, 1, p->value);
    trace_parameter(g, SHARDFUZZ_TRACED_PARAM, p, p->value);
    if (g->step > 0) g->call->parameter(g->call, p->index, g->step, &p->rows, 1, &p->cols, 1, p->value);
    memset(p->main_grad, 0, (size_t)p->count * sizeof(float));
  }
}

static int run(model_call call) {
  struct gpt *g = create(call);
  const int64_t steps = of_case(g, "train.steps"), microbatches = of_case(g, "train.microbatches");
  for (; g->step < steps; g->step++) {
    double sums[2] = {0, 0};
    begin_step(g);
    for (g->microbatch = g->dp.index; g->microbatch < microbatches; g->microbatch += g->dp.size) {
      forward(g);
      for (int64_t t = 0; t < g->tokens; t++) sums[0] += (double)g->mask[t] * g->loss[t], sums[1] += g->mask[t];
      backward(g);
    }
    optimize(g, sums);
  }
  for (int32_t i = 0; i < g->parameter_count; i++) trace_parameter(g, SHARDFUZZ_TRACED_PARAM, &g->parameters[i], g->parameters[i].value);
  return SHARDFUZZ_OK;
}

/* A key head on several ranks is not supported. */
static int supports(const struct shardfuzz_attribute *fields, int32_t count) {
  return field(fields, count, "model.kv_heads") % field(fields, count, "layout.tp") == 0 ? SHARDFUZZ_OK : SHARDFUZZ_UNSUPPORTED;
}

static const struct shardfuzz_range ranges[] = {
    {"layout.tp", 1, 8}, {"layout.dp", 1, 8}, {"model.norm", 0, 1}, {"model.positions", 0, 1}, {"model.bias", 0, 1}};
static const struct shardfuzz_model model = {.name = "gpt",
                                             .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32),
                                             .range_count = sizeof ranges / sizeof ranges[0],
                                             .ranges = ranges,
                                             .run = run,
                                             .supports = supports};

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static const struct shardfuzz_plugin plugin = {.abi = SHARDFUZZ_PLUGIN_ABI,
                                                 .size_bytes = sizeof plugin,
                                                 .kind = SHARDFUZZ_KIND_MODEL,
                                                 .entry_count = 1,
                                                 .name = "gpt",
                                                 .entries = &model,
                                                 .entry_bytes = sizeof model};
  return &plugin;
}
