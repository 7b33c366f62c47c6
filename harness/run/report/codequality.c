/* What GitLab shows in a merge request: a Code Quality report (artifacts: reports: codequality). */
#include "harness/run/report/places.h"
#include "harness/run/support/json.h"

enum sf_status sf_report_append_codequality(struct sf_text *out, const struct sf_report *report) {
  static const char *const severities[] = {"info", "critical", "major"}; /* by outcome */
  json_t *issues = json_array();
  int failed = 0;
  for (int32_t i = 0; i < report->item_count; i++) {
    const struct sf_report_item *item = &report->items[i];
    char fingerprint[SF_PLACE_FINGERPRINT_TEXT];
    if (item->is_quiet && item->outcome == SF_REPORT_PASSED) continue;
    sf_place_fingerprint(fingerprint, item);
    failed |= json_array_append_new(issues,
                                    json_pack("{s:o, s:s, s:s, s:s, s:{s:o, s:{s:i}}}", "description", sf_json_text(sf_place_message(item)),
                                              "check_name", item->state, "fingerprint", fingerprint, "severity", severities[item->outcome],
                                              "location", "path", sf_json_text(sf_place_path(item)), "lines", "begin", 1));
  }
  const enum sf_status status = failed ? SF_ENOMEM : sf_json_append(out, issues, JSON_INDENT(1));
  json_decref(issues);
  if (status == SF_OK) sf_text_append(out, "\n");
  return status == SF_OK && out->failed ? SF_ENOMEM : status;
}
