#include "harness/run/opfuzz/op_trial.h"

#include "harness/base/assert.h"
#include "harness/base/float_mode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct sf_op_result result_of(const struct sf_op_memory *memory, int32_t operand) {
  const struct sf_op_place *place = &memory->places[operand];
  return (struct sf_op_result){.got = memory->results[operand],
                               .want = memory->view.at[operand].want,
                               .rows = place->rows,
                               .cols = place->cols,
                               .dtype = place->dtype,
                               .bits = memory->view.op->operands[operand].bits};
}

static void find(struct sf_op_outcome *outcome, enum sf_finding_class cls) {
  outcome->verdict = SF_VERDICT_FINDING;
  outcome->cls = cls;
}

static void at_element(struct sf_op_outcome *outcome, enum sf_finding_class cls, const struct sf_op_memory *memory, int32_t operand,
                       int64_t element) {
  const int64_t cols = memory->places[operand].cols;
  find(outcome, cls);
  outcome->operand = operand;
  outcome->row = cols ? element / cols : 0;
  outcome->col = cols ? element % cols : element;
}

/* Names the place of a write beside an operand. */
static void name_place(struct sf_op_outcome *outcome, const struct sf_op_memory *memory) {
  const struct sf_op_place *place = &memory->places[outcome->operand];
  char where[sizeof outcome->said - 8];
  if (!place->at || place->far) return;
  const int32_t operand = sf_op_memory_where(where, sizeof where, memory, place->at + outcome->col * (int64_t)place->size_bytes, true);
  if (operand < 0) return;
  outcome->operand = operand;
  snprintf(outcome->said, sizeof outcome->said, "writes %s", where);
}

/* Makes one call and checks what it left behind; false when that is a finding. */
static bool run_once(struct sf_op_outcome *outcome, struct sf_op_memory *memory, const struct sf_op_runner *runner,
                     const struct sf_op_entry *entry, const struct sf_op_case *c, int run) {
  int64_t element = 0;
  bool inside = false;
  outcome->code = runner->call(runner->context, entry, memory, c);
  const struct sf_float_mode left = sf_float_mode_restore();
  if (!sf_float_mode_is_default(left)) {
    find(outcome, SF_CLASS_ROUNDING);
    sf_float_mode_text(outcome->said, sizeof outcome->said, left);
    return false;
  }
  if (outcome->code != 0) {
    if (outcome->code == 1)
      outcome->verdict = SF_VERDICT_SKIP;
    else
      find(outcome, SF_CLASS_REFUSED);
    return false;
  }
  const int32_t unwritten = sf_op_memory_collect(memory, run, &element), damaged = sf_op_memory_damage(memory, &inside, &element);
  if (damaged >= 0) {
    find(outcome, inside ? SF_CLASS_INPUT : SF_CLASS_GUARD);
    outcome->operand = damaged;
    outcome->row = -1;
    outcome->col = element;
    if (!inside) name_place(outcome, memory);
    return false;
  }
  if (unwritten >= 0) at_element(outcome, SF_CLASS_UNWRITTEN, memory, unwritten, element);
  return unwritten < 0;
}

static bool same(double a, double b) { return a == b ? signbit(a) == signbit(b) : isnan(a) && isnan(b); }

/* Compares two runs; false, with the place, where they differ. */
static bool compare_runs(struct sf_op_outcome *outcome, const struct sf_op_memory *memory) {
  const struct sf_op *op = memory->view.op;
  for (int32_t i = 0; i < op->operand_count; i++) {
    if (op->operands[i].role == SF_OP_IN) continue;
    const double *first = memory->results[i], *second = memory->got[1] + (first - memory->got[0]);
    const int64_t count = memory->places[i].rows * memory->places[i].cols;
    if (memcmp(first, second, (size_t)count * sizeof *first) == 0) continue;
    for (int64_t k = 0; k < count; k++)
      if (!same(first[k], second[k])) {
        at_element(outcome, SF_CLASS_UNREPEATABLE, memory, i, k);
        outcome->got = second[k];
        outcome->want = first[k];
        return false;
      }
  }
  return true;
}

static void judge(struct sf_op_outcome *outcome, struct sf_op_memory *memory) {
  const struct sf_op *op = memory->view.op;
  op->reference(&memory->view);
  for (int32_t i = 0; i < op->operand_count; i++) {
    if (op->operands[i].role == SF_OP_IN) continue;
    const struct sf_op_result result = result_of(memory, i);
    const int64_t wrong = sf_op_first_wrong(&result, &outcome->judged);
    if (wrong < 0) {
      outcome->elements += result.rows * result.cols;
      continue;
    }
    at_element(outcome, SF_CLASS_TOLERANCE, memory, i, wrong);
    outcome->got = result.got[wrong];
    outcome->want = result.want[wrong].v;
    outcome->bound = result.want[wrong].e;
    outcome->error = sf_op_measure(&result);
    return;
  }
}

static void measure_all(struct sf_op_outcome *outcome, const struct sf_op_memory *memory) {
  const struct sf_op *op = memory->view.op;
  for (int32_t i = 0; i < op->operand_count; i++) {
    if (op->operands[i].role == SF_OP_IN) continue;
    const struct sf_op_result result = result_of(memory, i);
    const struct sf_op_error error = sf_op_measure(&result);
    if (outcome->operand >= 0 && !(error.ulps > outcome->error.ulps)) continue;
    outcome->operand = i;
    outcome->error = error;
  }
}

void sf_op_trial_run(struct sf_op_outcome *outcome, struct sf_op_memory *memory, const struct sf_op_runner *runner,
                     const struct sf_op_target *target, const struct sf_op_case *c, bool measure) {
  struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
  const struct sf_op_entry *entry = &target->entries[c->entry];
  memset(outcome, 0, sizeof *outcome);
  outcome->operand = -1;
  (void)sf_op_shapes(shapes, entry->op, c->field + SF_OP_DIM, c->field + SF_OP_ATTR);
  sf_op_memory_fill(memory, target, c, shapes);
  if (!run_once(outcome, memory, runner, entry, c, 0)) return;
  if (!run_once(outcome, memory, runner, entry, c, 1)) return;
  if (!compare_runs(outcome, memory)) return;
  judge(outcome, memory);
  if (measure && outcome->verdict == SF_VERDICT_PASS) measure_all(outcome, memory);
}

bool sf_op_trial_picture(struct sf_picture *out, const struct sf_op_memory *memory, const struct sf_op_outcome *outcome) {
  if (outcome->verdict != SF_VERDICT_FINDING || outcome->cls != SF_CLASS_TOLERANCE) return false;
  const struct sf_op_result result = result_of(memory, outcome->operand);
  sf_picture_begin(out, (struct sf_shape){result.rows, result.cols});
  for (int64_t k = 0; k < result.rows * result.cols; k++)
    sf_picture_add(out, k / result.cols, k % result.cols, (float)result.want[k].v, (float)result.got[k], result.want[k].e);
  return true;
}

void sf_op_signature(char *out, size_t size, const struct sf_op *op, const struct sf_op_outcome *outcome) {
  const char *operand = outcome->operand >= 0 ? op->operands[outcome->operand].name : "";
  snprintf(out, size, "%s/%s%s%s", sf_finding_class_name(outcome->cls), op->name, *operand ? "/" : "", operand);
}
