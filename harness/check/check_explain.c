/* The diagnosis's view of a culprit's tensor, made from the traces: its reference, the ranks' pieces, their groups, and the tensors that
 * may have replaced it. */
#include "harness/check/check_window.h"

#include "harness/check/kernel.h"
#include "oracles/noise/norms.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ARENA_BLOCK_BYTES = 1 << 18, ELEMENTS_MAX = 1 << 18 };

/* --- values ------------------------------------------------------------------------------------------------------ */

enum sf_status sf_window_load(float *out, struct sf_window *window, const struct sf_trace_set *set, const struct sf_trace_tensor *tensor) {
  struct sf_checking *checking = window->checking;
  struct sf_merger *merger = checking->of_candidate;
  enum sf_status status = sf_merger_begin(merger, set, tensor, checking->error);
  for (int64_t at = window->begin; at < window->end && status == SF_OK; at += SF_BLOCK_ELEMENTS) {
    const int64_t end = window->end - at < SF_BLOCK_ELEMENTS ? window->end : at + SF_BLOCK_ELEMENTS;
    const void *values;
    status = sf_merger_block(merger, &values, at, end, checking->error);
    if (status != SF_OK) return status;
    sf_widen(checking->wide[0], values, end - at, sf_merger_dtype(merger));
    for (int64_t i = 0; i < end - at; i++) out[at - window->begin + i] = (float)checking->wide[0][i];
  }
  return status;
}

void *sf_window_alloc(struct sf_window *window, int64_t count, size_t size_bytes) {
  return sf_arena_alloc(window->arena, (size_t)(count + 1) * size_bytes);
}

/* Chooses a window around the error: whole rows, or a part of a row that is too long. */
static void choose_window(struct sf_window *window, const struct sf_check_result *result) {
  const int64_t all = window->reference->count, cols = window->reference->cols;
  int64_t pieces = 1;
  for (const struct sf_piece *piece = window->tensor->pieces; piece != NULL; piece = piece->next) pieces++;
  const int64_t most = ELEMENTS_MAX / pieces + 1, unit = cols <= most ? cols : 1;
  const int64_t count = all < most ? all : most / unit * unit, first = (result->at - count / 2) / unit * unit;
  window->begin = first < 0 ? 0 : first > all - count ? all - count : first;
  window->end = window->begin + count;
  window->view.shape = unit == cols ? (struct sf_shape){count / cols, cols} : (struct sf_shape){1, count};
}

/* --- groups ------------------------------------------------------------------------------------------------------ */

/* The meaning of groups by name; traces may have groups with other names. */
static const struct known_group {
  const char *name;
  enum sf_group_kind kind;
  bool of_experts, of_others;
} known_groups[] = {{"tp", SF_GROUP_TENSOR, false, true},  {"cp", SF_GROUP_DATA, false, true},  {"dp", SF_GROUP_DATA, false, true},
                    {"etp", SF_GROUP_TENSOR, true, false}, {"ep", SF_GROUP_OTHER, true, false}, {"edp", SF_GROUP_DATA, true, false},
                    {"", SF_GROUP_OTHER, true, true}};

static const struct known_group *known_group(const char *name) {
  const struct known_group *known = known_groups;
  while (*known->name != '\0' && strcmp(name, known->name) != 0) known++;
  return known;
}

/* Whether ranks of such a group may hold or sum this tensor: experts lie on groups of their own. */
static bool concerns(const struct known_group *group, const struct sf_trace_tensor *tensor) {
  if (tensor->name.kind == SF_KIND_SCALAR) return true;
  return strstr(tensor->text, ".experts.") != NULL ? group->of_experts : group->of_others;
}

/* The rank's index among the ranks that cut the tensor; 0 if the trace does not say it. */
static int32_t tp_index(const struct sf_trace_set *set, const struct sf_trace_tensor *tensor, int32_t rank) {
  int32_t index = 0;
  for (int32_t g = 0; g < set->group_count; g++) {
    const struct known_group *known = known_group(set->groups[g].name);
    if (known->kind != SF_GROUP_TENSOR || !concerns(known, tensor)) continue;
    for (int32_t other = 0; other < rank; other++) index += set->groups[g].of_rank[other] == set->groups[g].of_rank[rank];
  }
  return index;
}

/* --- shards ------------------------------------------------------------------------------------------------------ */

/* Adds a piece's part of the window as a shard, in the order of its elements, unless it is empty. */
static enum sf_status add_shard(struct sf_window *window, struct sf_view_shard *shards, const struct sf_piece *piece) {
  struct sf_piece alone = *piece;
  struct sf_trace_tensor of_rank = *window->tensor;
  const int64_t elements = window->end - window->begin;
  const struct sf_trace_set *set = window->checking->candidate;
  int64_t *at = sf_window_alloc(window, elements, sizeof *at), count = 0;
  float *data = sf_window_alloc(window, elements, sizeof *data);
  const struct sf_arena_mark mark = sf_arena_mark(window->arena);
  struct sf_segment *segments = sf_window_alloc(window, elements, sizeof *segments);
  if (at == NULL || data == NULL || segments == NULL) return SF_ENOMEM;
  alone.next = NULL;
  of_rank.pieces = of_rank.last = &alone;
  const enum sf_status status = sf_window_load(data, window, set, &of_rank);
  const int64_t found = status == SF_OK ? sf_piece_segments(segments, piece, 0, window->begin, window->end) : 0;
  for (int64_t s = 0; s < found; s++)
    for (int64_t k = 0; k < segments[s].count; k++, count++) {
      at[count] = segments[s].logical + k - window->begin;
      data[count] = data[at[count]];
    }
  const struct sf_view_shard shard = {
      .rank = piece->rank, .tp = tp_index(set, window->tensor, piece->rank), .count = count, .at = at, .data = data};
  if (count > 0) shards[window->view.shard_count++] = shard;
  sf_arena_rewind(window->arena, mark);
  return status;
}

/* Adds the ranks' shards of the tensor. If some ranks hold summands, it adds one shard, merged from all. */
static enum sf_status add_shards(struct sf_window *window) {
  int64_t count = 0, sum = 0;
  for (const struct sf_piece *piece = window->tensor->pieces; piece != NULL; piece = piece->next, count++) sum += piece->sum_max;
  struct sf_view_shard *shards = sf_window_alloc(window, count, sizeof *shards);
  window->view.shards = shards;
  if (shards == NULL) return SF_ENOMEM;
  enum sf_status status = SF_OK;
  for (const struct sf_piece *piece = window->tensor->pieces; piece != NULL && status == SF_OK && sum == 0; piece = piece->next)
    status = add_shard(window, shards, piece);
  if (status != SF_OK || sum == 0) return status;
  const int64_t elements = window->end - window->begin;
  int64_t *at = sf_window_alloc(window, elements, sizeof *at);
  float *data = sf_window_alloc(window, elements, sizeof *data);
  if (at == NULL || data == NULL) return SF_ENOMEM;
  for (int64_t k = 0; k < elements; k++) at[k] = k;
  shards[window->view.shard_count++] = (struct sf_view_shard){.rank = -1, .count = elements, .at = at, .data = data};
  return sf_window_load(data, window, window->checking->candidate, window->tensor);
}

/* --- groups and sizes --------------------------------------------------------------------------------------------- */

/* The number of microbatches: the largest index, plus 1. */
static int64_t microbatches_of(const struct sf_trace_set *set) {
  int64_t last = 0;
  for (int32_t i = 0; i < set->count; i++) last = set->tensors[i].name.microbatch > last ? set->tensors[i].name.microbatch : last;
  return last + 1;
}

/* Adds the groups that the trace names, a group of all ranks, and the sizes that a factor may have. */
static enum sf_status add_groups(struct sf_window *window) {
  const struct sf_trace_set *set = window->checking->candidate;
  struct sf_tensor_view *view = &window->view;
  struct sf_view_group *groups = sf_window_alloc(window, set->group_count + 1, sizeof *groups);
  struct sf_view_size *sizes = sf_window_alloc(window, set->group_count + 2, sizeof *sizes);
  if (groups == NULL || sizes == NULL) return SF_ENOMEM;
  view->groups = groups;
  view->sizes = sizes;
  for (int32_t g = 0; g < set->group_count; g++) {
    const struct sf_trace_group *from = &set->groups[g];
    const struct known_group *known = known_group(from->name);
    if (!concerns(known, window->tensor)) continue;
    groups[view->group_count] = (struct sf_view_group){.kind = known->kind, .of_rank = from->of_rank};
    snprintf(groups[view->group_count++].name, sizeof groups->name, "%s", from->name);
    sizes[view->size_count++] = (struct sf_view_size){.value = from->size, .name = from->name};
    if (known->kind == SF_GROUP_TENSOR) view->tp_size = view->row_parts = from->size, view->tp_name = from->name;
  }
  groups[view->group_count++] = (struct sf_view_group){.name = "the ranks"};
  if (view->shard_count < 2) view->group_count = 0; /* it may be merged from several */
  if (set->group_count == 0) sizes[view->size_count++] = (struct sf_view_size){.value = set->ranks, .name = "the number of ranks"};
  if (view->kind != SF_KIND_ACT && view->kind != SF_KIND_PARAM) /* these are no sums over microbatches */
    sizes[view->size_count++] =
        (struct sf_view_size){.value = (double)microbatches_of(window->checking->reference), .name = "the number of microbatches"};
  return SF_OK;
}

/* Recognises fused gate and up projections: the first rank holds a piece of each, one after the other. */
static void find_fused(struct sf_tensor_view *view) {
  const struct sf_view_shard *first = &view->shards[0];
  const int64_t cols = view->shape.cols, middle = first->count / 2;
  if (view->shard_count < 2 || middle < 1 || 2 * middle != first->count || view->shape.rows % 2 != 0) return;
  const bool is_half = first->at[middle] == first->at[0] + view->shape.rows / 2 * cols;
  if (is_half && first->at[middle - 1] / cols < first->at[middle] / cols - 1) view->fused.rows = SF_CUT_GATE_UP;
}

/* --- noise ------------------------------------------------------------------------------------------------------- */

/* The trace may have any format, but the view's values are floats. */
static double level_of(double noise, double norm) {
  const double level = sf_larger(noise, sf_dtype_unit_roundoff(SF_F32) * norm);
  return isfinite(level) && level > (double)FLT_MIN ? level : (double)FLT_MIN;
}

static enum sf_status add_noise(struct sf_window *window, const struct sf_check_result *result) {
  const struct sf_noise_file *noise = window->checking->noise;
  struct sf_tensor_view *view = &window->view;
  const struct sf_shape shape = view->shape;
  double *levels = sf_window_alloc(window, shape.rows, sizeof *levels), *norms = sf_window_alloc(window, shape.rows, sizeof *norms);
  if (levels == NULL || norms == NULL) return SF_ENOMEM;
  view->noise = level_of(result->tensor_noise, sf_row_norms(norms, view->x, shape.rows, shape.cols));
  if (result->row < 0 || result->cls != SF_CLASS_TOLERANCE || shape.rows < 2) return SF_OK;
  const struct sf_st_entry *vector = sf_st_find(&noise->file.file, window->reference->text);
  const enum sf_status status = sf_noise_rows(levels, noise, vector, window->begin / shape.cols, shape.rows, window->checking->error);
  for (int64_t r = 0; r < shape.rows && status == SF_OK; r++) levels[r] = level_of(levels[r], norms[r]);
  view->row_noise = levels;
  return status;
}

/* --- gradient norms ---------------------------------------------------------------------------------------------- */

enum { NORM_TERMS_MAX = 128 }; /* further terms are left out */

/* Adds a term of a norm. name: a format, as of snprintf. */
static void add_norm_term(struct sf_tensor_view *view, struct sf_diagnosis_related *terms, float *numbers, double squares, const char *name,
                          ...) {
  if (squares == 0 || view->related_count == NORM_TERMS_MAX) return;
  struct sf_diagnosis_related *term = &terms[view->related_count];
  numbers[view->related_count] = (float)squares;
  *term = (struct sf_diagnosis_related){.relation = SF_RELATED_TERM, .shape = view->shape, .x = &numbers[view->related_count]};
  va_list arguments;
  va_start(arguments, name);
  vsnprintf(term->name, sizeof term->name, name, arguments);
  va_end(arguments);
  view->related_count++;
}

/* Length of a parameter's name without its last part. */
static size_t module_length(const struct sf_norm_share *share) {
  const char *dot = strrchr(share->name, '.');
  return dot != NULL ? (size_t)(dot - share->name) : 0;
}

/* The norm is judged by the candidate's own main gradients. Its terms are the squares of groups of gradients: all that are not cut; all
 * experts; those with one name in all layers ("attention.k.weight"); and two such names of one module, as keys and values are. */
static enum sf_status relate_norm(struct sf_window *window, const struct sf_check_result *result, float *x) {
  struct sf_tensor_view *view = &window->view;
  const struct sf_step_norm *of = sf_check_find_norm(window->checking, window->reference->name.step);
  if (of == NULL) return SF_OK;
  struct sf_diagnosis_related *terms = sf_window_alloc(window, NORM_TERMS_MAX, sizeof *terms);
  float *numbers = sf_window_alloc(window, NORM_TERMS_MAX, sizeof *numbers);
  if (terms == NULL || numbers == NULL) return SF_ENOMEM;
  /* Of many terms some term nearly equals the error by chance. In fp32 sums of squares agree far better than the norm's bound. An
   * explanation must agree so well; a norm of less precision has no terms by name. */
  const bool is_fp32 = !(result->noise > 1.001 * sf_factors.norm_rel * result->norm);
  const double noise = is_fp32 ? sf_factors.fro * sf_dtype_unit_roundoff(SF_F32) * result->norm : result->noise;
  add_norm_term(view, terms, numbers, of->uncut_squares, "the share of parameters that are not cut (as squares)");
  add_norm_term(view, terms, numbers, of->expert_squares, "the share of the experts (as squares)");
  for (int32_t i = 0; i < of->share_count && is_fp32; i++)
    add_norm_term(view, terms, numbers, of->shares[i].squares, "the share of %s (as squares)", of->shares[i].name);
  for (int32_t i = 0; i < of->share_count && is_fp32; i++) {
    const size_t length = module_length(&of->shares[i]);
    for (int32_t j = i + 1; j < of->share_count && length > 0; j++)
      if (module_length(&of->shares[j]) == length && memcmp(of->shares[i].name, of->shares[j].name, length) == 0)
        add_norm_term(view, terms, numbers, of->shares[i].squares + of->shares[j].squares, "the share of %s and %s (as squares)",
                      of->shares[i].name, of->shares[j].name + length + 1);
  }
  view->is_norm = true;
  view->related = terms;
  view->noise = level_of(noise, result->norm);
  *x = (float)result->norm;
  return SF_OK;
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

static enum sf_status make_view(struct sf_window *window, const struct sf_check_result *result) {
  const struct sf_trace_tensor *reference = window->reference;
  struct sf_tensor_view *view = &window->view;
  const int64_t elements = window->end - window->begin;
  float *x = sf_window_alloc(window, elements, sizeof *x);
  if (x == NULL) return SF_ENOMEM;
  *view = (struct sf_tensor_view){.kind = reference->name.kind,
                                  .shape = view->shape,
                                  .promised = reference->dtype,
                                  .x = x,
                                  .tp_name = "tp",
                                  .tp_size = 1,
                                  .row_parts = 1,
                                  .data_ranks = 1,
                                  .microbatches = 1};
  enum sf_status status = sf_window_load(x, window, window->checking->reference, reference);
  if (status == SF_OK) status = add_noise(window, result);
  if (status == SF_OK) status = add_shards(window);
  if (status == SF_OK) status = add_groups(window);
  if (status == SF_OK && view->shard_count > 0) find_fused(view);
  if (status != SF_OK) return status;
  return sf_check_is_grad_norm(window->tensor) ? relate_norm(window, result, x) : sf_window_relate(window);
}

/* Tells which part of a large tensor was looked at. Drops numbers, and a diagnosis that numbers rows, because these would be the
 * window's. */
static void say_window(struct sf_diagnosis *diagnosis, const struct sf_window *window) {
  const int64_t unit = window->view.shape.cols == window->reference->cols ? window->reference->cols : 1;
  const size_t length = strlen(diagnosis->text);
  if (window->end - window->begin == window->reference->count) return;
  diagnosis->numbers = (struct sf_numbers){.worst_rank = -1};
  if (diagnosis->cls == SF_DIAGNOSIS_PART)
    *diagnosis = (struct sf_diagnosis){.cls = SF_DIAGNOSIS_UNKNOWN};
  else
    snprintf(diagnosis->text + length, sizeof diagnosis->text - length, " (looked at in %s %" PRId64 " to %" PRId64 ")",
             unit > 1 ? "rows" : "elements", window->begin / unit, window->end / unit - 1);
}

/* --- the picture -------------------------------------------------------------------------------------------------- */

struct drawing {
  struct sf_window *window;
  struct sf_picture *picture;
  struct sf_picture_holder *holder;
  const struct sf_piece *piece;
  struct sf_segment *segments; /* room for one for each element of the window */
};

static void draw_sum(void *ctx, int64_t sum) {
  const struct drawing *d = ctx;
  const int64_t begin = d->window->begin, cols = d->window->view.shape.cols;
  const int64_t count = sf_piece_segments(d->segments, d->piece, sum, begin, d->window->end);
  for (int64_t i = 0; i < count; i++)
    for (int64_t k = d->segments[i].logical - begin; k < d->segments[i].logical - begin + d->segments[i].count; k++)
      sf_picture_hold(d->picture, d->holder, k / cols, k % cols);
}

/* Where ranks hold summands the view has their sum; the picture shows who holds them. */
static enum sf_status draw_summands(struct sf_window *window, struct sf_picture *picture) {
  struct drawing drawing = {.window = window, .picture = picture};
  drawing.segments = sf_window_alloc(window, window->end - window->begin, sizeof *drawing.segments);
  if (drawing.segments == NULL) return SF_ENOMEM;
  for (drawing.piece = window->tensor->pieces; drawing.piece != NULL; drawing.piece = drawing.piece->next) {
    drawing.holder = sf_picture_add_holder(picture, drawing.piece->rank, drawing.piece->sum_max > 0);
    if (drawing.holder != NULL) sf_piece_visit_sums(drawing.piece, draw_sum, &drawing);
  }
  return SF_OK;
}

static enum sf_status draw(struct sf_window *window, struct sf_check_culprit *culprit) {
  const struct sf_tensor_view *view = &window->view;
  struct sf_picture *picture = culprit->picture = sf_alloc(sizeof *picture);
  if (picture == NULL) return SF_ENOMEM;
  sf_picture_begin(picture, view->shape);
  picture->of_rows = window->reference->rows;
  picture->first_row = view->shape.cols == window->reference->cols ? window->begin / view->shape.cols : 0;
  const bool is_sum = view->shard_count > 0 && view->shards[0].rank < 0;
  const enum sf_status status = is_sum ? draw_summands(window, picture) : SF_OK;
  if (status == SF_OK) sf_picture_of_view(picture, view);
  return status;
}

enum sf_status sf_check_explain(struct sf_checking *checking, struct sf_check_culprit *culprit) {
  const struct sf_check_result *result = &checking->report.results[culprit->result];
  char reason[SF_MISFIT_TEXT];
  struct sf_window window = {.checking = checking,
                             .reference = sf_trace_set_find(checking->reference, result->tensor->text),
                             .tensor = sf_trace_set_find(checking->candidate, result->tensor->text)};
  if (result->cls == SF_CLASS_BITS) {
    culprit->diagnosis.cls = SF_DIAGNOSIS_LOW_PRECISION;
    snprintf(culprit->diagnosis.cause, sizeof culprit->diagnosis.cause, "rounding");
    snprintf(culprit->diagnosis.text, sizeof culprit->diagnosis.text, "%s", result->text);
  }
  if (result->cls != SF_CLASS_TOLERANCE && result->cls != SF_CLASS_CONFLICT && result->cls != SF_CLASS_NONFINITE) return SF_OK;
  if (window.reference == NULL || window.tensor == NULL || !sf_tensor_fits(reason, window.tensor, window.reference)) return SF_OK;
  window.arena = sf_arena_create(ARENA_BLOCK_BYTES, false);
  choose_window(&window, result);
  enum sf_status status = window.arena == NULL ? SF_ENOMEM : make_view(&window, result);
  if (status == SF_OK) status = draw(&window, culprit);
  if (status == SF_OK) status = sf_diagnose(&culprit->diagnosis, &window.view);
  if (status == SF_OK) say_window(&culprit->diagnosis, &window);
  sf_arena_destroy(window.arena);
  return status == SF_ENOMEM ? sf_error_set(checking->error, status, "%s: out of memory", checking->candidate->path) : status;
}
