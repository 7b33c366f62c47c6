#include "harness/run/framework/framework_case.h"

#include "harness/base/alloc.h"
#include "harness/base/json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- running ---------------------------------------------------------------------------------------------------- */

enum sf_status sf_framework_case_complete(json_t **out, const struct sf_description *description, const struct sf_case *c,
                                          struct sf_error *error) {
  json_t *object = sf_json_of(c->fields);
  if (!object) return SF_ENOMEM;
  const int32_t field = sf_description_find_field(description, "seed");
  enum sf_status status = SF_OK;
  if (field >= 0 && !json_object_get(object, "seed")) {
    json_t *seed = sf_description_choice(description, field, c->seed % sf_description_choice_count(description, field));
    if (!seed || json_object_set_new(object, "seed", seed) != 0) status = SF_ENOMEM;
  }
  if (status == SF_OK) status = sf_description_complete(out, description, object, error);
  json_decref(object);
  return status;
}

/* The key of a loud failure: the beginning of its message without numbers and paths, which change from case to case. */
static void key_of_text(char *out, size_t size, const char *text) {
  size_t at = 0;
  const char *begin = text, *end = text + strcspn(text, "\n");
  for (; text < end && at + 1 < size; text++) {
    if (*text == '/' && (text == begin || isspace((unsigned char)text[-1]))) text += strcspn(text, " \n:");
    if (isalpha((unsigned char)*text) || *text == '_')
      out[at++] = *text;
    else if (at > 0 && out[at - 1] != '.')
      out[at++] = '.';
  }
  while (at > 0 && out[at - 1] == '.') at--;
  out[at] = '\0';
}

/* The key of a wrong tensor, or of a failed run, which has no kind; module: what the failed run blames. */
static void key_of(struct sf_culprit *culprit, const struct sf_framework_outcome *seen) {
  const char *cls = sf_finding_class_name(culprit->cls);
  char *key = culprit->shrink_key;
  if (culprit->kind >= 0) {
    snprintf(key, SF_SHRINK_KEY_TEXT, "%s/%s/%s", cls, sf_kind_name((enum sf_kind)culprit->kind), culprit->module);
  } else if (culprit->cls == SF_CLASS_HANG) {
    snprintf(key, SF_SHRINK_KEY_TEXT, "hang/%s", seen->run);
  } else {
    key_of_text(culprit->module, 48, seen->what.text + seen->said);
    snprintf(key, SF_SHRINK_KEY_TEXT, "%s/%.9s/%s", cls, seen->run, culprit->module);
  }
}

/* Makes the signature, and appends the mode to the key. */
static void sign(char signature[SF_SIGNATURE_TEXT], char key[SF_SHRINK_KEY_TEXT], const struct sf_case *c) {
  const size_t length = strlen(key);
  sf_signature_make(signature, key, c);
  if (c->mode == SF_MODE_ISOLATED) snprintf(key + length, SF_SHRINK_KEY_TEXT - length, "%s", SF_KEY_ISOLATED);
}

static struct sf_culprit culprit_of(const struct sf_case *c, const struct sf_framework_outcome *seen, const struct sf_culprit *culprit) {
  struct sf_culprit out = *culprit;
  key_of(&out, seen);
  sign(out.signature, out.shrink_key, c);
  return out;
}

static void outcome_of(struct sf_outcome *out, const struct sf_case *c, const struct sf_framework_outcome *seen) {
  out->verdict = seen->verdict;
  out->checked = (int32_t)seen->judged;
  out->unchecked = (int32_t)seen->not_judged;
  out->tally = seen->tally;
  out->rank = seen->what.rank;
  const bool is_finding = seen->verdict == SF_VERDICT_FINDING;
  const struct sf_culprit first = culprit_of(c, seen, &seen->what);
  if (is_finding) sf_outcome_tell_of(out, &first);
  snprintf(out->text, sizeof out->text, "%s%s%s%s%.600s", seen->run, *seen->run ? ": " : "", seen->what.text,
           is_finding && *seen->output ? "\n" : "", is_finding ? seen->output : "");
  if (!is_finding) return;
  out->finding_count = (int32_t)seen->findings;
  memcpy(out->pattern, seen->pattern, sizeof out->pattern);
  for (int32_t i = 0; i < seen->further_count; i++) {
    const struct sf_culprit further = culprit_of(c, seen, &seen->further[i]);
    sf_outcome_add_culprit(out, &further);
  }
}

void sf_framework_trial(struct sf_framework *framework, const struct sf_case *c, struct sf_outcome *outcome) {
  struct sf_framework_outcome *seen = sf_alloc(sizeof *seen);
  struct sf_error error = {SF_OK, ""};
  json_t *complete = NULL;
  memset(outcome, 0, sizeof *outcome);
  outcome->kind = outcome->module_class = outcome->rank = -1;
  outcome->row = -1;
  outcome->ranks = (int32_t)sf_case_ranks(c);
  const char *name = sf_description_name(sf_framework_description(framework));
  if (strcmp(name, c->target) != 0)
    sf_error_set(&error, SF_EINPUT, "target.name: the case is one of %s, the worker is %.100s", c->target, name);
  outcome->status = !seen         ? SF_ENOMEM
                    : *error.text ? SF_EINPUT
                                  : sf_framework_case_complete(&complete, sf_framework_description(framework), c, &error);
  if (outcome->status == SF_OK) outcome->status = sf_framework_run(framework, seen, complete, &error);
  if (outcome->status == SF_OK) {
    outcome_of(outcome, c, seen);
    outcome->seconds = seen->seconds;
  } else {
    snprintf(outcome->text, sizeof outcome->text, "%s", *error.text ? error.text : sf_status_text(outcome->status));
  }
  json_decref(complete);
  sf_free(seen);
}

enum sf_status sf_framework_script(struct sf_framework *framework, char *out, size_t size, const struct sf_case *c,
                                   const struct sf_outcome *outcome, struct sf_error *error) {
  json_t *complete = NULL;
  *out = '\0';
  if (!sf_description_has_scripts(sf_framework_description(framework))) return SF_OK;
  enum sf_status status = sf_framework_case_complete(&complete, sf_framework_description(framework), c, error);
  if (status == SF_OK) status = sf_framework_ask_script(framework, out, size, complete, outcome->first_id, error);
  json_decref(complete);
  return status;
}

/* --- triggers --------------------------------------------------------------------------------------------------- */

static bool member_contains(const json_t *value, const json_t *needed) {
  const char *key;
  json_t *inner;
  if (json_is_integer(needed) && json_is_integer(value)) return json_integer_value(value) >= json_integer_value(needed);
  if (!json_is_object(needed)) return json_equal(value, needed);
  json_object_foreach((json_t *)(uintptr_t)needed, key, inner) {
    if (strcmp(key, "seed") != 0 && !member_contains(json_object_get(value, key), inner)) return false;
  }
  return true;
}

bool sf_framework_case_contains(const struct sf_case *c, const struct sf_case *trigger) {
  json_t *has = sf_json_of(c->fields), *needed = sf_json_of(trigger->fields);
  const bool contains = has && needed && strcmp(c->target, trigger->target) == 0 && member_contains(has, needed);
  json_decref(has);
  json_decref(needed);
  return contains;
}

bool sf_framework_cases_ask_the_same(const struct sf_case *c, const struct sf_case *other) {
  static const char *const apart[] = {"mode", "seed"};
  if (!*c->fields || !*other->fields || strcmp(c->target, other->target) != 0) return false;
  json_t *asks = sf_json_of(c->fields), *others = sf_json_of(other->fields);
  for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
    json_object_del(asks, apart[i]);
    json_object_del(others, apart[i]);
  }
  const bool same = asks && others && json_equal(asks, others) && json_object_size(asks) > (json_object_get(asks, "layout") ? 1 : 0);
  json_decref(asks);
  json_decref(others);
  return same;
}
