#include "harness/spec/case_internal.h"
#include "harness/spec/case_rules.h"
#include "harness/spec/mesh.h"

#include <inttypes.h>
#include <string.h>

#define REFUSE(...) return sf_error_set(error, SF_EINPUT, __VA_ARGS__)

static enum sf_status check_ranges(const struct sf_case *c, struct sf_error *error) {
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT) {
      const char *text = (const char *)c + field->offset;
      if (memchr(text, '\0', field->size_bytes) == NULL) REFUSE("%s: longer than %zu characters", field->path, field->size_bytes - 1);
      if (!sf_case_text_ok(text)) REFUSE("%s: characters other than A-Z a-z 0-9 . _ : , / -", field->path);
      continue;
    }
    const enum sf_status status = sf_case_field_check(field, sf_case_field_get(c, field), error);
    if (status != SF_OK) return status;
  }
  if (c->target[0] == '\0') REFUSE("target.name: empty");
  return SF_OK;
}

static enum sf_status check_order(const char *order, const char *path, struct sf_error *error) {
  enum sf_axis axes[SF_AXIS_COUNT];
  struct sf_error reason = {0};
  if (sf_mesh_parse_order(axes, order, &reason) != SF_OK) REFUSE("%s: %s", path, reason.text);
  return SF_OK;
}

/* A text is no number of the row: that it says nothing without reloading is no rule of harness/spec/case_rules.c. */
static enum sf_status check_orders(const struct sf_case *c, struct sf_error *error) {
  struct sf_case smallest;
  sf_case_init(&smallest);
  const enum sf_status status = check_order(c->layout.order, "layout.order", error);
  if (status != SF_OK) return status;
  if (c->reload.after_step > 0) return check_order(c->reload.layout.order, "reload.order", error);
  if (strcmp(c->reload.layout.order, smallest.reload.layout.order) != 0) REFUSE("reload.order: needs reload.after_step > 0");
  return SF_OK;
}

enum sf_status sf_case_validate(const struct sf_case *c, struct sf_error *error) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  if (sf_case_is_framework(c)) return sf_case_validate_framework(c, error);
  if (sf_case_is_operation(c)) {
    if (strncmp(c->target, "op:", 3) != 0 && strncmp(c->target, "plugin:", 7) != 0) REFUSE("target: op:NAME or plugin:LIB.so");
    return SF_OK; /* the rest is the operation's to know */
  }
  enum sf_status status = check_ranges(c, error);
  if (status == SF_OK) status = check_orders(c, error);
  if (status != SF_OK) return status;
  const struct sf_rules *rules = sf_case_rules();
  sf_case_row(row, c);
  const struct sf_rule *broken = sf_rules_broken(rules, row);
  return broken == NULL ? SF_OK : sf_rule_explain(broken, rules, row, error);
}
