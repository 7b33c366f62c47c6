/* Expectations: keeps one plain run of the reference; of perturbed runs it keeps only their distances. */
#include "oracles/noise/expect.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <string.h>

enum { ARENA_BLOCK_BYTES = 1 << 18, RUN_BLOCK_BYTES = 1 << 20, ENTRIES_FIRST = 256 };

/* The recipe has three perturbed runs of each kind. A row whose error depends on one or two roundings (a nearly one-hot softmax, a sum with
 * one large term) then differs too little in all three about once in a thousand by chance. There are millions of rows, so the full level
 * has eight runs. Three clear most tensors that one made suspicious. Those that eight leave a little beyond their bound get 24. */
static const uint64_t rounds_of[SF_LEVEL_COUNT] = {0, 1, 3, 8, 24};
static const enum sf_level drawn = SF_LEVEL_SURE; /* holds the maximum over all perturbed runs so far */

struct place {
  uint64_t key;
  int32_t ordinal; /* -1: free */
};

struct sf_expectations {
  struct sf_catalog *catalog;
  const struct sf_gemm_table *gemm;
  const struct sf_given *given;       /* NULL: isolated mode gives consistent tensors */
  const struct sf_expectations *like; /* with `given`: those of the case itself */
  struct sf_arena *arena, *run_arena; /* run_arena: of runs that follow each other; NULL between them, as it is as large as a model */
  struct sf_expected *entries;
  int32_t count, capacity;
  struct place *table; /* open addressing; a power of two, at most half full */
  uint64_t table_mask;
  bool has_part_sizes;
  int64_t runs;
  int32_t overflow_step;
  /* of the run in progress */
  double grad_norm_max; /* of the plain run's step: the largest main gradient */
  double loss_scale;    /* of the plain run's step */
  enum sf_status status;
  struct sf_trace_id *drawn_ids; /* of the draws in progress; room for all */
  double *row_scratch;           /* as many as the longest tensor has rows */
  int64_t rows_max;
};

bool sf_kind_has_noise(enum sf_kind kind) {
  return kind == SF_KIND_ACT || kind == SF_KIND_ACT_GRAD || kind == SF_KIND_WGRAD || kind == SF_KIND_MAIN_GRAD;
}

/* --- the plain run -------------------------------------------------------------------------------------------- */

static double *zeros(struct sf_arena *arena, int64_t count) {
  double *values = sf_arena_alloc(arena, (size_t)count * sizeof *values);
  if (values != NULL) memset(values, 0, (size_t)count * sizeof *values);
  return values;
}

/* ||roll(x) - x||: rows rolled by one, or elements of a vector. A single number is compared with zero, as it has no other place. */
static double rolled_norm(const float *x, struct sf_shape shape) {
  if (shape.rows * shape.cols == 1) return fabs((double)x[0]);
  const int64_t count = shape.rows * shape.cols, by = shape.rows > 1 ? shape.cols : 1;
  return sqrt(sf_diff_squares(x + by, x, count - by) + sf_diff_squares(x, x + count - by, by));
}

/* p - onehot cancels where p is near 1: its error is that of p, however little is left: two roundings of the token's weight. With label
 * smoothing the terms that are subtracted (1 - s at the label, s / V everywhere) have been rounded to fp32 themselves. */
static double logits_roundings(const struct sf_case *c, enum sf_dtype promised) {
  const double columns = (double)c->model.vocab_padded, s = (double)c->train.label_smoothing_milli / 1000 * columns / (columns - 1);
  const double shares = c->train.label_smoothing_milli == 0 ? 0 : fabs(1 - s) + s / columns;
  return 2 * sf_dtype_unit_roundoff(promised) + shares * sf_dtype_unit_roundoff(SF_F32);
}

static bool is_loss(enum sf_module_class cls) { return cls == SF_MODULE_LOSS || cls == SF_MODULE_MTP_LOSS; }

/* Loads the loss mask of the tensor's prediction into mask; returns the weight of a kept token's loss. */
static double load_mask(float *mask, const struct sf_catalog *catalog, struct sf_trace_id id, int64_t tokens) {
  const struct sf_case *c = &catalog->logical;
  const int64_t depth = catalog->modules[id.subject].layer - c->model.layers;
  const bool ahead = catalog->modules[id.subject].cls == SF_MODULE_MTP_LOSS;
  if (ahead)
    sf_data_ahead(NULL, NULL, mask, c, id.step, id.microbatch, depth);
  else
    sf_data_microbatch(NULL, NULL, mask, c, id.step, id.microbatch);
  double kept = 0;
  for (int64_t t = 0; t < tokens; t++) kept += (double)mask[t];
  if (kept == 0) return 0;
  const double share = ahead ? (double)c->train.mtp_weight_milli / (1000.0 * (double)c->model.mtp_depth) : 1;
  if (c->train.loss_norm == SF_LOSS_PER_MICROBATCH) return share / (kept * (double)c->train.microbatches);
  return ahead ? share * (double)sf_data_step_tokens(c, id.step) / (double)sf_data_step_tokens_ahead(c, id.step, depth) : share;
}

static bool logits_floor(struct sf_expected *e, const struct sf_catalog *catalog, struct sf_arena *arena, double loss_scale) {
  const struct sf_case *c = &catalog->logical;
  const int64_t tokens = e->spec.shape.rows;
  float *floors = sf_arena_alloc(arena, (size_t)tokens * sizeof *floors);
  if (floors == NULL) return false;
  const double share = load_mask(floors, catalog, e->id, tokens);
  const double factor = logits_roundings(c, e->spec.promised) * share * loss_scale;
  for (int64_t t = 0; t < tokens; t++) floors[t] = (float)((double)floors[t] * factor);
  e->row_floor = floors;
  return true;
}

static bool expected_fill(struct sf_expected *e, const struct sf_expectations *x, const float *values) {
  if (x->given != NULL && (e->id.kind == SF_KIND_PARAM || e->id.kind == SF_KIND_PARAM_DELTA)) return true;
  const struct sf_shape shape = e->spec.shape;
  const size_t size_bytes = (size_t)(shape.rows * shape.cols) * sizeof *values;
  e->x = sf_arena_alloc(x->arena, size_bytes);
  e->row_norm = zeros(x->arena, shape.rows);
  double *row_noise = zeros(x->arena, SF_LEVEL_COUNT * shape.rows);
  if (e->x == NULL || e->row_norm == NULL || row_noise == NULL) return false;
  for (enum sf_level level = SF_LEVEL_NONE; level <= drawn; level++) e->row_noise[level] = row_noise + level * shape.rows;
  memcpy(e->x, values, size_bytes);
  e->norm = sf_row_norms(e->row_norm, e->x, shape.rows, shape.cols);
  e->rolled = x->like != NULL ? sf_expectations_at(x->like, e->ordinal)->rolled : rolled_norm(e->x, shape);
  const bool is_logits_grad = e->id.kind == SF_KIND_ACT_GRAD && is_loss(x->catalog->modules[e->id.subject].cls);
  return !is_logits_grad || logits_floor(e, x->catalog, x->arena, x->loss_scale);
}

static bool entries_reserve(struct sf_expectations *x) {
  if (x->count < x->capacity) return true;
  const int32_t capacity = x->capacity > 0 ? 2 * x->capacity : ENTRIES_FIRST;
  struct sf_expected *entries = sf_realloc(x->entries, (size_t)capacity * sizeof *entries);
  if (entries == NULL) return false;
  x->entries = entries;
  x->capacity = capacity;
  return true;
}

/* A skipped step squares no gradients. */
static void watch_scaling(struct sf_expectations *x, const struct sf_expected *e) {
  if (e->id.kind != SF_KIND_SCALAR) return;
  if (e->id.subject == (int32_t)SF_SCALAR_LOSS_SCALE) x->loss_scale = (double)e->x[0];
  if (e->id.subject == (int32_t)SF_SCALAR_OVERFLOW && e->x[0] > 0) x->grad_norm_max = 0;
}

/* Squares overflow beyond 1.8e19. One of the two equal factors is multiplied by 1 - beta2 >= 1e-3 first, which leaves room. */
static void watch_overflow(struct sf_expectations *x, const struct sf_expected *e) {
  static const double GRAD_MAX = 1e18;
  if (e->id.kind == SF_KIND_MAIN_GRAD) x->grad_norm_max = sf_larger(x->grad_norm_max, e->norm);
  if (e->id.kind != SF_KIND_SCALAR || e->id.subject != (int32_t)SF_SCALAR_CLIP) return;
  const bool overflows = !((double)e->x[0] * x->grad_norm_max <= GRAD_MAX);
  if (overflows && x->overflow_step == INT32_MAX) x->overflow_step = e->id.step;
  x->grad_norm_max = 0;
}

static void emit_plain(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  struct sf_expectations *x = ctx;
  if (x->status != SF_OK) return;
  x->status = SF_ENOMEM;
  if (!entries_reserve(x)) return;
  struct sf_expected e = {.id = id, .ordinal = x->count, .exact = sf_trace_is_exact(x->catalog, id)};
  const bool known = sf_trace_spec(&e.spec, x->catalog, id);
  SF_ASSERT(known);
  SF_ASSERT_EQ(e.spec.shape.rows, shape.rows);
  SF_ASSERT_EQ(e.spec.shape.cols, shape.cols);
  if (!expected_fill(&e, x, values)) return;
  watch_scaling(x, &e);
  watch_overflow(x, &e);
  x->entries[x->count++] = e;
  if (shape.rows > x->rows_max) x->rows_max = shape.rows;
  x->status = SF_OK;
}

static enum sf_status table_build(struct sf_expectations *x) {
  uint64_t size = 16;
  while (size < 2 * (uint64_t)x->count) size *= 2;
  x->table = sf_arena_alloc(x->arena, (size_t)size * sizeof *x->table);
  x->row_scratch = zeros(x->arena, x->rows_max);
  x->drawn_ids = sf_arena_alloc(x->arena, (size_t)x->count * sizeof *x->drawn_ids);
  if (x->table == NULL || x->row_scratch == NULL || x->drawn_ids == NULL) return SF_ENOMEM;
  x->table_mask = size - 1;
  for (uint64_t i = 0; i < size; i++) x->table[i].ordinal = -1;
  for (int32_t i = 0; i < x->count; i++) {
    const uint64_t key = sf_trace_key(x->entries[i].id);
    uint64_t at = sf_mix64(key) & x->table_mask;
    for (; x->table[at].ordinal >= 0; at = (at + 1) & x->table_mask) SF_ASSERT(x->table[at].key != key);
    x->table[at] = (struct place){.key = key, .ordinal = i};
  }
  return SF_OK;
}

static void run_arena_drop(struct sf_expectations *x) {
  sf_arena_destroy(x->run_arena);
  x->run_arena = NULL;
}

/* Runs a case of the same model. options: in what the run differs from the plain one. */
static enum sf_status run_case(struct sf_expectations *x, const struct sf_catalog *catalog, struct sf_reference_options options,
                               const struct sf_reference_sink *sink) {
  if (x->run_arena == NULL) x->run_arena = sf_arena_create(RUN_BLOCK_BYTES, false);
  if (x->run_arena == NULL) return SF_ENOMEM;
  sf_arena_reset(x->run_arena); /* kept for the next run: there are many */
  options.arena = x->run_arena;
  options.gemm = x->gemm;
  options.given = x->given;
  x->runs++;
  return sf_reference_run(catalog, &options, sink);
}

static enum sf_status run_reference(struct sf_expectations *x, struct sf_reference_options options,
                                    void (*emit)(void *, struct sf_trace_id, const void *, struct sf_shape)) {
  x->status = SF_OK;
  const enum sf_status status = run_case(x, x->catalog, options, &(struct sf_reference_sink){.ctx = x, .emit = emit});
  return status != SF_OK ? status : x->status;
}

enum sf_status sf_expectations_renew(struct sf_expectations *x) {
  sf_arena_reset(x->arena);
  x->count = 0;
  x->has_part_sizes = false;
  x->overflow_step = INT32_MAX;
  x->loss_scale = 1;
  x->grad_norm_max = 0;
  const enum sf_status status = run_reference(x, (struct sf_reference_options){.perturb = SF_PERTURB_NONE}, emit_plain);
  return status == SF_OK ? table_build(x) : status;
}

/* Takes over x, in which only the caller's choices are not zero. */
static enum sf_status expectations_fill(struct sf_expectations *x, const struct sf_case *logical) {
  const enum sf_status status = sf_catalog_create(&x->catalog, logical);
  if (status != SF_OK) return status;
  x->arena = sf_arena_create(ARENA_BLOCK_BYTES, false);
  return x->arena != NULL ? sf_expectations_renew(x) : SF_ENOMEM;
}

static enum sf_status expectations_create(struct sf_expectations **out, const struct sf_case *logical, struct sf_expectations chosen) {
  struct sf_expectations *x = sf_alloc(sizeof *x);
  if (x == NULL) return SF_ENOMEM;
  *x = chosen;
  const enum sf_status status = expectations_fill(x, logical);
  if (chosen.given == NULL) run_arena_drop(x); /* no run follows at once */
  if (status == SF_OK)
    *out = x;
  else
    sf_expectations_destroy(x);
  return status;
}

enum sf_status sf_expectations_create(struct sf_expectations **out, const struct sf_catalog *catalog, const struct sf_gemm_table *gemm) {
  return expectations_create(out, &catalog->logical, (struct sf_expectations){.gemm = gemm});
}

enum sf_status sf_expectations_create_given(struct sf_expectations **out, const struct sf_expectations *like,
                                            const struct sf_given *given) {
  struct sf_case alone = like->catalog->logical;
  alone.mode = SF_MODE_ISOLATED;
  alone.data.acts = SF_DIST_NORMAL; /* as memories are end to end */
  return expectations_create(out, &alone, (struct sf_expectations){.gemm = like->gemm, .given = given, .like = like});
}

void sf_expectations_destroy(struct sf_expectations *expectations) {
  if (expectations == NULL) return;
  sf_catalog_destroy(expectations->catalog);
  sf_arena_destroy(expectations->arena);
  sf_arena_destroy(expectations->run_arena);
  sf_free(expectations->entries);
  sf_free(expectations);
}

void sf_expectations_set_parts(struct sf_expectations *expectations, int32_t ordinal, const double *row_noise) {
  SF_ASSERT_LT(ordinal, expectations->count);
  struct sf_expected *e = &expectations->entries[ordinal];
  double squares = 0;
  for (int64_t r = 0; r < e->spec.shape.rows; r++) squares += row_noise[r] * row_noise[r];
  e->parts_noise = sqrt(squares);
  e->parts_row_noise = row_noise;
}

/* --- draws ---------------------------------------------------------------------------------------------------- */

/* Of the tensors that a perturbed run shows. */
static struct sf_expected *entry_of(struct sf_expectations *x, struct sf_trace_id id) {
  const struct sf_expected *e = sf_expectations_find(x, id);
  SF_ASSERT(e != NULL); /* perturbed runs show what the plain run shows */
  return &x->entries[e->ordinal];
}

/* Keeps only the largest distances of the perturbed run from the plain run, at the highest level until a lower one is complete. */
static void emit_draw(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  struct sf_expectations *x = ctx;
  struct sf_expected *e = entry_of(x, id);
  if (!e->is_drawn) return;
  const double distance = sf_row_diff_norms(x->row_scratch, values, e->x, shape.rows, shape.cols);
  e->noise[drawn] = sf_larger(e->noise[drawn], distance);
  double *row_noise = e->row_noise[drawn];
  for (int64_t r = 0; r < shape.rows; r++) row_noise[r] = sf_larger(row_noise[r], x->row_scratch[r]);
}

static void keep_level(struct sf_expected *e, enum sf_level level) {
  e->level = level;
  if (level == drawn) return;
  e->noise[level] = e->noise[drawn];
  memcpy(e->row_noise[level], e->row_noise[drawn], (size_t)e->spec.shape.rows * sizeof *e->row_noise[level]);
}

/* Makes one perturbed run of each kind; after the first round two that take sums otherwise, since chance decides which orders show much. */
static enum sf_status run_draws(struct sf_expectations *x, uint64_t round, const struct sf_wanted *wanted) {
  static const enum sf_perturb kinds[] = {SF_PERTURB_STORED, SF_PERTURB_SPLIT, SF_PERTURB_SPLIT};
  const uint64_t seed = (uint64_t)x->catalog->logical.seed;
  for (size_t k = 0; k < (round == 0 ? 2 : 3); k++) {
    const uint64_t draw = (sf_hash_u64(sf_hash_u64(seed, k + 2), round) & ~UINT64_C(1)) | (round & 1);
    const enum sf_summing sums = round % 2 == 0 ? SF_SUMS_MIXED : k == 1 ? SF_SUMS_IN_PARTS : SF_SUMS_TERM_BY_TERM;
    const struct sf_reference_options options = {.perturb = kinds[k], .draw = draw, .sums = sums, .wanted = wanted};
    const enum sf_status status = run_reference(x, options, emit_draw);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

/* Raises by one level those of the tensors that are at `level`. */
static enum sf_status raise_from(struct sf_expectations *x, enum sf_level level, const int32_t *ordinals, int32_t count) {
  struct sf_wanted wanted = {x->drawn_ids, 0};
  for (int32_t i = 0; i < x->count; i++) x->entries[i].is_drawn = false;
  for (int32_t i = 0; i < (ordinals != NULL ? count : x->count); i++) {
    struct sf_expected *e = &x->entries[ordinals != NULL ? ordinals[i] : i];
    if (e->level != level || !sf_kind_has_noise((enum sf_kind)e->id.kind)) continue;
    e->is_drawn = true;
    x->drawn_ids[wanted.count++] = e->id;
  }
  if (wanted.count == 0) return SF_OK;
  for (uint64_t round = rounds_of[level]; round < rounds_of[level + 1]; round++) {
    const enum sf_status status = run_draws(x, round, &wanted);
    if (status != SF_OK) return status;
  }
  for (int32_t i = 0; i < wanted.count; i++) keep_level(entry_of(x, x->drawn_ids[i]), (enum sf_level)(level + 1));
  return SF_OK;
}

enum sf_status sf_expectations_raise(struct sf_expectations *expectations, enum sf_level level, const int32_t *ordinals, int32_t count) {
  SF_ASSERT(level < SF_LEVEL_COUNT);
  SF_ASSERT_EQ(expectations->catalog->logical.mode, SF_MODE_ISOLATED);
  enum sf_status status = SF_OK;
  for (enum sf_level from = SF_LEVEL_NONE; from < level && status == SF_OK; from = (enum sf_level)(from + 1))
    status = raise_from(expectations, from, ordinals, count);
  run_arena_drop(expectations);
  return status;
}

static void emit_sizes(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  struct sf_expectations *x = ctx;
  struct sf_expected *e = entry_of(x, id);
  if (!sf_kind_has_noise((enum sf_kind)id.kind) || x->status != SF_OK) return;
  const size_t size_bytes = (size_t)(shape.rows * shape.cols) * sizeof *e->part_sizes;
  float *sizes = sf_arena_alloc(x->arena, size_bytes);
  if (sizes == NULL) {
    x->status = SF_ENOMEM;
    return;
  }
  memcpy(sizes, values, size_bytes);
  e->part_sizes = sizes;
}

enum sf_status sf_expectations_bound_parts(struct sf_expectations *expectations) {
  if (expectations->has_part_sizes) return SF_OK;
  const enum sf_status status = run_reference(expectations, (struct sf_reference_options){.perturb = SF_PERTURB_SIZES}, emit_sizes);
  run_arena_drop(expectations);
  expectations->has_part_sizes = status == SF_OK;
  return status;
}

/* --- suppositions ---------------------------------------------------------------------------------------------- */

struct wanted {
  struct sf_trace_id id;
  float *out;
};

static void emit_wanted(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  const struct wanted *wanted = ctx;
  if (sf_trace_key(id) == sf_trace_key(wanted->id)) memcpy(wanted->out, values, (size_t)(shape.rows * shape.cols) * sizeof(float));
}

/* Whether a tensor is as large in both catalogues, or is in neither. */
static bool is_same_size(const struct sf_catalog *a, const struct sf_catalog *b, struct sf_trace_id id) {
  struct sf_trace_spec of_a, of_b;
  const bool has = sf_trace_spec(&of_a, a, id);
  if (has != sf_trace_spec(&of_b, b, id)) return false;
  return !has || (of_a.shape.rows == of_b.shape.rows && of_a.shape.cols == of_b.shape.cols);
}

/* Whether trace points of one catalogue mean the same in the other, and are as large: given tensors take their place. */
static bool is_same_model(const struct sf_catalog *a, const struct sf_catalog *b) {
  if (a->module_count != b->module_count || a->param_count != b->param_count) return false;
  for (int32_t i = 0; i < a->module_count; i++)
    if (a->modules[i].cls != b->modules[i].cls || a->modules[i].layer != b->modules[i].layer ||
        !is_same_size(a, b, (struct sf_trace_id){.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = i}) ||
        !is_same_size(a, b, (struct sf_trace_id){.pass = SF_PASS_BWD, .kind = SF_KIND_ACT_GRAD, .subject = i}))
      return false;
  for (int32_t i = 0; i < a->param_count; i++)
    if (a->params[i].shape.rows != b->params[i].shape.rows || a->params[i].shape.cols != b->params[i].shape.cols) return false;
  return true;
}

enum sf_status sf_expectations_move_inner(struct sf_expectations *x, uint64_t draw, const struct sf_wanted *wanted,
                                          const struct sf_reference_sink *sink) {
  const uint64_t seed = (uint64_t)x->catalog->logical.seed;
  SF_ASSERT_EQ(x->catalog->logical.mode, SF_MODE_ISOLATED);
  const struct sf_reference_options options = {
      .perturb = SF_PERTURB_INNER, .draw = sf_hash_u64(sf_hash_u64(seed, 7), draw) & ~UINT64_C(1), .wanted = wanted};
  return run_case(x, x->catalog, options, sink);
}

enum sf_status sf_expectations_suppose(float *out, bool *is_same, struct sf_expectations *x, const struct sf_case *logical,
                                       const struct sf_supposed *supposed, struct sf_trace_id id) {
  struct wanted wanted = {id, out};
  const struct sf_reference_sink sink = {.ctx = &wanted, .emit = emit_wanted};
  const struct sf_reference_options options = {.supposed = supposed, .wanted = &(struct sf_wanted){&id, 1}};
  struct sf_catalog *other = NULL;
  SF_ASSERT_EQ(x->catalog->logical.mode, SF_MODE_ISOLATED);
  enum sf_status status = logical != NULL ? sf_catalog_create(&other, logical) : SF_OK;
  if (status != SF_OK) return status;
  const struct sf_catalog *catalog = other != NULL ? other : x->catalog;
  *is_same = is_same_model(catalog, x->catalog) && is_same_size(catalog, x->catalog, id);
  if (*is_same) status = run_case(x, catalog, options, &sink);
  sf_catalog_destroy(other);
  return status;
}

/* --- asking --------------------------------------------------------------------------------------------------- */

int64_t sf_expectations_runs(const struct sf_expectations *expectations) { return expectations->runs; }
int32_t sf_expectations_count(const struct sf_expectations *expectations) { return expectations->count; }
int32_t sf_expectations_overflow_step(const struct sf_expectations *expectations) { return expectations->overflow_step; }

const struct sf_catalog *sf_expectations_catalog(const struct sf_expectations *expectations) { return expectations->catalog; }

const struct sf_expected *sf_expectations_find(const struct sf_expectations *expectations, struct sf_trace_id id) {
  const uint64_t key = sf_trace_key(id);
  const uint64_t mask = expectations->table_mask;
  for (uint64_t at = sf_mix64(key) & mask; expectations->table[at].ordinal >= 0; at = (at + 1) & mask)
    if (expectations->table[at].key == key) return &expectations->entries[expectations->table[at].ordinal];
  return NULL;
}

const struct sf_expected *sf_expectations_at(const struct sf_expectations *expectations, int32_t ordinal) {
  SF_ASSERT_LE(0, ordinal);
  SF_ASSERT_LT(ordinal, expectations->count);
  return &expectations->entries[ordinal];
}

size_t sf_expectations_bytes(const struct sf_expectations *expectations) {
  return sizeof *expectations + sf_arena_peak_bytes(expectations->arena) + (size_t)expectations->capacity * sizeof *expectations->entries;
}
