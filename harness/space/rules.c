#include "harness/space/rules.h"

#include "harness/base/assert.h"
#include "harness/base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sf_rules_init(struct sf_rules *rules, const struct sf_space_field *fields, int32_t field_count) {
  SF_ASSERT_LE(field_count, SF_SPACE_FIELDS_MAX);
  memset(rules, 0, sizeof *rules);
  rules->fields = fields;
  rules->field_count = field_count;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

struct reader {
  const struct sf_rules *rules;
  struct sf_rule *rule;
  const char *at; /* the next word of the rule's text */
};

static size_t word_length(const char *at) { return strcspn(at, " "); }
static bool is_word(const struct reader *r, const char *word) {
  return word_length(r->at) == strlen(word) && strncmp(r->at, word, strlen(word)) == 0;
}

static void skip_word(struct reader *r) {
  r->at += word_length(r->at);
  r->at += *r->at == ' ';
}

static bool take_word(struct reader *r, const char *word) {
  if (!is_word(r, word)) return false;
  skip_word(r);
  return true;
}

static int32_t find_field(const struct sf_rules *rules, const char *path, size_t length) {
  for (int32_t i = 0; i < rules->field_count; i++)
    if (strlen(rules->fields[i].path) == length && strncmp(rules->fields[i].path, path, length) == 0) return i;
  return -1;
}

static int32_t take_field(struct reader *r, const char *path, size_t length) {
  const int32_t field = find_field(r->rules, path, length);
  SF_ASSERT_LE(0, field); /* the rule names a field that does not exist */
  bool known = false;
  for (int32_t i = 0; i < r->rule->field_count; i++) known |= r->rule->field[i] == field;
  if (known) return field;
  SF_ASSERT_LT(r->rule->field_count, SF_RULE_FIELDS_MAX);
  r->rule->field[r->rule->field_count++] = (int16_t)field;
  return field;
}

static bool is_number(const char *at) { return *at >= '0' && *at <= '9'; }

static void take_factor(struct reader *r, struct sf_rule_term *term) {
  static const char has[] = "has(";
  const size_t length = word_length(r->at), prefix = sizeof has - 1;
  if (is_number(r->at)) {
    term->factor *= strtoll(r->at, NULL, 10);
  } else {
    term->has = strncmp(r->at, has, prefix) == 0;
    SF_ASSERT_LT(term->count, SF_RULE_FACTORS_MAX);
    term->field[term->count++] = (int16_t)(term->has ? take_field(r, r->at + prefix, length - prefix - 1) : take_field(r, r->at, length));
  }
  skip_word(r);
}

static void take_product(struct reader *r, struct sf_rule_sum *sum, int64_t sign) {
  struct sf_rule_term term = {.factor = sign};
  do take_factor(r, &term);
  while (take_word(r, "*"));
  if (term.count == 0) {
    sum->constant += term.factor;
    return;
  }
  SF_ASSERT_LT(sum->count, 3);
  sum->term[sum->count++] = term;
}

static struct sf_rule_sum take_sum(struct reader *r) {
  struct sf_rule_sum sum = {.begin = (int16_t)(r->at - r->rule->text)};
  int64_t sign = 1;
  do {
    take_product(r, &sum, sign);
    sign = is_word(r, "-") ? -1 : 1;
  } while (take_word(r, "+") || take_word(r, "-"));
  const char *end = r->at;
  while (end > r->rule->text && (end[-1] == ' ')) end--;
  sum.length = (int16_t)(end - r->rule->text - sum.begin);
  const struct sf_rule_term *term = &sum.term[0];
  sum.lone = term->count == 1 && !term->has && term->factor == 1 ? term->field[0] : -1;
  return sum;
}

/* What is compared with a field by name: "isolated", "on". */
static struct sf_rule_sum take_value(struct reader *r, const struct sf_rule_sum *left) {
  const char *const *names = left->count == 1 && left->term[0].count == 1 ? r->rules->fields[left->term[0].field[0]].names : NULL;
  for (int64_t i = 0; names != NULL && names[i] != NULL; i++) {
    if (!is_word(r, names[i])) continue;
    const struct sf_rule_sum value = {.constant = i, .begin = (int16_t)(r->at - r->rule->text), .length = (int16_t)strlen(names[i])};
    skip_word(r);
    return value;
  }
  return take_sum(r);
}

static struct sf_rule_relation take_relation(struct reader *r) {
  struct sf_rule_relation relation = {.left = take_sum(r)};
  static const struct {
    const char *word;
    enum sf_rule_relation_kind kind;
    bool mirrored; /* a >= b is b <= a */
    int64_t beyond;
  } kinds[] = {
      {"divides", SF_RULE_DIVIDES, false, 0}, {"=", SF_RULE_EQUAL, false, 0},   {"!=", SF_RULE_DIFFERS, false, 0},
      {"<=", SF_RULE_AT_MOST, false, 0},      {"<", SF_RULE_AT_MOST, false, 1}, {">=", SF_RULE_AT_MOST, true, 0},
      {">", SF_RULE_ABOVE, false, 0},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (!take_word(r, kinds[i].word)) continue;
    relation.kind = kinds[i].kind;
    relation.right = take_value(r, &relation.left);
    relation.left.constant += kinds[i].beyond;
    if (kinds[i].mirrored) {
      const struct sf_rule_sum left = relation.left;
      relation.left = relation.right;
      relation.right = left;
    }
    return relation;
  }
  SF_ASSERT(relation.left.count == 1 && relation.left.term[0].count == 1); /* a lone field */
  relation.kind = SF_RULE_DIFFERS;
  relation.right = (struct sf_rule_sum){.constant = r->rules->fields[relation.left.term[0].field[0]].plain};
  return relation;
}

static struct sf_rule_relation negated(struct sf_rule_relation relation) {
  static const enum sf_rule_relation_kind opposite[] = {
      [SF_RULE_AT_MOST] = SF_RULE_ABOVE, [SF_RULE_ABOVE] = SF_RULE_AT_MOST,       [SF_RULE_EQUAL] = SF_RULE_DIFFERS,
      [SF_RULE_DIFFERS] = SF_RULE_EQUAL, [SF_RULE_DIVIDES] = SF_RULE_NOT_DIVIDES, [SF_RULE_NOT_DIVIDES] = SF_RULE_DIVIDES,
  };
  relation.kind = opposite[relation.kind];
  return relation;
}

static void add_relation(struct sf_rule *rule, struct sf_rule_relation relation) {
  SF_ASSERT_LT(rule->relation_count, SF_RULE_RELATIONS_MAX);
  rule->relation[rule->relation_count++] = relation;
}

static void read_rule(const struct sf_rules *rules, struct sf_rule *rule) {
  struct reader r = {rules, rule, rule->text};
  const struct sf_rule_relation first = take_relation(&r);
  const bool needs = take_word(&r, "needs"), excludes = take_word(&r, "excludes");
  rule->follower_count = rule->field_count;
  if (needs)
    add_relation(rule, take_relation(&r));
  else
    add_relation(rule, excludes ? negated(take_relation(&r)) : first);
  while (take_word(&r, "or")) add_relation(rule, take_relation(&r));
  if (!needs && !excludes) rule->follower_count = rule->field_count;
  if (take_word(&r, "if")) do
      add_relation(rule, negated(take_relation(&r)));
    while (take_word(&r, "and"));
  if (needs || excludes) add_relation(rule, negated(first));
  SF_ASSERT(*r.at == '\0'); /* the rule ends here */
}

static struct sf_rule *begin_rule(struct sf_rules *rules, const char *why) {
  SF_ASSERT_LT(rules->rule_count, SF_RULES_MAX);
  struct sf_rule *rule = &rules->rule[rules->rule_count];
  memset(rule, 0, sizeof *rule);
  rule->why = why;
  return rule;
}

static void end_rule(struct sf_rules *rules) {
  const struct sf_rule *rule = &rules->rule[rules->rule_count];
  for (int32_t i = 0; i < rule->field_count; i++) {
    const int32_t from = sf_rule_field(rule, i);
    rules->of_field[from][rules->rule_count / 64] |= UINT64_C(1) << rules->rule_count % 64;
    for (int32_t k = 0; k < rule->follower_count; k++) {
      const int32_t to = sf_rule_field(rule, k);
      if (to != from) rules->followers[from][to / 64] |= UINT64_C(1) << to % 64;
    }
  }
  rules->rule_count++;
}

static void add_one(struct sf_rules *rules, const char *text, const char *why) {
  struct sf_rule *rule = begin_rule(rules, why);
  SF_ASSERT_LT(strlen(text), sizeof rule->text);
  strcpy(rule->text, text);
  read_rule(rules, rule);
  end_rule(rules);
}

void sf_rules_add_conditions(struct sf_rules *rules, const struct sf_rule_condition *conditions, int32_t count, int32_t follower_count,
                             const char *why) {
  struct sf_rule *rule = begin_rule(rules, why);
  rule->condition = conditions;
  rule->condition_count = rule->field_count = count;
  rule->follower_count = follower_count;
  end_rule(rules);
}

void sf_rules_add_product(struct sf_rules *rules, const int16_t *fields, const int32_t *const *counts_as, int32_t count, int16_t least,
                          int16_t most) {
  const struct sf_rule_term of_least = {.factor = 1, .count = 1, .field = {least}}, of_most = {.factor = 1, .count = 1, .field = {most}};
  struct sf_rule_term product = {.factor = 1, .count = count, .counts_as = counts_as};
  SF_ASSERT_LE(count, SF_RULE_FACTORS_MAX);
  memcpy(product.field, fields, (size_t)count * sizeof *fields);
  for (int side = 0; side < 2; side++) {
    struct sf_rule *rule = begin_rule(rules, NULL);
    const struct sf_rule_sum between = {.count = 1, .term = {product}, .lone = -1};
    const struct sf_rule_sum end = {.count = 1, .term = {side == 0 ? of_least : of_most}, .lone = side == 0 ? least : most};
    add_relation(rule, (struct sf_rule_relation){SF_RULE_AT_MOST, side == 0 ? end : between, side == 0 ? between : end});
    memcpy(rule->field, fields, (size_t)count * sizeof *fields);
    rule->field[count] = side == 0 ? least : most;
    rule->field_count = count + 1;
    end_rule(rules);
  }
}

/* "moe.* needs moe.experts": of each field of the group but those that are needed themselves. */
static void add_group(struct sf_rules *rules, const char *text, const char *star, const char *why) {
  const size_t prefix = (size_t)(star - text);
  for (int32_t i = 0; i < rules->field_count; i++) {
    const char *path = rules->fields[i].path;
    char one[sizeof rules->rule[0].text];
    if (strncmp(path, text, prefix) != 0 || strstr(star, path) != NULL) continue;
    snprintf(one, sizeof one, "%s%s", path, star + 1);
    add_one(rules, one, why);
  }
}

void sf_rules_add(struct sf_rules *rules, const char *text, const char *why) {
  const char *star = strstr(text, ".* ");
  if (star != NULL)
    add_group(rules, text, star + 1, why);
  else
    add_one(rules, text, why);
}

/* --- holding ---------------------------------------------------------------------------------------------------- */

static int64_t term_at(const struct sf_rule_term *term, const int64_t *at) {
  int64_t product = term->factor;
  if (term->has) return at[term->field[0]] > 0 ? product : 0;
  for (int32_t i = 0; i < term->count; i++) product *= sf_rule_factor(term, i, at[term->field[i]]);
  return product;
}

static int64_t sum_at(const struct sf_rule_sum *sum, const int64_t *at) {
  if (sum->count == 1 && sum->lone >= 0) return sum->constant + at[sum->lone];
  int64_t value = sum->constant;
  for (int32_t i = 0; i < sum->count; i++) value += term_at(&sum->term[i], at);
  return value;
}

static bool divides(int64_t divisor, int64_t number) { return divisor == 0 ? number == 0 : number % divisor == 0; }

static bool relation_holds(const struct sf_rule_relation *relation, const int64_t *at) {
  const int64_t left = sum_at(&relation->left, at), right = sum_at(&relation->right, at);
  switch (relation->kind) {
  case SF_RULE_AT_MOST:
    return left <= right;
  case SF_RULE_ABOVE:
    return left > right;
  case SF_RULE_EQUAL:
    return left == right;
  case SF_RULE_DIFFERS:
    return left != right;
  case SF_RULE_DIVIDES:
    return divides(left, right);
  case SF_RULE_NOT_DIVIDES:
    return !divides(left, right);
  }
  return false;
}

bool sf_rule_holds(const struct sf_rule *rule, const int64_t *at) {
  for (int32_t i = 0; i < rule->relation_count; i++)
    if (relation_holds(&rule->relation[i], at)) return true;
  for (int32_t i = 0; i < rule->condition_count; i++)
    if (sf_rule_condition_holds(&rule->condition[i], at[rule->condition[i].field])) return true;
  return false;
}

const struct sf_rule *sf_rules_broken(const struct sf_rules *rules, const int64_t *at) {
  for (int32_t i = 0; i < rules->rule_count; i++)
    if (!sf_rule_holds(&rules->rule[i], at)) return &rules->rule[i];
  return NULL;
}

/* --- explaining ------------------------------------------------------------------------------------------------- */

/* Words of the rule's text that say the sum. */
static void append_words(struct sf_text *out, const struct sf_rule *rule, const struct sf_rule_sum *sum) {
  sf_text_append(out, "%.*s", (int)sum->length, rule->text + sum->begin);
}

/* "model.heads 4"; the number alone where the sum is one. */
static void append_sum(struct sf_text *out, const struct sf_rule *rule, const struct sf_rule_sum *sum, int64_t value) {
  if (sum->count > 0) append_words(out, rule, sum);
  sf_text_append(out, "%s%" PRId64, sum->count > 0 ? " " : "", value);
}

/* "layout.tp: 3 does not divide model.heads 4" */
static void append_relation(struct sf_text *out, const struct sf_rule *rule, const struct sf_rule_relation *relation, const int64_t *at) {
  static const char *const says[] = {
      [SF_RULE_AT_MOST] = "is more than", [SF_RULE_ABOVE] = "is not above",      [SF_RULE_EQUAL] = "is not",
      [SF_RULE_DIFFERS] = "is",           [SF_RULE_DIVIDES] = "does not divide", [SF_RULE_NOT_DIVIDES] = "divides",
  };
  const bool is_below = relation->left.constant == 1 && relation->kind == SF_RULE_AT_MOST;
  const bool is_multiple = relation->kind == SF_RULE_DIVIDES && relation->left.count == 0;
  const bool is_fixed = (relation->kind == SF_RULE_EQUAL || relation->kind == SF_RULE_DIFFERS) && relation->right.count == 0;
  const struct sf_rule_sum *about = is_multiple ? &relation->right : &relation->left,
                           *other = is_multiple ? &relation->left : &relation->right;
  append_words(out, rule, about);
  sf_text_append(out, ": ");
  if (!is_fixed) sf_text_append(out, "%" PRId64 " ", sum_at(about, at) - is_below);
  if (is_fixed)
    sf_text_append(out, "%s be ", relation->kind == SF_RULE_EQUAL ? "must" : "may not");
  else
    sf_text_append(out, "%s ", is_below ? "is not below" : is_multiple ? "is no multiple of" : says[relation->kind]);
  if (is_fixed)
    append_words(out, rule, other);
  else
    append_sum(out, rule, other, sum_at(other, at));
}

/* What stands behind a word of the rule's text. */
static const char *words_behind(const struct sf_rule *rule, const char *word) {
  const char *found = strstr(rule->text, word);
  return found != NULL ? found + strlen(word) : NULL;
}

/* "every stage has a layer: layout.pp 9, model.layers 8" */
static void append_fields(struct sf_text *out, const struct sf_rules *rules, const struct sf_rule *rule, const int64_t *at) {
  sf_text_append(out, "%s: %s: ", rules->fields[rule->field[0]].path, rule->why);
  for (int32_t i = 0; i < rule->field_count; i++)
    sf_text_append(out, "%s%s %" PRId64, i > 0 ? ", " : "", rules->fields[rule->field[i]].path, at[rule->field[i]]);
}

enum sf_status sf_rule_explain(const struct sf_rule *rule, const struct sf_rules *rules, const int64_t *at, struct sf_error *error) {
  struct sf_text text = {0};
  const bool is_long = rule->why != NULL && strstr(rule->text, "has(") != NULL;
  const char *needed = words_behind(rule, " needs "), *excluded = words_behind(rule, " excludes "), *when = words_behind(rule, " if ");
  if (is_long)
    append_fields(&text, rules, rule, at);
  else if (needed != NULL)
    sf_text_append(&text, "%.*s: needs %s", (int)word_length(rule->text), rule->text, needed);
  else if (excluded != NULL)
    sf_text_append(&text, "%.*s: not with %s", (int)word_length(rule->text), rule->text, excluded);
  else
    append_relation(&text, rule, &rule->relation[0], at);
  if (when != NULL && !is_long) sf_text_append(&text, " (needed where %s)", when);
  if (rule->why != NULL && !is_long) sf_text_append(&text, ": %s", rule->why);
  const enum sf_status status = sf_error_set(error, SF_EINPUT, "%s", text.failed ? rule->text : text.data);
  sf_text_destroy(&text);
  return status;
}
