#include "harness/space/solver.h"

#include "harness/base/assert.h"

#include <string.h>

/* TRAIL_MAX: implied narrowings that can be undone; what goes beyond is not narrowed, which only costs time. What the search decides has a
 * place behind them in any case: it decides a field once. STEPS_MAX: values that one question looks at; VISITS_MAX: rules that one
 * narrowing looks at. */
enum { TRAIL_MAX = 1024, STEPS_MAX = 1 << 22, VISITS_MAX = 4096, WORDS_MAX = SF_RULES_MAX / 64 };
static const int64_t far = INT64_C(1) << 61; /* beyond any sum that a rule compares */

struct undo {
  int32_t field, earlier; /* earlier: the field's entry before this one, -1 = none */
  struct sf_range before;
};
/* One question. */
struct search {
  struct sf_solver *solver;
  int32_t steps, words; /* words: of a set of rules */
  int32_t trail_count, decided; /* decided: entries before the last decision; a field has one entry behind them */
  int32_t last[SF_SPACE_FIELDS_MAX]; /* a field's last entry, -1 = none */
  uint64_t suspects[WORDS_MAX];      /* rules that the witness may not keep */
  struct undo trail[TRAIL_MAX + SF_SPACE_FIELDS_MAX];
};

/* --- sums over ranges ------------------------------------------------------------------------------------------- */

static int64_t times(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return (a < 0) == (b < 0) ? far : -far;
  return product > far ? far : product < -far ? -far : product;
}

static struct sf_range factor_range(const struct sf_rule_term *term, int32_t i, struct sf_range values) {
  if (term->counts_as == NULL) return values;
  struct sf_range range = {far, 0};
  for (int64_t value = values.lo; value <= values.hi; value++) {
    const int64_t counts_as = term->counts_as[i][value];
    if (counts_as < range.lo) range.lo = counts_as;
    if (counts_as > range.hi) range.hi = counts_as;
  }
  return range;
}

/* Of the product of the fields, all at least 0; `without` counts as 1. */
static struct sf_range product_range(const struct sf_rule_term *term, const struct sf_range *at, int32_t without) {
  struct sf_range range = {1, 1};
  if (term->has) return (struct sf_range){at[term->field[0]].lo > 0, at[term->field[0]].hi > 0};
  for (int32_t i = 0; i < term->count; i++) {
    if (i == without) continue;
    const struct sf_range own = factor_range(term, i, at[term->field[i]]);
    range.lo = times(range.lo, own.lo);
    range.hi = times(range.hi, own.hi);
  }
  return range;
}

static struct sf_range term_range(const struct sf_rule_term *term, const struct sf_range *at) {
  const struct sf_range product = product_range(term, at, -1);
  const int64_t a = times(term->factor, product.lo), b = times(term->factor, product.hi);
  return (struct sf_range){a < b ? a : b, a < b ? b : a};
}

static struct sf_range sum_range(const struct sf_rule_sum *sum, const struct sf_range *at) {
  struct sf_range range = {sum->constant, sum->constant};
  if (sum->count == 1 && sum->lone >= 0) { /* as most are */
    const struct sf_range *own = &at[sum->lone];
    return (struct sf_range){range.lo + own->lo, range.hi + (own->hi > far ? far : own->hi)};
  }
  for (int32_t i = 0; i < sum->count; i++) {
    const struct sf_range term = term_range(&sum->term[i], at);
    range.lo += term.lo;
    range.hi += term.hi;
  }
  return range;
}

static int64_t up_to_multiple(int64_t value, int64_t of) { return (value + of - 1) / of * of; }

enum answer { NEVER, PERHAPS, ALWAYS };
static enum answer opposite(enum answer answer) { return (enum answer)(ALWAYS - answer); }

static enum answer may_be_equal(struct sf_range a, struct sf_range b) {
  if (a.lo > b.hi || b.lo > a.hi) return NEVER;
  return a.lo == a.hi && b.lo == b.hi ? ALWAYS : PERHAPS;
}

static enum answer may_be_at_most(struct sf_range a, struct sf_range b) { return a.hi <= b.lo ? ALWAYS : a.lo > b.hi ? NEVER : PERHAPS; }

static enum answer may_divide(struct sf_range a, struct sf_range b) {
  if ((a.lo == 1 && a.hi == 1) || (b.lo == 0 && b.hi == 0)) return ALWAYS;
  if (a.lo == a.hi && b.lo == b.hi) return (a.lo == 0 ? b.lo == 0 : b.lo % a.lo == 0) ? ALWAYS : NEVER;
  if (b.lo > 0 && a.lo > b.hi) return NEVER;
  if (a.lo == a.hi && a.lo > 1 && b.lo >= 0 && up_to_multiple(b.lo, a.lo) > b.hi) return NEVER;
  return PERHAPS;
}

static enum answer answer_of(const struct sf_rule_relation *relation, const struct sf_range *at) {
  const struct sf_range left = sum_range(&relation->left, at), right = sum_range(&relation->right, at);
  switch (relation->kind) {
  case SF_RULE_AT_MOST:
    return may_be_at_most(left, right);
  case SF_RULE_ABOVE:
    return opposite(may_be_at_most(left, right));
  case SF_RULE_EQUAL:
    return may_be_equal(left, right);
  case SF_RULE_DIFFERS:
    return opposite(may_be_equal(left, right));
  case SF_RULE_DIVIDES:
    return may_divide(left, right);
  case SF_RULE_NOT_DIVIDES:
    return opposite(may_divide(left, right));
  }
  return PERHAPS;
}

/* How many of the condition's values, which ascend, lie in the range. */
static int32_t values_within(const struct sf_rule_condition *condition, struct sf_range range) {
  int32_t count = 0;
  for (int32_t i = 0; i < condition->count; i++) count += condition->values[i] >= range.lo && condition->values[i] <= range.hi;
  return count;
}

static enum answer answer_of_condition(const struct sf_rule_condition *condition, struct sf_range range) {
  const int32_t within = values_within(condition, range);
  const enum answer answer = within == 0 ? NEVER : within == range.hi - range.lo + 1 ? ALWAYS : PERHAPS;
  return condition->none ? opposite(answer) : answer;
}

/* --- narrowing -------------------------------------------------------------------------------------------------- */

struct narrowing {
  struct search *s;
  bool failed;
  uint64_t todo[WORDS_MAX];
};

static void begin_narrowing(struct narrowing *n, struct search *s) {
  n->s = s;
  n->failed = false;
  memset(n->todo, 0, (size_t)s->words * sizeof *n->todo);
}

/* Adds the field's rules to a set. */
static void suspect(uint64_t *set, const struct search *s, int32_t field) {
  for (int32_t i = 0; i < s->words; i++) set[i] |= s->solver->rules->of_field[field][i];
}

/* The witness follows a range that leaves it behind. trail_max: nothing is narrowed where the trail is as long. */
static void set_range_within(struct narrowing *n, int32_t field, struct sf_range range, int32_t trail_max) {
  struct sf_solver *solver = n->s->solver;
  struct sf_range *at = &solver->at[field];
  if (range.lo < at->lo) range.lo = at->lo;
  if (range.hi > at->hi) range.hi = at->hi;
  if (range.lo == at->lo && range.hi == at->hi) return;
  n->failed |= range.lo > range.hi;
  struct search *s = n->s;
  const bool has_entry = s->last[field] >= s->decided;
  if (n->failed || (!has_entry && s->trail_count >= trail_max)) return;
  if (!has_entry) {
    s->trail[s->trail_count] = (struct undo){field, s->last[field], *at};
    s->last[field] = s->trail_count++;
  }
  *at = range;
  suspect(n->todo, n->s, field);
  int64_t *witness = &solver->witness[field];
  if (*witness >= range.lo && *witness <= range.hi) return;
  *witness = *witness < range.lo ? range.lo : range.hi;
  suspect(n->s->suspects, n->s, field);
}

/* What rules imply. */
static void set_range(struct narrowing *n, int32_t field, struct sf_range range) { set_range_within(n, field, range, TRAIL_MAX); }

/* What the search decides. */
static void decide(struct narrowing *n, int32_t field, int64_t value) {
  SF_ASSERT_LT(n->s->trail_count, TRAIL_MAX + SF_SPACE_FIELDS_MAX);
  set_range_within(n, field, (struct sf_range){value, value}, TRAIL_MAX + SF_SPACE_FIELDS_MAX);
}

/* factor * the product of the term's fields lies in lo..hi; factor > 0. */
static void narrow_term(struct narrowing *n, const struct sf_rule_term *term, int64_t factor, int64_t lo, int64_t hi) {
  const struct sf_range *at = n->s->solver->at;
  const int64_t least = lo > 0 ? (lo + factor - 1) / factor : 0, most = hi < 0 ? -1 : hi / factor;
  if (term->has) {
    if (most < 0)
      n->failed = true;
    else if (most < 1)
      set_range(n, term->field[0], (struct sf_range){0, 0});
    else if (least > 0)
      set_range(n, term->field[0], (struct sf_range){1, INT64_MAX});
    return;
  }
  for (int32_t i = 0; i < term->count && !n->failed; i++) {
    if (term->counts_as != NULL) break; /* the search tries its values */
    const struct sf_range others = product_range(term, at, i);
    struct sf_range range = {0, INT64_MAX};
    if (others.lo > 0) range.hi = most / others.lo;
    if (most < 0) range.hi = -1;
    if (others.hi > 0) range.lo = (least + others.hi - 1) / others.hi;
    set_range(n, term->field[i], range);
  }
}

/* The sum of a's terms less b's is at most `limit`, and b's constant is among them. */
static void narrow_at_most(struct narrowing *n, const struct sf_rule_sum *a, const struct sf_rule_sum *b, int64_t limit) {
  const struct sf_range *at = n->s->solver->at;
  const int64_t least = sum_range(a, at).lo - sum_range(b, at).hi;
  for (int side = 0; side < 2; side++) {
    const struct sf_rule_sum *sum = side == 0 ? a : b;
    for (int32_t i = 0; i < sum->count && !n->failed; i++) {
      const struct sf_rule_term *term = &sum->term[i];
      const int64_t factor = side == 0 ? term->factor : -term->factor;
      const struct sf_range own = term_range(term, at);
      const int64_t rest = least - (side == 0 ? own.lo : -own.hi); /* of all other terms, at least */
      if (factor > 0)
        narrow_term(n, term, factor, 0, limit - rest);
      else
        narrow_term(n, term, -factor, rest - limit, far);
    }
  }
}

static bool is_lone_field(const struct sf_rule_sum *sum) { return sum->count == 1 && sum->lone >= 0 && sum->constant == 0; }

static void narrow_multiple(struct narrowing *n, int32_t field, int64_t of) {
  const struct sf_range range = n->s->solver->at[field];
  set_range(n, field, (struct sf_range){up_to_multiple(range.lo, of), range.hi / of * of});
}

static void narrow_divides(struct narrowing *n, const struct sf_rule_sum *divisor, const struct sf_rule_sum *number) {
  const struct sf_range *at = n->s->solver->at, left = sum_range(divisor, at), right = sum_range(number, at);
  const struct sf_rule_sum zero = {.constant = 0};
  if (left.lo == left.hi && left.lo > 1 && is_lone_field(number)) narrow_multiple(n, number->term[0].field[0], left.lo);
  if (!n->failed && right.lo > 0) narrow_at_most(n, divisor, &zero, right.hi);
}

/* The sum is `number` > 0. Where it is one product, each of its fields divides what the decided ones leave. TRIES_MAX: of values that do
 * not divide it, at each end of a range; more are left to the search. */
static void narrow_factors(struct narrowing *n, const struct sf_rule_sum *sum, int64_t number) {
  enum { TRIES_MAX = 64 };
  const struct sf_range *at = n->s->solver->at;
  const struct sf_rule_term *term = &sum->term[0];
  if (sum->count != 1 || sum->constant != 0 || term->has || term->counts_as != NULL || term->factor <= 0 || number <= 0) return;
  int64_t rest = number;
  n->failed |= rest % term->factor != 0;
  rest /= term->factor;
  for (int32_t i = 0; i < term->count && !n->failed; i++) {
    const struct sf_range own = at[term->field[i]];
    if (own.lo != own.hi) continue;
    n->failed |= own.lo == 0 || rest % own.lo != 0;
    if (!n->failed) rest /= own.lo;
  }
  for (int32_t i = 0; i < term->count && !n->failed; i++) {
    struct sf_range own = at[term->field[i]];
    if (own.lo == own.hi) continue;
    if (own.lo < 1) own.lo = 1;
    if (own.hi > rest) own.hi = rest;
    for (int tries = 0; tries < TRIES_MAX && own.lo <= own.hi && rest % own.lo != 0; tries++) own.lo++;
    for (int tries = 0; tries < TRIES_MAX && own.lo <= own.hi && rest % own.hi != 0; tries++) own.hi--;
    set_range(n, term->field[i], own);
  }
}

/* A sum that is decided says what divides it where the other one is a product. */
static void narrow_equal(struct narrowing *n, const struct sf_rule_sum *a, const struct sf_rule_sum *b) {
  const struct sf_range left = sum_range(a, n->s->solver->at), right = sum_range(b, n->s->solver->at);
  if (right.lo == right.hi) narrow_factors(n, a, right.lo);
  if (!n->failed && left.lo == left.hi) narrow_factors(n, b, left.lo);
}

/* A field at one end of its range is not what it may not be. */
static void narrow_differs(struct narrowing *n, const struct sf_rule_sum *a, const struct sf_rule_sum *b) {
  const struct sf_range *at = n->s->solver->at, other = sum_range(b, at);
  if (!is_lone_field(a) || other.lo != other.hi) return;
  const int32_t field = a->term[0].field[0];
  struct sf_range range = at[field];
  range.lo += range.lo == other.lo;
  range.hi -= range.hi == other.lo;
  set_range(n, field, range);
}

/* The relation must hold. */
static void require(struct narrowing *n, const struct sf_rule_relation *relation) {
  const struct sf_rule_sum *left = &relation->left, *right = &relation->right;
  switch (relation->kind) {
  case SF_RULE_AT_MOST:
    narrow_at_most(n, left, right, 0);
    break;
  case SF_RULE_ABOVE:
    narrow_at_most(n, right, left, -1);
    break;
  case SF_RULE_EQUAL:
    narrow_at_most(n, left, right, 0);
    if (!n->failed) narrow_at_most(n, right, left, 0);
    if (!n->failed) narrow_equal(n, left, right);
    break;
  case SF_RULE_DIFFERS:
    narrow_differs(n, left, right);
    if (!n->failed) narrow_differs(n, right, left);
    break;
  case SF_RULE_DIVIDES:
    narrow_divides(n, left, right);
    break;
  case SF_RULE_NOT_DIVIDES:
    break;
  }
}

/* The condition must hold: it moves the ends of the field's range. */
static void require_condition(struct narrowing *n, const struct sf_rule_condition *condition) {
  struct sf_range range = n->s->solver->at[condition->field];
  const int32_t *values = condition->values;
  int32_t first = 0, last = condition->count - 1;
  while (first <= last && values[first] < range.lo) first++;
  while (first <= last && values[last] > range.hi) last--;
  for (; condition->none && first <= last && values[first] == range.lo; first++) range.lo++;
  for (; condition->none && first <= last && values[last] == range.hi; last--) range.hi--;
  if (!condition->none) range = (struct sf_range){values[first], values[last]}; /* there are some: it is not answered yet */
  set_range(n, condition->field, range);
}

/* One relation or condition that is left must hold; none: the ranges hold no row. */
static void visit(struct narrowing *n, const struct sf_rule *rule) {
  const struct sf_rule_relation *left = NULL;
  const struct sf_rule_condition *condition = NULL;
  int32_t count = 0;
  for (int32_t i = 0; i < rule->relation_count; i++) {
    const enum answer answer = answer_of(&rule->relation[i], n->s->solver->at);
    if (answer == ALWAYS) return;
    if (answer == NEVER) continue;
    left = &rule->relation[i];
    count++;
  }
  for (int32_t i = 0; i < rule->condition_count; i++) {
    const enum answer answer = answer_of_condition(&rule->condition[i], n->s->solver->at[rule->condition[i].field]);
    if (answer == ALWAYS) return;
    if (answer == NEVER) continue;
    condition = &rule->condition[i];
    count++;
  }
  if (count == 0)
    n->failed = true;
  else if (count == 1 && left != NULL)
    require(n, left);
  else if (count == 1)
    require_condition(n, condition);
}

static int32_t take_next(uint64_t *todo, int32_t words) {
  for (int32_t word = 0; word < words; word++) {
    if (todo[word] == 0) continue;
    const int32_t bit = __builtin_ctzll(todo[word]);
    todo[word] &= todo[word] - 1;
    return word * 64 + bit;
  }
  return -1;
}

static bool narrow(struct narrowing *n) {
  const struct sf_rules *rules = n->s->solver->rules;
  for (int32_t visits = 0; visits < VISITS_MAX && !n->failed; visits++) {
    const int32_t rule = take_next(n->todo, n->s->words);
    if (rule < 0) break;
    visit(n, &rules->rule[rule]);
  }
  return !n->failed;
}

static void undo(struct search *s, int32_t trail_count) {
  while (s->trail_count > trail_count) {
    const struct undo *last = &s->trail[--s->trail_count];
    s->solver->at[last->field] = last->before;
    s->last[last->field] = last->earlier;
  }
}

/* --- searching -------------------------------------------------------------------------------------------------- */

/* Where a search goes on: a rule that the witness breaks, and the field of it with the fewest values. */
struct branch {
  const struct sf_rule *broken; /* NULL: there is none */
  int32_t field, open;          /* -1: all its fields are decided; how many are not */
  int64_t values;
};

static struct branch branch_of(const struct sf_solver *solver, const struct sf_rule *rule) {
  struct branch branch = {rule, -1, 0, 0};
  for (int32_t i = 0; i < rule->field_count; i++) {
    const int32_t field = sf_rule_field(rule, i);
    const int64_t values = solver->at[field].hi - solver->at[field].lo;
    if (values == 0) continue;
    if (branch.open++ == 0 || values < branch.values) branch.field = field, branch.values = values;
  }
  return branch;
}

/* Of all broken rules the one with the fewest ways out: what cannot be mended shows before anything large is tried. */
static struct branch choose_branch(struct search *s) {
  const struct sf_solver *solver = s->solver;
  struct branch best = {NULL, -1, 0, 0};
  for (int32_t word = 0; word < s->words; word++)
    for (uint64_t left = s->suspects[word]; left != 0; left &= left - 1) {
      const struct sf_rule *rule = &solver->rules->rule[word * 64 + __builtin_ctzll(left)];
      if (sf_rule_holds(rule, solver->witness)) {
        s->suspects[word] &= ~(left & -left);
        continue;
      }
      const struct branch branch = branch_of(solver, rule);
      if (best.broken == NULL || branch.values < best.values) best = branch;
    }
  return best;
}

static bool search(struct search *s);

static bool try_value(struct search *s, int32_t field, int64_t value) {
  const int32_t before = s->trail_count, decided = s->decided;
  struct narrowing n;
  s->decided = before;
  begin_narrowing(&n, s);
  decide(&n, field, value);
  s->solver->witness[field] = value;
  suspect(s->suspects, s, field);
  if (narrow(&n) && search(s)) return true;
  undo(s, before);
  s->decided = decided;
  return false;
}

/* Values with which the broken rule holds come first; then the others, where another field may mend it yet. */
static bool search(struct search *s) {
  struct sf_solver *solver = s->solver;
  const struct branch branch = choose_branch(s);
  if (branch.broken == NULL) return true;
  if (branch.field < 0) return false;
  const struct sf_range range = solver->at[branch.field];
  int64_t row[SF_SPACE_FIELDS_MAX];
  memcpy(row, solver->witness, (size_t)solver->rules->field_count * sizeof *row);
  for (int pass = 0; pass < (branch.open > 1 ? 2 : 1); pass++)
    for (int64_t value = range.lo; value <= range.hi && ++s->steps < STEPS_MAX; value++) {
      row[branch.field] = value;
      if (sf_rule_holds(branch.broken, row) == (pass == 0) && try_value(s, branch.field, value)) return true;
    }
  return false;
}

/* --- questions -------------------------------------------------------------------------------------------------- */

static void begin(struct search *s, struct sf_solver *solver) {
  s->solver = solver;
  s->steps = s->trail_count = s->decided = 0;
  for (int32_t i = 0; i < solver->rules->field_count; i++) s->last[i] = -1;
  s->words = (solver->rules->rule_count + 63) / 64;
  memset(s->suspects, 0, (size_t)s->words * sizeof *s->suspects);
}

/* What the search decides is taken back, and only its witness stays; what the rules imply is kept. */
static bool find_witness(struct search *s) {
  const int32_t implied = s->trail_count;
  const bool found = search(s);
  undo(s, implied);
  return found;
}

static bool ask(struct search *s, int32_t field, struct sf_range range) {
  struct narrowing n;
  begin_narrowing(&n, s);
  set_range(&n, field, range);
  return narrow(&n) && find_witness(s);
}

/* The witness with one value in another's place, where that is all it takes. */
static bool is_witness_with(struct sf_solver *solver, int32_t field, int64_t value) {
  const int64_t before = solver->witness[field];
  bool holds = true;
  solver->witness[field] = value;
  for (int32_t word = 0; word < (solver->rules->rule_count + 63) / 64 && holds; word++)
    for (uint64_t of = solver->rules->of_field[field][word]; of != 0 && holds; of &= of - 1)
      holds = sf_rule_holds(&solver->rules->rule[word * 64 + __builtin_ctzll(of)], solver->witness);
  solver->witness[field] = before;
  return holds;
}

static struct sf_range common(struct sf_range a, struct sf_range b) {
  return (struct sf_range){a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
}

bool sf_solver_allows(struct sf_solver *solver, int32_t field, struct sf_range range) {
  const int64_t has = solver->witness[field];
  range = common(range, solver->at[field]);
  if (!solver->feasible || range.lo > range.hi) return false;
  if ((has >= range.lo && has <= range.hi) || is_witness_with(solver, field, range.lo)) return true;
  struct search s;
  int64_t witness[SF_SPACE_FIELDS_MAX];
  const size_t size = (size_t)solver->rules->field_count * sizeof *witness;
  memcpy(witness, solver->witness, size);
  begin(&s, solver);
  const bool found = ask(&s, field, range);
  undo(&s, 0);
  memcpy(solver->witness, witness, size);
  return found;
}

bool sf_solver_narrow(struct sf_solver *solver, int32_t field, struct sf_range range) {
  struct search s;
  begin(&s, solver);
  range = common(range, solver->at[field]);
  if (!solver->feasible || range.lo > range.hi) return solver->feasible = false;
  if (solver->witness[field] < range.lo && is_witness_with(solver, field, range.lo)) solver->witness[field] = range.lo;
  return solver->feasible = ask(&s, field, range);
}

void sf_solver_init(struct sf_solver *solver, const struct sf_rules *rules, const struct sf_range *ranges) {
  solver->rules = rules;
  for (int32_t i = 0; i < rules->field_count; i++) {
    const int64_t plain = rules->fields[i].plain;
    SF_ASSERT_LE(ranges[i].lo, ranges[i].hi);
    solver->at[i] = ranges[i];
    solver->witness[i] = plain < ranges[i].lo ? ranges[i].lo : plain > ranges[i].hi ? ranges[i].hi : plain;
  }
  struct search s;
  struct narrowing n;
  begin(&s, solver);
  begin_narrowing(&n, &s);
  for (int32_t i = 0; i < rules->rule_count; i++) n.todo[i / 64] |= UINT64_C(1) << i % 64;
  memcpy(s.suspects, n.todo, (size_t)s.words * sizeof *s.suspects);
  solver->feasible = narrow(&n) && find_witness(&s);
}
