#include "harness/check/noise.h"

#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/base/json.h"
#include "harness/check/blocks.h"
#include "harness/check/kernel.h"
#include "oracles/judge/judge.h"
#include "oracles/noise/norms.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FORMAT = 2, FORMAT_MIN = 1 };

/* --- reading ------------------------------------------------------------------------------------------------------ */

static enum sf_status read_metadata(struct sf_noise_file *noise, const char *path, struct sf_error *error) {
  const char *text = sf_st_meta(&noise->file.file, "shardfuzz"), *mode = NULL;
  json_int_t format = 0, draws = 0;
  double widening = 1;
  json_error_t where;
  json_t *root = NULL;
  const uint64_t failures = sf_alloc_failures();
  if (text != NULL && sf_json_read(&root, text, strlen(text), JSON_REJECT_DUPLICATES, &where) != SF_OK) root = NULL;
  const bool good =
      json_unpack(root, "{s:I, s:I, s?F, s?s}", "format", &format, "draws", &draws, "widening", &widening, "mode", &mode) == 0 &&
      draws >= 0;
  if (good) {
    noise->format = format;
    noise->draws = draws;
    noise->widening = widening;
    noise->has_mode = mode != NULL;
    noise->isolated = mode != NULL && strcmp(mode, "isolated") == 0;
  }
  json_decref(root);
  if (sf_alloc_failures() != failures) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  if (!good) return sf_error_set(error, SF_EINPUT, "%s: no metadata \"shardfuzz\" of a noise file; shardfuzz noise makes one", path);
  if (format < FORMAT_MIN || format > FORMAT)
    return sf_error_set(error, SF_EINPUT, "%s: format %lld; this program reads formats %d to %d", path, (long long)format, FORMAT_MIN,
                        FORMAT);
  return SF_OK;
}

static int64_t head_of(const struct sf_noise_file *noise) { return noise->format == 1 ? SF_NOISE_ALONG : SF_NOISE_ROWS; }

/* Reads numbers of a vector: norms, which may be infinite or NaN where the reference's values are. */
static enum sf_status read_norms(double *out, const struct sf_noise_file *noise, const struct sf_st_entry *vector, int64_t first,
                                 int64_t count, struct sf_error *error) {
  const enum sf_status status = sf_st_load(out, &noise->file, vector, first, count, error);
  for (int64_t i = 0; status == SF_OK && i < count; i++)
    if (out[i] < 0)
      return sf_error_set(error, SF_EINPUT, "%s: tensor \"%.160s\": a noise level is negative; make the file anew: shardfuzz noise",
                          noise->file.path, vector->name);
  return status;
}

enum sf_status sf_noise_head(double *out, const struct sf_noise_file *noise, const struct sf_st_entry *vector, struct sf_error *error) {
  out[SF_NOISE_ALONG] = 0;
  return read_norms(out, noise, vector, 0, head_of(noise), error);
}

enum sf_status sf_noise_rows(double *out, const struct sf_noise_file *noise, const struct sf_st_entry *vector, int64_t row, int64_t count,
                             struct sf_error *error) {
  return read_norms(out, noise, vector, head_of(noise) + row, count, error);
}

static enum sf_status fits(const struct sf_noise_file *noise, const char *path, const struct sf_trace_set *reference,
                           struct sf_error *error) {
  for (int32_t i = 0; i < reference->count; i++) {
    const struct sf_trace_tensor *tensor = &reference->tensors[i];
    const struct sf_st_entry *entry = sf_st_find(&noise->file.file, tensor->text);
    if (entry != NULL && entry->dtype == SF_F64 && entry->dim_count == 1 && entry->count == head_of(noise) + tensor->rows) continue;
    return sf_error_set(error, SF_EINPUT, "%s: is not of this reference (tensor \"%.120s\"); make it anew: shardfuzz noise %.60s DRAW...",
                        path, tensor->text, reference->path);
  }
  return SF_OK;
}

enum sf_status sf_noise_open(struct sf_noise_file *out, const char *path, const struct sf_trace_set *reference, struct sf_error *error) {
  struct sf_noise_file noise = {0};
  enum sf_status status = sf_st_open(&noise.file, path, error);
  if (status == SF_ENOTFOUND)
    return sf_error_set(error, SF_EINPUT, "%s: no such file; make it from perturbed runs: shardfuzz noise %.120s DRAW...", path,
                        reference->path);
  if (status != SF_OK) return status;
  status = read_metadata(&noise, path, error);
  if (status == SF_OK) status = fits(&noise, path, reference, error);
  if (status == SF_OK)
    *out = noise;
  else
    sf_noise_close(&noise);
  return status;
}

void sf_noise_close(struct sf_noise_file *noise) {
  if (noise != NULL) sf_st_close(&noise->file);
}

enum sf_status sf_reference_check(const struct sf_trace_set *reference, struct sf_error *error) {
  if (reference->ranks != 1)
    return sf_error_set(error, SF_EINPUT, "%s: has %d ranks; a reference is the trace of one device", reference->path, reference->ranks);
  char reason[SF_MISFIT_TEXT];
  for (int32_t i = 0; i < reference->count; i++) {
    if (!sf_tensor_fits(reason, &reference->tensors[i], &reference->tensors[i]))
      return sf_error_set(error, SF_EINPUT, "%s: tensor \"%.160s\": %s", reference->path, reference->tensors[i].text, reason);
  }
  return SF_OK;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

struct making {
  const struct sf_trace_set *reference, *draws;
  int32_t draw_count;
  uint64_t *seen; /* one hash of values for each run, until all differ; run 0 is the reference, run 1 + i is draw i */
  struct sf_new_file file;
  struct sf_st_open layout; /* where each vector lies in the file */
  struct sf_merger *of_reference, *of_rolled, **of_draws;
  double *wide[2], *rows, *draw_squares, *draw_along; /* rows: of one block; the others: of the tensor, by draw */
  struct sf_error *error;
  /* of the current tensor */
  const struct sf_trace_tensor *tensor;
  const struct sf_st_entry *vector;
  double squares, fourths, rolled_squares, row_squares, unit;
  double widening;   /* factor for measured distances, but not for floors */
  double *row_apart; /* of the current row, by draw */
};

/* Writes numbers [place, place + count) of the vector. */
static enum sf_status put(struct making *m, int64_t place, const double *numbers, int64_t count) {
  return sf_new_file_write(&m->file, numbers, (size_t)count * sizeof *numbers, m->vector->offset + place * (int64_t)sizeof *numbers,
                           m->error);
}

/* How far apart two blocks of perhaps different types are. */
static struct sf_apart apart_of(struct making *m, const void *a, enum sf_dtype a_type, const void *b, enum sf_dtype b_type, int64_t count) {
  if (a_type == b_type) return sf_apart(a, b, count, a_type);
  sf_widen(m->wide[0], a, count, a_type);
  sf_widen(m->wide[1], b, count, b_type);
  return sf_apart(m->wide[0], m->wide[1], count, SF_F64);
}

static void add_fourths(struct making *m, const void *x, int64_t count, enum sf_dtype dtype) {
  sf_widen(m->wide[0], x, count, dtype);
  for (int64_t i = 0; i < count; i++) m->wide[0][i] *= m->wide[0][i];
  m->fourths += sf_squares(m->wide[0], count, SF_F64);
}

/* Adds the distance of the reference from itself, rolled by `shift` elements; for a single number, its distance from zero. A block at the
 * beginning is compared in two parts. */
static enum sf_status add_rolled(struct making *m, const unsigned char *x, const struct sf_block *block) {
  const struct sf_trace_tensor *tensor = m->tensor;
  const enum sf_dtype dtype = sf_merger_dtype(m->of_reference);
  const int64_t shift = tensor->rows > 1 ? tensor->cols : 1;
  if (tensor->count == 1) {
    m->rolled_squares = sf_squares(x, 1, dtype);
    return SF_OK;
  }
  for (int64_t at = block->begin; at < block->end;) {
    const void *other;
    const int64_t from = at >= shift ? at - shift : at - shift + tensor->count;
    const int64_t to = at < shift && block->end > shift ? shift : block->end, count = to - at;
    const enum sf_status status = sf_merger_block(m->of_rolled, &other, from, from + count, m->error);
    if (status != SF_OK) return status;
    m->rolled_squares += sf_distance_squares(x + (size_t)(at - block->begin) * sf_dtype_wire_bytes(dtype), other, count, dtype);
    at = to;
  }
  return SF_OK;
}

static enum sf_status check_merged(struct making *m, const struct sf_trace_set *set, const struct sf_merger *merger) {
  const struct sf_merge_report report = sf_merger_report(merger);
  const bool may_differ = m->tensor->name.kind == SF_KIND_WGRAD;
  if (report.gap_count > 0)
    return sf_error_set(m->error, SF_EINPUT, "%s: tensor \"%.160s\": no rank holds element %" PRId64, set->path, m->tensor->text,
                        report.gap_first);
  if (report.conflict_count == 0 || may_differ) return SF_OK;
  return sf_error_set(m->error, SF_EINPUT, "%s: tensor \"%.160s\": ranks %d and %d differ in element %" PRId64, set->path, m->tensor->text,
                      report.conflict_holder, report.conflict_rank, report.conflict_first);
}

/* The lowest run with the same values so far. */
static int32_t first_like(const struct making *m, int32_t run) {
  int32_t first = 0;
  while (m->seen[first] != m->seen[run]) first++;
  return first;
}

/* Number of draws that add something: those that do not repeat another run. */
static int32_t distinct_draws(const struct making *m) {
  int32_t distinct = 0;
  for (int32_t run = 1; run <= m->draw_count; run++) distinct += first_like(m, run) == run;
  return distinct;
}

/* Adds a run's block to its hash, by value, because types may differ. */
static void see_block(struct making *m, int32_t run, const void *data, enum sf_dtype dtype, int64_t count) {
  sf_widen(m->wide[0], data, count, dtype);
  for (int64_t i = 0; i < count; i++) {
    uint64_t bits;
    memcpy(&bits, &m->wide[0][i], sizeof bits);
    m->seen[run] = sf_hash_u64(m->seen[run], bits);
  }
}

/* Handles one block: writes every row's w_r to its place in the file. */
static enum sf_status add_block(struct making *m, const struct sf_block *block) {
  const void *x, *d;
  const enum sf_dtype type = sf_merger_dtype(m->of_reference);
  const size_t width = sf_dtype_wire_bytes(type);
  enum sf_status status = sf_merger_block(m->of_reference, &x, block->begin, block->end, m->error);
  if (status == SF_OK) status = add_rolled(m, x, block);
  if (status != SF_OK) return status;
  const int64_t rows = sf_block_rows(block);
  const bool all_differ = distinct_draws(m) == m->draw_count;
  if (!all_differ) see_block(m, 0, x, type, block->end - block->begin);
  if (block->first_part) m->row_squares = 0;
  add_fourths(m, x, block->end - block->begin, type);
  for (int64_t r = 0; r < rows; r++) {
    const double squares = sf_squares((const unsigned char *)x + (size_t)(r * block->row_length) * width, block->row_length, type);
    m->row_squares = block->parts ? m->row_squares + squares : squares;
    m->squares += squares;
    m->rows[r] = m->unit * sqrt(m->row_squares);
  }
  for (int32_t i = 0; i < m->draw_count; i++) {
    const enum sf_dtype draw_type = sf_merger_dtype(m->of_draws[i]);
    const size_t draw_width = sf_dtype_wire_bytes(draw_type);
    status = sf_merger_block(m->of_draws[i], &d, block->begin, block->end, m->error);
    if (status != SF_OK) return status;
    if (!all_differ) see_block(m, 1 + i, d, draw_type, block->end - block->begin);
    if (block->first_part) m->row_apart[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
      const int64_t at = r * block->row_length;
      const struct sf_apart apart = apart_of(m, (const unsigned char *)d + (size_t)at * draw_width, draw_type,
                                             (const unsigned char *)x + (size_t)at * width, type, block->row_length);
      /* A draw that rounding drove to infinity says that the tensor has no noise level. */
      const bool finite = isfinite(apart.squares);
      const double squares = finite ? apart.squares : INFINITY;
      m->row_apart[i] = block->parts ? m->row_apart[i] + squares : squares;
      m->draw_squares[i] += squares;
      m->draw_along[i] += finite ? apart.along : INFINITY;
      m->rows[r] = sf_larger(m->rows[r], m->widening * sqrt(m->row_apart[i]));
    }
  }
  return block->last_part ? put(m, SF_NOISE_ROWS + block->row, m->rows, rows) : SF_OK;
}

/* Whether rounding can make single rows jump. Adam moves an element by nearly the same amount however small its gradient is. Rounding may
 * turn the sign of a gradient near zero, and then the change of that row jumps. In another run it may be another row. */
static bool jumps(const struct sf_trace_tensor *tensor) {
  return tensor->name.kind == SF_KIND_PARAM_DELTA || tensor->name.kind == SF_KIND_PARAM;
}

/* Turns the w_r in the file into e_r. */
static enum sf_status finish_rows(struct making *m) {
  const int64_t rows = m->tensor->rows;
  const double least = m->unit * sqrt(m->squares) / sqrt((double)(rows > 0 ? rows : 1));
  double squares = 0, largest = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t at = 0; at < rows; at += SF_BLOCK_ELEMENTS) {
      const int64_t count = rows - at < SF_BLOCK_ELEMENTS ? rows - at : SF_BLOCK_ELEMENTS;
      enum sf_status status = sf_st_load(m->rows, &m->layout, m->vector, SF_NOISE_ROWS + at, count, m->error);
      if (status != SF_OK) return status;
      if (pass == 0) {
        squares += sf_squares(m->rows, count, SF_F64);
        for (int64_t r = 0; r < count; r++) largest = sf_larger(largest, m->rows[r]);
        continue;
      }
      const double others = jumps(m->tensor) ? largest : 0.5 * sqrt(squares / (double)rows);
      for (int64_t r = 0; r < count; r++) m->rows[r] = sf_larger(m->rows[r] + others, least);
      status = put(m, SF_NOISE_ROWS + at, m->rows, count);
      if (status != SF_OK) return status;
    }
  }
  return SF_OK;
}

static enum sf_status begin_tensor(struct making *m, const struct sf_trace_tensor *tensor) {
  char reason[SF_MISFIT_TEXT];
  m->tensor = tensor;
  m->vector = sf_st_find(&m->layout.file, tensor->text);
  m->squares = m->fourths = m->rolled_squares = m->row_squares = 0;
  m->unit = sf_dtype_unit_roundoff(tensor->dtype);
  if (m->reference->anchored && tensor->dtype == SF_F32) m->unit *= sf_factors.sum_ulps;
  enum sf_status status = sf_merger_begin(m->of_reference, m->reference, tensor, m->error);
  if (status == SF_OK) status = sf_merger_begin(m->of_rolled, m->reference, tensor, m->error);
  for (int32_t i = 0; status == SF_OK && i < m->draw_count; i++) {
    const struct sf_trace_tensor *draw = sf_trace_set_find(&m->draws[i], tensor->text);
    m->draw_squares[i] = m->draw_along[i] = m->row_apart[i] = 0;
    if (draw == NULL)
      return sf_error_set(m->error, SF_EINPUT, "%s: lacks tensor \"%.160s\" of the reference", m->draws[i].path, tensor->text);
    if (!sf_tensor_fits(reason, draw, tensor))
      return sf_error_set(m->error, SF_EINPUT, "%s: tensor \"%.160s\": %s", m->draws[i].path, tensor->text, reason);
    status = sf_merger_begin(m->of_draws[i], &m->draws[i], draw, m->error);
  }
  return status;
}

static enum sf_status make_tensor(struct making *m, const struct sf_trace_tensor *tensor) {
  struct sf_block block;
  enum sf_status status = begin_tensor(m, tensor);
  for (bool more = sf_block_first(&block, tensor); status == SF_OK && more; more = sf_block_next(&block, tensor))
    status = add_block(m, &block);
  if (status == SF_OK) status = check_merged(m, m->reference, m->of_reference);
  if (status == SF_OK) status = finish_rows(m);
  double head[SF_NOISE_ROWS] = {[SF_NOISE_NORM] = sqrt(m->squares), [SF_NOISE_ROLLED] = sqrt(m->rolled_squares)};
  double along = 0;
  head[SF_NOISE_LEVEL] = m->unit * head[SF_NOISE_NORM];
  for (int32_t i = 0; status == SF_OK && i < m->draw_count; i++) {
    status = check_merged(m, &m->draws[i], m->of_draws[i]);
    const double apart = sqrt(m->draw_squares[i]);
    head[SF_NOISE_LEVEL] = sf_larger(head[SF_NOISE_LEVEL], m->widening * apart);
    if (m->squares > 0) along = sf_larger(along, m->widening * fabs(m->draw_along[i]) / head[SF_NOISE_NORM]);
  }
  /* Noise that knows nothing of the tensor lies along it by this share. */
  if (m->squares > 0) head[SF_NOISE_ALONG] = sf_larger(along, head[SF_NOISE_LEVEL] * sqrt(m->fourths) / m->squares);
  return status == SF_OK ? put(m, 0, head, SF_NOISE_ROWS) : status;
}

static enum sf_status check_alike(struct making *m, int32_t distinct_min) {
  if (distinct_draws(m) >= distinct_min) return SF_OK;
  int32_t i = 1;
  while (first_like(m, i) == i) i++;
  const int32_t other = first_like(m, i);
  return sf_error_set(m->error, SF_EINPUT,
                      "%.160s: has the same values as %s %.160s in every tensor; each draw must be perturbed, and by numbers of its own",
                      m->draws[i - 1].path, other == 0 ? "the reference" : "draw",
                      other == 0 ? m->reference->path : m->draws[other - 1].path);
}

static enum sf_status lay_out(struct making *m, const char *path) {
  struct sf_st_writer *writer = NULL;
  char meta[128];
  const struct sf_trace_set *measured = m->draw_count > 0 ? &m->draws[0] : m->reference;
  enum sf_status status = sf_st_writer_create(&writer);
  for (int32_t i = 0; status == SF_OK && i < m->reference->count; i++) {
    const int64_t count = SF_NOISE_ROWS + m->reference->tensors[i].rows;
    status = sf_st_writer_declare(writer, m->reference->tensors[i].text, SF_F64, &count, 1);
  }
  snprintf(meta, sizeof meta, "{\"format\": %d, \"draws\": %d, \"widening\": %.4g, \"mode\": \"%s\"}", FORMAT, m->draw_count, m->widening,
           sf_trace_set_mode(measured));
  if (status == SF_OK) status = sf_st_writer_meta(writer, "shardfuzz", meta);
  status = sf_st_writer_lay_out(writer, status, &m->file, &m->layout, path, m->error);
  sf_st_writer_destroy(writer);
  return status;
}

static enum sf_status prepare(struct making *m) {
  enum sf_status status = SF_OK;
  const size_t draws = (size_t)m->draw_count + 1;
  m->of_draws = sf_alloc(draws * sizeof(struct sf_merger *));
  m->draw_squares = sf_alloc(draws * sizeof *m->draw_squares);
  m->draw_along = sf_alloc(draws * sizeof *m->draw_along);
  m->row_apart = sf_alloc(draws * sizeof *m->row_apart);
  m->seen = sf_alloc((draws + 1) * sizeof *m->seen);
  m->rows = sf_alloc(SF_BLOCK_ELEMENTS * sizeof *m->rows);
  for (int i = 0; i < 2; i++) m->wide[i] = sf_alloc(SF_BLOCK_ELEMENTS * sizeof *m->wide[i]);
  if (!m->of_draws || !m->draw_squares || !m->draw_along || !m->row_apart || !m->seen || !m->rows || !m->wide[0] || !m->wide[1])
    status = SF_ENOMEM;
  if (status == SF_OK) status = sf_merger_create(&m->of_reference);
  if (status == SF_OK) status = sf_merger_create(&m->of_rolled);
  for (int32_t i = 0; status == SF_OK && i < m->draw_count; i++) status = sf_merger_create(&m->of_draws[i]);
  return status == SF_OK ? SF_OK : sf_error_set(m->error, status, "%s: %s", m->reference->path, sf_status_text(status));
}

static void clean_up(struct making *m) {
  sf_merger_destroy(m->of_reference);
  sf_merger_destroy(m->of_rolled);
  for (int32_t i = 0; m->of_draws != NULL && i < m->draw_count; i++) sf_merger_destroy(m->of_draws[i]);
  sf_free(m->of_draws);
  sf_free(m->draw_squares);
  sf_free(m->draw_along);
  sf_free(m->row_apart);
  sf_free(m->seen);
  sf_free(m->rows);
  sf_free(m->wide[0]);
  sf_free(m->wide[1]);
  sf_st_close(&m->layout);
  sf_new_file_abandon(&m->file);
}

enum sf_status sf_noise_make(const char *path, const struct sf_trace_set *reference, const struct sf_noise_draws *draws,
                             struct sf_error *error) {
  const struct sf_trace_set *sets = draws->sets;
  struct making m = {.reference = reference, .draws = sets, .draw_count = draws->count, .error = error, .file = {.descriptor = -1}};
  enum sf_status status = SF_OK;
  m.widening = draws->first || draws->count == 0 ? 1 : sf_draws_widening(draws->count);
  for (int32_t i = 0; i < draws->count; i++)
    if (sets[i].isolated != sets[0].isolated || sets[i].anchored != reference->anchored)
      return sf_error_set(error, SF_EINPUT, "%s: mode is \"%s\", unlike %s's", sets[i].path, sf_trace_set_mode(&sets[i]),
                          sets[i].isolated != sets[0].isolated ? sets[0].path : reference->path);
  status = prepare(&m);
  if (status == SF_OK) status = lay_out(&m, path);
  for (int32_t i = 0; status == SF_OK && i < reference->count; i++) status = make_tensor(&m, &reference->tensors[i]);
  if (status == SF_OK) status = check_alike(&m, draws->distinct_min);
  if (status == SF_OK && draws->distinct) *draws->distinct = distinct_draws(&m);
  if (status == SF_OK) status = sf_new_file_commit(&m.file, error);
  clean_up(&m);
  return status;
}
