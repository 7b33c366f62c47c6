#include "harness/tensor/consistent.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "harness/tensor/exact.h"

#include <math.h>
#include <string.h>

/* Odd, so that index -> key + index * STRIDE is a bijection of 64 bits. */
#define INDEX_STRIDE UINT64_C(0x9e3779b97f4a7c15)
/* Second set of bits of an element, for the distributions that need more than 64. */
#define EXTRA_SALT UINT64_C(0xd1b54a32d192ed03)

/* Draws are (integer of at most 17 bits and sign) x (7-bit integer x power of two): exact in fp32. The sum of four 16-bit
 * uniforms has standard deviation 37837.2, a centred 17-bit uniform (odd numbers) 75674.5. */
#define UNIT_NORMAL (111.0f * 0x1p-22f)   /* variance 1.0027 */
#define UNIT_UNIFORM (111.0f * 0x1p-23f)  /* variance 1.0027, largest 1.7344 */
#define UNIT_HEAVY (91.0f * 0x1p-25f)     /* E[4^k] = 95.5: variance 1.0056 */
#define UNIT_OUTLIERS (111.0f * 0x1p-22f) /* variance 5.0: the bulk has 1 */
#define UNIT_SPARSE (83.0f * 0x1p-20f)    /* non-zero ones have standard deviation 2.995; variance 0.897 */

static inline uint64_t element_place(uint64_t key, uint64_t index) { return key + index * INDEX_STRIDE; }

static inline uint64_t element_bits(uint64_t key, uint64_t index) { return sf_mix64(element_place(key, index)); }

/* Sum of the four 16-bit lanes less its mean: -131070..131070. */
static inline int32_t centred_sum(uint64_t bits) {
  const uint64_t lanes = UINT64_C(0x0000ffff0000ffff);
  const uint64_t pairs = (bits & lanes) + ((bits >> 16) & lanes);
  return (int32_t)((pairs + (pairs >> 32)) & 0xffffffff) - 131070;
}

static inline float draw_normal(uint64_t bits) { return (float)centred_sum(bits) * UNIT_NORMAL; }

static inline float draw_uniform(uint64_t bits) { return (float)((int32_t)(bits >> 47) * 2 - 131071) * UNIT_UNIFORM; }

static inline float draw_heavy(uint64_t bits) {
  const uint64_t stop = sf_mix64(bits ^ EXTRA_SALT) | 64; /* its lowest set bit is 2^k, k geometric and at most 6 */
  return (float)centred_sum(bits) * (float)(int32_t)(stop & (0 - stop)) * UNIT_HEAVY;
}

static inline float draw_outliers(uint64_t bits) {
  const float factor = (sf_mix64(bits ^ EXTRA_SALT) & 255) == 0 ? 32.0f : 1.0f;
  return (float)centred_sum(bits) * factor * UNIT_OUTLIERS;
}

static inline float draw_offset(uint64_t bits) { return draw_normal(bits) + 8.0f; }

static inline float draw_sparse(uint64_t bits) {
  const int32_t keep = (sf_mix64(bits ^ EXTRA_SALT) & 0xffff) < 6554;
  return (float)(centred_sum(bits) * keep) * UNIT_SPARSE;
}

#define DIST_MAP(X) X(NORMAL, normal) X(UNIFORM, uniform) X(HEAVY, heavy) X(OUTLIERS, outliers) X(OFFSET, offset) X(SPARSE, sparse)

/* One loop per distribution, so that each vectorises by itself. Places are added up: vectors of 64-bit products are slow on most machines.
 */
#define X(NAME, name)                                                                                                                      \
  static void fill_##name(float *restrict out, uint64_t key, float scale, float offset, uint64_t first, int64_t count) {                   \
    uint64_t at = element_place(key, first);                                                                                               \
    for (int64_t i = 0; i < count; i++, at += INDEX_STRIDE) out[i] = offset + scale * draw_##name(sf_mix64(at));                           \
  }
DIST_MAP(X)
#undef X

typedef void fill_loop(float *restrict out, uint64_t key, float scale, float offset, uint64_t first, int64_t count);

static fill_loop *const fill_loops[SF_DIST_COUNT] = {
#define X(NAME, name) [SF_DIST_##NAME] = fill_##name,
    DIST_MAP(X)
#undef X
};

float sf_draw_value(uint64_t key, enum sf_value_dist dist, uint64_t index) {
  SF_ASSERT_LT((int)dist, SF_DIST_COUNT);
  float value = 0;
  fill_loops[dist](&value, key, 1.0f, 0.0f, index, 1);
  return value;
}

uint64_t sf_fill_key(int64_t seed, uint64_t tensor, uint64_t salt) {
  return sf_hash_u64(sf_hash_u64(sf_hash_u64(0, (uint64_t)seed), tensor), salt);
}

/* One in four is zero, the others are 1 and -1 alike. */
static void fill_integers(float *out, const struct sf_fill *fill, int64_t first, int64_t count) {
  static const float values[8] = {0, 1, -1, 1, 0, -1, 1, -1};
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = first + i;
    const bool off = fill->lattice > 1 && (at / fill->cols + at % fill->cols) % fill->lattice != 0;
    out[i] = off ? 0 : fill->scale * values[element_bits(fill->key, (uint64_t)at) >> 61];
  }
}

/* An exponential overflows above 88 and is nothing below -103, so that a row of logits with such an amount shows whether its own maximum,
 * and that of every column, was taken away. */
static void fill_shifted_row(float *out, const struct sf_fill *fill, int64_t row, int64_t col, int64_t count) {
  const uint64_t bits = element_bits(fill->key ^ EXTRA_SALT, (uint64_t)row);
  const float amount = (float)(128 + (int32_t)(bits & 127)), shift = (bits >> 7) & 1 ? amount : -amount;
  fill_loops[fill->dist](out, fill->key, fill->scale, fill->offset + shift, (uint64_t)(row * fill->cols + col), count);
  const int64_t peak = (int64_t)(((bits >> 32) * (uint64_t)fill->cols) >> 32) - col;
  if (((bits >> 8) & 3) == 0 && peak >= 0 && peak < count) out[peak] += 256;
  if (fill->dtype != SF_F32) sf_round_array(out, count, fill->dtype);
}

static void fill_shifted_rows(float *out, const struct sf_fill *fill, int64_t first, int64_t count) {
  for (int64_t at = first, end = first + count; at < end;) {
    const int64_t col = at % fill->cols, left = fill->cols - col, part = left < end - at ? left : end - at;
    fill_shifted_row(out + (at - first), fill, at / fill->cols, col, part);
    at += part;
  }
}

static void fill_finite(float *out, const struct sf_fill *fill, int64_t first, int64_t count) {
  if (fill->exact) {
    fill_integers(out, fill, first, count);
    return;
  }
  if (fill->shifted_rows) {
    fill_shifted_rows(out, fill, first, count);
    return;
  }
  SF_ASSERT_LT((int)fill->dist, SF_DIST_COUNT);
  const int64_t block = 4096; /* values are rounded while they are in the first-level cache */
  for (int64_t at = 0; at < count; at += block) {
    const int64_t part = count - at < block ? count - at : block;
    fill_loops[fill->dist](out + at, fill->key, fill->scale, fill->offset, (uint64_t)(first + at), part);
    if (fill->dtype != SF_F32) sf_round_array(out + at, part, fill->dtype);
  }
}

void sf_fill_range(float *out, const struct sf_fill *fill, int64_t first, int64_t count) {
  fill_finite(out, fill, first, count);
  if (fill->has_infinite && fill->infinite >= first && fill->infinite < first + count) out[fill->infinite - first] = INFINITY;
}

static void fill_or_zero(float *out, const struct sf_fill *fill, int64_t first, int64_t count, bool zero) {
  if (zero)
    memset(out, 0, (size_t)count * sizeof *out);
  else
    sf_fill_range(out, fill, first, count);
}

void sf_fill_shard(float *local, const struct sf_fill *fill, struct sf_shape shape, const struct sf_shard_map *map, uint32_t zero_axes) {
  SF_ASSERT(!map->flat && sf_shard_map_valid(map, shape));
  const struct sf_dim_map *rows = &map->rows, *cols = &map->cols;
  const bool whole_rows = cols->count == 1 && cols->runs[0].len == shape.cols; /* neighbouring rows are one range */
  for (int32_t r = 0; r < rows->count; r++) {
    const struct sf_run run = rows->runs[r];
    const int64_t row_step = whole_rows ? run.len : 1;
    for (int64_t row = run.start; row < run.start + run.len; row += row_step) {
      for (int32_t k = 0; k < cols->count; k++) {
        const struct sf_run col = cols->runs[k];
        const bool zero = ((run.partial | col.partial) & zero_axes) != 0;
        fill_or_zero(local, fill, row * shape.cols + col.start, col.len * row_step, zero);
        local += col.len * row_step;
      }
    }
  }
}

enum salt {
  SALT_PARAM = 1,
  SALT_TRACE,
  SALT_TOKENS,
  SALT_LABELS,
  SALT_FEW,
  SALT_MASK,
  SALT_DROPOUT,
  SALT_DOCUMENTS,
  SALT_MEMORY,
  SALT_OVERFLOW
};

struct sf_fill sf_fill_for_param(const struct sf_catalog *catalog, int32_t param, int64_t step) {
  SF_ASSERT_LE(0, param);
  SF_ASSERT_LT(param, catalog->param_count);
  const struct sf_param *p = &catalog->params[param];
  const struct sf_case *c = &catalog->logical;
  struct sf_fill fill = {
      .key = sf_fill_key(c->seed, sf_hash_string((uint64_t)step, p->name), SALT_PARAM),
      .dist = (enum sf_value_dist)c->data.weights,
      .scale = p->scale,
      .offset = p->offset,
      .dtype = SF_F32,
  };
  sf_fill_make_exact_param(&fill, catalog, param);
  return fill;
}

/* Attention takes differences of its inputs' products, and a norm's backward takes means away: values eight spreads from zero leave scores,
 * dP and dy w - mean(dy w) of nearly equal numbers, and a gradient that is mostly rounding, of which nothing can be said. One spread is an
 * offset that can be judged. */
static void soften_offset(struct sf_fill *fill) {
  if (fill->dist != SF_DIST_OFFSET) return;
  fill->dist = SF_DIST_NORMAL;
  fill->offset = fill->scale;
}

/* The offset that the loss reads. */
static void shift_logits(struct sf_fill *fill, int64_t vocab) {
  if (fill->dist != SF_DIST_OFFSET) return;
  fill->dist = SF_DIST_NORMAL;
  fill->shifted_rows = true;
  fill->cols = vocab;
}

/* Uniform in 0..bound-1 up to a bias of bound / 2^32; bound < 2^31. */
static inline int64_t below(uint64_t bits, int64_t bound) { return (int64_t)(((bits >> 32) * (uint64_t)bound) >> 32); }

/* --- overflow ----------------------------------------------------------------------------------------------------- */

static bool is_expert_param(const struct sf_catalog *catalog, int32_t param) {
  return sf_module_is(catalog->modules[catalog->params[param].module].cls, SF_TRAIT_EXPERT);
}

static bool is_trained(const struct sf_catalog *catalog, int32_t param, bool of_experts) {
  return !catalog->params[param].frozen && (!of_experts || is_expert_param(catalog, param));
}

/* One of the trained parameters, or of the experts' among them; -1: there is none. */
static int32_t draw_trained(const struct sf_catalog *catalog, uint64_t bits, bool of_experts) {
  int64_t count = 0;
  for (int32_t p = 0; p < catalog->param_count; p++) count += is_trained(catalog, p, of_experts);
  int64_t left = below(bits, count);
  for (int32_t p = 0; p < catalog->param_count; p++)
    if (is_trained(catalog, p, of_experts) && left-- == 0) return p;
  return -1;
}

/* The tensor that has the infinite number: half of the time, where there are experts, what theirs comes from, since their overflow takes
 * another way to the ranks than that of all other parameters. */
static struct sf_trace_id draw_overflowing(const struct sf_catalog *catalog, uint64_t key) {
  const struct sf_train *train = &catalog->logical.train;
  struct sf_trace_id id = {.pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD};
  id.step = (uint16_t)below(element_bits(key, 0), train->steps > 1 ? train->steps - 1 : 1);
  id.microbatch = (uint16_t)below(element_bits(key, 1), train->microbatches);
  id.subject = element_bits(key, 2) >> 63 ? draw_trained(catalog, element_bits(key, 3), true) : -1;
  if (id.subject < 0) id.subject = draw_trained(catalog, element_bits(key, 3), false);
  if (id.subject < 0 || !is_expert_param(catalog, id.subject)) return id;
  id.kind = SF_KIND_ACT_GRAD; /* weight gradients of experts are not given */
  id.subject = sf_catalog_module(catalog, SF_MODULE_COMBINE, catalog->modules[catalog->params[id.subject].module].layer);
  return id;
}

static void fill_make_overflow(struct sf_fill *fill, const struct sf_catalog *catalog, struct sf_trace_id id, struct sf_shape shape) {
  const struct sf_case *c = &catalog->logical;
  if (!c->data.overflow) return;
  const uint64_t key = sf_fill_key(c->seed, 0, SALT_OVERFLOW);
  if (sf_trace_key(draw_overflowing(catalog, key)) != sf_trace_key(id)) return;
  fill->has_infinite = true;
  fill->infinite = below(element_bits(key, 4), shape.rows * shape.cols);
}

/* --- the trace ---------------------------------------------------------------------------------------------------- */

struct sf_fill sf_fill_for_trace(const struct sf_catalog *catalog, struct sf_trace_id id) {
  SF_ASSERT(id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD || id.kind == SF_KIND_WGRAD);
  const struct sf_case *c = &catalog->logical;
  struct sf_trace_spec spec;
  const bool known = sf_trace_spec(&spec, catalog, id);
  SF_ASSERT(known);
  /* The same tensor is traced again by recomputation (pass) and by the next stage (call): neither enters the key. */
  const uint64_t call = id.kind == SF_KIND_WGRAD ? id.call : 0;
  const char *name = id.kind == SF_KIND_WGRAD ? catalog->params[id.subject].name : catalog->modules[id.subject].name;
  const uint64_t place = sf_hash_u64(sf_hash_u64(id.step, id.microbatch), (uint64_t)id.kind << 8 | call);
  const bool is_act = id.kind == SF_KIND_ACT;
  struct sf_fill fill = {
      .key = sf_fill_key(c->seed, sf_hash_string(place, name), SALT_TRACE),
      .dist = (enum sf_value_dist)(is_act ? c->data.acts : c->data.grads),
      .scale = is_act ? 1.0f : 0x1p-6f,
      .offset = 0,
      .dtype = spec.promised,
  };
  const bool is_grad = id.kind == SF_KIND_ACT_GRAD;
  if (is_act && sf_module_is(catalog->modules[id.subject].cls, SF_TRAIT_INTO_ATTENTION)) soften_offset(&fill);
  if (is_grad && sf_module_is(catalog->modules[id.subject].cls, SF_TRAIT_GRAD_INTO_MEANS)) soften_offset(&fill);
  if (is_act && sf_modules[catalog->modules[id.subject].cls].act.cols == SF_SIZE_VOCAB) shift_logits(&fill, spec.shape.cols);
  sf_fill_make_exact_trace(&fill, catalog, id);
  fill_make_overflow(&fill, catalog, id, spec.shape);
  return fill;
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

struct sf_dropout sf_dropout_for_module(const struct sf_catalog *catalog, int32_t module, int64_t step, int64_t microbatch) {
  SF_ASSERT_LE(0, module);
  SF_ASSERT_LT(module, catalog->module_count);
  const struct sf_case *c = &catalog->logical;
  const uint64_t place = sf_hash_string(sf_hash_u64((uint64_t)step, (uint64_t)microbatch), catalog->modules[module].name);
  return (struct sf_dropout){.key = sf_fill_key(c->seed, place, SALT_DROPOUT),
                             .milli = c->train.dropout_milli,
                             .factor = 1000.0f / (float)(1000 - c->train.dropout_milli)};
}

void sf_dropout_mask(float *kept, const struct sf_dropout *dropout, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    kept[i] = below(element_bits(dropout->key, (uint64_t)(first + i)), 1000) < dropout->milli ? 0.0f : 1.0f;
}

struct sf_fill sf_fill_for_memory(const struct sf_catalog *catalog, int64_t step, int64_t microbatch) {
  const struct sf_case *c = &catalog->logical;
  SF_ASSERT_LT(0, c->model.memory_seq);
  struct sf_fill fill = {
      .key = sf_fill_key(c->seed, sf_hash_u64((uint64_t)step, (uint64_t)microbatch), SALT_MEMORY),
      .dist = c->mode == SF_MODE_ISOLATED ? (enum sf_value_dist)c->data.acts : SF_DIST_NORMAL,
      .scale = 1.0f,
      .dtype = sf_case_storage(c),
  };
  if (c->data.exact) fill = (struct sf_fill){.key = fill.key, .scale = 1, .dtype = fill.dtype, .exact = true, .cols = 1, .lattice = 1};
  return fill;
}

/* --- tokens ------------------------------------------------------------------------------------------- */

static uint64_t microbatch_key(const struct sf_case *c, int64_t step, int64_t microbatch, enum salt salt) {
  return sf_fill_key(c->seed, sf_hash_u64((uint64_t)step, (uint64_t)microbatch), salt);
}

/* First or last id of one of 2, 4 or 8 slices of the padded vocabulary, at most the last real id. */
static int64_t edge_token(const struct sf_model *model, uint64_t bits) {
  const int64_t parts = INT64_C(2) << ((bits & 0xffff) % 3);
  const int64_t slice = (int64_t)((bits >> 16) & 7) % parts, length = model->vocab_padded / parts;
  const int64_t token = (bits >> 20) & 1 ? (slice + 1) * length - 1 : slice * length;
  return token < model->vocab ? token : model->vocab - 1;
}

static int64_t draw_token(const struct sf_case *c, uint64_t bits) {
  switch ((enum sf_token_dist)c->data.tokens) {
  case SF_TOKENS_UNIFORM:
    return below(bits, c->model.vocab);
  case SF_TOKENS_EDGE:
    return edge_token(&c->model, bits);
  case SF_TOKENS_FEW:
    return below(element_bits(sf_fill_key(c->seed, 0, SALT_FEW), bits % 3), c->model.vocab);
  }
  SF_ASSERT(!"a token distribution that is not drawn here");
  return 0;
}

static void draw_tokens(int32_t *out, const struct sf_case *c, uint64_t key, int64_t count) {
  for (int64_t i = 0; i < count; i++) out[i] = (int32_t)draw_token(c, element_bits(key, (uint64_t)i));
}

/* --- documents and padding -------------------------------------------------------------------------------------- */

/* Numbers drawn for a sequence: 0 is its padding, the others are cuts. */
enum { DRAWS_OF_SEQUENCE = 64 };

static uint64_t sequence_bits(const struct sf_case *c, int64_t step, int64_t microbatch, int64_t sequence, int64_t draw) {
  return element_bits(microbatch_key(c, step, microbatch, SALT_DOCUMENTS), (uint64_t)(sequence * DRAWS_OF_SEQUENCE + draw));
}

bool sf_data_has_documents(const struct sf_case *c) { return c->data.documents > 1 || c->data.padding > 0; }

int64_t sf_data_sequence_length(const struct sf_case *c, int64_t step, int64_t microbatch, int64_t sequence) {
  if (c->data.padding == 0) return c->model.seq;
  const int64_t padding = below(sequence_bits(c, step, microbatch, sequence, 0), c->data.padding + 1);
  return padding < c->model.seq ? c->model.seq - padding : 1;
}

void sf_data_documents(int32_t *first, const struct sf_case *c, int64_t step, int64_t microbatch) {
  SF_ASSERT_LE(c->data.documents, DRAWS_OF_SEQUENCE);
  const int64_t seq = c->model.seq;
  memset(first, 0, (size_t)(seq * c->train.microbatch_size) * sizeof *first);
  for (int64_t sequence = 0; sequence < c->train.microbatch_size; sequence++, first += seq) {
    for (int64_t draw = 1; draw < c->data.documents; draw++) {
      const int64_t cut = below(sequence_bits(c, step, microbatch, sequence, draw), seq);
      first[cut] = (int32_t)cut;
    }
    const int64_t length = sf_data_sequence_length(c, step, microbatch, sequence);
    for (int64_t i = 1; i < seq; i++) {
      if (i >= length) first[i] = (int32_t)i;
      if (first[i] == 0) first[i] = first[i - 1];
    }
  }
}

/* --- masks ------------------------------------------------------------------------------------------------------- */

/* What a microbatch's mask keeps: the tokens `always`, and every other with probability share / 65536, but no padding. */
struct mask_rule {
  const struct sf_case *c;
  int64_t step, microbatch;
  uint64_t key;
  int64_t share;
  int64_t always[3];
};

/* The token itself, or in place of padding its sequence's last token before it. */
static int64_t last_before_padding(const struct mask_rule *rule, int64_t index) {
  const int64_t batch = rule->c->train.microbatch_size, sequence = index % batch;
  if (rule->c->data.padding == 0) return index;
  const int64_t length = sf_data_sequence_length(rule->c, rule->step, rule->microbatch, sequence);
  return index / batch < length ? index : (length - 1) * batch + sequence;
}

static struct mask_rule mask_rule_create(const struct sf_case *c, int64_t step, int64_t microbatch) {
  /* Neighbours in this ring differ by a quarter at least, so neighbouring microbatches keep very different shares. */
  static const int64_t shares[5] = {8192, 65536, 16384, 49152, 32768};
  const uint64_t key = microbatch_key(c, step, microbatch, SALT_MASK);
  const int64_t tokens = c->model.seq * c->train.microbatch_size;
  struct mask_rule rule = {.c = c, .step = step, .microbatch = microbatch, .key = key, .share = 65536};
  for (uint64_t i = 0; i < 3; i++) rule.always[i] = last_before_padding(&rule, below(element_bits(~key, i), tokens));
  if (c->data.mask == SF_MASK_FULL) return rule;
  const int64_t kept = c->data.mask == SF_MASK_SPARSE ? 1 + below(element_bits(~key, 3), 3) : 1;
  for (int64_t i = kept; i < 3; i++) rule.always[i] = rule.always[0];
  const uint64_t turn = sf_fill_key(c->seed, (uint64_t)step, SALT_MASK) % 5;
  rule.share = c->data.mask == SF_MASK_SPARSE ? 0 : shares[(turn + (uint64_t)microbatch) % 5];
  return rule;
}

static bool mask_keeps(const struct mask_rule *rule, int64_t index) {
  if (index == rule->always[0] || index == rule->always[1] || index == rule->always[2]) return true;
  if ((int64_t)(element_bits(rule->key, (uint64_t)index) >> 48) >= rule->share) return false;
  return last_before_padding(rule, index) == index;
}

void sf_data_microbatch(int32_t *tokens, int32_t *labels, float *mask, const struct sf_case *c, int64_t step, int64_t microbatch) {
  const int64_t count = c->model.seq * c->train.microbatch_size;
  if (tokens != NULL) draw_tokens(tokens, c, microbatch_key(c, step, microbatch, SALT_TOKENS), count);
  if (labels != NULL) draw_tokens(labels, c, microbatch_key(c, step, microbatch, SALT_LABELS), count);
  if (mask == NULL) return;
  const struct mask_rule rule = mask_rule_create(c, step, microbatch);
  for (int64_t i = 0; i < count; i++) mask[i] = mask_keeps(&rule, i) ? 1.0f : 0.0f;
}

int64_t sf_data_step_tokens(const struct sf_case *c, int64_t step) {
  const int64_t count = c->model.seq * c->train.microbatch_size;
  int64_t kept = 0;
  for (int64_t m = 0; m < c->train.microbatches; m++) {
    const struct mask_rule rule = mask_rule_create(c, step, m);
    for (int64_t i = 0; i < count; i++) kept += mask_keeps(&rule, i);
  }
  return kept;
}

static bool is_ahead_within(const struct sf_case *c, int64_t step, int64_t microbatch, int64_t index, int64_t ahead) {
  const int64_t batch = c->train.microbatch_size, sequence = index % batch, from = index / batch, to = from + ahead;
  if (to >= c->model.seq) return false;
  if (to >= sf_data_sequence_length(c, step, microbatch, sequence)) return false;
  for (int64_t draw = 1; draw < c->data.documents; draw++) {
    const int64_t cut = below(sequence_bits(c, step, microbatch, sequence, draw), c->model.seq);
    if (cut > from && cut <= to) return false;
  }
  return true;
}

void sf_data_ahead(int32_t *tokens, int32_t *labels, float *mask, const struct sf_case *c, int64_t step, int64_t microbatch,
                   int64_t depth) {
  const int64_t batch = c->train.microbatch_size, count = c->model.seq * batch, ahead = depth + 1;
  sf_data_microbatch(tokens, labels, mask, c, step, microbatch);
  for (int64_t i = 0; i < count; i++) {
    const bool within = is_ahead_within(c, step, microbatch, i, ahead);
    const int64_t from = i + ahead * batch; /* not yet written over */
    if (tokens != NULL) tokens[i] = within ? tokens[from] : 0;
    if (labels != NULL) labels[i] = within ? labels[from] : 0;
    if (mask != NULL) mask[i] = within ? mask[from] : 0.0f;
  }
}

int64_t sf_data_step_tokens_ahead(const struct sf_case *c, int64_t step, int64_t depth) {
  const int64_t batch = c->train.microbatch_size, ahead = depth + 1;
  int64_t kept = 0;
  for (int64_t m = 0; m < c->train.microbatches; m++) {
    const struct mask_rule rule = mask_rule_create(c, step, m);
    for (int64_t i = 0; i < c->model.seq * batch; i++)
      kept += is_ahead_within(c, step, m, i, ahead) && mask_keeps(&rule, i + ahead * batch);
  }
  return kept;
}
