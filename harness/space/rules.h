/* Rules between the fields of a case, each written once, as a line of text:
 *
 *   "layout.tp divides model.heads"
 *   "layout.tp divides model.seq if layout.sp = on"
 *   "layout.zero needs layout.dp > 1 or layout.cp > 1"
 *
 * The same line refuses a case and says why, bounds what may be drawn (harness/space/solver.h), and tells the shrinker which fields go
 * together.
 *
 * A case is a row: one whole number for each field. Grammar, with all words separated by blanks:
 *
 *   rule      = relation {"or" relation} ["if" relation {"and" relation}]
 *             | FIELD "needs" relation {"or" relation}      where the field is not at its plainest value, one of the relations holds
 *             | FIELD "excludes" relation                   not both
 *   relation  = sum ("divides" | "=" | "!=" | "<" | "<=" | ">" | ">=") sum
 *             | FIELD                                       it is not at its plainest value
 *   sum       = product {("+" | "-") product}               "-" only in sums that divide or are divided
 *   product   = factor {"*" factor}
 *   factor    = NUMBER | FIELD | "has(" FIELD ")"           has: 1 where the field is above 0, else 0
 *
 * To the right of "=" and "!=" stands also a value's name: "mode = isolated". Every number is at least 0, but a difference may be less.
 * 0 divides 0 alone. FIELD may end in ".*" before "needs": the rule then holds for each field of that group.
 *
 * A framework describes its own fields, and rules that are no text: lists of conditions, "the field has one of these values". */
#ifndef SF_SPACE_RULES_H
#define SF_SPACE_RULES_H

#include "harness/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SF_SPACE_FIELDS_MAX = 576, /* of a row */
  SF_RULES_MAX = 1024,
  SF_RULE_RELATIONS_MAX = 4,
  SF_RULE_FACTORS_MAX = 8, /* fields of one product */
  SF_RULE_FIELDS_MAX = 12  /* that one text may name */
};

/* What a rule's words mean. */
struct sf_space_field {
  const char *path;         /* "layout.tp" */
  int64_t plain;            /* the value that says nothing: of a size the smallest, of a feature "off" */
  const char *const *names; /* of value i, NULL-terminated; NULL: it is a number */
};

/* factor * the product of the fields; has: of the one field, whether it is above 0. */
struct sf_rule_term {
  int64_t factor;
  int32_t count;
  int16_t field[SF_RULE_FACTORS_MAX];
  bool has;
  const int32_t *const *counts_as; /* what value v of factor i counts as, [i][v]; NULL: itself */
};
struct sf_rule_sum {
  int64_t constant;
  int32_t count;
  struct sf_rule_term term[3];
  int16_t begin, length; /* of its words in the rule's text */
  int16_t lone;          /* count is 1: the field that the term is, or -1 where it is more than that */
};
enum sf_rule_relation_kind { SF_RULE_AT_MOST, SF_RULE_ABOVE, SF_RULE_EQUAL, SF_RULE_DIFFERS, SF_RULE_DIVIDES, SF_RULE_NOT_DIVIDES };
struct sf_rule_relation {
  enum sf_rule_relation_kind kind;
  struct sf_rule_sum left, right;
};

/* "The field has one of these values", or none of them. */
struct sf_rule_condition {
  int32_t field, count;
  const int32_t *values; /* ascending */
  bool none;
};

/* Holds where one of its relations or conditions does. What stands behind "if" is among them, negated, at the end. */
struct sf_rule {
  char text[200];
  const char *why; /* NULL, or what the message ends with */
  int32_t relation_count, field_count;
  struct sf_rule_relation relation[SF_RULE_RELATIONS_MAX];
  int32_t follower_count;            /* so many of the fields are bound by the rule; the others only say when */
  int16_t field[SF_RULE_FIELDS_MAX]; /* each once, followers first; of a rule of conditions their fields stand for these */
  const struct sf_rule_condition *condition;
  int32_t condition_count;
};
/* The fields that the rule names, 0 <= i < field_count. */
static inline int32_t sf_rule_field(const struct sf_rule *rule, int32_t i) {
  return rule->condition_count > 0 ? rule->condition[i].field : rule->field[i];
}
/* value: of the condition's field. */
static inline bool sf_rule_condition_holds(const struct sf_rule_condition *condition, int64_t value) {
  for (int32_t i = 0; i < condition->count; i++)
    if (condition->values[i] == value) return !condition->none;
  return condition->none;
}
/* What a value of the term's i-th field counts as in the product. */
static inline int64_t sf_rule_factor(const struct sf_rule_term *term, int32_t i, int64_t value) {
  return term->counts_as != NULL ? term->counts_as[i][value] : value;
}

struct sf_rules {
  const struct sf_space_field *fields; /* borrowed */
  int32_t field_count, rule_count;
  struct sf_rule rule[SF_RULES_MAX];
  uint64_t of_field[SF_SPACE_FIELDS_MAX][SF_RULES_MAX / 64];         /* the rules that name it */
  uint64_t followers[SF_SPACE_FIELDS_MAX][SF_SPACE_FIELDS_MAX / 64]; /* the fields that follow it */
};

/* An empty set of rules over these fields, which it borrows. At most SF_SPACE_FIELDS_MAX, else it asserts. */
void sf_rules_init(struct sf_rules *rules, const struct sf_space_field *fields, int32_t field_count);
/* Adds a rule. It is part of the program: one that does not follow the grammar is an assertion. why: NULL or a text that outlives the
 * rules. */
void sf_rules_add(struct sf_rules *rules, const char *text, const char *why);
/* Adds the rule that one of these conditions holds, each of another field. Their first follower_count fields follow the others. Borrows
 * them. At most SF_RULES_MAX rules, else it asserts. */
void sf_rules_add_conditions(struct sf_rules *rules, const struct sf_rule_condition *conditions, int32_t count, int32_t follower_count,
                             const char *why);
/* Adds the rules that a product of at most SF_RULE_FACTORS_MAX fields is no less than the field `least` and no more than `most`. Value v of
 * the i-th of them counts as counts_as[i][v] there, which is borrowed. No field follows another one by them. */
void sf_rules_add_product(struct sf_rules *rules, const int16_t *fields, const int32_t *const *counts_as, int32_t count, int16_t least,
                          int16_t most);

/* at: one number for each field. */
bool sf_rule_holds(const struct sf_rule *rule, const int64_t *at);
/* The first rule that does not hold; NULL: all do. */
const struct sf_rule *sf_rules_broken(const struct sf_rules *rules, const int64_t *at);
/* "layout.tp: 3 does not divide model.heads 4": which field breaks the rule, and why. Returns SF_EINPUT. */
enum sf_status sf_rule_explain(const struct sf_rule *rule, const struct sf_rules *rules, const int64_t *at, struct sf_error *error);
/* Whether a rule may ask for another value of `to` once `from` has changed: "layout.sp needs layout.tp > 1" has sp follow tp, and not tp
 * sp. */
static inline bool sf_rules_follow(const struct sf_rules *rules, int32_t from, int32_t to) {
  return rules->followers[from][to / 64] >> to % 64 & 1;
}

#endif
