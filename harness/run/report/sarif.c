/* SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/): a result for each item that is not quiet, under a rule for each state. */
#include "harness/base/hash.h"
#include "harness/base/sinks.h"
#include "harness/run/report/places.h"
#include "harness/run/report/report.h"
#include "harness/run/support/json.h"
#include "harness/run/support/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char schema[] = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/* "shardfuzz/also-in-base" */
static void rule_of(char out[64], const struct sf_report_item *item) {
  snprintf(out, 64, "shardfuzz/%s", item->state);
  for (char *at = out; *at; at++)
    if (*at == ' ') *at = '-';
}

static const char *level_of(const struct sf_report_item *item) {
  static const char *const levels[] = {"note", "error", "warning"}; /* by outcome */
  return levels[item->outcome];
}

static json_t *location_of(const struct sf_report_item *item) {
  struct sf_text uri = {0};
  sf_place_append_uri(&uri, item);
  json_t *location = uri.failed ? NULL
                                : json_pack("{s:{s:{s:o}, s:{s:i}}}", "physicalLocation", "artifactLocation", "uri", sf_json_text(uri.data),
                                            "region", "startLine", 1);
  sf_text_destroy(&uri);
  return location;
}

static json_t *result_of(const struct sf_report_item *item) {
  char rule[64], fingerprint[SF_PLACE_FINGERPRINT_TEXT];
  rule_of(rule, item);
  sf_place_fingerprint(fingerprint, item);
  json_t *result = json_pack("{s:s, s:s, s:{s:o}, s:[o], s:{s:s}, s:{s:o, s:s, s:o, s:o}}", "ruleId", rule, "level", level_of(item),
                             "message", "text", sf_json_text(sf_place_message(item)), "locations", location_of(item), "partialFingerprints",
                             "shardfuzz/v1", fingerprint, "properties", "name", sf_json_text(item->name.data), "group", item->group, "next",
                             sf_json_text(item->next.data), "report", sf_json_text(item->text.data));
  return result;
}

/* Adds the rule of the item unless it is there. */
static int add_rule(json_t *rules, const struct sf_report_item *item) {
  char rule[64];
  size_t at;
  json_t *known;
  rule_of(rule, item);
  json_array_foreach(rules, at, known) if (strcmp(json_string_value(json_object_get(known, "id")), rule) == 0) return 0;
  return json_array_append_new(rules, json_pack("{s:s, s:{s:s}, s:{s:s}}", "id", rule, "shortDescription", "text", item->state,
                                                "defaultConfiguration", "level", level_of(item)));
}

static json_t *facts_of(const struct sf_report *report) {
  json_t *facts = json_object();
  for (int32_t i = 0; i < report->fact_count; i++) {
    struct sf_text value = {0};
    sf_text_append(&value, "%s%s", report->facts[i].value.data ? report->facts[i].value.data : "",
                   report->facts[i].said.data ? report->facts[i].said.data : "");
    if (json_object_set_new(facts, report->facts[i].name, sf_json_text(value.data)) != 0) json_decref(facts), facts = NULL;
    sf_text_destroy(&value);
  }
  return facts;
}

enum sf_status sf_report_append_sarif(struct sf_text *out, const struct sf_report *report) {
  json_t *results = json_array(), *rules = json_array();
  int failed = 0;
  for (int32_t i = 0; i < report->item_count; i++) {
    const struct sf_report_item *item = &report->items[i];
    if (item->is_quiet && item->outcome == SF_REPORT_PASSED) continue;
    failed |= add_rule(rules, item) | json_array_append_new(results, result_of(item));
  }
  json_t *run = json_pack("{s:{s:{s:s, s:s, s:o}}, s:o, s:o, s:[{s:b}]}", "tool", "driver", "name", "shardfuzz", "version", sf_version,
                          "rules", rules, "results", results, "properties", facts_of(report), "invocations", "executionSuccessful",
                          report->nothing.data == NULL);
  json_t *log = json_pack("{s:s, s:s, s:[o]}", "$schema", schema, "version", "2.1.0", "runs", run);
  const enum sf_status status = failed ? SF_ENOMEM : sf_json_append(out, log, JSON_INDENT(1));
  json_decref(log);
  if (status == SF_OK) sf_text_append(out, "\n");
  return status == SF_OK && out->failed ? SF_ENOMEM : status;
}
