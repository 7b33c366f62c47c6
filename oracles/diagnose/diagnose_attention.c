/* What attention's backward gives when ring attention took the softmax sum of each block of keys alone. */
#include "oracles/diagnose/diagnose_related.h"

#include <math.h>
#include <string.h>

/* Multiplications that the scores may take. */
static const double SCORES_MAX = 5e8;

struct attention {
  const float *qkv, *grad; /* [tokens x width], interleaved; [tokens x heads head_dim]: of the context */
  int64_t seq, batch, heads, kv_heads, d, width;
  double scale;
};

static double dot(const float *a, const float *b, int64_t count) {
  double sum = 0;
  for (int64_t k = 0; k < count; k++) sum += (double)a[k] * (double)b[k];
  return sum;
}

/* Divides the weights of each of `cp` zig-zag blocks of keys by their own sum. */
static void normalise_blocks(double *p, int64_t seq, int64_t cp) {
  const int64_t chunk = seq / (2 * cp);
  for (int64_t owner = 0; owner < cp; owner++) {
    double *early = p + owner * chunk, *late = p + (2 * cp - 1 - owner) * chunk, sum = 0;
    for (int64_t j = 0; j < chunk; j++) sum += early[j] + late[j];
    for (int64_t j = 0; j < chunk && sum > 0; j++) early[j] /= sum, late[j] /= sum;
  }
}

/* Adds what one query of one head gives to the gradients of queries, keys and values; p, dp: scratch of seq numbers. */
static void add_query(double *out, const struct attention *a, int64_t sequence, int64_t head, int64_t query, int64_t cp, double *p,
                      double *dp) {
  const int64_t queries = a->heads / a->kv_heads, group = head / queries * (queries + 2) * a->d;
  const int64_t at_q = group + head % queries * a->d, at_k = group + queries * a->d, at_v = at_k + a->d;
  const int64_t own = query * a->batch + sequence;
  const float *q = a->qkv + own * a->width + at_q, *g = a->grad + (own * a->heads + head) * a->d;
  double top = -INFINITY, sum = 0, row = 0;
  memset(p, 0, (size_t)a->seq * sizeof *p);
  for (int64_t j = 0; j <= query; j++) {
    p[j] = a->scale * dot(q, a->qkv + (j * a->batch + sequence) * a->width + at_k, a->d);
    top = fmax(top, p[j]);
  }
  for (int64_t j = 0; j <= query; j++) sum += p[j] = exp(p[j] - top);
  for (int64_t j = 0; j <= query; j++) p[j] /= sum;
  normalise_blocks(p, a->seq, cp);
  for (int64_t j = 0; j <= query; j++) {
    dp[j] = dot(g, a->qkv + (j * a->batch + sequence) * a->width + at_v, a->d);
    row += p[j] * dp[j];
  }
  for (int64_t j = 0; j <= query; j++) {
    const int64_t key = j * a->batch + sequence;
    const double ds = p[j] * (dp[j] - row) * a->scale;
    for (int64_t k = 0; k < a->d; k++) {
      out[own * a->width + at_q + k] += ds * (double)a->qkv[key * a->width + at_k + k];
      out[key * a->width + at_k + k] += ds * (double)q[k];
      out[key * a->width + at_v + k] += p[j] * (double)g[k];
    }
  }
}

/* The last module that there is of those that put out attention's queries, keys and values. */
static enum sf_module_class maker_of_qkv(const struct sf_case *c) {
  return sf_module_exists(SF_MODULE_ROTARY, c)    ? SF_MODULE_ROTARY
         : sf_module_exists(SF_MODULE_QK_NORM, c) ? SF_MODULE_QK_NORM
                                                  : SF_MODULE_LINEAR_QKV;
}

void sf_variant_ring_blocks(struct sf_related_list *list, const struct sf_expected *own, int32_t variant) {
  const struct sf_case *c = &list->of->c;
  const struct sf_model *m = &c->model;
  const int32_t layer = list->collector->catalog->modules[own->spec.module].layer;
  const bool is_plain = m->window == 0 && !m->sinks && m->kv_lora_rank == 0 && c->data.documents <= 1 && c->data.padding == 0;
  if (c->layout.cp == 1 || c->layout.cp_comm != SF_CP_RING || !is_plain || m->seq % (2 * c->layout.cp) != 0) return;
  struct attention a = {.seq = m->seq,
                        .batch = c->train.microbatch_size,
                        .heads = m->heads,
                        .kv_heads = m->kv_heads,
                        .d = m->head_dim,
                        .width = own->spec.shape.cols,
                        .scale = 1 / sqrt((double)m->head_dim)};
  if ((double)(a.seq * a.seq * a.batch) * (double)(a.heads * a.d) > SCORES_MAX) return;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  a.qkv = sf_related_value(list, SF_KIND_ACT, own->id, maker_of_qkv(c), layer);
  a.grad = sf_related_value(list, SF_KIND_ACT_GRAD, own->id, SF_MODULE_LINEAR_PROJ, layer);
  double *sums = sf_related_alloc(list, (size_t)count * sizeof *sums), *p = sf_related_alloc(list, (size_t)a.seq * sizeof *p),
         *dp = sf_related_alloc(list, (size_t)a.seq * sizeof *dp);
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (a.qkv == NULL || a.grad == NULL || sums == NULL || p == NULL || dp == NULL || x == NULL) return;
  memset(sums, 0, (size_t)count * sizeof *sums);
  for (int64_t sequence = 0; sequence < a.batch; sequence++)
    for (int64_t head = 0; head < a.heads; head++)
      for (int64_t query = 0; query < a.seq; query++) add_query(sums, &a, sequence, head, query, c->layout.cp, p, dp);
  for (int64_t i = 0; i < count; i++) x[i] = sf_round((float)sums[i], own->spec.promised);
  struct sf_diagnosis_related *r = sf_related_add(
      list, SF_RELATED_VARIANT, own->spec.shape, x,
      "each rank of cp divides by the softmax sum of its own block of keys alone in the backward: the sums are not merged over cp");
  if (r == NULL) return;
  r->variant = variant;
  r->rank = -1;
  r->cls = SF_DIAGNOSIS_MISSING_REDUCTION;
}
