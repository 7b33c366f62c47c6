/* Suppositions about what a module reads: inputs and gradients in another order, or rounded, and weights that are other ones. */
#include "oracles/diagnose/diagnose_supposing.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A tensor that is read, and room for what is read in its place. */
struct reading {
  const struct sf_supposing *s;
  const float *x;
  float *out;
  struct sf_shape shape;
  struct sf_supposed supposed; /* with out as values or weight */
  const char *what;            /* "the output of mlp.router" */
};

/* Runs the reference with reading->out. how: "came one position late", %s stands for the axes. */
static void suppose_out(const struct reading *reading, enum sf_diagnosis_class cls, const char *cause, const char *how, const char *axes) {
  struct sf_wording wording = {.cls = cls, .cause = cause};
  char text[96];
  if (memcmp(reading->out, reading->x, (size_t)(reading->shape.rows * reading->shape.cols) * sizeof *reading->x) == 0) return;
  snprintf(text, sizeof text, how, axes);
  snprintf(wording.name, sizeof wording.name, "%.60s %.64s", reading->what, text);
  sf_suppose(reading->s, NULL, &reading->supposed, &wording);
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

/* out's line i is x's line of[i]. */
static void order_rows(const struct reading *reading, const int64_t *of) {
  const int64_t cols = reading->shape.cols;
  for (int64_t r = 0; r < reading->shape.rows; r++)
    memcpy(reading->out + r * cols, reading->x + of[r] * cols, (size_t)cols * sizeof *reading->out);
}
static void order_cols(const struct reading *reading, const int64_t *of) {
  for (int64_t r = 0; r < reading->shape.rows; r++)
    for (int64_t c = 0; c < reading->shape.cols; c++)
      reading->out[r * reading->shape.cols + c] = reading->x[r * reading->shape.cols + of[c]];
}

/* Blocks that lie as [a x b] are read as [b x a], each of `size` lines. */
static void exchange_blocks(int64_t *of, int64_t a, int64_t b, int64_t size) {
  for (int64_t i = 0; i < a; i++)
    for (int64_t j = 0; j < b; j++)
      for (int64_t k = 0; k < size; k++) of[(j * a + i) * size + k] = (i * b + j) * size + k;
}

/* Parts that lie as [part x position in it] in the order of their ranks: of[i] is the line that stands i-th there. */
static void in_order_of_parts(int64_t *of, const struct sf_parts *parts, int64_t size, int64_t batch) {
  for (int64_t at = 0; at < size; at++)
    for (int64_t n = 0; n < batch; n++) {
      const int64_t i = parts->of[at] * (size / parts->count) + parts->local[at];
      of[i * batch + n] = at * batch + n;
    }
}

static void invert(int64_t *out, const int64_t *of, int64_t count) {
  for (int64_t i = 0; i < count; i++) out[of[i]] = i;
}

/* Each part has the lines of part `from`: of the next one, or of the first one. */
static void of_another_part(int64_t *of, const int64_t *by_parts, int64_t count, int64_t parts, bool next) {
  const int64_t each = count / parts;
  for (int64_t i = 0; i < count; i++) of[by_parts[i]] = by_parts[next ? (i + each) % count : i % each];
}

static void suppose_parts_of_rows(const struct reading *reading, const struct sf_parts *parts, int64_t *of, int64_t *by_parts) {
  const int64_t seq = reading->s->c->model.seq, rows = reading->shape.rows;
  in_order_of_parts(by_parts, parts, seq, rows / seq);
  order_rows(reading, by_parts);
  suppose_out(reading, SF_DIAGNOSIS_PERMUTED, "rows in the order of ranks", "came in the order of the ranks of %s", parts->axes);
  invert(of, by_parts, rows);
  order_rows(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_PERMUTED, "rows in the order of ranks", "came cut for %s as if its ranks had consecutive tokens",
              parts->axes);
  of_another_part(of, by_parts, rows, parts->count, true);
  order_rows(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_PERMUTED, "rows of the next rank", "came from the next rank of %s", parts->axes);
  of_another_part(of, by_parts, rows, parts->count, false);
  order_rows(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_NEIGHBOUR, "rows of the first rank", "came from the first rank of %s", parts->axes);
}

/* Zeros for the rows of all positions and sequences but those from the first to the last. */
static void suppose_kept_rows(const struct reading *reading, int64_t first, int64_t last, int64_t first_sequence, int64_t last_sequence,
                              const char *how) {
  const int64_t cols = reading->shape.cols, b = reading->s->c->train.microbatch_size;
  for (int64_t r = 0; r < reading->shape.rows; r++) {
    const int64_t position = r / b, sequence = r % b;
    const bool kept = position >= first && position <= last && sequence >= first_sequence && sequence <= last_sequence;
    for (int64_t k = 0; k < cols; k++) reading->out[r * cols + k] = kept ? reading->x[r * cols + k] : 0;
  }
  suppose_out(reading, SF_DIAGNOSIS_MISSING_TERM, "rows left out", how, "");
}

enum { FIRST_VARIANT = 10000 };

/* Each rank sums over the rows of one rank alone: of the one so many behind it. */
static void suppose_rows_of_each(const struct reading *reading, const struct sf_parts *parts, int32_t first_variant) {
  const struct sf_related_list *list = reading->s->list;
  const int64_t cols = reading->shape.cols, b = reading->s->c->train.microbatch_size;
  for (int32_t offset = 0; offset < parts->count; offset++)
    for (int32_t part = 0; part < parts->count; part++) {
      struct sf_wording wording = {.cls = SF_DIAGNOSIS_MISSING_TERM, .cause = "rows of one rank alone", .variant = first_variant + offset};
      for (int64_t i = 0; i < reading->shape.rows * cols; i++)
        reading->out[i] = parts->of[i / cols / b] == (part + offset) % parts->count ? reading->x[i] : 0;
      if (offset == 0)
        snprintf(wording.name, sizeof wording.name, "the values are sums over the tokens of the rank's own part of %s alone", parts->axes);
      else
        snprintf(wording.name, sizeof wording.name, "the values are sums over the tokens of the part of %s %d behind the rank's alone",
                 parts->axes, offset);
      for (wording.rank = 0; wording.rank < list->collector->world; wording.rank++)
        if (sf_part_of_rank(parts, list, wording.rank) == part) sf_suppose(reading->s, NULL, &reading->supposed, &wording);
    }
}

static void suppose_left_out_rows(const struct reading *reading) {
  enum { SEQ_MIN = 4 }; /* of fewer positions a half is one position */
  const int64_t seq = reading->s->c->model.seq, b = reading->s->c->train.microbatch_size, end = seq - 1, all = b - 1;
  if (seq < SEQ_MIN) return;
  suppose_kept_rows(reading, 1, end, 0, all, "came without its first position%s");
  suppose_kept_rows(reading, 0, end - 1, 0, all, "came without its last position%s");
  suppose_kept_rows(reading, 0, seq / 2 - 1, 0, all, "came without its second half%s");
  suppose_kept_rows(reading, seq / 2, end, 0, all, "came without its first half%s");
  if (b == 1) return;
  suppose_kept_rows(reading, 0, end, 0, 0, "came without all sequences but the first%s");
  suppose_kept_rows(reading, 0, end, all, all, "came without all sequences but the last%s");
}

/* Rows are tokens, position by position. */
static void suppose_rows(const struct reading *reading) {
  const struct sf_case *c = reading->s->c;
  const int64_t rows = reading->shape.rows, b = c->train.microbatch_size, seq = c->model.seq;
  if (rows != b * seq) return;
  int64_t *of = sf_related_alloc(reading->s->list, (size_t)(2 * rows) * sizeof *of);
  struct sf_parts ways[SF_WAYS_MAX];
  if (of == NULL) return;
  const int32_t count = sf_parts_of_tokens(ways, reading->s->list);
  for (int32_t i = 0; i < count; i++) suppose_parts_of_rows(reading, &ways[i], of, of + rows);
  for (int64_t i = 0; i < rows; i++) of[i] = (i + b) % rows;
  order_rows(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_SHIFTED, "rows of the next position", "came one position ahead%s", "");
  for (int64_t i = 0; i < rows; i++) of[i] = (i + rows - b) % rows;
  order_rows(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_SHIFTED, "rows of the position before", "came one position behind%s", "");
  exchange_blocks(of, seq, b, 1);
  order_rows(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_PERMUTED, "rows by sequence", "came sequence by sequence, not position by position%s", "");
  exchange_blocks(of, b, seq, 1);
  order_rows(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_PERMUTED, "rows by sequence", "came from rows that lie sequence by sequence%s", "");
  const struct sf_expected *own = reading->s->slot->expected;
  const enum sf_module_class cls = reading->s->list->collector->catalog->modules[own->spec.module].cls;
  if (own->id.kind == SF_KIND_WGRAD && !sf_module_is(cls, SF_TRAIT_EMBEDDING)) { /* sums over all rows, not over those of a word */
    suppose_left_out_rows(reading);
    for (int32_t i = 0; i < count; i++) suppose_rows_of_each(reading, &ways[i], FIRST_VARIANT * (i + 1));
  }
}

/* Columns in halves, in pairs, in thirds of heads, and of another rank. */
static void suppose_cols(const struct reading *reading, enum sf_cut cut) {
  const struct sf_model *m = &reading->s->c->model;
  const int64_t cols = reading->shape.cols, tp = reading->s->list->of->c.layout.tp, d = m->head_dim;
  int64_t *of = sf_related_alloc(reading->s->list, (size_t)cols * sizeof *of);
  if (of == NULL) return;
  static const char ORDER[] = "columns in another order";
  for (int64_t i = 0; i < cols && cols % 2 == 0; i++) of[i] = (i + cols / 2) % cols;
  if (cols % 2 == 0) order_cols(reading, of), suppose_out(reading, SF_DIAGNOSIS_FUSED_ORDER, ORDER, "had its halves exchanged%s", "");
  for (int64_t parts = 2; parts <= 3; parts++) {
    const int64_t size = cols == parts * m->heads * d ? d : 1;
    if (cols % (parts * size) != 0 || cols == parts * size) continue;
    exchange_blocks(of, cols / parts / size, parts, size);
    order_cols(reading, of);
    suppose_out(
        reading, SF_DIAGNOSIS_FUSED_ORDER, ORDER,
        parts == 2 ? "was read half by half, where its halves alternate%s" : "was read third by third, where its thirds alternate%s", "");
    exchange_blocks(of, parts, cols / parts / size, size);
    order_cols(reading, of);
    suppose_out(reading, SF_DIAGNOSIS_FUSED_ORDER, ORDER,
                parts == 2 ? "was read as alternating halves, which lie one behind the other%s"
                           : "was read as alternating thirds, which lie one behind the other%s",
                "");
  }
  const int64_t shared = m->kv_lora_rank > 0 && cols == m->kv_lora_rank + m->qk_rope_dim ? m->qk_rope_dim : 0;
  for (int64_t i = 0; i < cols; i++) of[i] = i < cols - shared ? i : i - (cols - shared);
  order_cols(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_SHIFTED, ORDER, "had its first columns in place of the shared key%s", "");
  if (cut != SF_CUT_EVEN || tp == 1 || cols % tp != 0) return;
  for (int64_t i = 0; i < cols; i++) of[i] = (i + cols / tp) % cols;
  order_cols(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_PERMUTED, "columns of the next rank", "had the columns of the next rank of %s", "tp");
  for (int64_t i = 0; i < cols; i++) of[i] = i % (cols / tp);
  order_cols(reading, of);
  suppose_out(reading, SF_DIAGNOSIS_NEIGHBOUR, "columns of the first rank", "had the columns of the first rank of %s", "tp");
}

static void suppose_rounded(const struct reading *reading) {
  memcpy(reading->out, reading->x, (size_t)(reading->shape.rows * reading->shape.cols) * sizeof *reading->x);
  sf_round_array(reading->out, reading->shape.rows * reading->shape.cols, SF_BF16);
  suppose_out(reading, SF_DIAGNOSIS_LOW_PRECISION, "rounded to bf16", "were rounded to bf16%s", "");
}

/* --- factors ------------------------------------------------------------------------------------------------------ */

/* A supposition with a factor: of an input, or of attention's scores. */
struct factored {
  const struct sf_supposing *s;
  const struct reading *reading; /* NULL: scores */
};

/* For the next run, which borrows reading->out. */
static struct sf_supposed times_of(const struct factored *f, double times) {
  if (f->reading == NULL) return (struct sf_supposed){.score_times = times};
  const struct sf_shape shape = f->reading->shape;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) f->reading->out[i] = (float)(times * (double)f->reading->x[i]);
  return f->reading->supposed;
}

/* What the reference makes with the factor; NULL: no memory. */
static const float *made_of(const struct factored *f, double times) {
  const struct sf_expected *e = f->s->slot->expected;
  const struct sf_supposed supposed = times_of(f, times);
  bool is_same = false;
  float *x = sf_related_alloc(f->s->list, (size_t)(e->spec.shape.rows * e->spec.shape.cols) * sizeof *x);
  if (x == NULL) return NULL;
  f->s->list->status = sf_expectations_suppose(x, &is_same, f->s->expectations, NULL, &supposed, e->id);
  return f->s->list->status == SF_OK ? x : NULL;
}

/* By Newton's method on the distance to what the candidate has. False: the tensor does not depend on the factor, or there is none. */
static bool fit_factor(double *times, const struct factored *f) {
  enum { STEPS = 8, ELEMENTS_MIN = 8 };
  static const double AHEAD = 0.0625, NEAR = 1e-7, CHANGE_MIN = 1e-3;
  const struct sf_slot *slot = f->s->slot;
  const int64_t count = slot->expected->spec.shape.rows * slot->expected->spec.shape.cols;
  *times = 1;
  if (!sf_slot_is_whole(slot) || count < ELEMENTS_MIN) return false;
  for (int step = 0; step < STEPS; step++) {
    const float *here = made_of(f, *times), *ahead = here != NULL ? made_of(f, *times * (1 + AHEAD)) : NULL;
    double dot = 0, squares = 0;
    for (int64_t i = 0; ahead != NULL && i < count; i++) {
      const double slope = ((double)ahead[i] - (double)here[i]) / (*times * AHEAD);
      dot += slope * ((double)slot->merged[i] - (double)here[i]);
      squares += slope * slope;
    }
    if (!(squares > 0) || !isfinite(dot / squares)) return false;
    const double by = dot / squares, most = fabs(*times) / 2;
    *times += by > most ? most : by < -most ? -most : by;
    if (fabs(by) < NEAR * fabs(*times)) break;
  }
  return fabs(*times - 1) >= CHANGE_MIN;
}

static void suppose_factor(const struct factored *f, const char *what) {
  struct sf_wording wording = {.cls = SF_DIAGNOSIS_SCALE, .cause = "an input times a number"};
  if (!fit_factor(&wording.factor, f)) return;
  const struct sf_supposed supposed = times_of(f, wording.factor);
  snprintf(wording.name, sizeof wording.name, "%.60s were scaled by", what);
  sf_suppose(f->s, NULL, &supposed, &wording);
}

void sf_suppose_score_scale(const struct sf_supposing *s) { suppose_factor(&(struct factored){s, NULL}, "the scores of attention"); }

/* --- inputs -------------------------------------------------------------------------------------------------------- */

void sf_suppose_reading(const struct sf_supposing *s, int32_t module, struct sf_trace_id id, const char *what) {
  const struct sf_expected *read = sf_expectations_find(s->list->collector->expectations, id);
  const struct sf_module *m = &s->list->collector->catalog->modules[module];
  struct reading reading = {.s = s, .what = what};
  if (read == NULL) return;
  reading.shape = read->spec.shape;
  reading.x = sf_related_value(s->list, (enum sf_kind)id.kind, id, m->cls, m->layer);
  reading.out = sf_related_alloc(s->list, (size_t)(reading.shape.rows * reading.shape.cols) * sizeof *reading.out);
  reading.supposed = (struct sf_supposed){.reads = true,
                                          .kind = (enum sf_kind)id.kind,
                                          .module = module,
                                          .from = module,
                                          .values = reading.out,
                                          .step = id.step,
                                          .microbatch = id.microbatch};
  if (reading.x == NULL || reading.out == NULL) return;
  suppose_rows(&reading);
  suppose_cols(&reading, read->spec.col_cut);
  suppose_rounded(&reading);
  suppose_factor(&(struct factored){s, &reading}, what);
}

/* --- weights ------------------------------------------------------------------------------------------------------- */

static void suppose_fill(const struct reading *reading, float value, float times, enum sf_diagnosis_class cls, const char *cause,
                         const char *how) {
  for (int64_t i = 0; i < reading->shape.rows * reading->shape.cols; i++) reading->out[i] = value + times * reading->x[i];
  suppose_out(reading, cls, cause, how, "");
}

/* Equal parts along the rows, or along the columns of a vector. */
static void suppose_parts_of_weight(const struct reading *reading, int64_t parts, const char *axes) {
  const int64_t count = reading->shape.rows * reading->shape.cols, size = parts > 0 ? count / parts : 0;
  const int64_t lines = reading->shape.rows == 1 ? reading->shape.cols : reading->shape.rows;
  if (parts < 2 || lines % parts != 0) return;
  for (int64_t i = 0; i < count; i++) reading->out[i] = reading->x[i % size];
  suppose_out(reading, SF_DIAGNOSIS_NEIGHBOUR, "a weight of the first rank", "were on each rank of %s what the first one has", axes);
  for (int64_t i = 0; i < count; i++) reading->out[i] = reading->x[(i + size) % count];
  suppose_out(reading, SF_DIAGNOSIS_PERMUTED, "a weight of the next rank", "were on each rank of %s what the next one has", axes);
}

/* The same parameter of other layers. */
static void suppose_other_layers(const struct reading *reading, int32_t param) {
  const struct sf_catalog *catalog = reading->s->list->collector->catalog;
  const struct sf_module *own = &catalog->modules[catalog->params[param].module];
  const int64_t count = reading->shape.rows * reading->shape.cols;
  for (int32_t i = 0; i < catalog->param_count; i++) {
    const struct sf_param *other = &catalog->params[i];
    const struct sf_module *module = &catalog->modules[other->module];
    if (i == param || module->cls != own->cls || other->shape.rows != reading->shape.rows || other->shape.cols != reading->shape.cols)
      continue;
    const float *x = sf_related_weight(reading->s->list, i, reading->s->slot->expected->id.step);
    if (x == NULL) continue;
    memcpy(reading->out, x, (size_t)count * sizeof *x);
    char how[64];
    snprintf(how, sizeof how, "were that of layer %d%%s", module->layer);
    suppose_out(reading, SF_DIAGNOSIS_SHIFTED, "another layer's weight",
                module->layer == own->layer ? "were the module's other one%s" : how, "");
  }
}

static void suppose_transposed(const struct reading *reading) {
  const int64_t n = reading->shape.rows;
  if (n == 1 || n != reading->shape.cols) return;
  for (int64_t i = 0; i < n * n; i++) reading->out[i] = reading->x[i % n * n + i / n];
  suppose_out(reading, SF_DIAGNOSIS_TRANSPOSED, "a transposed weight", "were transposed%s", "");
}

static void suppose_halves(const struct reading *reading) {
  const int64_t rows = reading->shape.rows, cols = reading->shape.cols;
  for (int64_t i = 0; i < rows * cols; i++) reading->out[i] = reading->x[(i + rows * cols / 2) % (rows * cols)];
  if (rows % 2 == 0) suppose_out(reading, SF_DIAGNOSIS_FUSED_ORDER, "halves of a weight", "had the halves of its rows exchanged%s", "");
  for (int64_t i = 0; i < rows * cols; i++) reading->out[i] = reading->x[i / cols * cols + (i % cols + cols / 2) % cols];
  if (cols % 2 == 0) suppose_out(reading, SF_DIAGNOSIS_FUSED_ORDER, "halves of a weight", "had the halves of its columns exchanged%s", "");
}

/* Without the layer: "mlp.linear_fc1.weight". */
static const char *short_name(const struct sf_param *param) {
  static const char LAYERS[] = "layers.";
  const char *layers = strstr(param->name, LAYERS);
  const char *dot = layers != NULL ? strchr(layers + sizeof LAYERS - 1, '.') : NULL;
  return dot != NULL ? dot + 1 : param->name;
}

static void suppose_weight(const struct sf_supposing *s, int32_t param) {
  const struct sf_catalog *catalog = s->list->collector->catalog;
  const struct sf_param *p = &catalog->params[param];
  const struct sf_layout *l = &s->list->of->c.layout;
  struct reading reading = {.s = s, .shape = p->shape, .what = short_name(p)};
  const int64_t count = p->shape.rows * p->shape.cols;
  reading.x = sf_related_weight(s->list, param, s->slot->expected->id.step);
  reading.out = sf_related_alloc(s->list, (size_t)count * sizeof *reading.out);
  reading.supposed = (struct sf_supposed){.weight = reading.out, .param = param};
  if (reading.x == NULL || reading.out == NULL) return;
  if (p->shape.rows == 1) {
    suppose_fill(&reading, 0, 0, SF_DIAGNOSIS_MISSING_TERM, "a weight of zeros", "were 0%s");
    suppose_fill(&reading, 1, 0, SF_DIAGNOSIS_MISSING_TERM, "a weight of ones", "were 1%s");
    suppose_fill(&reading, 1, 1, SF_DIAGNOSIS_OFFSET, "a weight plus 1", "were 1 larger%s");
    suppose_fill(&reading, -1, 1, SF_DIAGNOSIS_OFFSET, "a weight minus 1", "were 1 smaller%s");
  }
  suppose_fill(&reading, 0, 2, SF_DIAGNOSIS_REPEATED_TERM, "a weight taken twice", "were twice as large%s");
  suppose_parts_of_weight(&reading, l->tp, "tp");
  suppose_parts_of_weight(&reading, l->cp, "cp");
  suppose_parts_of_weight(&reading, l->tp * l->cp, "tp x cp");
  suppose_other_layers(&reading, param);
  suppose_transposed(&reading);
  suppose_halves(&reading);
  suppose_rounded(&reading);
}

void sf_suppose_weights(const struct sf_supposing *s) {
  const struct sf_catalog *catalog = s->list->collector->catalog;
  for (int32_t i = 0; i < catalog->param_count; i++)
    if (catalog->params[i].module == s->slot->expected->spec.module) suppose_weight(s, i);
}
