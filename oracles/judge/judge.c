/* Judges the collected tensors: structure, exact promises, tolerances with as many perturbed runs as needed, the step; then sorts the
 * findings. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "harness/tensor/same.h"
#include "oracles/noise/norms.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sf_finding_class_name(enum sf_finding_class cls) {
  static const char *const names[SF_CLASS_COUNT] = {
#define X(name, text, meaning) [SF_CLASS_##name] = text,
      SF_CLASS_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)cls, SF_CLASS_COUNT);
  return names[cls];
}

/* --- results and findings ------------------------------------------------------------------------------------- */

/* The order of findings at one tensor: causes come before what follows from them. First parts that are wrong or missing, values that are
 * not finite, broken promises of equal bits and the wrong format, and only then distance. */
static int32_t class_priority(enum sf_finding_class cls) {
  static const enum sf_finding_class order[] = {SF_CLASS_MAP,      SF_CLASS_GAP,   SF_CLASS_OVERLAP, SF_CLASS_NONFINITE,
                                                SF_CLASS_CONFLICT, SF_CLASS_EXACT, SF_CLASS_BITS,    SF_CLASS_TOLERANCE};
  const int32_t count = (int32_t)(sizeof order / sizeof *order);
  for (int32_t i = 0; i < count; i++)
    if (order[i] == cls) return i;
  return count;
}

static struct sf_ranked_finding *findings_grow(struct sf_judging *judging) {
  if (judging->finding_count == judging->finding_capacity) {
    const int32_t capacity = judging->finding_capacity > 0 ? 2 * judging->finding_capacity : 16;
    struct sf_ranked_finding *grown = sf_arena_alloc(judging->collector->of_judgement, (size_t)capacity * sizeof *grown);
    if (grown == NULL) return NULL;
    if (judging->finding_count > 0) memcpy(grown, judging->findings, (size_t)judging->finding_count * sizeof *grown);
    judging->findings = grown;
    judging->finding_capacity = capacity;
  }
  return &judging->findings[judging->finding_count++];
}

static struct sf_finding *finding_add(struct sf_judging *judging, enum sf_finding_class cls, struct sf_trace_id id,
                                      enum sf_slot_phase phase, int32_t module, int32_t ordinal) {
  struct sf_ranked_finding *ranked = findings_grow(judging);
  struct sf_finding *finding = ranked != NULL ? &ranked->finding : &judging->spare;
  *finding = (struct sf_finding){.cls = cls, .id = id, .module = module, .ordinal = ordinal, .rank = -1, .row = -1};
  if (ranked == NULL) {
    judging->status = SF_ENOMEM;
    return finding;
  }
  ranked->priority = class_priority(cls);
  ranked->phase = phase;
  return finding;
}

struct sf_finding *sf_judging_add(struct sf_judging *judging, const struct sf_slot *slot, enum sf_finding_class cls) {
  return finding_add(judging, cls, sf_slot_id(slot), slot->phase, slot->expected->spec.module, slot->expected->ordinal);
}

struct sf_tensor_result *sf_judging_result(struct sf_judging *judging, const struct sf_slot *slot) {
  SF_ASSERT_LT(judging->result_count, judging->collector->count);
  struct sf_tensor_result *result = &judging->results[judging->result_count++];
  *result = (struct sf_tensor_result){.id = slot->expected->id, .expected = slot->expected, .norm = slot->expected->norm, .judged = true};
  return result;
}

void sf_finding_say(struct sf_finding *finding, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(finding->text, sizeof finding->text, format, args);
  va_end(args);
}

const char *sf_distance_text(char out[SF_DISTANCE_TEXT], double error, double norm, double noise) {
  char reference[64] = "";
  if (norm > 0 && error <= 10 * norm)
    snprintf(reference, sizeof reference, ", reference norm %.3g (%.3g %%)", norm, 100 * error / norm);
  else if (norm > 0)
    snprintf(reference, sizeof reference, ", reference norm %.3g (%.3g times)", norm, error / norm);
  else if (norm == 0)
    snprintf(reference, sizeof reference, ", reference norm 0");
  snprintf(out, SF_DISTANCE_TEXT, "error norm %.3g%s; rounding explains at most %.2g", error, reference, noise);
  return out;
}

/* The pattern of memory that was never written, also after it was stored as bf16 or fp16. */
static bool is_poison(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & 0xffbf0000u) == 0x7fa50000u;
}

bool sf_judging_nonfinite(struct sf_judging *judging, const struct sf_slot *slot, const struct sf_expected *e) {
  const struct sf_shape shape = e->spec.shape;
  const int64_t at = sf_first_nonfinite(slot->merged, e->x, shape.rows * shape.cols);
  if (at < 0) return false;
  const float value = slot->merged[at];
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_NONFINITE);
  finding->row = at / shape.cols;
  finding->rank = sf_slot_rank_of(judging->collector, slot, at / shape.cols, at % shape.cols);
  finding->error = finding->ratio = INFINITY;
  finding->anchored = e != slot->expected;
  const char *what = value == value ? "infinity" : is_poison(value) ? "NaN of memory that was never written" : "NaN";
  sf_finding_say(finding, "%s at (%" PRId64 ", %" PRId64 "), where the reference has %g", what, at / shape.cols, at % shape.cols,
                 (double)e->x[at]);
  return true;
}

/* --- structure ------------------------------------------------------------------------------------------------ */

static void judge_slot_structure(struct sf_judging *judging, const struct sf_slot *slot, bool complete) {
  if (slot->map_rank >= 0) {
    struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_MAP);
    finding->rank = slot->map_rank;
    sf_finding_say(finding, "rank %d declares a shard that is not the one it must hold", slot->map_rank);
  }
  const int32_t missing = complete ? sf_slot_missing_rank(judging->collector, slot) : -1;
  if (missing >= 0) {
    struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_GAP);
    finding->rank = missing;
    sf_finding_say(finding, "rank %d did not trace its part: %d of %d came", missing, slot->arrived, slot->holders);
  }
  if (slot->gap_rank >= 0) {
    struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_GAP);
    finding->rank = slot->gap_rank;
    sf_finding_say(finding, "the ranges that the ranks hold leave elements out, next to that of rank %d", slot->gap_rank);
  }
  if (slot->overlap_rank >= 0) {
    struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_OVERLAP);
    finding->rank = slot->overlap_rank;
    sf_finding_say(finding, "rank %d holds a range that begins inside another rank's", slot->overlap_rank);
  }
  if (slot->stranger_rank >= 0) {
    struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_OVERLAP);
    finding->rank = slot->stranger_rank;
    sf_finding_say(finding, "rank %d traced it and is not one of its %d holders", slot->stranger_rank, slot->holders);
  }
  if (slot->repeated_rank >= 0) {
    struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_OVERLAP);
    finding->rank = slot->repeated_rank;
    sf_finding_say(finding, "rank %d traced it more than once", slot->repeated_rank);
  }
}

static int compare_unknown(const void *a, const void *b) {
  const struct sf_unknown *x = a, *y = b;
  const uint64_t left = sf_trace_key(x->id), right = sf_trace_key(y->id);
  if (left != right) return left < right ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Tensors that no rank should have traced. Those that the reference lacks come last, because its order has no place for them. */
static void judge_unknown(struct sf_judging *judging) {
  struct sf_collector *collector = judging->collector;
  if (collector->unknown_count > 0)
    qsort(collector->unknown, (size_t)collector->unknown_count, sizeof *collector->unknown, compare_unknown);
  for (int32_t i = 0; i < collector->unknown_count; i++) {
    const struct sf_unknown *unknown = &collector->unknown[i];
    if (i > 0 && sf_trace_key(unknown[-1].id) == sf_trace_key(unknown->id)) continue;
    const struct sf_slot *slot = sf_slot_find(collector, unknown->id);
    struct sf_trace_spec spec;
    int32_t module = sf_catalog_module(collector->catalog, SF_MODULE_OPTIMIZER, -1), ordinal = collector->count;
    if (slot != NULL)
      module = slot->expected->spec.module, ordinal = slot->expected->ordinal;
    else if (sf_trace_spec(&spec, collector->catalog, unknown->id))
      module = spec.module;
    struct sf_finding *finding =
        finding_add(judging, SF_CLASS_OVERLAP, unknown->id, slot != NULL ? slot->phase : SF_SLOT_FIRST, module, ordinal);
    finding->rank = unknown->rank;
    sf_finding_say(finding, "rank %d traced %s", unknown->rank,
                   slot != NULL ? "a tensor that this layout does not trace again" : "a tensor that the reference does not have");
  }
}

static void judge_structure(struct sf_judging *judging, bool complete) {
  const struct sf_collector *collector = judging->collector;
  for (int64_t i = 0; i < (int64_t)collector->count * SF_SLOT_PHASES; i++)
    if (collector->slots[i].holders > 0) judge_slot_structure(judging, &collector->slots[i], complete);
  judge_unknown(judging);
}

/* --- promises of equal bits ----------------------------------------------------------------------------------- */

/* A stage must receive what was sent: end to end the value that the sender traced, in isolated mode the value that replaced it. */
static void judge_received(struct sf_judging *judging, const struct sf_slot *slot) {
  struct sf_collector *collector = judging->collector;
  const struct sf_slot *sent = slot - SF_SLOT_RECEIVED + SF_SLOT_FIRST;
  const struct sf_shape shape = slot->expected->spec.shape;
  const int64_t count = shape.rows * shape.cols;
  const bool isolated = collector->c.mode == SF_MODE_ISOLATED;
  if (!sf_slot_is_whole(slot) || !(isolated || sf_slot_is_whole(sent))) return;
  const struct sf_arena_mark mark = sf_arena_mark(collector->of_judgement);
  const float *expected = sent->merged;
  if (isolated) {
    float *filled = sf_arena_alloc(collector->of_judgement, (size_t)count * sizeof *filled);
    if (filled == NULL) {
      judging->status = SF_ENOMEM;
      return;
    }
    const struct sf_fill fill = sf_fill_for_trace(collector->catalog, sent->expected->id);
    sf_fill_range(filled, &fill, 0, count);
    expected = filled;
  }
  int64_t first = 0;
  const int64_t differing = sf_count_differing(slot->merged, expected, count, &first);
  sf_arena_rewind(collector->of_judgement, mark);
  if (differing == 0) return;
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_EXACT);
  finding->row = first / shape.cols;
  finding->rank = sf_slot_rank_of(collector, slot, first / shape.cols, first % shape.cols);
  sf_finding_say(finding, "received tensor differs from what was sent in %" PRId64 " of %" PRId64 " elements", differing, count);
}

/* Recomputed values were compared with the merged first pass. If replicas of that differ, it may have been another rank's, so only the
 * conflict is reported. */
static void judge_recomputed(struct sf_judging *judging, const struct sf_slot *slot) {
  const struct sf_slot *first = slot - SF_SLOT_RECOMPUTED + SF_SLOT_FIRST;
  if (slot->differing_rank < 0 || first->unusable || first->differing_rank >= 0) return;
  struct sf_finding *finding = sf_judging_add(judging, slot, SF_CLASS_EXACT);
  finding->rank = slot->differing_rank;
  sf_finding_say(finding, "recomputed activation differs from the first pass in %" PRId64 " elements on rank %d", slot->differing,
                 slot->differing_rank);
}

/* cls: EXACT for received tensors, where every copy must equal what was sent, even if there is only one. */
static void judge_replicas(struct sf_judging *judging, const struct sf_slot *slot, enum sf_finding_class cls) {
  if (slot->differing_rank < 0 || slot->unusable) return;
  struct sf_finding *finding = sf_judging_add(judging, slot, cls);
  finding->rank = slot->differing_rank;
  sf_finding_say(finding, "rank %d holds a replica that differs in %" PRId64 " elements", slot->differing_rank, slot->differing);
}

static void judge_promises(struct sf_judging *judging) {
  const struct sf_collector *collector = judging->collector;
  for (int32_t i = 0; i < collector->count; i++) {
    judge_replicas(judging, sf_slot_at(collector, i, SF_SLOT_FIRST), SF_CLASS_CONFLICT);
    judge_replicas(judging, sf_slot_at(collector, i, SF_SLOT_RECEIVED), SF_CLASS_EXACT);
    judge_received(judging, sf_slot_at(collector, i, SF_SLOT_RECEIVED));
    judge_recomputed(judging, sf_slot_at(collector, i, SF_SLOT_RECOMPUTED));
  }
}

/* --- verdict -------------------------------------------------------------------------------------------------- */

/* Sorts by the reference's order of execution, so that the first finding is where the run first went wrong. A received or recomputed tensor
 * sorts with the one that it repeats: it depends on nothing later, and everything that depends on it comes later. */
static int compare_findings(const void *a, const void *b) {
  const struct sf_ranked_finding *x = a, *y = b;
  if (x->finding.ordinal != y->finding.ordinal) return x->finding.ordinal < y->finding.ordinal ? -1 : 1;
  if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
  if (x->phase != y->phase) return x->phase < y->phase ? -1 : 1;
  const uint64_t left = sf_trace_key(x->finding.id), right = sf_trace_key(y->finding.id);
  if (left != right) return left < right ? -1 : 1;
  if (x->finding.rank != y->finding.rank) return x->finding.rank < y->finding.rank ? -1 : 1;
  return strcmp(x->finding.text, y->finding.text);
}

static int compare_results(const void *a, const void *b) {
  const struct sf_tensor_result *x = a, *y = b;
  return (x->expected->ordinal > y->expected->ordinal) - (x->expected->ordinal < y->expected->ordinal);
}

bool sf_overflow_explains(const struct sf_judging *judging, const struct sf_slot *slot) {
  const struct sf_expected *e = slot->expected;
  return e->id.step >= judging->overflow_step && sf_first_nonfinite(slot->merged, e->x, e->spec.shape.rows * e->spec.shape.cols) >= 0;
}

/* Whether both the candidate's tensor and what it is compared with are not finite, as loss scaling expects. Then the check that the step is
 * skipped replaces this one. */
static bool overflows_for_certain(const struct sf_collector *collector, int32_t ordinal) {
  const struct sf_slot *slot = sf_slot_at(collector, ordinal, SF_SLOT_FIRST);
  if (collector->c.precision.loss_scale_log2 == 0 || collector->anchored == NULL || !sf_slot_is_whole(slot)) return false;
  const struct sf_expected *e = sf_expectations_at(collector->anchored, ordinal);
  return !isfinite(e->norm) && sf_first_nonfinite(slot->merged, NULL, e->spec.shape.rows * e->spec.shape.cols) >= 0;
}

/* Every kind that the case has must have at least one tensor that could be judged. */
static bool every_kind_judged(const struct sf_judging *judging) {
  bool has[SF_KIND_COUNT] = {false}, judged[SF_KIND_COUNT] = {false};
  const struct sf_collector *collector = judging->collector;
  for (int32_t i = 0; i < collector->count; i++) {
    const struct sf_expected *e = sf_slot_at(collector, i, SF_SLOT_FIRST)->expected;
    if (!overflows_for_certain(collector, i)) has[e->id.kind] = true;
  }
  for (int32_t i = 0; i < judging->result_count; i++)
    if (judging->results[i].judged) judged[judging->results[i].id.kind] = true;
  for (int kind = 0; kind < SF_KIND_COUNT; kind++)
    if (sf_kind_has_noise((enum sf_kind)kind) && has[kind] && !judged[kind]) return false;
  return true;
}

static enum sf_status judgement_fill(struct sf_judgement *out, struct sf_judging *judging) {
  struct sf_finding *findings = sf_arena_alloc(judging->collector->of_judgement, (size_t)judging->finding_count * sizeof *findings);
  if (findings == NULL) return SF_ENOMEM;
  if (judging->finding_count > 0) qsort(judging->findings, (size_t)judging->finding_count, sizeof *judging->findings, compare_findings);
  qsort(judging->results, (size_t)judging->result_count, sizeof *judging->results, compare_results);
  for (int32_t i = 0; i < judging->finding_count; i++) findings[i] = judging->findings[i].finding;
  struct sf_judgement judgement = {.finding_count = judging->finding_count, .findings = findings};
  judgement.result_count = judging->result_count;
  judgement.results = judging->results;
  for (int32_t i = 0; i < judging->result_count; i++) judgement.checked += judging->results[i].judged;
  judgement.unchecked = judging->result_count - judgement.checked;
  judgement.verdict = judging->finding_count > 0   ? SF_VERDICT_FINDING
                      : every_kind_judged(judging) ? SF_VERDICT_PASS
                                                   : SF_VERDICT_INCONCLUSIVE;
  *out = judgement;
  return SF_OK;
}

static enum sf_status judging_create(struct sf_judging *out, struct sf_collector *collector) {
  struct sf_judging judging = {.collector = collector, .overflow_step = INT32_MAX};
  int64_t rows = 1;
  for (int32_t i = 0; i < collector->count; i++) {
    const int64_t own = sf_slot_at(collector, i, SF_SLOT_FIRST)->expected->spec.shape.rows;
    rows = own > rows ? own : rows;
  }
  judging.row_scratch = sf_arena_alloc(collector->of_judgement, (size_t)rows * sizeof *judging.row_scratch);
  judging.results = sf_arena_alloc(collector->of_judgement, (size_t)collector->count * sizeof *judging.results);
  if (judging.row_scratch == NULL || judging.results == NULL) return SF_ENOMEM;
  *out = judging;
  return SF_OK;
}

void sf_collector_be_quick(struct sf_collector *collector, bool quick) { collector->is_quick = quick; }

enum sf_status sf_judge(struct sf_collector *collector, bool complete, struct sf_judgement *out) {
  if (collector->status != SF_OK) return collector->status;
  sf_arena_reset(collector->of_judgement);
  struct sf_judging judging;
  enum sf_status status = judging_create(&judging, collector);
  if (status != SF_OK) return status;
  judge_structure(&judging, complete);
  judge_promises(&judging);
  status = sf_judge_tolerances(&judging);
  if (status != SF_OK) return status;
  sf_judge_steps(&judging);
  return judging.status != SF_OK ? judging.status : judgement_fill(out, &judging);
}
