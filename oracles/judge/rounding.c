/* Some tensors are rounded once, from numbers in fp32 that no rank has added up in the storage format. There the candidate has the
 * reference's bits, but for the few elements that another order of sums moves over a border of rounding. A module that rounds a number once
 * more, or once less, makes an error below one noise level, since a level is about one rounding of the output. But it moves a large share
 * of the elements, in nearly every row. */
#include "oracles/judge/collector.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* An element that is smaller beside the root mean square of its row is what larger terms have left: its error is theirs, of any number of
 * its own roundings. */
static const double CANCELLED = 1.0 / 16;

enum { ROWS_KEPT = 16 };

/* --- one tensor ------------------------------------------------------------------------------------------------------ */

struct row_tally {
  int64_t elements, off;
};

static struct row_tally tally_row(const float *x, const float *candidate, int64_t cols, double least) {
  struct row_tally tally = {0};
  for (int64_t k = 0; k < cols; k++) {
    if (!((double)fabsf(x[k]) >= least)) continue;
    tally.elements++;
    tally.off += !(candidate[k] == x[k]);
  }
  return tally;
}

/* Rows that were off, as far as they are kept. Tokens of one kind have equal rows in places; what moves one of these moves all. */
struct rows_off {
  int64_t kept[ROWS_KEPT];
  int32_t count;
};

static void note_row(struct rows_off *rows, const float *x, int64_t row, int64_t cols) {
  if (rows->count == ROWS_KEPT) return;
  for (int32_t i = 0; i < rows->count; i++)
    if (memcmp(x + rows->kept[i] * cols, x + row * cols, (size_t)cols * sizeof *x) == 0) return;
  rows->kept[rows->count++] = row;
}

void sf_compare_roundings(struct sf_roundings *out, const struct sf_expected *e, const float *candidate) {
  const int64_t rows = e->spec.shape.rows, cols = e->spec.shape.cols;
  struct rows_off different = {.count = 0};
  *out = (struct sf_roundings){0};
  for (int64_t r = 0; r < rows; r++) {
    const double root_mean_square = e->row_norm[r] / sqrt((double)cols);
    if (!(root_mean_square > 0)) continue;
    const struct row_tally row = tally_row(e->x + r * cols, candidate + r * cols, cols, CANCELLED * root_mean_square);
    out->elements += row.elements;
    out->elements_off += row.off;
    out->rows++;
    if (!((double)row.off > sf_factors.rounding_row * (double)row.elements)) continue;
    out->rows_off++;
    note_row(&different, e->x, r, cols);
  }
  const double rows_most = sf_factors.rounding_rows * (double)out->rows, rows_least = (double)sf_factors.rounding_rows_min;
  if (out->rows > 0) out->share = fmin((double)out->rows_off / rows_most, (double)different.count / rows_least);
  out->flagged = (double)different.count >= rows_least && (double)out->rows_off > rows_most;
}

/* --- which tensors --------------------------------------------------------------------------------------------------- */

/* Whether ranks add the tensor, or a gradient that it is made from, in the storage format: each part has then been rounded by itself. */
static bool is_added_over_ranks(const struct sf_collector *collector, const struct sf_slot *slot) {
  const struct sf_expected *e = slot->expected;
  const struct sf_layout *layout = &slot->of->c.layout;
  const enum sf_module_class cls = collector->catalog->modules[e->spec.module].cls;
  const enum sf_trait adds = e->id.kind == SF_KIND_ACT ? SF_TRAIT_ADDS_ACT : SF_TRAIT_ADDS_GRAD;
  if (slot->part_rows != NULL) return true;
  return sf_module_is(cls, adds) && (sf_module_is(cls, SF_TRAIT_EXPERT) ? layout->etp : layout->tp) > 1;
}

static bool is_judged(const struct sf_collector *collector, const struct sf_slot *slot, const struct sf_tensor_result *result) {
  if (!result->judged || result->flagged || result->fro_ratio == 0) return false;
  return slot->expected->spec.promised != SF_F32 && !slot->expected->exact && !is_added_over_ranks(collector, slot);
}

static void report(struct sf_judging *judging, const struct sf_slot *slot, const struct sf_tensor_result *result,
                   const struct sf_roundings *roundings) {
  const double share = (double)roundings->elements_off / (double)roundings->elements;
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_ROUNDING);
  finding->anchored = judging->collector->c.mode == SF_MODE_E2E;
  finding->error = result->fro_ratio * result->noise;
  finding->ratio = share / sf_factors.rounding_row;
  finding->noise = finding->error / finding->ratio;
  sf_finding_say(finding,
                 "%.*g %% of its elements, in %" PRId64 " of %" PRId64
                 " rows, are off by about a rounding (%.2g %% are explained): inside the "
                 "module a number is rounded once more or less",
                 share < 0.995 ? 2 : 3, 100 * share, roundings->rows_off, roundings->rows, 100 * sf_factors.rounding_row);
}

/* --- what moving the reference's own numbers explains ---------------------------------------------------------------- */

/* A tensor that looks like a finding. */
struct doubt {
  struct sf_tensor_result *result;
  const struct sf_slot *slot;
  const struct sf_expected *expected;
  struct sf_roundings found;
  bool is_explained;
};

struct doubts {
  struct doubt *of; /* in the order of the results */
  int32_t count;
  int32_t *at;             /* by ordinal: which of them the run at hand is made for, or -1 */
  struct sf_trace_id *ids; /* of these */
  const struct sf_expectations *expectations;
};

static void emit_moved(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  static const double SHARE = 0.25; /* the candidate's errors are the sum of several */
  const struct doubts *doubts = ctx;
  const struct sf_expected *e = sf_expectations_find(doubts->expectations, id);
  struct sf_roundings own;
  (void)shape;
  if (e == NULL || doubts->at[e->ordinal] < 0) return;
  struct doubt *doubt = &doubts->of[doubts->at[e->ordinal]];
  sf_compare_roundings(&own, e, values);
  doubt->is_explained = (double)own.rows_off >= SHARE * (double)doubt->found.rows_off;
}

/* Where differences cancel inside of a module (dP - rowsum(P dP) of keys whose values are nearly equal), the fp32 numbers that are left are
 * off by much of a rounding, and most elements fall on either side of a border by chance. Then moving the reference's own fp32 numbers
 * moves a large share of its rows too. A draw is one run for all tensors that are still in doubt: there may be thousands. */
static enum sf_status explain_by_inner(struct doubts *doubts, struct sf_expectations *expectations) {
  enum { DRAWS = 8 };
  const struct sf_reference_sink sink = {.ctx = doubts, .emit = emit_moved};
  for (uint64_t draw = 0; draw < DRAWS; draw++) {
    struct sf_wanted wanted = {doubts->ids, 0};
    for (int32_t i = 0; i < doubts->count; i++) {
      const struct doubt *doubt = &doubts->of[i];
      doubts->at[doubt->expected->ordinal] = doubt->is_explained ? -1 : i;
      if (!doubt->is_explained) doubts->ids[wanted.count++] = doubt->expected->id;
    }
    if (wanted.count == 0) break;
    const enum sf_status status = sf_expectations_move_inner(expectations, draw, &wanted, &sink);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

/* Finds the tensors that look like findings. Memory is the judgement's. */
static enum sf_status find_doubts(struct doubts *out, const struct sf_judging *judging, const struct sf_expectations *expectations) {
  const struct sf_collector *collector = judging->collector;
  struct sf_arena *arena = collector->of_judgement;
  const int32_t count = sf_expectations_count(expectations);
  *out = (struct doubts){.expectations = expectations};
  out->of = sf_arena_alloc(arena, (size_t)judging->result_count * sizeof *out->of);
  out->ids = sf_arena_alloc(arena, (size_t)judging->result_count * sizeof *out->ids);
  out->at = sf_arena_alloc(arena, (size_t)count * sizeof *out->at);
  if (!out->of || !out->ids || !out->at) return SF_ENOMEM;
  for (int32_t i = 0; i < count; i++) out->at[i] = -1;
  for (int32_t i = 0; i < judging->result_count; i++) {
    struct sf_tensor_result *result = &judging->results[i];
    const int32_t ordinal = result->expected->ordinal;
    struct doubt doubt = {result, sf_slot_at(collector, ordinal, SF_SLOT_FIRST), sf_expectations_at(expectations, ordinal), {0}, false};
    if (!is_judged(collector, doubt.slot, result)) continue;
    sf_compare_roundings(&doubt.found, doubt.expected, doubt.slot->merged);
    result->rounding_share = doubt.found.share;
    if (doubt.found.flagged) out->of[out->count++] = doubt;
  }
  return SF_OK;
}

enum sf_status sf_judge_roundings(struct sf_judging *judging, struct sf_expectations *expectations) {
  if (!judging->collector->rounds_alike || judging->result_count == 0) return SF_OK;
  struct doubts doubts;
  enum sf_status status = find_doubts(&doubts, judging, expectations);
  if (status == SF_OK) status = explain_by_inner(&doubts, expectations);
  for (int32_t i = 0; status == SF_OK && i < doubts.count; i++) {
    const struct doubt *doubt = &doubts.of[i];
    if (doubt->is_explained) continue;
    report(judging, doubt->slot, doubt->result, &doubt->found);
    doubt->result->judged = doubt->result->flagged = true;
    doubt->result->why_not = NULL;
  }
  return status;
}
