#include "generators/contrast.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"

#include <string.h>

/* Beyond this multiple of the case's own number a trial would cost much more, unless the table reaches further. Candidates of a field and
 * rounds of changing all fields at once, at most. A seed that matters is exchanged more often before a case counts as one that passes. */
enum {
  MULTIPLE_MAX = 4,
  CANDIDATES = 40,
  CHOICES_MAX = 8,
  ROUNDS = 4,
  SEEDS = 3,
  SEEDS_IF_THEY_MATTER = 4,
  NUMBERS_MAX = 14,
  CLOSING_MAX = 4,
  SIMPLER_MAX = 2, /* simpler values that are tried first to learn whether a field matters at all */
  RESERVE = 12,    /* trials that conditions leave to the rounds behind them */
  FOUND_MAX = 6    /* trials of the case that was found */
};

/* What becomes of a field while the case is tried. */
enum stage { OPEN, NEEDED, DECIDED, JOINT };

struct contrasting {
  const struct sf_table *table;
  const struct sf_contrast_asker *asker;
  const struct sf_case *min;
  struct sf_contrast *out;
  int32_t budget, until; /* trials at most in all, and of what is done now */
  bool is_over;          /* no trial is left */
  int32_t seed;          /* the field of the data's seed; -1: there is none */
  bool seed_matters;
  int64_t row[SF_SPACE_FIELDS_MAX]; /* of the smallest case */
  uint8_t stage[SF_SPACE_FIELDS_MAX];
  bool explored[SF_SPACE_FIELDS_MAX];   /* its condition was looked for */
  bool closed[SF_SPACE_FIELDS_MAX];     /* all that can stand in its gap was tried */
  int64_t (*rows)[SF_SPACE_FIELDS_MAX]; /* of a round: the smallest case, then one field more is changed in each */
  int16_t changed[SF_SPACE_FIELDS_MAX]; /* which */
};

static bool is_seed(const struct contrasting *s, int32_t field) { return sf_table_has(s->table, field, SF_TRAIT_NUMBER); }

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* False when no trial is left for what is done now, or the row is no case. Fields that are not in the table come from `rest`. */
static bool ask_with(struct contrasting *s, enum sf_contrast_answer *answer, const int64_t *row, const struct sf_case *rest) {
  struct sf_case c;
  s->is_over |= s->out->trials >= s->budget;
  if (s->is_over || s->out->trials >= s->until || !sf_table_case(&c, s->table, row, rest)) return false;
  s->out->trials++;
  if (s->asker->ask(s->asker->ctx, answer, &c)) return true;
  s->out->trials--;
  s->out->cut_short = s->is_over = true;
  return false;
}

static bool ask(struct contrasting *s, enum sf_contrast_answer *answer, const int64_t *row) { return ask_with(s, answer, row, s->min); }

/* The same, but a case passes only if it does so with other seeds too. */
static bool ask_thoroughly(struct contrasting *s, enum sf_contrast_answer *answer, const int64_t *row) {
  int64_t other[SF_SPACE_FIELDS_MAX];
  if (!ask(s, answer, row)) return false;
  memcpy(other, row, (size_t)s->table->rules->field_count * sizeof *row);
  for (int32_t i = 1; i <= (s->seed_matters ? SEEDS_IF_THEY_MATTER : 1) && s->seed >= 0 && *answer == SF_CONTRAST_PASSES; i++) {
    enum sf_contrast_answer again;
    other[s->seed] = row[s->seed] + i <= s->table->range[s->seed].hi ? row[s->seed] + i : row[s->seed] - i;
    if (!ask(s, &again, other)) return false;
    if (again == SF_CONTRAST_FAILS) *answer = again;
  }
  return true;
}

static bool number_of(const struct contrasting *s, int64_t *out, int32_t field, int64_t value) {
  return !is_seed(s, field) && s->table->kind->number != NULL && s->table->kind->number(out, s->table, field, value);
}

/* Notes that the case failed, or passed, with this value of a field. */
static void note(struct contrasting *s, int32_t field, int64_t value, bool fails) {
  struct sf_contrast_tries *tries = &s->out->at[field].tries;
  for (int32_t i = 0; i < tries->count; i++)
    if (tries->at[i].value == value) return;
  if (tries->count == SF_CONTRAST_VALUES) return;
  struct sf_contrast_try *at = &tries->at[tries->count++];
  *at = (struct sf_contrast_try){.value = value, .number = value, .fails = fails};
  tries->is_number = number_of(s, &at->number, field, value);
}

static bool has_tried(const struct contrasting *s, int32_t field, int64_t value) {
  const struct sf_contrast_tries *tries = &s->out->at[field].tries;
  for (int32_t i = 0; i < tries->count; i++)
    if (tries->at[i].value == value) return true;
  return false;
}

/* All fields of a case that failed are as good as their own values. */
static void note_failed(struct contrasting *s, const int64_t *row) {
  for (int32_t i = 0; i < s->table->field_count; i++)
    if (row[i] != s->row[i]) note(s, i, row[i], true);
}

/* --- neighbours --------------------------------------------------------------------------------------------------- */

/* Makes the edit. Fields that a rule binds to its fields follow, and those that a rule binds to these. keeps: fields that matter stay as
 * they are. */
static bool edit_row(const struct contrasting *s, int64_t *to, const int64_t *from, const struct sf_edit *wanted, bool keeps) {
  enum { FOLLOWING_MAX = 3 };
  struct sf_edit edit = *wanted;
  for (int32_t following = 0; following < FOLLOWING_MAX; following++) {
    sf_edit_follow(&edit, from, s->table);
    struct sf_edit tried = edit;
    for (int32_t i = 0; i < s->table->field_count && keeps; i++)
      if (wanted->kind[i] == SF_EDIT_KEEP && s->stage[i] != OPEN) sf_edit_assign(&tried, i, from[i]);
    if (sf_table_edit(to, from, s->table, &tried)) return true;
  }
  return false;
}

/* The row with another value of a field. */
static bool move(const struct contrasting *s, int64_t *to, const int64_t *from, int32_t field, int64_t value, bool keeps) {
  struct sf_edit edit = {{SF_EDIT_KEEP}, {0}};
  struct sf_case c;
  sf_edit_assign(&edit, field, value);
  if (!edit_row(s, to, from, &edit, keeps)) return false;
  return sf_table_case(&c, s->table, to, s->min) && (s->asker->allows == NULL || s->asker->allows(s->asker->ctx, &c));
}

static bool is_within_reach(const struct contrasting *s, int32_t field, int64_t number) {
  int64_t own = 0;
  (void)number_of(s, &own, field, s->row[field]);
  const int64_t multiple = MULTIPLE_MAX * (own > 1 ? own : 1), reach = s->table->reach;
  return number <= (multiple > reach ? multiple : reach);
}

struct candidates {
  bool is_number;
  int32_t count, below; /* of numbers: ascending, so many are below the row's own */
  int64_t values[CANDIDATES];
  int64_t numbers[CANDIDATES];
};

static void insert_number(struct candidates *out, int64_t value, int64_t number) {
  int32_t at = out->count++;
  for (; at > 0 && out->numbers[at - 1] > number; at--) {
    out->values[at] = out->values[at - 1];
    out->numbers[at] = out->numbers[at - 1];
  }
  out->values[at] = value;
  out->numbers[at] = number;
}

/* The values that a field may take in place of the row's: numbers ascending, choices the simplest first. */
static void find_candidates(const struct contrasting *s, struct candidates *out, const int64_t *row, int32_t field) {
  struct sf_domain domain;
  int64_t own = 0;
  sf_table_values(&domain, row, s->table, field);
  out->count = out->below = 0;
  out->is_number = number_of(s, &own, field, row[field]);
  for (int32_t i = 0; i < domain.count && out->count < (out->is_number ? CANDIDATES : CHOICES_MAX); i++) {
    int64_t number = domain.values[i];
    if (domain.values[i] == s->row[field]) continue;
    if (!out->is_number) {
      out->values[out->count++] = domain.values[i];
    } else if (number_of(s, &number, field, domain.values[i]) && is_within_reach(s, field, number)) {
      insert_number(out, domain.values[i], number);
      out->below += number < own;
    }
  }
}

static int32_t twos(int64_t number) { return number > 0 ? __builtin_ctzll((uint64_t)number) : 0; }

/* The number above the own one that the most powers of two divide; -1: none is above. */
static int32_t roundest(const struct candidates *from) {
  int32_t best = -1;
  for (int32_t i = from->below; i < from->count; i++)
    if (best < 0 || twos(from->numbers[i]) > twos(from->numbers[best])) best = i;
  return best;
}

/* --- one field ---------------------------------------------------------------------------------------------------- */

static bool is_simpler(const struct contrasting *s, int32_t field, int64_t value) {
  struct sf_domain domain;
  sf_table_values(&domain, s->row, s->table, field);
  for (int32_t i = 0; i < domain.count && domain.values[i] != s->row[field]; i++)
    if (domain.values[i] == value) return true;
  return value == s->table->rules->fields[field].plain;
}

/* The smallest case with another value of one field. Other fields that matter may follow a simpler one alone: what follows says nothing
 * of a larger one. */
static bool neighbour(const struct contrasting *s, int64_t *row, int32_t field, int64_t value) {
  return move(s, row, s->row, field, value, true) || (is_simpler(s, field, value) && move(s, row, s->row, field, value, false));
}

/* Tries it. False when no trial is left. */
static bool try_value(struct contrasting *s, int32_t field, int64_t value) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  enum sf_contrast_answer answer;
  if (has_tried(s, field, value) || !neighbour(s, row, field, value)) return true;
  if (!ask_thoroughly(s, &answer, row)) return false;
  if (answer != SF_CONTRAST_UNCLEAR) note(s, field, value, answer == SF_CONTRAST_FAILS);
  return true;
}

static bool has_passed(const struct contrasting *s, int32_t field) {
  const struct sf_contrast_tries *tries = &s->out->at[field].tries;
  for (int32_t i = 0; i < tries->count; i++)
    if (!tries->at[i].fails) return true;
  return false;
}

/* The value half way through the gap that is a case; false: none is left there. */
static bool find_between(const struct contrasting *s, int64_t *value, int32_t field) {
  int64_t below, above, number, row[SF_SPACE_FIELDS_MAX];
  bool at_least;
  int64_t best = 0;
  bool found = false;
  if (!sf_contrast_gap(&below, &above, &at_least, &s->out->at[field].tries)) return false;
  const struct sf_range range = s->table->range[field];
  for (int64_t v = range.lo; v <= range.hi && v - range.lo < SF_DOMAIN_MAX; v++) {
    if (!number_of(s, &number, field, v) || number <= below || number >= above || has_tried(s, field, v)) continue;
    const int64_t middle = below + (above - below) / 2, distance = number < middle ? middle - number : number - middle;
    if ((found && distance >= best) || !neighbour(s, row, field, v)) continue;
    best = distance;
    *value = v;
    found = true;
  }
  return found;
}

/* Tries what stands between the values that pass and those that fail. */
static void close_gap(struct contrasting *s, int32_t field) {
  int64_t value;
  for (int32_t i = 0; i < CLOSING_MAX && find_between(s, &value, field); i++) {
    const int32_t before = s->out->at[field].tries.count;
    if (!try_value(s, field, value) || s->out->at[field].tries.count == before) return;
  }
  s->closed[field] = !find_between(s, &value, field);
}

static bool has_gap(const struct contrasting *s, int32_t field) {
  int64_t below, above;
  bool at_least;
  return sf_contrast_gap(&below, &above, &at_least, &s->out->at[field].tries);
}

/* A number next to one that passed. */
static void try_beside(struct contrasting *s, int32_t field, const struct candidates *from) {
  const struct sf_contrast_tries *tries = &s->out->at[field].tries;
  for (int32_t i = 0; i < tries->count; i++)
    for (int32_t k = 0; k < from->count && !tries->at[i].fails; k++)
      if (from->numbers[k] > tries->at[i].number) {
        (void)try_value(s, field, from->values[k]);
        return;
      }
}

/* Smallest, next and roundest numbers first. If they fail on both sides of what passes, more of them tell which. */
static void explore_number(struct contrasting *s, int32_t field, const struct candidates *from) {
  const int32_t first[] = {0, from->below - 1, from->below, from->below + 1, roundest(from)};
  for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
    if (first[i] >= 0 && first[i] < from->count && !try_value(s, field, from->values[first[i]])) return;
  if (!has_passed(s, field)) return;
  if (has_gap(s, field)) try_beside(s, field, from);
  if (has_gap(s, field)) {
    close_gap(s, field);
    return;
  }
  for (int32_t i = 0; i < from->count && s->out->at[field].tries.count < NUMBERS_MAX; i++)
    if (!try_value(s, field, from->values[i])) return;
}

/* Looks for the field's condition. */
static void explore(struct contrasting *s, int32_t field) {
  struct candidates from;
  find_candidates(s, &from, s->row, field);
  if (from.is_number) {
    explore_number(s, field, &from);
    return;
  }
  for (int32_t i = 0; i < from.count; i++)
    if (!try_value(s, field, from.values[i])) return;
}

/* --- seeds, and what the shrinker could not take away ------------------------------------------------------------- */

static void explore_seeds(struct contrasting *s) {
  for (int32_t field = 0; field < s->table->field_count; field++) {
    if (!is_seed(s, field) || s->table->range[field].lo == s->table->range[field].hi) continue;
    s->seed = field;
    for (int32_t i = 1; i <= SEEDS; i++) {
      int64_t row[SF_SPACE_FIELDS_MAX];
      enum sf_contrast_answer answer;
      const int64_t value = s->row[field] + i <= s->table->range[field].hi ? s->row[field] + i : s->row[field] - i;
      memcpy(row, s->row, (size_t)s->table->rules->field_count * sizeof *row);
      row[field] = value;
      if (!ask(s, &answer, row)) break;
      if (answer != SF_CONTRAST_UNCLEAR) note(s, field, value, answer == SF_CONTRAST_FAILS);
    }
    s->seed_matters = has_passed(s, field);
    s->stage[field] = DECIDED;
  }
}

/* Whether the field has a simpler value beside the rest of the case. The plain one may take more than fields that follow at once. */
static bool has_simpler(const struct contrasting *s, int32_t field) {
  const int64_t plain = s->table->rules->fields[field].plain;
  struct sf_domain domain;
  int64_t row[SF_SPACE_FIELDS_MAX];
  if (plain != s->row[field] && move(s, row, s->row, field, plain, false)) return true;
  sf_table_values(&domain, s->row, s->table, field);
  for (int32_t i = 0; i < domain.count && domain.values[i] != s->row[field]; i++)
    if (move(s, row, s->row, field, domain.values[i], false)) return true;
  return false;
}

/* Whether it matters: the plain value and the simplest ones, until one passes. */
static void try_simpler(struct contrasting *s, int32_t field) {
  const int64_t plain = s->table->rules->fields[field].plain;
  struct candidates from;
  find_candidates(s, &from, s->row, field);
  if (plain != s->row[field] && !try_value(s, field, plain)) return;
  for (int32_t i = 0; i < from.count && i < SIMPLER_MAX && !has_passed(s, field); i++)
    if (!try_value(s, field, from.values[i])) return;
}

static void name_needed(struct contrasting *s) {
  for (int32_t i = 0; i < s->table->field_count; i++)
    if (!is_seed(s, i) && s->table->range[i].lo < s->table->range[i].hi && has_simpler(s, i)) s->stage[i] = NEEDED;
  for (int32_t i = 0; i < s->table->field_count; i++)
    if (s->stage[i] == NEEDED) try_simpler(s, i);
}

static bool has_condition(const struct contrasting *s, int32_t field) {
  return !s->explored[field] && !is_seed(s, field) && (s->stage[field] == NEEDED || s->stage[field] == DECIDED);
}

/* Looks for the conditions of the fields that were named. They share the trials, so that none takes those of another. */
static void explore_named(struct contrasting *s) {
  int32_t left = 0;
  for (int32_t i = 0; i < s->table->field_count; i++) left += has_condition(s, i);
  for (int32_t i = 0; i < s->table->field_count; i++) {
    if (!has_condition(s, i)) continue;
    const int32_t spare = s->budget - RESERVE - s->out->trials;
    s->until = s->out->trials + (spare > 0 ? spare / left : 0);
    s->explored[i] = true;
    explore(s, i);
    left--;
  }
  s->until = s->budget;
}

/* --- all others at once ------------------------------------------------------------------------------------------- */

/* Which candidate a round tries first. Numbers: by turns the next one above and the roundest; or, if costs are unknown, a neighbour. */
static int32_t first_of_round(const struct contrasting *s, const struct candidates *of, int32_t round) {
  const int32_t above = of->count - of->below, round_number = of->is_number ? roundest(of) : -1;
  if (!of->is_number) return round;
  if (s->table->cost_unknown) return of->below > 0 && (round % 2 == 1 || above == 0) ? of->below - 1 : of->below;
  if (round % 2 == 1 && round_number >= 0) return round_number;
  return above > 0 ? of->below + (round / 2) % above : round;
}

/* The value that a round gives to a field; the row moves there. */
static bool move_in_round(const struct contrasting *s, int64_t *to, const int64_t *from, int32_t field, int32_t round) {
  struct candidates of;
  if (s->stage[field] != OPEN || from[field] != s->row[field]) return false;
  find_candidates(s, &of, from, field);
  const int32_t first = first_of_round(s, &of, round);
  for (int32_t i = 0; i < of.count; i++)
    if (move(s, to, from, field, of.values[(first + i) % of.count], true)) return true;
  return false;
}

/* Fills the rows; returns how many fields were changed. */
static int32_t fill_rows(struct contrasting *s, int32_t round) {
  int32_t count = 0;
  memcpy(s->rows[0], s->row, sizeof s->row);
  for (int32_t i = 0; i < s->table->field_count; i++) {
    const int32_t field = s->table->order[i];
    if (!move_in_round(s, s->rows[count + 1], s->rows[count], field, round)) continue;
    s->changed[count++] = (int16_t)field;
  }
  return count;
}

/* The field behind which the rows stop failing, between one that fails and the last, which does not. 0: no trial is left. */
static int32_t find_turn(struct contrasting *s, int32_t last) {
  int32_t fails = 0;
  while (last - fails > 1) {
    const int32_t middle = fails + (last - fails) / 2;
    enum sf_contrast_answer answer;
    if (!ask(s, &answer, s->rows[middle])) return 0;
    if (answer == SF_CONTRAST_FAILS)
      fails = middle;
    else
      last = middle;
  }
  note_failed(s, s->rows[fails]);
  return last;
}

/* Changes the field that was found alone. If the case then fails, or is none, the field does something only together with others. */
static void blame(struct contrasting *s, int32_t field, int64_t value) {
  s->stage[field] = JOINT;
  if (try_value(s, field, value) && has_passed(s, field)) s->stage[field] = DECIDED;
}

/* Changes all fields that are open; those that make the difference are found one by one, and stay out of the next try. */
static void try_round(struct contrasting *s, int32_t round) {
  while (!s->is_over) {
    enum sf_contrast_answer answer;
    const int32_t count = fill_rows(s, round);
    if (count == 0 || !ask_thoroughly(s, &answer, s->rows[count])) return;
    if (answer == SF_CONTRAST_FAILS) {
      note_failed(s, s->rows[count]);
      return;
    }
    const int32_t turn = find_turn(s, count);
    if (turn == 0) return;
    const int32_t field = s->changed[turn - 1];
    blame(s, field, s->rows[turn][field]);
  }
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* A field that matters, and that keeps its value wherever the case fails because another one does: none of the values that passed can be
 * tried without a change of that one. */
static bool is_tied_to(const struct contrasting *s, int32_t field, int32_t other) {
  const struct sf_contrast_tries *tries = &s->out->at[field].tries;
  int64_t row[SF_SPACE_FIELDS_MAX];
  for (int32_t i = 0; i < tries->count; i++)
    if (!tries->at[i].fails && (!neighbour(s, row, field, tries->at[i].value) || row[other] == s->row[other])) return false;
  return true;
}

static void find_ties(struct contrasting *s) {
  for (int32_t i = s->table->field_count - 1; i >= 0; i--)
    for (int32_t other = 0; other < s->table->field_count && s->out->at[i].state == SF_CONTRAST_MATTERS; other++)
      if (other != i && s->out->at[other].state == SF_CONTRAST_MATTERS && is_tied_to(s, i, other)) s->out->at[i].state = SF_CONTRAST_TIED;
}

/* Fields that no trial changed had no other value, or the trials were used up before. */
static void conclude(struct contrasting *s) {
  for (int32_t i = 0; i < s->table->field_count; i++) {
    struct sf_contrast_field *field = &s->out->at[i];
    struct candidates of;
    field->condition = sf_condition_of(&field->tries, s->closed[i]);
    if (has_passed(s, i)) {
      field->state = SF_CONTRAST_MATTERS;
    } else if (s->stage[i] == JOINT || (s->stage[i] == NEEDED && field->tries.count == 1 && !s->is_over)) {
      field->state = SF_CONTRAST_UNDECIDED;
    } else if (field->tries.count > 1) {
      field->state = SF_CONTRAST_FREE;
    } else if (s->is_over && !is_seed(s, i)) {
      find_candidates(s, &of, s->row, i);
      field->state = of.count > 0 ? SF_CONTRAST_NOT_TRIED : SF_CONTRAST_FIXED;
    }
  }
  find_ties(s);
}

/* Makes a row of a case, with the fields behind the table's. False: it has none. */
static bool row_of(int64_t *row, const struct contrasting *s, const struct sf_case *c) {
  if (!s->table->kind->of_case(row, s->table, c)) return false;
  for (int32_t i = s->table->field_count; i < s->table->rules->field_count; i++) row[i] = s->table->range[i].lo;
  return true;
}

/* Whether the case that was found fails with a value with which the smallest case passed, in all its layouts. */
static bool fails_as_found(struct contrasting *s, const struct sf_case *found, const int64_t *row, int32_t field) {
  const struct sf_contrast_tries *tries = &s->out->at[field].tries;
  const int32_t twin = s->table->kind->twin != NULL ? s->table->kind->twin(row, field) : field;
  int64_t edited[SF_SPACE_FIELDS_MAX], value = 0;
  struct sf_edit edit = {{SF_EDIT_KEEP}, {0}};
  enum sf_contrast_answer answer;
  for (int32_t i = tries->count - 1; i >= 0; i--) {
    if (tries->at[i].fails) continue;
    value = tries->at[i].value; /* in the end the first that passed, which is the simplest one */
    if (row[field] == value && row[twin] == value) return true;
  }
  sf_edit_assign(&edit, field, value);
  sf_edit_assign(&edit, twin, value);
  return edit_row(s, edited, row, &edit, false) && ask_with(s, &answer, edited, found) && answer == SF_CONTRAST_FAILS;
}

/* Sizes that became small may need what the failure does not: so the case that was found is asked too. */
static void look_at_found(struct contrasting *s, const struct sf_case *found) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  if (!row_of(row, s, found) || memcmp(row, s->row, (size_t)s->table->field_count * sizeof *row) == 0) return;
  s->budget = s->until = s->out->budget;
  s->is_over = s->out->cut_short;
  for (int32_t i = 0; i < s->table->field_count; i++)
    if (s->out->at[i].state == SF_CONTRAST_MATTERS && !is_seed(s, i) && fails_as_found(s, found, row, i))
      s->out->at[i].state = SF_CONTRAST_SMALLEST;
}

static enum sf_status prepare(struct contrasting *s) {
  memset(s->out, 0, sizeof *s->out);
  s->out->count = s->table->field_count;
  s->out->budget = s->budget;
  if (!row_of(s->row, s, s->min)) return SF_EINPUT;
  if (s->budget > FOUND_MAX) s->budget -= FOUND_MAX;
  for (int32_t i = 0; i < s->table->field_count; i++) note(s, i, s->row[i], true);
  s->rows = sf_alloc((size_t)(s->table->field_count + 1) * sizeof *s->rows);
  return s->rows == NULL ? SF_ENOMEM : SF_OK;
}

enum sf_status sf_contrast_run(struct sf_contrast *out, const struct sf_case *min, const struct sf_case *found,
                               const struct sf_table *table, const struct sf_contrast_asker *asker, int32_t budget) {
  struct contrasting *s = sf_alloc(sizeof *s);
  if (s == NULL) return SF_ENOMEM;
  *s = (struct contrasting){.table = table, .asker = asker, .min = min, .out = out, .budget = budget, .until = budget, .seed = -1};
  const enum sf_status status = prepare(s);
  if (status == SF_OK) {
    explore_seeds(s);
    name_needed(s);
    for (int32_t round = 0; round < ROUNDS && !s->is_over; round++) {
      try_round(s, round);
      explore_named(s);
    }
    conclude(s);
    look_at_found(s, found);
  }
  sf_free(s->rows);
  sf_free(s);
  return status;
}
