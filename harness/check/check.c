/* Comparing the candidate with the reference. */
#include "harness/check/check_internal.h"

#include "harness/check/kernel.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct sf_check_result *sf_check_add(struct sf_checking *checking, const struct sf_trace_tensor *tensor) {
  struct sf_check_report *report = &checking->report;
  struct sf_check_result *results = sf_grown(report->results, report->result_count, sizeof *results);
  if (results == NULL) {
    sf_error_set(checking->error, SF_ENOMEM, "%s: out of memory", checking->candidate->path);
    return NULL;
  }
  report->results = results;
  struct sf_check_result *result = &results[report->result_count++];
  *result = (struct sf_check_result){.tensor = tensor, .judged = true, .rank = -1, .row = -1};
  return result;
}

void sf_check_flag(struct sf_check_result *result, enum sf_finding_class cls, int32_t rank, const char *format, ...) {
  va_list arguments;
  result->flagged = result->judged = true;
  result->why_not = NULL;
  result->cls = cls;
  result->rank = rank;
  result->excess = INFINITY;
  va_start(arguments, format);
  vsnprintf(result->text, sizeof result->text, format, arguments);
  va_end(arguments);
}

double sf_check_ratio(double error, double noise) { return error == 0 ? 0 : error / noise; }

static void leave(struct sf_check_result *result, const char *why_not) {
  result->judged = false;
  result->why_not = why_not;
}

/* --- one tensor --------------------------------------------------------------------------------------------------- */

struct comparing {
  struct sf_checking *checking;
  const struct sf_trace_tensor *reference, *tensor;
  const struct sf_st_entry *vector; /* the tensor's vector in the noise file */
  double numbers[SF_NOISE_ROWS];
  bool is_filtered; /* the part of the error that lies along the reference is judged, too */
  double squares, along, row_squares;
  double worst_ratio_squares, worst_error, worst_noise; /* of the worst row */
  int64_t worst_row;
  double peak_squares; /* the largest squared distance of a row, or of a part of a row that is longer than a block */
  int64_t peak;        /* first element of that row or part */
  double own_squares;  /* squares of the candidate's values, for main gradients */
  int64_t nonfinite_first, nonfinite_count;
  bool reference_nonfinite;
};

/* For rows with a value that is not finite, or beyond fp32: compares element by element. */
static double slow_distance(struct comparing *to, const double *c, const double *x, int64_t first, int64_t count) {
  double squares = 0;
  for (int64_t i = 0; i < count; i++) {
    if (isfinite(c[i]) && isfinite(x[i])) {
      squares += (c[i] - x[i]) * (c[i] - x[i]);
    } else if (isfinite(x[i])) {
      if (to->nonfinite_first < 0) to->nonfinite_first = first + i;
      to->nonfinite_count++;
    } else {
      to->reference_nonfinite = true;
    }
  }
  return squares;
}

static void end_row(struct comparing *to, int64_t row, double noise) {
  const double ratio_squares = to->row_squares == 0 ? 0 : to->row_squares / (noise * noise);
  if (ratio_squares <= to->worst_ratio_squares) return;
  to->worst_ratio_squares = ratio_squares;
  to->worst_error = sqrt(to->row_squares);
  to->worst_noise = noise;
  to->worst_row = row;
}

struct block_values {
  const unsigned char *c, *x;
  enum sf_dtype dtype;
};

static enum sf_status load_block(struct block_values *out, struct comparing *to, const struct sf_block *block) {
  struct sf_checking *checking = to->checking;
  const void *c, *x;
  const int64_t count = block->end - block->begin;
  const enum sf_dtype c_type = sf_merger_dtype(checking->of_candidate), x_type = sf_merger_dtype(checking->of_reference);
  enum sf_status status = sf_merger_block(checking->of_reference, &x, block->begin, block->end, checking->error);
  if (status == SF_OK) status = sf_merger_block(checking->of_candidate, &c, block->begin, block->end, checking->error);
  if (status != SF_OK) return status;
  if (c_type != x_type) {
    sf_widen(checking->wide[0], c, count, c_type);
    sf_widen(checking->wide[1], x, count, x_type);
    c = checking->wide[0];
    x = checking->wide[1];
  }
  *out = (struct block_values){c, x, c_type != x_type ? SF_F64 : c_type};
  return SF_OK;
}

static enum sf_status compare_block(struct comparing *to, const struct sf_block *block) {
  struct sf_checking *checking = to->checking;
  struct block_values v;
  const int64_t rows = sf_block_rows(block), length = block->row_length;
  enum sf_status status = load_block(&v, to, block);
  const bool ends = block->last_part;
  if (status == SF_OK && ends) status = sf_noise_rows(checking->row_noise, checking->noise, to->vector, block->row, rows, checking->error);
  if (status != SF_OK) return status;
  const size_t width = sf_dtype_wire_bytes(v.dtype);
  if (to->tensor->name.kind == SF_KIND_MAIN_GRAD) to->own_squares += sf_squares(v.c, block->end - block->begin, v.dtype);
  for (int64_t r = 0; r < rows; r++) {
    const unsigned char *c = v.c + (size_t)(r * length) * width, *x = v.x + (size_t)(r * length) * width;
    const struct sf_apart apart =
        to->is_filtered ? sf_apart(c, x, length, v.dtype) : (struct sf_apart){sf_distance_squares(c, x, length, v.dtype), 0};
    double squares = apart.squares;
    if (!isfinite(squares)) {
      sf_widen(checking->wide[0], c, length, v.dtype);
      sf_widen(checking->wide[1], x, length, v.dtype);
      squares = slow_distance(to, checking->wide[0], checking->wide[1], block->begin + r * length, length);
    }
    to->row_squares = block->first_part ? squares : to->row_squares + squares;
    to->squares += squares;
    to->along += apart.along;
    if (squares > to->peak_squares) to->peak_squares = squares, to->peak = block->begin + r * length;
    if (ends) end_row(to, block->row + r, checking->row_noise[r]);
  }
  return SF_OK;
}

/* The indices of an element as text: "[3, 17]". */
static const char *place_text(char out[SF_INDICES_TEXT], const struct sf_trace_tensor *tensor, int64_t element) {
  int64_t at[SF_ST_DIMS_MAX];
  for (int32_t d = tensor->dim_count - 1; d >= 0; d--) {
    at[d] = element % tensor->dims[d];
    element /= tensor->dims[d];
  }
  return sf_indices_text(out, at, tensor->dim_count);
}

/* Looks for values that are not finite, gaps and conflicts. Returns whether there is one. */
static bool judge_structure(struct sf_check_result *result, const struct comparing *to, const struct sf_merge_report *merged) {
  char place[SF_INDICES_TEXT];
  const struct sf_trace_tensor *tensor = to->tensor;
  /* A wgrad's replicas are not reduced yet. */
  const bool may_differ = tensor->name.kind == SF_KIND_WGRAD || to->checking->candidate->close_replicas;
  if (to->nonfinite_count > 0) {
    result->at = to->nonfinite_first;
    sf_check_flag(result, SF_CLASS_NONFINITE, -1, "%" PRId64 " values are NaN or infinite where the reference is finite, the first at %s",
                  to->nonfinite_count, place_text(place, tensor, to->nonfinite_first));
  } else if (merged->gap_count > 0) {
    sf_check_flag(result, SF_CLASS_GAP, -1, "%" PRId64 " of %" PRId64 " elements are held by no rank, the first at %s", merged->gap_count,
                  tensor->count, place_text(place, tensor, merged->gap_first));
  } else if (merged->conflict_count > 0 && (!may_differ || !(sqrt(merged->replica_squares) <= sf_factors.fro * result->tensor_noise))) {
    result->at = merged->conflict_first;
    result->error = sqrt(merged->replica_squares);
    result->noise = result->tensor_noise;
    result->ratio = sf_check_ratio(result->error, result->noise);
    sf_check_flag(result, SF_CLASS_CONFLICT, merged->conflict_rank,
                  "replicas on ranks %d and %d differ in %" PRId64 " elements, the first at %s", merged->conflict_holder,
                  merged->conflict_rank, merged->conflict_count, place_text(place, tensor, merged->conflict_first));
    if (may_differ) result->excess = result->ratio / sf_factors.fro;
  }
  return result->flagged;
}

/* Whether the part of the error that lies along the reference is wrong. A mistake that scales a tensor puts all of its error there, and
 * rounding little of its own, so this sees what the distance hides. */
static bool judge_along(struct sf_check_result *result, const struct comparing *to) {
  const double norm = to->numbers[SF_NOISE_NORM], level = to->numbers[SF_NOISE_ALONG], error = fabs(to->along) / norm;
  if (!to->is_filtered || !(norm > 0) || !(level > 0) || error <= sf_factors.along * level) return false;
  sf_check_flag(result, SF_CLASS_TOLERANCE, -1,
                "scaled by about %.4g: along the reference it is off by %.3g; rounding explains at most %.2g",
                1 + to->along / (norm * norm), error, level);
  result->row = -1;
  result->error = error;
  result->noise = level;
  result->ratio = sf_check_ratio(error, level);
  result->excess = result->ratio / sf_factors.along;
  return true;
}

static void judge_distance(struct sf_check_result *result, const struct comparing *to, bool by_module) {
  const double norm = to->numbers[SF_NOISE_NORM], noise = result->tensor_noise,
               row_factor = by_module ? sf_factors.row_isolated : sf_factors.row_e2e;
  const double by_tensor = result->tensor_ratio / sf_factors.fro, of_row = result->row_ratio / row_factor;
  const bool passes = by_tensor <= 1 && of_row <= 1, by_row = !(of_row <= by_tensor);
  char distance[SF_DISTANCE_TEXT];
  result->at = to->peak;
  if (by_row && to->worst_row >= 0) {
    result->row = to->reference->rows > 1 ? to->worst_row : -1;
    result->error = to->worst_error;
    result->noise = to->worst_noise;
    result->ratio = result->row_ratio;
  }
  if (!isfinite(norm) || to->reference_nonfinite)
    leave(result, "reference not finite");
  else if (norm > 0 && !(noise <= sf_factors.ill_conditioned * norm))
    leave(result, "ill-conditioned");
  else if (!passes) {
    sf_check_flag(result, SF_CLASS_TOLERANCE, -1, "%s",
                  sf_distance_text(distance, result->error, result->row >= 0 ? NAN : norm, result->noise));
    result->excess = by_row ? of_row : by_tensor;
  } else if (norm == 0)
    leave(result, "zero");
  else if (judge_along(result, to))
    return;
  else if (to->numbers[SF_NOISE_ROLLED] <= sf_factors.fro * noise)
    leave(result, "values alike");
}

static enum sf_status stream(struct comparing *to) {
  struct sf_checking *checking = to->checking;
  struct sf_block block;
  enum sf_status status = sf_merger_begin(checking->of_reference, checking->reference, to->reference, checking->error);
  if (status == SF_OK) status = sf_merger_begin(checking->of_candidate, checking->candidate, to->tensor, checking->error);
  if (status != SF_OK) return status;
  to->vector = sf_st_find(&checking->noise->file.file, to->reference->text);
  status = sf_noise_head(to->numbers, checking->noise, to->vector, checking->error);
  for (bool more = sf_block_first(&block, to->reference); status == SF_OK && more; more = sf_block_next(&block, to->reference))
    status = compare_block(to, &block);
  return status;
}

/* A wrong batch= for the PyTorch tracer shows first in the shapes of activations and their gradients. */
static const char *hint_of(const struct sf_check_result *result, const struct sf_trace_tensor *tensor) {
  const bool activation = tensor->name.kind == SF_KIND_ACT || tensor->name.kind == SF_KIND_ACT_GRAD;
  return result->cls == SF_CLASS_MAP && activation && tensor->dim_count == result->tensor->dim_count ? "is `batch=` right?" : NULL;
}

/* Judges the tensor by its maps. Returns true when its values need not be read. */
static bool judge_maps(struct sf_check_result *result, const struct sf_trace_tensor *tensor) {
  const struct sf_trace_tensor *reference = result->tensor;
  const double unit = sf_dtype_unit_roundoff(reference->dtype);
  char reason[SF_MISFIT_TEXT];
  if (tensor == NULL) {
    sf_check_flag(result, SF_CLASS_GAP, -1, "no rank has this tensor");
    return true;
  }
  if (!sf_tensor_fits(reason, tensor, reference)) {
    const int32_t overlap = sf_tensor_overlap_rank(tensor);
    sf_check_flag(result, overlap >= 0 ? SF_CLASS_OVERLAP : SF_CLASS_MAP, overlap >= 0 ? overlap : tensor->odd_shape_rank, "%s", reason);
    result->hint = hint_of(result, tensor);
  }
  for (const struct sf_piece *piece = tensor->pieces; !result->flagged && piece != NULL; piece = piece->next)
    if (sf_dtype_unit_roundoff(piece->entry->dtype) > unit)
      sf_check_flag(result, SF_CLASS_BITS, piece->rank, "in %s, where the reference promises %s", sf_dtype_name(piece->entry->dtype),
                    sf_dtype_name(reference->dtype));
  return result->flagged;
}

static enum sf_status compare_tensor(struct sf_checking *checking, const struct sf_trace_tensor *reference) {
  const bool by_module = checking->candidate->isolated || checking->reference->anchored;
  struct comparing to = {.checking = checking,
                         .reference = reference,
                         .worst_row = -1,
                         .nonfinite_first = -1,
                         .is_filtered = !by_module && checking->noise->draws >= sf_factors.along_draws};
  struct sf_check_result *result = sf_check_add(checking, reference);
  const bool is_gradient = reference->name.kind == SF_KIND_MAIN_GRAD;
  enum sf_status status = SF_OK;
  if (result == NULL) return SF_ENOMEM;
  to.tensor = sf_trace_set_find(checking->candidate, reference->text);
  if (judge_maps(result, to.tensor)) return is_gradient ? sf_check_add_squares(checking, reference->name.step, NULL, 0, true) : SF_OK;
  status = stream(&to);
  if (status != SF_OK) return status;
  if (sf_merger_report(checking->of_reference).gap_count > 0)
    return sf_error_set(checking->error, SF_EINPUT, "%s: tensor \"%.160s\": the reference does not have all of it",
                        checking->reference->path, reference->text);
  const struct sf_merge_report merged = sf_merger_report(checking->of_candidate);
  result->norm = to.numbers[SF_NOISE_NORM];
  result->tensor_error = result->error = sqrt(to.squares);
  result->tensor_noise = result->noise = to.numbers[SF_NOISE_LEVEL];
  result->tensor_ratio = result->ratio = sf_check_ratio(result->tensor_error, result->tensor_noise);
  result->row_ratio = sqrt(to.worst_ratio_squares);
  if (reference->count == 0)
    leave(result, "empty");
  else if (!judge_structure(result, &to, &merged))
    judge_distance(result, &to, by_module);
  return is_gradient ? sf_check_add_squares(checking, reference->name.step, to.tensor, to.own_squares, merged.gap_count > 0) : SF_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void add_culprit(struct sf_check_report *report, int32_t result) {
  if (report->culprit_count < SF_CHECK_CULPRITS_MAX) report->culprits[report->culprit_count++].result = result;
}

static bool starts_elsewhere(const struct sf_check_result *result) {
  return result->flagged && (result->cls == SF_CLASS_TOLERANCE || result->cls == SF_CLASS_CONFLICT || result->cls == SF_CLASS_NONFINITE);
}

/* Runs that start from different parameters differ everywhere. The first parameter that differs is then the culprit, whatever comes before
 * it. */
static void compare_starts(struct sf_check_report *report) {
  for (int32_t i = 0; i < report->result_count; i++) {
    const struct sf_check_result *result = &report->results[i];
    if (result->tensor->name.kind != SF_KIND_PARAM || result->tensor->name.step != 0) continue;
    report->start_count++;
    if (!starts_elsewhere(result)) continue;
    if (report->start_differ++ == 0) add_culprit(report, i);
    report->start_conflicts += result->cls == SF_CLASS_CONFLICT;
  }
}

/* How the runs hang together: isolated, each module got given tensors; anchored, the reference had the candidate's. */
enum manner { WHOLE_RUNS, ISOLATED, ANCHORED };

static bool is_made_by_optimizer(const struct sf_check_result *result) {
  const enum sf_kind kind = result->tensor->name.kind;
  return kind == SF_KIND_PARAM || kind == SF_KIND_PARAM_DELTA || sf_check_is_grad_norm(result->tensor);
}

/* Whether what comes later may follow from a wrong tensor. */
static bool has_consequences(const struct sf_check_result *result, enum manner manner) {
  const bool misplaced = result->cls == SF_CLASS_GAP || result->cls == SF_CLASS_OVERLAP || result->cls == SF_CLASS_MAP;
  const enum sf_kind kind = result->tensor->name.kind;
  if (manner == WHOLE_RUNS || misplaced) return true;
  if (manner == ANCHORED) return result->cls == SF_CLASS_CONFLICT; /* the reference had the lowest rank's */
  return kind != SF_KIND_ACT && kind != SF_KIND_ACT_GRAD && kind != SF_KIND_WGRAD;
}

static bool is_main_grad(const struct sf_check_result *result, int64_t step) {
  return result->tensor->name.kind == SF_KIND_MAIN_GRAD && result->tensor->name.step == step;
}

/* Whether the gradient of the parameter's module's input is wrong in the same step. An anchored reference computes both from a gradient
 * that came to the module's output and was not traced, so one cause may have made both wrong. */
static bool has_wrong_input_gradient(const struct sf_check_report *report, const struct sf_check_result *of) {
  const struct sf_trace_name *name = &of->tensor->name;
  int32_t length = name->subject_length;
  while (length > 0 && name->subject[length - 1] != '.') length--;
  for (int32_t i = 0; i < report->result_count; i++) {
    const struct sf_trace_name *other = &report->results[i].tensor->name;
    if (report->results[i].flagged && other->kind == SF_KIND_ACT_GRAD && other->step == name->step && other->subject_length == length - 1 &&
        memcmp(other->subject, name->subject, (size_t)other->subject_length) == 0)
      return true;
  }
  return false;
}

/* Adds the main gradients of a step as culprits, from its first wrong one on. */
static void find_main_grads(struct sf_check_report *report, int32_t first, enum manner manner) {
  const int64_t step = report->results[first].tensor->name.step;
  int32_t flagged = 0, all = 0;
  for (int32_t i = 0; i < report->result_count; i++) {
    all += is_main_grad(&report->results[i], step);
    flagged += is_main_grad(&report->results[i], step) && report->results[i].flagged;
  }
  for (int32_t i = first; i < report->result_count; i++) {
    const struct sf_check_result *result = &report->results[i];
    if (!is_main_grad(result, step) || !result->flagged) continue;
    if (manner != ANCHORED || !has_wrong_input_gradient(report, result)) add_culprit(report, i);
    if (2 * flagged > all) return;
  }
}

/* Of what the optimizer makes only the first counts: norm, changes and the parameters of the next step follow from each other. */
static void find_culprits(struct sf_check_report *report, enum manner manner) {
  int64_t step_of_gradients = -1;
  bool optimizer_is_wrong = false;
  compare_starts(report);
  if (report->start_differ > 0) return;
  for (int32_t i = 0; i < report->result_count; i++) {
    const struct sf_check_result *result = &report->results[i];
    if (!result->flagged) continue;
    if (manner != WHOLE_RUNS && result->tensor->name.kind == SF_KIND_MAIN_GRAD) {
      if (result->tensor->name.step != step_of_gradients) find_main_grads(report, i, manner);
      step_of_gradients = result->tensor->name.step;
    } else if (!is_made_by_optimizer(result) || !optimizer_is_wrong) {
      add_culprit(report, i);
      optimizer_is_wrong |= is_made_by_optimizer(result);
    }
    if (has_consequences(result, manner)) return;
  }
}

static void sum_up(struct sf_check_report *report) {
  for (int32_t i = 0; i < report->result_count; i++) {
    const struct sf_check_result *result = &report->results[i];
    report->judged += result->judged;
    report->not_judged += !result->judged;
    report->findings += result->flagged;
  }
  report->verdict = report->findings > 0 ? SF_VERDICT_FINDING : report->judged > 0 ? SF_VERDICT_PASS : SF_VERDICT_INCONCLUSIVE;
}

static enum sf_status prepare(struct sf_checking *checking) {
  enum sf_status status = sf_merger_create(&checking->of_reference);
  if (status == SF_OK) status = sf_merger_create(&checking->of_candidate);
  checking->row_noise = sf_alloc(SF_BLOCK_ELEMENTS * sizeof *checking->row_noise);
  for (int i = 0; i < 2; i++) {
    checking->wide[i] = sf_alloc(SF_BLOCK_ELEMENTS * sizeof *checking->wide[i]);
    checking->bytes[i] = sf_alloc(SF_BLOCK_ELEMENTS * sizeof(double));
    if (checking->wide[i] == NULL || checking->bytes[i] == NULL) status = SF_ENOMEM;
  }
  if (checking->row_noise == NULL) status = SF_ENOMEM;
  return status == SF_OK ? SF_OK : sf_error_set(checking->error, status, "%s: out of memory", checking->candidate->path);
}

enum sf_status sf_check_run(struct sf_check_report *out, const struct sf_trace_set *reference, const struct sf_noise_file *noise,
                            const struct sf_trace_set *candidate, const struct sf_suppositions *supposed, struct sf_error *error) {
  struct sf_checking checking = {.reference = reference, .candidate = candidate, .noise = noise, .supposed = supposed, .error = error};
  enum sf_status status = SF_OK;
  if (noise->has_mode && noise->isolated && !candidate->isolated)
    return sf_error_set(error, SF_EINPUT, "%s: is end to end, but the noise levels are of isolated runs", candidate->path);
  if (reference->anchored && candidate->isolated)
    return sf_error_set(error, SF_EINPUT, "%s: is isolated, but the reference was given the tensors of an end-to-end run", candidate->path);
  status = prepare(&checking);
  for (int32_t i = 0; status == SF_OK && i < reference->count; i++) status = compare_tensor(&checking, &reference->tensors[i]);
  if (status == SF_OK) status = sf_check_extras(&checking);
  if (status == SF_OK) status = sf_check_grad_norms(&checking);
  if (status == SF_OK) {
    sum_up(&checking.report);
    checking.report.anchored = reference->anchored;
    checking.report.by_module = candidate->isolated || reference->anchored;
    find_culprits(&checking.report, candidate->isolated ? ISOLATED : reference->anchored ? ANCHORED : WHOLE_RUNS);
  }
  if (status == SF_OK) status = sf_check_pattern(&checking);
  for (int32_t i = 0; status == SF_OK && i < checking.report.culprit_count; i++)
    status = sf_check_explain(&checking, &checking.report.culprits[i]);
  if (status == SF_OK) {
    *out = checking.report;
  } else {
    sf_check_report_destroy(&checking.report);
  }
  sf_merger_destroy(checking.of_reference);
  sf_merger_destroy(checking.of_candidate);
  sf_free(checking.row_noise);
  for (int i = 0; i < 2; i++) {
    sf_free(checking.wide[i]);
    sf_free(checking.bytes[i]);
  }
  for (int32_t i = 0; i < checking.step_count; i++) sf_free(checking.steps[i].shares);
  sf_free(checking.steps);
  return status;
}

double sf_check_share(const struct sf_check_report *report, const struct sf_check_result *result) {
  const double by_tensor = result->tensor_ratio / sf_factors.fro,
               by_row = result->row_ratio / (report->by_module ? sf_factors.row_isolated : sf_factors.row_e2e);
  return by_row <= by_tensor ? by_tensor : by_row;
}

double sf_check_report_margin(const struct sf_check_report *report) {
  double margin = INFINITY;
  for (int32_t i = 0; i < report->result_count; i++) {
    const struct sf_check_result *result = &report->results[i];
    /* A tolerance depends on its noise level, even if no run has moved the tensor yet. */
    const double most = result->cls == SF_CLASS_TOLERANCE ? DBL_MAX : INFINITY;
    if (result->flagged) margin = fmin(margin, fmin(result->excess, most));
  }
  return margin;
}

void sf_check_report_destroy(struct sf_check_report *report) {
  if (report == NULL) return;
  for (int32_t i = 0; i < report->culprit_count; i++) sf_free(report->culprits[i].picture);
  sf_free(report->results);
  *report = (struct sf_check_report){0};
}
