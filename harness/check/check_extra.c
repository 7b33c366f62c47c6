/* Tensors that the candidate has and the reference lacks. */
#include "harness/check/check_internal.h"

#include "harness/check/kernel.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A main gradient that the reference lacks still counts in the candidate's norm. */
static enum sf_status add_gradient(struct sf_checking *checking, const struct sf_trace_tensor *tensor) {
  double squares = 0;
  struct sf_block block;
  char reason[SF_MISFIT_TEXT];
  if (!sf_tensor_fits(reason, tensor, tensor)) return sf_check_add_squares(checking, tensor->name.step, NULL, 0, true);
  enum sf_status status = sf_merger_begin(checking->of_candidate, checking->candidate, tensor, checking->error);
  for (bool more = sf_block_first(&block, tensor); status == SF_OK && more; more = sf_block_next(&block, tensor)) {
    const void *values;
    status = sf_merger_block(checking->of_candidate, &values, block.begin, block.end, checking->error);
    if (status == SF_OK) squares += sf_squares(values, block.end - block.begin, sf_merger_dtype(checking->of_candidate));
  }
  const struct sf_merge_report merged = sf_merger_report(checking->of_candidate);
  return status == SF_OK ? sf_check_add_squares(checking, tensor->name.step, tensor, squares, merged.gap_count > 0) : status;
}

/* --- recomputed activations -------------------------------------------------------------------------------------- */

static const struct sf_trace_tensor *first_pass_of(const struct sf_trace_set *set, const struct sf_trace_tensor *tensor) {
  char name[1024];
  const char *pass = sf_pass_name(SF_PASS_RECOMPUTE), *at = strstr(tensor->text, pass);
  const int before = (int)(at - tensor->text);
  if (snprintf(name, sizeof name, "%.*s%s%s", before, tensor->text, sf_pass_name(SF_PASS_FWD), at + strlen(pass)) >= (int)sizeof name)
    return NULL;
  return sf_trace_set_find(set, name);
}

static bool differs(const unsigned char *a, const unsigned char *b, enum sf_dtype dtype) {
  double left, right;
  if (memcmp(a, b, sf_dtype_wire_bytes(dtype)) == 0) return false;
  sf_widen(&left, a, 1, dtype);
  sf_widen(&right, b, 1, dtype);
  return !(isnan(left) && isnan(right));
}

/* Whether two pieces of one rank have the same elements; *at is the first that differs. */
static enum sf_status same_elements(bool *out, int64_t *at, struct sf_checking *checking, const struct sf_piece *a,
                                    const struct sf_piece *b) {
  const struct sf_st_open *file = &checking->candidate->files[a->rank];
  const size_t width = sf_dtype_wire_bytes(a->entry->dtype);
  *out = true;
  for (int64_t first = 0; first < a->count; first += SF_BLOCK_ELEMENTS) {
    const int64_t count = a->count - first < SF_BLOCK_ELEMENTS ? a->count - first : SF_BLOCK_ELEMENTS;
    enum sf_status status = sf_st_load(checking->bytes[0], file, a->entry, first, count, checking->error);
    if (status == SF_OK) status = sf_st_load(checking->bytes[1], file, b->entry, first, count, checking->error);
    if (status != SF_OK) return status;
    if (memcmp(checking->bytes[0], checking->bytes[1], (size_t)count * width) == 0) continue;
    for (int64_t i = 0; i < count && *out; i++) {
      *out = !differs(checking->bytes[0] + (size_t)i * width, checking->bytes[1] + (size_t)i * width, a->entry->dtype);
      *at = first + i;
    }
    if (!*out) return SF_OK;
  }
  return SF_OK;
}

static enum sf_status judge_recomputed(struct sf_checking *checking, const struct sf_trace_tensor *tensor) {
  const struct sf_trace_tensor *first = first_pass_of(checking->candidate, tensor);
  struct sf_check_result *result = sf_check_add(checking, tensor);
  int32_t compared = 0;
  if (result == NULL) return SF_ENOMEM;
  for (const struct sf_piece *piece = tensor->pieces; piece != NULL && !result->flagged; piece = piece->next) {
    const struct sf_piece *other = first != NULL ? first->pieces : NULL;
    while (other != NULL && other->rank < piece->rank) other = other->next;
    if (other == NULL || other->rank != piece->rank) continue;
    bool same = false;
    int64_t at = 0;
    compared++;
    if (piece->count != other->count || piece->entry->dtype != other->entry->dtype) {
      sf_check_flag(result, SF_CLASS_CONFLICT, piece->rank, "recomputed in another shape or type than the first pass on rank %d",
                    piece->rank);
      continue;
    }
    const enum sf_status status = same_elements(&same, &at, checking, piece, other);
    if (status != SF_OK) return status;
    if (!same)
      sf_check_flag(result, SF_CLASS_CONFLICT, piece->rank,
                    "recomputed otherwise than in the first pass on rank %d, first in its element %" PRId64, piece->rank, at);
  }
  if (compared > 0) return SF_OK;
  result->judged = false;
  result->why_not = "no first pass";
  return SF_OK;
}

enum sf_status sf_check_extras(struct sf_checking *checking) {
  const struct sf_trace_set *candidate = checking->candidate;
  for (int32_t i = 0; i < candidate->count; i++) {
    const struct sf_trace_tensor *tensor = &candidate->tensors[i];
    const bool is_known = sf_trace_set_find(checking->reference, tensor->text) != NULL;
    enum sf_status status = SF_OK;
    if (tensor->name.pass == SF_PASS_RECOMPUTE && tensor->name.kind == SF_KIND_ACT) {
      status = judge_recomputed(checking, tensor);
    } else if (!is_known) {
      struct sf_check_result *result = sf_check_add(checking, tensor);
      if (result == NULL) return SF_ENOMEM;
      result->judged = false;
      result->why_not = "reference lacks it";
      if (tensor->name.kind == SF_KIND_MAIN_GRAD) status = add_gradient(checking, tensor);
    }
    if (status != SF_OK) return status;
  }
  return SF_OK;
}
