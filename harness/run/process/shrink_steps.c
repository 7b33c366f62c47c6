#include "harness/run/process/shrink_steps.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/json.h"
#include "harness/base/sinks.h"
#include "harness/base/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Keys between the root of a case and a value. */
struct path {
  const struct path *above;
  const char *key;
};

static void append_path(struct sf_text *out, const struct path *path) {
  if (!path) return;
  append_path(out, path->above);
  sf_text_append(out, "%s%s", path->above ? "." : "", path->key);
}

/* A field at its smallest value may be left out of a case. */
static void append_value(struct sf_text *out, const json_t *value) {
  char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
  const bool is_text = json_is_string(value);
  sf_text_append(out, "%s", is_text ? json_string_value(value) : text ? text : "smallest");
  free(text);
}

static void append_change(struct sf_text *out, const struct path *path, const json_t *from, const json_t *to) {
  sf_text_append(out, "%s", out->length > 0 ? ", " : "");
  append_path(out, path);
  sf_text_append(out, ": ");
  append_value(out, from);
  sf_text_append(out, " -> ");
  append_value(out, to);
}

static void compare(struct sf_text *out, const struct path *path, json_t *from, json_t *to);

static void compare_members(struct sf_text *out, const struct path *above, json_t *from, json_t *to, bool only_missing) {
  const char *key;
  json_t *value;
  json_object_foreach(from, key, value) {
    const struct path path = {above, key};
    json_t *other = json_object_get(to, key);
    if (only_missing && !other)
      append_change(out, &path, NULL, value);
    else if (!only_missing)
      compare(out, &path, value, other);
  }
}

static void compare(struct sf_text *out, const struct path *path, json_t *from, json_t *to) {
  if (json_is_object(from) && json_is_object(to)) {
    compare_members(out, path, from, to, false);
    compare_members(out, path, to, from, true);
  } else if (!json_equal(from, to)) {
    append_change(out, path, from, to);
  }
}

static json_t *json_of(const struct sf_case *c) {
  char *text = NULL;
  json_t *json = sf_case_to_json(&text, c) == SF_OK ? sf_json_of(text) : NULL;
  sf_free(text);
  return json;
}

/* Appends what differs, as one line. False: there was no memory for it. */
static bool append_step(struct sf_text *out, const struct sf_case *from, const struct sf_case *to) {
  struct sf_text change = {0};
  json_t *before = json_of(from), *after = json_of(to);
  if (before && after) compare(&change, NULL, before, after);
  if (!change.failed) sf_line_append(out, "%s", change.data ? change.data : "");
  const bool has_all = before && after && !change.failed && !out->failed;
  json_decref(before);
  json_decref(after);
  sf_text_destroy(&change);
  return has_all;
}

void sf_steps_note(char steps[SF_STEPS_TEXT], const struct sf_case *from, const struct sf_case *to, bool kept) {
  enum { LINE_MAX = 320, END = 6, FOR_KEPT = SF_STEPS_TEXT / 4 };
  const size_t length = strlen(steps), room = SF_STEPS_TEXT - length;
  if (room < (kept ? 0 : FOR_KEPT) + LINE_MAX + END) return;
  struct sf_text line = {0};
  bool is_told = append_step(&line, from, to);
  if (!is_told) { /* memory that lacks now may be there at once */
    sf_text_destroy(&line);
    is_told = append_step(&line, from, to);
  }
  const char *text = is_told ? line.data : "a step that there was no memory to describe";
  snprintf(steps + length, room, "%c%.*s%s\n", kept ? '+' : '-', (int)sf_utf8_cut(text, LINE_MAX), text,
           strlen(text) > LINE_MAX ? " .." : "");
  sf_text_destroy(&line);
}
