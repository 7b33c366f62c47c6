/* The machinery of operation fuzzing on the device's own operations, with what a broken kernel would do put on top. */
#include "generators/shrink.h"
#include "harness/base/alloc.h"
#include "harness/base/pcg.h"
#include "harness/run/opfuzz/case/op_operands.h"
#include "harness/run/opfuzz/op_device.h"
#include "harness/run/opfuzz/op_table.h"
#include "harness/run/opfuzz/op_target.h"
#include "harness/run/process/subject.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CASES = 60, ELEMENTS = 2000 };

enum damage { NONE, ELEMENT, BESIDE, INPUT, SECOND_RUN, SKIPPED_ELEMENT };
struct breaker {
  struct sf_op_runner device;
  enum damage damage;
  int32_t operand;
  int64_t row, col;
  float value;
  int calls;
};

static void write_value(const struct sf_op_place *place, int64_t row, int64_t col, float value) {
  char *at = place->at + (size_t)(row * place->ld + col) * place->size_bytes;
  const double wide = (double)value;
  if (place->size_bytes == 8) memcpy(at, &wide, sizeof wide);
  else memcpy(at, &value, place->size_bytes);
}

static int broken_call(void *context, const struct sf_op_entry *entry, struct sf_op_memory *memory, const struct sf_op_case *c) {
  struct breaker *b = context;
  const struct sf_op_place *place = &memory->places[b->operand];
  const int code = b->device.call(b->device.context, entry, memory, c);
  const bool second = b->calls++ % 2 == 1;
  if (b->damage == ELEMENT || (b->damage == SECOND_RUN && second)) write_value(place, b->row, b->col, b->value);
  if (b->damage == INPUT) place->at[0] = (char)(place->at[0] ^ 1);
  if (b->damage == BESIDE) write_value(place, place->rows - 1, place->cols, 1.0f);
  if (b->damage == SKIPPED_ELEMENT) memcpy(place->at, memory->snapshot + (place->at - memory->arena), place->size_bytes);
  return code;
}

struct bed {
  struct sf_op_target target;
  struct sf_op_lab lab;
  struct sf_pcg pcg;
};

static int setup(void **state) {
  static struct bed bed;
  if (sf_op_target_make(&bed.target, "op:all", ELEMENTS, NULL) != SF_OK) return -1;
  bed.pcg = sf_pcg_create(11, 1);
  *state = &bed;
  return sf_op_lab_create(&bed.lab, &bed.target, SF_DEVICE_CPU, SF_CPU_GEMM_LOOPS, NULL) == SF_OK ? 0 : -1;
}
static int teardown(void **state) {
  struct bed *bed = *state;
  sf_op_lab_destroy(&bed->lab);
  return 0;
}

/* A target of one operation of the device. */
static struct sf_op_target only(const struct bed *bed, int32_t entry) {
  struct sf_op_target target = bed->target;
  target.entries[0] = bed->target.entries[entry];
  target.entry_count = 1;
  return target;
}

static bool has_elements(const struct sf_op_place *place) { return place->rows * place->cols > 0; }

/* An operand of the role that has elements; -1 when the case has none. */
static int32_t operand_of(const struct sf_op_memory *memory, bool output) {
  for (int32_t i = 0; i < memory->view.op->operand_count; i++)
    if ((memory->view.op->operands[i].role != SF_OP_IN) == output && has_elements(&memory->places[i])) return i;
  return -1;
}

/* Breaks CASES cases of each operation; those for which `prepare` finds nothing to break do not count. At least a third must. */
static void expect_class(struct bed *bed, enum damage damage, enum sf_finding_class wanted,
                         bool (*prepare)(struct bed *bed, struct breaker *breaker)) {
  for (int32_t e = 0; e < bed->target.entry_count; e++) {
    static struct sf_op_target target;
    struct breaker breaker = {.device = bed->lab.runner};
    const struct sf_op_runner broken = {broken_call, &breaker};
    struct sf_op_outcome outcome;
    int tried = 0;
    target = only(bed, e);
    for (uint64_t i = 0; i < CASES; i++) {
      struct sf_op_case c;
      sf_op_case_draw(&c, &target, 5, i);
      sf_op_trial_run(&outcome, &bed->lab.memory, &bed->lab.runner, &target, &c, false);
      assert_int_equal(outcome.verdict, SF_VERDICT_PASS);
      if (!prepare(bed, &breaker)) continue;
      breaker.damage = damage;
      sf_op_trial_run(&outcome, &bed->lab.memory, &broken, &target, &c, false);
      if (outcome.verdict != SF_VERDICT_FINDING || outcome.cls != wanted)
        fail_msg("%s: %s, not %s", target.entries[0].op->name, sf_finding_class_name(outcome.cls), sf_finding_class_name(wanted));
      tried++;
    }
    if (tried < CASES / 3 && wanted != SF_CLASS_INPUT && wanted != SF_CLASS_UNWRITTEN)
      fail_msg("%s: only %d of %d cases could be broken", target.entries[0].op->name, tried, CASES);
  }
}

/* One judged element moved by four times what explains its error, and a quarter of itself. */
static bool pick_element(struct bed *bed, struct breaker *breaker) {
  const struct sf_op_memory *memory = &bed->lab.memory;
  const int32_t i = operand_of(memory, true);
  if (i < 0) return false;
  const int64_t cols = memory->places[i].cols, at = (int64_t)sf_pcg_below(&bed->pcg, (uint64_t)(memory->places[i].rows * cols));
  const struct sf_num want = memory->view.at[i].want[at];
  if (!sf_num_plain(want)) return false;
  breaker->operand = i;
  breaker->row = at / cols, breaker->col = at % cols;
  breaker->value = (float)(want.v + copysign(4 * want.e + 0.25 * fabs(want.v) + 1e-6, want.v));
  return sf_op_stored((double)breaker->value, memory->places[i].dtype) != sf_op_stored(want.v, memory->places[i].dtype) &&
         isfinite(breaker->value);
}
static bool pick_output(struct bed *bed, struct breaker *breaker) {
  breaker->operand = operand_of(&bed->lab.memory, true);
  return breaker->operand >= 0;
}
/* An output that nothing lies in before the call. */
static bool pick_new_output(struct bed *bed, struct breaker *breaker) {
  const struct sf_op_memory *memory = &bed->lab.memory;
  for (int32_t i = 0; i < memory->view.op->operand_count; i++)
    if (memory->view.op->operands[i].role == SF_OP_OUT && has_elements(&memory->places[i]) && memory->places[i].end > 0) {
      breaker->operand = i;
      return true;
    }
  return false;
}
/* An input that no output shares. */
static bool pick_input(struct bed *bed, struct breaker *breaker) {
  const struct sf_op_memory *memory = &bed->lab.memory;
  for (int32_t i = 0; i < memory->view.op->operand_count; i++)
    if (memory->view.op->operands[i].role != SF_OP_IN && memory->places[i].end == 0) return false;
  breaker->operand = operand_of(memory, false);
  return breaker->operand >= 0;
}

static void test_ops_wrong_element_is_found(void **state) { expect_class(*state, ELEMENT, SF_CLASS_TOLERANCE, pick_element); }
static void test_ops_write_beside_an_output_is_found(void **state) { expect_class(*state, BESIDE, SF_CLASS_GUARD, pick_output); }
static void test_ops_changed_input_is_found(void **state) { expect_class(*state, INPUT, SF_CLASS_INPUT, pick_input); }
static void test_ops_second_run_that_differs_is_found(void **state) {
  expect_class(*state, SECOND_RUN, SF_CLASS_UNREPEATABLE, pick_element);
}
static void test_ops_element_not_written_is_found(void **state) {
  expect_class(*state, SKIPPED_ELEMENT, SF_CLASS_UNWRITTEN, pick_new_output);
}

/* Drawing twice gives the same case; writing and reading it too. */
/* What a report tells is what the call was given. */
static void test_ops_operands_apart_are_those_of_the_trial(void **state) {
  struct bed *bed = *state;
  for (uint64_t i = 0; i < 600; i++) {
    struct sf_op_case c;
    struct sf_op_shape shapes[SF_OP_OPERANDS_MAX];
    static struct sf_op_operands apart;
    const struct sf_op_view *in_trial = &bed->lab.memory.view;
    sf_op_case_draw(&c, &bed->target, 12, i);
    assert_true(sf_op_case_valid(&bed->target, &c, shapes, NULL));
    sf_op_memory_fill(&bed->lab.memory, &bed->target, &c, shapes);
    assert_int_equal(sf_op_operands_create(&apart, &bed->target, &c), SF_OK);
    for (int32_t k = 0; k < in_trial->op->operand_count; k++) {
      const struct sf_op_array *a = &apart.view.at[k], *b = &in_trial->at[k];
      if (in_trial->op->operands[k].role == SF_OP_OUT || a->rows * a->cols == 0) continue;
      assert_int_equal(a->rows * a->cols, b->rows * b->cols);
      assert_memory_equal(a->ints ? (const void *)a->ints : a->x, b->ints ? (const void *)b->ints : b->x, (size_t)(a->rows * a->cols) * 4);
    }
    sf_op_operands_destroy(&apart);
  }
}

static void test_ops_case_file_round_trip(void **state) {
  struct bed *bed = *state;
  for (uint64_t i = 0; i < 300; i++) {
    struct sf_op_case c, again, row;
    struct sf_case whole, back;
    char *json = NULL;
    sf_op_case_draw(&c, &bed->target, 9, i);
    sf_op_case_draw(&again, &bed->target, 9, i);
    assert_memory_equal(&c, &again, sizeof c);
    sf_op_case_put(&whole, &bed->target, &c);
    whole.expect = (struct sf_expect){true, "FINDING", "tolerance/x/y"};
    assert_int_equal(sf_case_to_json(&json, &whole), SF_OK);
    assert_int_equal(sf_case_from_json(&back, json, strlen(json), "case", NULL), SF_OK);
    assert_true(sf_case_is_operation(&back) && !sf_case_is_framework(&back));
    assert_string_equal(back.expect.signature, "tolerance/x/y");
    assert_int_equal(sf_op_case_of(&row, &back, &bed->target, NULL), SF_OK);
    assert_memory_equal(&c, &row, sizeof c);
    sf_free(json);
  }
}

/* A bug that needs some fields to be at least what they were. */
struct wanted {
  const struct sf_table *table;
  int64_t row[SF_SPACE_FIELDS_MAX];
};
static bool has_wanted(void *ctx, const struct sf_case *c) {
  const struct wanted *wanted = ctx;
  int64_t row[SF_SPACE_FIELDS_MAX];
  assert_true(wanted->table->kind->of_case(row, wanted->table, c));
  for (int32_t i = 0; i < SF_OP_FIELDS; i++)
    if (row[i] < wanted->row[i]) return false;
  return true;
}

/* Each drawn case has a row, which gives the case again; and what is left of a failing one has no smaller neighbour that fails. */
static void test_ops_shrink_ends_one_minimal(void **state) {
  struct bed *bed = *state;
  for (uint64_t i = 0; i < 150; i++) {
    struct sf_op_case c, again;
    struct sf_case from, to, further;
    struct sf_shrink_report report;
    struct wanted wanted = {.row = {0}};
    bool usable;
    sf_op_case_draw(&c, &bed->target, 21, i);
    const struct sf_op_table of = {&bed->target, &bed->target.entries[c.entry]};
    const struct sf_table table = sf_op_table(&of, i % 3 == 0);
    wanted.table = &table;
    sf_op_case_put(&from, &bed->target, &c);
    assert_true(table.kind->of_case(wanted.row, &table, &from));
    assert_int_equal(table.kind->to_case(&to, &table, wanted.row, NULL), SF_OK);
    assert_int_equal(sf_op_case_of(&again, &to, &bed->target, NULL), SF_OK);
    assert_memory_equal(&c, &again, sizeof c);
    for (int32_t k = 0; k < SF_OP_FIELDS; k++)
      if ((i + (uint64_t)k) % 4 != 0 || k == SF_OP_SEED) wanted.row[k] = 0;
    assert_int_equal(sf_shrink_run(&to, &from, &table, has_wanted, &wanted, 20000, &report), SF_OK);
    assert_true(report.minimal);
    for (int pass = 0; table.kind->passes[pass].kind != SF_PASS_END; pass++)
      for (int64_t step = 0; sf_shrink_candidate(&table, &further, &usable, &to, pass, step); step++)
        if (usable) assert_false(has_wanted(&wanted, &further));
  }
}

/* Whatever stands in a row, it fits into a case. */
static void test_ops_largest_row_fits_a_case(void **state) {
  struct bed *bed = *state;
  static struct sf_op_target reference;
  (void)bed;
  sf_op_target_reference(&reference, "op:all", SF_OP_ELEMENTS_MOST);
  for (int32_t e = 0; e < reference.entry_count; e++) {
    struct sf_op_case c = {.entry = e};
    struct sf_case whole;
    for (int32_t i = 0; i < SF_OP_FIELDS; i++) c.field[i] = sf_op_value_name(i, 0) ? 1 : INT64_MAX;
    sf_op_case_put(&whole, &reference, &c);
    assert_true(strlen(whole.fields) < sizeof whole.fields - 256);
  }
}

/* By itself a GPU gets time to start. A file's case has twice as long as one of a range. */
static void test_ops_deadline_by_the_device(void **state) {
  struct bed *bed = *state;
  const struct sf_pool_options cpu = {.operations = &bed->target}, gpu = {.operations = &bed->target, .device = SF_DEVICE_CUDA};
  struct sf_op_case c;
  struct sf_case whole;
  struct sf_job range;
  sf_op_case_draw(&c, &bed->target, 9, 0);
  sf_op_case_put(&whole, &bed->target, &c);
  sf_job_of_range(&range, &cpu, 1, 0, 5);
  assert_true(sf_pool_deadline(&cpu, &range.c) == 5 && sf_pool_deadline(&cpu, &whole) == 10);
  assert_true(sf_pool_deadline(&gpu, &range.c) >= 30 && sf_pool_deadline(&gpu, &whole) == 2 * sf_pool_deadline(&gpu, &range.c));
}

static void test_ops_every_call_of_the_device_is_an_operation(void **state) {
  (void)state;
  int32_t known = 0;
  for (int32_t i = 0; i < sf_op_count(); i++) known += sf_op_device_has(sf_op_at(i));
  assert_int_equal(known, sf_op_device_count());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ops_every_call_of_the_device_is_an_operation),
      cmocka_unit_test(test_ops_wrong_element_is_found),
      cmocka_unit_test(test_ops_write_beside_an_output_is_found),
      cmocka_unit_test(test_ops_changed_input_is_found),
      cmocka_unit_test(test_ops_second_run_that_differs_is_found),
      cmocka_unit_test(test_ops_element_not_written_is_found),
      cmocka_unit_test(test_ops_case_file_round_trip),
      cmocka_unit_test(test_ops_operands_apart_are_those_of_the_trial),
      cmocka_unit_test(test_ops_deadline_by_the_device),
      cmocka_unit_test(test_ops_largest_row_fits_a_case),
      cmocka_unit_test(test_ops_shrink_ends_one_minimal),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
