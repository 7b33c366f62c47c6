/* The solver against trying every row, on rules and ranges drawn at random. */
#include "harness/space/solver.h"

#include "harness/base/pcg.h"
#include "tests/rounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { FIELDS = 5, VALUES = 7, RULES = 6 };
static const struct sf_space_field fields[FIELDS] = {{"a", 1, NULL}, {"b", 0, NULL}, {"c", 2, NULL}, {"d", 0, NULL}, {"e", 1, NULL}};

static int64_t below(struct sf_pcg *pcg, int64_t bound) { return (int64_t)sf_pcg_below(pcg, (uint64_t)bound); }
static const char *word(struct sf_pcg *pcg) { return fields[below(pcg, FIELDS)].path; }

static const char *draw_relation(char *out, size_t size, struct sf_pcg *pcg) {
  static const char *const kinds[] = {"divides", "=", "!=", "<", "<=", ">", ">="};
  const char *kind = kinds[below(pcg, 7)], *x = word(pcg), *y = word(pcg), *z = word(pcg);
  switch (below(pcg, 7)) {
  case 0:
    snprintf(out, size, "%s %s %d", x, kind, (int)below(pcg, VALUES));
    break;
  case 5:
    snprintf(out, size, "2 * %s * %s %s %d", x, y, kind, (int)below(pcg, 2 * VALUES));
    break;
  case 1:
    snprintf(out, size, "%s * %s %s %s", x, y, kind, z);
    break;
  case 2:
    snprintf(out, size, "%s + %s %s 2 * %s", x, y, kind, z);
    break;
  case 3:
    snprintf(out, size, "%s - has(%s) %s %s - %s", x, y, kind, z, x);
    break;
  case 4:
    snprintf(out, size, "%s", x);
    break;
  default:
    snprintf(out, size, "%s %s %s", x, kind, y);
    break;
  }
  return out;
}

static void draw_rule(char *out, size_t size, struct sf_pcg *pcg) {
  char a[60], b[60];
  draw_relation(a, sizeof a, pcg);
  draw_relation(b, sizeof b, pcg);
  switch (below(pcg, 5)) {
  case 0:
    snprintf(out, size, "%s or %s", a, b);
    break;
  case 1:
    snprintf(out, size, "%s if %s", a, b);
    break;
  case 2:
    snprintf(out, size, "%s needs %s", word(pcg), a);
    break;
  case 3:
    snprintf(out, size, "%s excludes %s", word(pcg), a);
    break;
  default:
    snprintf(out, size, "%s", a);
    break;
  }
}

/* Rules that are no text: lists of conditions, and a product of places that count as other numbers. */
struct drawn {
  struct sf_rule_condition conditions[RULES][FIELDS];
  int32_t values[RULES][FIELDS][VALUES];
};

static void add_conditions(struct sf_rules *rules, struct drawn *drawn, int which, struct sf_pcg *pcg) {
  int32_t count = 0;
  for (int32_t field = 0; field < FIELDS; field++) {
    int32_t *values = drawn->values[which][count], value_count = 0;
    if (below(pcg, 2)) continue;
    for (int32_t value = 0; value < VALUES; value++)
      if (below(pcg, 3) == 0) values[value_count++] = value;
    drawn->conditions[which][count++] = (struct sf_rule_condition){field, value_count, values, below(pcg, 2) == 0};
  }
  sf_rules_add_conditions(rules, drawn->conditions[which], count, count, NULL);
}

static void add_product(struct sf_rules *rules) {
  static const int32_t powers[VALUES] = {1, 2, 4, 8, 3, 1, 0}, *const counts_as[3] = {powers, powers, powers};
  static const int16_t of[3] = {0, 2, 4};
  sf_rules_add_product(rules, of, counts_as, 3, 1, 3);
}

/* Whether some row in the ranges keeps all rules. */
static bool exists(const struct sf_rules *rules, const struct sf_range *ranges) {
  int64_t at[FIELDS];
  for (int i = 0; i < FIELDS; i++) at[i] = ranges[i].lo;
  for (;;) {
    if (sf_rules_broken(rules, at) == NULL) return true;
    int field = 0;
    while (field < FIELDS && at[field] == ranges[field].hi) at[field] = ranges[field].lo, field++;
    if (field == FIELDS) return false;
    at[field]++;
  }
}

static void check_witness(const struct sf_solver *solver, const struct sf_range *ranges) {
  assert_null(sf_rules_broken(solver->rules, solver->witness));
  for (int i = 0; i < FIELDS; i++) assert_in_range(solver->witness[i], ranges[i].lo, ranges[i].hi);
}

/* Asks for each value of each field, then narrows one of them, until all are decided. */
static void check_questions(struct sf_solver *solver, struct sf_range *ranges, struct sf_pcg *pcg) {
  for (int i = 0; i < FIELDS; i++) {
    struct sf_range allowed = {0, -1};
    for (int64_t value = 0; value < VALUES; value++) {
      const struct sf_range before = ranges[i], one = {value, value};
      const bool inside = value >= before.lo && value <= before.hi;
      ranges[i] = one;
      const bool expected = inside && exists(solver->rules, ranges);
      ranges[i] = before;
      if (sf_solver_allows(solver, i, one) != expected) fail_msg("%s = %d: expected %d", fields[i].path, (int)value, expected);
      check_witness(solver, ranges);
      if (expected && (allowed.lo > allowed.hi || below(pcg, 3) == 0)) allowed = one;
    }
    ranges[i] = allowed;
    assert_true(sf_solver_narrow(solver, i, allowed));
    check_witness(solver, ranges);
  }
}

static void test_solver_answers_as_trying_every_row_does(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(3, 1);
  int feasible = 0, infeasible = 0;
  for (int round = 0; round < SF_ROUNDS(600); round++) {
    static struct sf_rules rules;
    static struct drawn drawn;
    struct sf_solver solver;
    struct sf_range ranges[FIELDS];
    sf_rules_init(&rules, fields, FIELDS);
    for (int64_t i = below(&pcg, 4); i > 0; i--) add_conditions(&rules, &drawn, (int)i, &pcg);
    if (below(&pcg, 4) == 0) add_product(&rules);
    for (int64_t i = below(&pcg, RULES); i > 0; i--) {
      char text[200];
      draw_rule(text, sizeof text, &pcg);
      sf_rules_add(&rules, text, NULL);
    }
    for (int i = 0; i < FIELDS; i++) ranges[i].lo = below(&pcg, VALUES), ranges[i].hi = ranges[i].lo + below(&pcg, VALUES - ranges[i].lo);
    sf_solver_init(&solver, &rules, ranges);
    assert_int_equal(solver.feasible, exists(&rules, ranges));
    solver.feasible ? feasible++ : infeasible++;
    if (solver.feasible)
      check_questions(&solver, ranges, &pcg);
    else
      assert_false(sf_solver_allows(&solver, 0, ranges[0]));
  }
  print_message("%d feasible, %d not\n", feasible, infeasible);
  assert_true(feasible > SF_ROUNDS(200) && infeasible > SF_ROUNDS(50));
}

/* Values far from where the search begins, and none where there is none. */
static void test_solver_finds_rows_in_wide_ranges(void **state) {
  (void)state;
  static struct sf_rules rules;
  struct sf_solver solver;
  const struct sf_range ranges[FIELDS] = {{1, 65536}, {0, 65536}, {2, 65536}, {0, 1048576}, {1, 1}};
  sf_rules_init(&rules, fields, FIELDS);
  sf_rules_add(&rules, "a divides b", NULL);
  sf_rules_add(&rules, "b > 60000", NULL);
  sf_rules_add(&rules, "a > 7900", NULL);
  sf_rules_add(&rules, "7907 divides d", NULL);
  sf_rules_add(&rules, "d > 1000000", NULL);
  sf_rules_add(&rules, "c * d <= 3000000", NULL);
  sf_solver_init(&solver, &rules, ranges);
  assert_true(solver.feasible);
  assert_null(sf_rules_broken(&rules, solver.witness));
  assert_int_equal(solver.witness[3], 1004189); /* 127 * 7907 */
  assert_true(sf_solver_allows(&solver, 0, (struct sf_range){8192, 8192}));
  assert_false(sf_solver_allows(&solver, 0, (struct sf_range){32769, 60000}));
  assert_false(sf_solver_allows(&solver, 2, (struct sf_range){3, 9}));
  assert_true(sf_solver_narrow(&solver, 0, (struct sf_range){7919, 7919}));
  assert_int_equal(solver.at[1].lo, 63352); /* 8 * 7919: the one multiple there is */
  assert_int_equal(solver.at[1].hi, 63352);
  assert_false(sf_solver_narrow(&solver, 1, (struct sf_range){60001, 63351}));
  assert_false(solver.feasible);
}

/* Rules that narrow ranges by one at a time would need more entries in the trail than it has. */
static void test_solver_ends_where_ranges_narrow_slowly(void **state) {
  (void)state;
  static struct sf_rules rules;
  struct sf_solver solver;
  const struct sf_range ranges[FIELDS] = {{1, 65536}, {0, 65536}, {0, 65536}, {0, 3}, {1, 1}};
  sf_rules_init(&rules, fields, FIELDS);
  sf_rules_add(&rules, "a < b if d > 1", NULL);
  sf_rules_add(&rules, "b < c if d > 1", NULL);
  sf_rules_add(&rules, "c < a if d > 1", NULL);
  sf_solver_init(&solver, &rules, ranges);
  assert_true(solver.feasible);
  assert_true(sf_solver_allows(&solver, 3, (struct sf_range){1, 1}));
  assert_false(sf_solver_allows(&solver, 3, (struct sf_range){2, 3}));
}

/* As the layout after a reload, whose ranks are those of the first one. */
static void test_solver_sees_what_cannot_be_a_factor(void **state) {
  (void)state;
  static struct sf_rules rules;
  struct sf_solver solver;
  const struct sf_range ranges[FIELDS] = {{1, 20000}, {1, 20000}, {2, 20000}, {1, 20000}, {1, 20000}};
  sf_rules_init(&rules, fields, FIELDS);
  sf_rules_add(&rules, "a * b * c * d = 16384 * e", NULL);
  sf_rules_add(&rules, "e <= 1", NULL);
  sf_solver_init(&solver, &rules, ranges);
  assert_true(solver.feasible);
  for (int64_t value = 1; value <= 16384; value++) {
    const bool divides = 16384 % value == 0;
    assert_int_equal(sf_solver_allows(&solver, 1, (struct sf_range){value, value}), divides && value <= 8192);
    if (value > 1) assert_int_equal(sf_solver_allows(&solver, 2, (struct sf_range){value, value}), divides);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_solver_answers_as_trying_every_row_does),
      cmocka_unit_test(test_solver_finds_rows_in_wide_ranges),
      cmocka_unit_test(test_solver_ends_where_ranges_narrow_slowly),
      cmocka_unit_test(test_solver_sees_what_cannot_be_a_factor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
