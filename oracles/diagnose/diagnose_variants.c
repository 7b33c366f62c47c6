/* The values that ranks would hold after a known mistake, computed again from the module's inputs. */
#include "harness/tensor/consistent.h"
#include "oracles/diagnose/diagnose_related.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Products are recomputed up to this many multiplications. */
static const double PRODUCT_MAX = 5e8;

/* Numbers of the explanations. */
enum variant {
  OWN_SLICE,
  LOCAL_SMOOTHING,
  OWN_HEADS,
  EARLY_CHUNK,
  OTHER_GROUP,
  NOT_CAST,
  OWN_SCALE,
  OTHER_SCALE,
  RING_BLOCKS,
  OTHER_MASK,
  EXPERTS_LEFT_OUT
};

static void add_variant(struct sf_related_list *list, enum variant variant, int32_t rank, enum sf_diagnosis_class cls,
                        struct sf_shape shape, const float *x, const char *sentence) {
  struct sf_diagnosis_related *r = sf_related_add(list, SF_RELATED_VARIANT, shape, x, sentence);
  if (r == NULL) return;
  r->variant = (int32_t)variant;
  r->rank = rank;
  r->cls = cls;
  r->names_rank = variant == OWN_SLICE;
}

/* Adds the variant for every rank with this tp index. */
static void add_for_tp(struct sf_related_list *list, enum variant variant, int32_t tp_index, enum sf_diagnosis_class cls,
                       struct sf_shape shape, const float *x, const char *sentence) {
  for (int32_t rank = 0; rank < list->collector->world; rank++)
    if (list->of->places[rank].tp == tp_index) add_variant(list, variant, rank, cls, shape, x, sentence);
}

static float *room_for(struct sf_related_list *list, struct sf_shape shape) {
  return sf_related_alloc(list, (size_t)(shape.rows * shape.cols) * sizeof(float));
}

static const struct sf_module *module_of(const struct sf_related_list *list, const struct sf_expected *own) {
  return &list->collector->catalog->modules[own->spec.module];
}

/* --- sums over tp ---------------------------------------------------------------------------------------------- */

/* The part of a linear's sum that each tp rank contributes. */
static void collect_own_slices(struct sf_related_list *list, const struct sf_expected *own) {
  struct sf_slice_product p;
  if (list->of->c.layout.tp == 1 || !sf_related_product(&p, list, own)) return;
  if ((double)own->spec.shape.rows * (double)own->spec.shape.cols * (double)p.contraction > PRODUCT_MAX) return;
  for (int32_t tp = 0; tp < list->of->c.layout.tp; tp++)
    add_for_tp(list, OWN_SLICE, tp, SF_DIAGNOSIS_MISSING_REDUCTION, own->spec.shape, sf_related_slice(list, &p, own, tp),
               "holds a partial sum over tp: the product of its own slice of the contraction alone, a missing reduction");
}

/* --- loss ------------------------------------------------------------------------------------------------------ */

/* The loss of logits [rows x cols], smoothed only over the columns [first, first + width). */
static void smoothed_loss(float *loss, const float *logits, const int32_t *labels, struct sf_shape shape, int64_t first, int64_t width,
                          double smoothing) {
  const double s = smoothing * (double)width / (double)(width - 1);
  for (int64_t t = 0; t < shape.rows; t++, logits += shape.cols) {
    double max = -INFINITY, sum = 0, mean = 0;
    for (int64_t k = 0; k < shape.cols; k++) max = (double)logits[k] > max ? (double)logits[k] : max;
    for (int64_t k = 0; k < shape.cols; k++) sum += exp((double)logits[k] - max);
    for (int64_t k = first; k < first + width; k++) mean += ((double)logits[k] - max) / (double)width;
    loss[t] = (float)(log(sum) - (1 - s) * ((double)logits[labels[t]] - max) - s * mean);
  }
}

/* Label smoothing over a rank's own vocabulary shard. */
static void collect_local_smoothing(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_case *c = &list->of->c;
  const struct sf_shape logits = {own->spec.shape.cols, c->model.vocab_padded};
  const int64_t width = logits.cols / c->layout.tp;
  if (c->train.label_smoothing_milli == 0 || c->layout.tp == 1 || width < 2) return;
  const float *x = sf_related_value(list, SF_KIND_ACT, own->id, SF_MODULE_OUTPUT_LAYER, -1);
  int32_t *labels = sf_related_alloc(list, (size_t)logits.rows * sizeof *labels);
  if (x == NULL || labels == NULL) return;
  sf_data_microbatch(NULL, labels, NULL, c, own->id.step, own->id.microbatch);
  for (int32_t tp = 0; tp < c->layout.tp; tp++) {
    float *loss = room_for(list, own->spec.shape);
    if (loss == NULL) return;
    smoothed_loss(loss, x, labels, logits, tp * width, width, (double)c->train.label_smoothing_milli / 1000);
    add_for_tp(list, LOCAL_SMOOTHING, tp, SF_DIAGNOSIS_UNSYNCHRONISED, own->spec.shape, loss,
               "replicas differ over tp: each rank smooths the labels over its own part of the vocabulary");
  }
}

/* --- latents --------------------------------------------------------------------------------------------------- */

/* The gradient of the key and value down projection's input, where the gradient of the shared key columns is summed over some heads
 * only. */
static float *down_grad(struct sf_related_list *list, const struct sf_expected *own, int64_t head_first, int64_t head_count) {
  const struct sf_model *m = &list->of->c.model;
  const int32_t layer = module_of(list, own)->layer;
  const int64_t lora = m->kv_lora_rank, e = m->qk_rope_dim, d = m->head_dim, h = own->spec.shape.cols;
  const float *latent = sf_related_value(list, SF_KIND_ACT_GRAD, own->id, SF_MODULE_KV_LAYERNORM, layer);
  const float *fused = sf_related_value(list, SF_KIND_ACT_GRAD, own->id, SF_MODULE_ROTARY, layer);
  const float *weight =
      sf_related_weight(list, sf_catalog_param(list->collector->catalog, SF_MODULE_LINEAR_KV_DOWN, layer, 0), own->id.step);
  float *out = room_for(list, own->spec.shape), *g = room_for(list, (struct sf_shape){1, lora + e});
  if (latent == NULL || fused == NULL || weight == NULL || out == NULL || g == NULL) return NULL;
  for (int64_t t = 0; t < own->spec.shape.rows; t++) {
    memcpy(g, latent + t * lora, (size_t)lora * sizeof *g);
    for (int64_t k = 0; k < e; k++) {
      double sum = 0;
      for (int64_t head = head_first; head < head_first + head_count; head++)
        sum += (double)fused[t * 3 * m->heads * d + (3 * head + 2) * d - e + k];
      g[lora + k] = sf_round((float)sum, own->spec.promised);
    }
    for (int64_t k = 0; k < h; k++) {
      double sum = 0;
      for (int64_t o = 0; o < lora + e; o++) sum += (double)g[o] * (double)weight[o * h + k];
      out[t * h + k] = sf_round((float)sum, own->spec.promised);
    }
  }
  return out;
}

static void collect_own_heads(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_case *c = &list->of->c;
  const int64_t heads = c->model.heads / c->layout.tp;
  for (int32_t tp = 0; tp < c->layout.tp && c->layout.tp > 1; tp++)
    add_for_tp(list, OWN_HEADS, tp, SF_DIAGNOSIS_MISSING_REDUCTION, own->spec.shape, down_grad(list, own, tp * heads, heads),
               "the key part that all heads share has the gradient of a rank's own heads alone: not summed over tp");
}

/* --- weight gradients ------------------------------------------------------------------------------------------ */

/* dw + g^T (input's rows `taken` - input's rows `right`) over g's rows `right`, each of `rows` rows. */
static float *chunk_replaced(struct sf_related_list *list, const struct sf_expected *own, const float *g, const float *input, int64_t rows,
                             int64_t right, int64_t taken) {
  const struct sf_shape shape = own->spec.shape;
  float *out = room_for(list, shape);
  if (out == NULL) return NULL;
  for (int64_t o = 0; o < shape.rows; o++)
    for (int64_t k = 0; k < shape.cols; k++) {
      double sum = (double)own->x[o * shape.cols + k];
      for (int64_t t = 0; t < rows; t++)
        sum += (double)g[(right * rows + t) * shape.rows + o] *
               ((double)input[(taken * rows + t) * shape.cols + k] - (double)input[(right * rows + t) * shape.cols + k]);
      out[o * shape.cols + k] = (float)sum;
    }
  return out;
}

/* For tokens that pass round the tp group while they are multiplied: the last chunk is multiplied with the rows of the chunk before. */
static void collect_early_chunk(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_catalog *catalog = list->collector->catalog;
  const struct sf_case *c = &list->of->c;
  const struct sf_module *m = module_of(list, own);
  const bool is_tied_head = m->cls == SF_MODULE_WORD_EMBEDDINGS && own->id.call == SF_CALL_TIED_HEAD;
  const enum sf_module_class cls = is_tied_head ? SF_MODULE_OUTPUT_LAYER : m->cls;
  const int32_t layer = is_tied_head ? -1 : m->layer;
  if (!c->layout.tp_overlap || c->layout.cp > 1 || own->spec.shape.rows < 2 || !sf_module_is(cls, SF_TRAIT_COLUMN)) return;
  /* The left factor of the input gradient's product is the gradient of the module's output. */
  struct sf_expected input_grad = *own;
  struct sf_slice_product p;
  input_grad.id.kind = SF_KIND_ACT_GRAD;
  input_grad.spec.module = sf_catalog_module(catalog, cls, layer);
  if (!sf_related_product(&p, list, &input_grad) || p.contraction != own->spec.shape.rows) return;
  const float *input = sf_related_value(list, SF_KIND_ACT, own->id, sf_modules[cls].input, layer);
  const int64_t tp = c->layout.tp, rows = c->model.seq * c->train.microbatch_size / tp;
  if (input == NULL || (double)rows * (double)tp * (double)own->spec.shape.rows * (double)own->spec.shape.cols > PRODUCT_MAX) return;
  for (int32_t index = 0; index < tp; index++) {
    const int64_t last = (index + 1) % tp, before = (index + 2) % tp;
    add_for_tp(list, EARLY_CHUNK, index, SF_DIAGNOSIS_STALE, own->spec.shape, chunk_replaced(list, own, p.left, input, rows, last, before),
               "the last chunk of tokens was multiplied before it had arrived: the chunk before it stood in its place");
  }
}

/* --- groups ---------------------------------------------------------------------------------------------------- */

/* The sum over the tp group of the default rank order: summands of ranks that may have other microbatches. */
static const float *default_group_sum(struct sf_related_list *list, const struct sf_expected *own, int32_t rank, const int32_t *ranks,
                                      int32_t count) {
  const int64_t dp = list->of->c.layout.dp, elements = own->spec.shape.rows * own->spec.shape.cols;
  double *sum = sf_related_alloc(list, (size_t)elements * sizeof *sum);
  float *out = room_for(list, own->spec.shape);
  if (sum == NULL || out == NULL) return NULL;
  memset(sum, 0, (size_t)elements * sizeof *sum);
  for (int32_t i = 0; i < count; i++) {
    struct sf_slice_product p;
    struct sf_expected theirs = *own;
    const struct sf_place_of_rank *place = &list->of->places[ranks[i]];
    theirs.id.microbatch = (uint16_t)(own->id.microbatch / dp * dp + place->dp);
    if (place->pp != list->of->places[rank].pp || !sf_related_product(&p, list, &theirs)) return NULL;
    const float *x = sf_related_slice(list, &p, own, place->tp);
    for (int64_t k = 0; k < elements && x != NULL; k++) sum[k] += (double)x[k];
  }
  for (int64_t k = 0; k < elements; k++) out[k] = sf_round((float)sum[k], own->spec.promised);
  return out;
}

static void collect_other_group(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_collector *collector = list->collector;
  const struct sf_mesh mesh = sf_mesh_from_layout(&list->of->c.layout), plain = sf_mesh_default_order(&list->of->c.layout);
  int32_t *group = sf_related_alloc(list, 2 * (size_t)collector->world * sizeof *group), *used = group + collector->world, index;
  struct sf_slice_product p;
  if (group == NULL || list->of->c.layout.tp == 1 || list->of->c.layout.cp > 1 || list->of->c.layout.sp ||
      !sf_related_product(&p, list, own))
    return;
  if ((double)own->spec.shape.rows * (double)own->spec.shape.cols * (double)p.contraction * (double)collector->world > PRODUCT_MAX) return;
  for (int32_t rank = 0; rank < collector->world; rank++) {
    if (list->of->places[rank].dp != own->id.microbatch % list->of->c.layout.dp) continue;
    const int32_t count = sf_mesh_group(&mesh, rank, SF_AXES(SF_AXIS_TP), group, &index);
    sf_mesh_group(&plain, rank, SF_AXES(SF_AXIS_TP), used, &index);
    if (memcmp(group, used, (size_t)count * sizeof *group) == 0) continue;
    add_variant(list, OTHER_GROUP, rank, SF_DIAGNOSIS_MISSING_REDUCTION, own->spec.shape, default_group_sum(list, own, rank, used, count),
                "not summed over the ranks of its tp group: the sum runs over the ranks that would be one in the default rank order");
  }
}

/* --- fp8 ------------------------------------------------------------------------------------------------------- */

struct cast_product {
  const float *input, *weight, *bias; /* [rows x in], [out x in], NULL or [out] */
  int64_t in;
  bool row_parallel;
  enum sf_cut cut; /* of the weight's rows; row-parallel: of its columns */
};

/* Marks the rows or columns of a matrix that belong to a cut dimension. */
static bool *marked_places(struct sf_related_list *list, const struct sf_dim_map *dim, int64_t size) {
  bool *marked = sf_related_alloc(list, (size_t)size * sizeof *marked);
  if (marked == NULL) return NULL;
  memset(marked, 0, (size_t)size * sizeof *marked);
  for (int32_t i = 0; i < dim->count; i++)
    for (int64_t k = dim->runs[i].start; k < dim->runs[i].start + dim->runs[i].len; k++) marked[k] = true;
  return marked;
}

/* The scale of the marked part; NULL marks all. */
static float scale_of(const float *x, struct sf_shape shape, const bool *rows, const bool *cols) {
  float amax = 0;
  for (int64_t r = 0; r < shape.rows; r++)
    for (int64_t k = 0; k < shape.cols; k++)
      if ((rows == NULL || rows[r]) && (cols == NULL || cols[k])) amax = fmaxf(fabsf(x[r * shape.cols + k]), amax);
  const float quotient = sf_f8_largest(SF_F8E4M3) / amax;
  return amax > 0 && isfinite(quotient) ? quotient : 1.0f;
}

/* values = the marked part of x, cast with a scale, and zero outside of it. */
static void cast_part(float *values, const float *x, struct sf_shape shape, const bool *rows, const bool *cols, float scale) {
  for (int64_t r = 0; r < shape.rows; r++)
    for (int64_t k = 0; k < shape.cols; k++)
      values[r * shape.cols + k] = rows[r] && cols[k] ? sf_f8_round(x[r * shape.cols + k] * scale, SF_F8E4M3) : 0.0f;
}

/* out += unit a W^T; rounds each product where ranks round their summands. */
static void multiply(float *out, const float *a, const float *weight, struct sf_shape shape, int64_t in, double unit,
                     enum sf_dtype stored) {
  for (int64_t r = 0; r < shape.rows; r++)
    for (int64_t o = 0; o < shape.cols; o++) {
      double sum = 0;
      for (int64_t k = 0; k < in; k++) sum += (double)a[r * in + k] * (double)weight[o * in + k];
      out[r * shape.cols + o] += sf_round((float)(unit * sum), stored);
    }
}

/* Row-parallel linears round before the bias too. */
static void finish_product(float *out, const struct cast_product *p, struct sf_shape shape, enum sf_dtype promised) {
  for (int64_t r = 0; r < shape.rows; r++)
    for (int64_t o = 0; o < shape.cols; o++) {
      float *at = &out[r * shape.cols + o];
      if (p->row_parallel) *at = sf_round(*at, promised);
      *at = sf_round(*at + (p->bias != NULL ? p->bias[o] : 0.0f), promised);
    }
}

/* The product of uncast numbers. */
static const float *product_not_cast(struct sf_related_list *list, const struct sf_expected *own, const struct cast_product *p) {
  float *out = room_for(list, own->spec.shape);
  if (out == NULL) return NULL;
  memset(out, 0, (size_t)(own->spec.shape.rows * own->spec.shape.cols) * sizeof *out);
  multiply(out, p->input, p->weight, own->spec.shape, p->in, 1, SF_F32);
  finish_product(out, p, own->spec.shape, own->spec.promised);
  return out;
}

/* Adds to out the product that a tp rank computes with the scales of its own pieces; where input_scale is not 0, with that and the scale of
 * the whole weight. */
static bool add_with_scales(struct sf_related_list *list, float *out, const struct sf_expected *own, const struct cast_product *p,
                            int64_t tp_index, float input_scale) {
  const struct sf_case *c = &list->of->c;
  const struct sf_shape shape = own->spec.shape, of_input = {shape.rows, p->in}, of_weight = {shape.cols, p->in};
  const struct sf_dim_map whole_rows = sf_dim_map_whole(shape.rows), whole_in = sf_dim_map_whole(p->in),
                          whole_out = sf_dim_map_whole(shape.cols);
  const struct sf_dim_map own_rows = sf_canonical_dim(c, SF_CUT_SEQUENCE, shape.rows, tp_index, 0);
  const struct sf_dim_map piece = sf_canonical_dim(c, p->cut, p->row_parallel ? p->in : shape.cols, tp_index, 0);
  const bool *rows = marked_places(list, &whole_rows, shape.rows),
             *seen = marked_places(list, p->row_parallel ? &whole_rows : &own_rows, shape.rows);
  const bool *in = marked_places(list, p->row_parallel ? &piece : &whole_in, p->in),
             *outs = marked_places(list, p->row_parallel ? &whole_out : &piece, shape.cols);
  float *a = room_for(list, of_input), *w = room_for(list, of_weight);
  if (rows == NULL || seen == NULL || in == NULL || outs == NULL || a == NULL || w == NULL) return false;
  const bool is_given = input_scale > 0;
  const float of_a = is_given ? input_scale : scale_of(p->input, of_input, seen, in),
              of_w = scale_of(p->weight, of_weight, is_given ? NULL : outs, is_given ? NULL : in);
  cast_part(a, p->input, of_input, rows, in, of_a);
  cast_part(w, p->weight, of_weight, outs, in, of_w);
  multiply(out, a, w, shape, p->in, (double)(1.0f / of_a) * (double)(1.0f / of_w), p->row_parallel ? own->spec.promised : SF_F32);
  return true;
}

/* The linear whose output becomes, through one module, this one's input; the class count if there is none. */
static enum sf_module_class linear_before(enum sf_module_class cls) {
  int before = 0;
  while (before < SF_MODULE_CLASS_COUNT && !(sf_modules[before].reader != 0 && sf_modules[before].reader == sf_modules[cls].input))
    before++;
  return (enum sf_module_class)before;
}

/* The product of an MLP's second linear with its input cast with the scale of the first one's input. */
static void collect_other_scale(struct sf_related_list *list, const struct sf_expected *own, const struct cast_product *p) {
  const struct sf_case *c = &list->of->c;
  const struct sf_module *m = module_of(list, own);
  const enum sf_module_class before = linear_before(m->cls);
  if (!p->row_parallel || before == SF_MODULE_CLASS_COUNT || !sf_module_is(before, SF_TRAIT_FP8)) return;
  const float *other = sf_related_value(list, SF_KIND_ACT, own->id, sf_modules[before].input, m->layer);
  float *out = room_for(list, own->spec.shape);
  if (other == NULL || out == NULL) return;
  const float scale = scale_of(other, (struct sf_shape){own->spec.shape.rows, c->model.hidden}, NULL, NULL);
  memset(out, 0, (size_t)(own->spec.shape.rows * own->spec.shape.cols) * sizeof *out);
  for (int32_t tp = 0; tp < c->layout.tp; tp++)
    if (!add_with_scales(list, out, own, p, tp, scale)) return;
  finish_product(out, p, own->spec.shape, own->spec.promised);
  add_variant(list, OTHER_SCALE, -1, SF_DIAGNOSIS_STALE, own->spec.shape, out,
              "the input is cast with the scale of another tensor, the input of the MLP's first linear");
}

static void collect_own_scales(struct sf_related_list *list, const struct sf_expected *own, const struct cast_product *p) {
  static const char sentence[] = "each rank of tp casts its piece with a scale of its own: amax is not the largest over tp";
  const struct sf_case *c = &list->of->c;
  float *out = NULL;
  for (int32_t tp = 0; tp < c->layout.tp; tp++) {
    if (out == NULL || !p->row_parallel) {
      out = room_for(list, own->spec.shape);
      if (out == NULL) return;
      memset(out, 0, (size_t)(own->spec.shape.rows * own->spec.shape.cols) * sizeof *out);
    }
    if (!add_with_scales(list, out, own, p, tp, 0)) return;
    if (p->row_parallel && tp + 1 < c->layout.tp) continue;
    finish_product(out, p, own->spec.shape, own->spec.promised);
    if (p->row_parallel)
      add_variant(list, OWN_SCALE, -1, SF_DIAGNOSIS_UNSYNCHRONISED, own->spec.shape, out, sentence);
    else
      add_for_tp(list, OWN_SCALE, tp, SF_DIAGNOSIS_UNSYNCHRONISED, own->spec.shape, out, sentence);
  }
}

static void collect_casts(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_case *c = &list->of->c;
  const struct sf_catalog *catalog = list->collector->catalog;
  const struct sf_module *m = module_of(list, own);
  const int64_t kept_first = c->precision.fp8_bf16_first, kept_last = c->precision.fp8_bf16_last;
  if (c->precision.compute != SF_COMPUTE_FP8 || !sf_module_is(m->cls, SF_TRAIT_FP8) || m->layer < kept_first ||
      m->layer >= c->model.layers - kept_last)
    return;
  const int32_t param = sf_catalog_param(catalog, m->cls, m->layer, 0);
  struct cast_product p = {.in = catalog->params[param].shape.cols, .row_parallel = sf_module_is(m->cls, SF_TRAIT_ROW)};
  p.input = sf_related_value(list, SF_KIND_ACT, own->id, sf_modules[m->cls].input, m->layer);
  p.weight = sf_related_weight(list, param, own->id.step);
  p.bias = sf_related_weight(list, sf_catalog_param(catalog, m->cls, m->layer, 1), own->id.step);
  p.cut = p.row_parallel ? catalog->params[param].col_cut : catalog->params[param].row_cut;
  if (p.input == NULL || p.weight == NULL || (double)own->spec.shape.rows * (double)own->spec.shape.cols * (double)p.in > PRODUCT_MAX)
    return;
  if (kept_first > 0 || kept_last > 0)
    add_variant(list, NOT_CAST, -1, SF_DIAGNOSIS_SHIFTED, own->spec.shape, product_not_cast(list, own, &p),
                "the product of numbers that were not cast, as in the layers that stay in bf16: layer numbers are shifted");
  const bool has_history = c->precision.fp8_recipe == SF_FP8_DELAYED && own->id.step > 0;
  if (c->layout.tp > 1 && c->layout.cp == 1 && !has_history) collect_own_scales(list, own, &p);
  if (!has_history) collect_other_scale(list, own, &p);
}

/* --- routers' own losses --------------------------------------------------------------------------------------- */

/* Among the topk largest logits; the lower number among equals. */
static bool is_chosen(const float *logits, int64_t experts, int64_t topk, int64_t e) {
  int64_t ahead = 0;
  for (int64_t i = 0; i < experts; i++) ahead += logits[i] > logits[e] || (logits[i] == logits[e] && i < e);
  return ahead < topk;
}

static double exp_sum(const float *logits, int64_t experts, double top) {
  double sum = 0;
  for (int64_t e = 0; e < experts; e++) sum += exp((double)logits[e] - top);
  return sum;
}

/* A token's share of an expert: softmax, or logistic over the sum of all. */
static double share_of(const struct sf_moe *moe, const float *logits, int64_t e) {
  if (moe->router == SF_ROUTER_SOFTMAX)
    return exp((double)logits[e] - (double)logits[0]) / exp_sum(logits, moe->experts, (double)logits[0]);
  double sum = 0;
  for (int64_t i = 0; i < moe->experts; i++) sum += 1 / (1 + exp(-(double)logits[i]));
  return 1 / (1 + exp(-(double)logits[e])) / sum;
}

/* E / (k n^2) sum over experts of count times sum of shares, over the tokens of a scope that take part. */
static double balance_loss(const struct sf_case *c, const float *logits, const bool *valid, int64_t scope, int64_t scopes) {
  const struct sf_moe *moe = &c->moe;
  const int64_t tokens = c->model.seq * c->train.microbatch_size;
  double sum = 0, n = 0;
  for (int64_t t = 0; t < tokens; t++) n += valid[t] && t % c->train.microbatch_size % scopes == scope;
  for (int64_t e = 0; e < moe->experts; e++) {
    double count = 0, shares = 0;
    for (int64_t t = 0; t < tokens; t++) {
      if (!valid[t] || t % c->train.microbatch_size % scopes != scope) continue;
      count += is_chosen(logits + t * moe->experts, moe->experts, moe->topk, e);
      shares += share_of(moe, logits + t * moe->experts, e);
    }
    sum += count * shares;
  }
  n = n > 1 ? n : 1;
  return (double)moe->experts / ((double)moe->topk * n * n) * sum;
}

static double z_loss(const struct sf_case *c, const float *logits, const bool *valid) {
  double sum = 0, n = 0;
  for (int64_t t = 0; t < c->model.seq * c->train.microbatch_size; t++) {
    const float *row = logits + t * c->moe.experts;
    const double log_sum = (double)row[0] + log(exp_sum(row, c->moe.experts, (double)row[0]));
    sum += valid[t] ? log_sum * log_sum : 0;
    n += valid[t];
  }
  return sum / (n > 1 ? n : 1);
}

/* Tokens that are not padding. Each tp rank's rows use the mask of the rows that it would have in the default rank order. */
static bool *other_mask(struct sf_related_list *list, struct sf_trace_id id, int32_t stage) {
  const struct sf_collector *collector = list->collector;
  const struct sf_case *c = &list->of->c;
  const struct sf_mesh plain = sf_mesh_default_order(&c->layout);
  const int64_t b = c->train.microbatch_size, tokens = c->model.seq * b, rows = tokens / c->layout.tp;
  bool *valid = sf_related_alloc(list, (size_t)tokens * sizeof *valid);
  for (int32_t rank = 0; rank < collector->world && valid != NULL; rank++) {
    const struct sf_place_of_rank *place = &list->of->places[rank];
    if (place->dp != id.microbatch % c->layout.dp || place->pp != stage) continue;
    const int64_t other = sf_mesh_coord(&plain, rank).at[SF_AXIS_TP];
    for (int64_t k = 0; k < rows; k++) {
      const int64_t row = other * rows + k;
      valid[place->tp * rows + k] = row / b < sf_data_sequence_length(c, id.step, id.microbatch, row % b);
    }
  }
  return valid;
}

static void collect_other_mask(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_expected *own = slot->expected;
  const struct sf_case *c = &list->of->c;
  if (c->layout.tp == 1 || !c->layout.sp || c->layout.cp > 1 || c->data.padding == 0) return;
  const float *logits = sf_related_value(list, SF_KIND_ACT, own->id, SF_MODULE_ROUTER, module_of(list, own)->layer);
  const bool *valid = other_mask(list, own->id, slot->stage);
  float *losses = room_for(list, own->spec.shape);
  if (logits == NULL || valid == NULL || losses == NULL) return;
  const int64_t scopes = own->spec.shape.rows - (c->moe.z_micro > 0);
  for (int64_t scope = 0; scope < scopes; scope++) losses[scope] = (float)balance_loss(c, logits, valid, scope, scopes);
  if (c->moe.z_micro > 0) losses[scopes] = (float)z_loss(c, logits, valid);
  add_variant(list, OTHER_MASK, -1, SF_DIAGNOSIS_NEIGHBOUR, own->spec.shape, losses,
              "each rank's padding mask is that of the rows that its place in the default rank order would have");
}

/* --- gradient norm --------------------------------------------------------------------------------------------- */

/* Squares of a rank's own part of an expert parameter's gradient. */
static double squares_of_experts(const struct sf_related_list *list, const struct sf_expected *e, const struct sf_place_of_rank *place) {
  const struct sf_case *c = &list->of->c;
  const struct sf_shape shape = e->spec.shape;
  const bool by_rows = sf_cut_is_expert(e->spec.row_cut);
  const struct sf_dim_map dim =
      sf_canonical_dim(c, by_rows ? e->spec.row_cut : e->spec.col_cut, by_rows ? shape.rows : shape.cols, place->expert, 0);
  double sum = 0;
  for (int32_t i = 0; i < dim.count; i++)
    for (int64_t at = dim.runs[i].start; at < dim.runs[i].start + dim.runs[i].len; at++)
      for (int64_t k = 0; k < (by_rows ? shape.cols : shape.rows); k++) {
        const double v = (double)e->x[by_rows ? at * shape.cols + k : k * shape.cols + at];
        sum += v * v;
      }
  return sum;
}

/* The squared norm, without the experts' parts on tp ranks above the first, as a rank sums it over the expert mesh. */
static void collect_left_out_experts(struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_collector *collector = list->collector;
  if (list->of->c.moe.experts == 0 || list->of->c.layout.tp == 1) return;
  for (int32_t rank = 0; rank < collector->world; rank++) {
    const int32_t edp = sf_mesh_expert_place(&list->of->c.layout, rank).edp;
    double squares = own->norm * own->norm;
    for (int32_t other = 0; other < collector->world; other++) {
      if (list->of->places[other].tp == 0 || sf_mesh_expert_place(&list->of->c.layout, other).edp != edp) continue;
      for (int32_t i = 0; i < collector->count; i++) {
        const struct sf_slot *slot = sf_slot_at(collector, i, SF_SLOT_FIRST);
        const struct sf_expected *e = slot->expected;
        const bool is_expert = sf_cut_is_expert(e->spec.row_cut) || sf_cut_is_expert(e->spec.col_cut);
        if (e->id.kind != SF_KIND_MAIN_GRAD || e->id.step != own->id.step || !is_expert || slot->stage != list->of->places[other].pp)
          continue;
        squares -= squares_of_experts(list, e, &list->of->places[other]);
      }
    }
    float *x = room_for(list, own->spec.shape);
    if (x == NULL) return;
    *x = (float)squares;
    add_variant(list, EXPERTS_LEFT_OUT, rank, SF_DIAGNOSIS_MISSING_REDUCTION, own->spec.shape, x,
                "the experts of tp ranks above the first are not in the sum of squares: a partial sum over tp");
  }
}

void sf_variants_collect(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_expected *own = slot->expected;
  const enum sf_module_class cls = module_of(list, own)->cls;
  const enum sf_kind kind = (enum sf_kind)own->id.kind;
  collect_own_slices(list, own);
  if (kind == SF_KIND_ACT && cls == SF_MODULE_LOSS) collect_local_smoothing(list, own);
  if (kind == SF_KIND_ACT && cls == SF_MODULE_AUX_LOSS) collect_other_mask(list, slot);
  if (kind == SF_KIND_ACT) collect_casts(list, own);
  if (kind == SF_KIND_ACT_GRAD && cls == SF_MODULE_LINEAR_KV_DOWN) collect_own_heads(list, own);
  if (kind == SF_KIND_ACT_GRAD) collect_other_group(list, own);
  if (kind == SF_KIND_ACT_GRAD && cls == SF_MODULE_CORE_ATTENTION) sf_variant_ring_blocks(list, own, RING_BLOCKS);
  if (kind == SF_KIND_WGRAD) collect_early_chunk(list, own);
  if (kind == SF_KIND_SCALAR && own->id.subject == SF_SCALAR_GRAD_NORM) collect_left_out_experts(list, own);
}
