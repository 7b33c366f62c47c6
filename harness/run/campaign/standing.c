#include "harness/run/campaign/standing.h"

#include "harness/base/assert.h"
#include "harness/base/json.h"
#include "harness/base/sinks.h"
#include "harness/base/utf8.h"
#include "harness/run/support/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const states[] = {
#define TEXT(name, text) text,
    SF_CAMPAIGN_STATE_MAP(TEXT)
#undef TEXT
};

const char *sf_campaign_state_text(enum sf_campaign_state state) {
  SF_ASSERT_LT((unsigned)state, SF_CAMPAIGN_STATE_COUNT);
  return states[state];
}

/* --- the members as tables ---------------------------------------------------------------------------------------- */

struct member {
  const char *name, *what;
  size_t offset;
};
#define MEMBER(member_, what_) {.name = #member_, .what = what_, .offset = offsetof(struct sf_standing, member_)},
static const struct member counts[] = {SF_STANDING_COUNT_MAP(MEMBER)}, reals[] = {SF_STANDING_REAL_MAP(MEMBER)};
#undef MEMBER
enum { COUNTS = sizeof counts / sizeof *counts, REALS = sizeof reals / sizeof *reals };

static int64_t *count_in(struct sf_standing *standing, int which) { return (int64_t *)(void *)((char *)standing + counts[which].offset); }
static double *real_in(struct sf_standing *standing, int which) { return (double *)(void *)((char *)standing + reals[which].offset); }

struct sf_standing sf_standing_unknown(void) {
  struct sf_standing standing = {.state = SF_CAMPAIGN_ENDED};
  for (int i = 0; i < COUNTS; i++) *count_in(&standing, i) = -1;
  for (int i = 0; i < REALS; i++) *real_in(&standing, i) = NAN;
  return standing;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

json_t *sf_json_of_standing(const struct sf_standing *standing) {
  struct sf_standing copy = *standing;
  json_t *object = json_object();
  int failed = json_object_set_new(object, "state", json_string(sf_campaign_state_text(standing->state)));
  for (int i = 0; i < COUNTS; i++) failed |= json_object_set_new(object, counts[i].name, sf_json_count(*count_in(&copy, i)));
  for (int i = 0; i < REALS; i++) {
    const double value = *real_in(&copy, i);
    failed |= json_object_set_new(object, reals[i].name, isfinite(value) ? json_real(round(value * 1000) / 1000) : json_null());
  }
  failed |= json_object_set_new(object, "target", sf_json_text(standing->target));
  failed |= json_object_set_new(object, "newest", *standing->newest ? sf_json_text(standing->newest) : json_null());
  failed |= json_object_set_new(object, "host", sf_json_text(standing->host));
  if (!failed) return object;
  json_decref(object);
  return NULL;
}

static void copy_text(char *out, size_t size, const json_t *value) {
  const char *text = json_string_value(value);
  snprintf(out, size, "%.*s", text ? (int)sf_utf8_cut(text, size - 1) : 0, text ? text : "");
}

enum sf_status sf_standing_from_json(struct sf_standing *out, const char *text) {
  json_t *object = sf_json_of(text);
  const char *state = json_string_value(json_object_get(object, "state"));
  struct sf_standing standing = sf_standing_unknown();
  int which = 0;
  while (state && which < SF_CAMPAIGN_STATE_COUNT && strcmp(states[which], state) != 0) which++;
  const bool known = state && which < SF_CAMPAIGN_STATE_COUNT;
  if (known) {
    standing.state = (enum sf_campaign_state)which;
    for (int i = 0; i < COUNTS; i++) {
      const json_t *value = json_object_get(object, counts[i].name);
      if (json_is_integer(value)) *count_in(&standing, i) = json_integer_value(value);
    }
    for (int i = 0; i < REALS; i++) {
      const json_t *value = json_object_get(object, reals[i].name);
      if (json_is_number(value)) *real_in(&standing, i) = json_number_value(value);
    }
    copy_text(standing.target, sizeof standing.target, json_object_get(object, "target"));
    copy_text(standing.newest, sizeof standing.newest, json_object_get(object, "newest"));
    copy_text(standing.host, sizeof standing.host, json_object_get(object, "host"));
    *out = standing;
  }
  json_decref(object);
  return known ? SF_OK : SF_EINPUT;
}

/* --- Prometheus --------------------------------------------------------------------------------------------------- */

/* A label's value, in which the format gives a backslash, a quote and a newline a meaning. */
static void append_label(struct sf_text *out, const char *name, const char *value) {
  struct sf_text clean = {0};
  sf_line_append(&clean, "%s", value);
  sf_text_append(out, "%s=\"", name);
  for (const char *at = clean.data ? clean.data : ""; *at; at++) sf_text_append(out, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
  sf_text_append(out, "\"");
  out->failed |= clean.failed;
  sf_text_destroy(&clean);
}

static void append_metric(struct sf_text *out, const char *name, const char *what, const char *labels) {
  sf_text_append(out, "# HELP shardfuzz_%s %s\n# TYPE shardfuzz_%s gauge\nshardfuzz_%s{%s", name, what, name, name, labels);
}

void sf_standing_prometheus(struct sf_text *out, const struct sf_standing *standing, const char *store) {
  struct sf_standing copy = *standing;
  struct sf_text labels = {0};
  append_label(&labels, "store", store);
  sf_text_append(&labels, ",");
  append_label(&labels, "target", standing->target);
  const char *text = labels.data ? labels.data : "";
  for (int i = 0; i < SF_CAMPAIGN_STATE_COUNT; i++) {
    if (i == 0) sf_text_append(out, "# HELP shardfuzz_state 1 for the state that the campaign is in\n# TYPE shardfuzz_state gauge\n");
    sf_text_append(out, "shardfuzz_state{%s,state=\"%s\"} %d\n", text, states[i], (int)standing->state == i);
  }
  for (int i = 0; i < COUNTS; i++) {
    if (*count_in(&copy, i) < 0) continue;
    append_metric(out, counts[i].name, counts[i].what, text);
    sf_text_append(out, "} %" PRId64 "\n", *count_in(&copy, i));
  }
  for (int i = 0; i < REALS; i++) {
    if (!isfinite(*real_in(&copy, i))) continue;
    append_metric(out, reals[i].name, reals[i].what, text);
    sf_text_append(out, "} %.3f\n", *real_in(&copy, i));
  }
  out->failed |= labels.failed;
  sf_text_destroy(&labels);
}
