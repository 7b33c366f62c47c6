/* Hostile input by kind. Each kind is a file with its inputs, most of them made by families: every truncation of a sound file, every field
 * with every wrong value. The law of an input: it is refused by one clear line (law_refusal), or what is made of it keeps the law of every
 * sink (laws.h). Inputs that are taken after all, as a field's wrong value that it may have, are checked and not counted. */
#ifndef TESTS_HOSTILE_HOSTILE_H
#define TESTS_HOSTILE_HOSTILE_H

#include "tests/hostile/laws.h"
#include "tests/hostile/texts.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"

#include <stdio.h>

#define HOSTILE_KIND_MAP(X)                                                                                                                \
  X(CASE, "case files")                                                                                                                    \
  X(LIST, "lists of known findings")                                                                                                       \
  X(OPTION, "settings of the command line")                                                                                                \
  X(TRACE, "traces")                                                                                                                       \
  X(WORKER, "worker answers and descriptions")                                                                                             \
  X(PLUGIN, "plugins")                                                                                                                     \
  X(NAME, "names and texts in reports")
enum hostile_kind {
#define HOSTILE_CONSTANT(kind, text) HOSTILE_##kind,
  HOSTILE_KIND_MAP(HOSTILE_CONSTANT)
#undef HOSTILE_CONSTANT
      HOSTILE_KINDS
};

/* Each runs the tests of a kind; the number of those that failed. */
int hostile_run_cases(void);
int hostile_run_lists(void);
int hostile_run_options(void);
int hostile_run_safetensors(void);
int hostile_run_traces(void);
int hostile_run_workers(void);
int hostile_run_plugins(void);
int hostile_run_sinks(void);
int hostile_run_reports(void);

/* Counts one input. True for a few of each kind, which the program itself has to refuse too (program.h). */
bool hostile_try(enum hostile_kind kind);

/* Makes a file of these bytes anew, without the care that a file of the program gets. */
static inline void hostile_write(const char *path, const void *data, size_t size_bytes) {
  FILE *to = fopen(path, "wb");
  assert_non_null(to);
  assert_int_equal(fwrite(data, 1, size_bytes, to), size_bytes);
  assert_int_equal(fclose(to), 0);
}

/* JSON values that hardly any field may have. */
static const char *const hostile_values[] = {
    "null",
    "true",
    "-1",
    "0",
    "1.0",
    "1e3",
    "9223372036854775807",
    "9223372036854775808",
    "4294967297",
    "-9223372036854775808",
    "1e999",
    "01",
    "NaN",
    "\"\"",
    "\"none\"",
    "\"2\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\u202e\\u001b[2J\"",
    "[]",
    "[null]",
    "[[0]]",
    "{}",
    "{\"a\": 1}",
    "{\"\": {}}",
    "x",
    "",
};
enum { HOSTILE_VALUE_COUNT = sizeof hostile_values / sizeof hostile_values[0] };

/* A text as a JSON string, quotes included; what is not UTF-8 stays as it is, which no JSON may hold. */
static inline void hostile_append_string(struct sf_text *out, const char *text) {
  sf_text_append(out, "\"");
  for (const unsigned char *at = (const unsigned char *)text; *at; at++)
    sf_text_append(out, *at < 0x20 || *at == '"' || *at == '\\' ? "\\u%04x" : "%c", *at);
  sf_text_append(out, "\"");
}

/* The form with its %s replaced. */
static inline void hostile_fill(struct sf_text *out, const char *form, const char *text) {
  const char *at = strstr(form, "%s");
  sf_text_append(out, "%.*s%s%s", (int)(at - form), form, text, at + 2);
}
/* The same with number i of 0..HOSTILE_JSON_COUNT: a value, or a text as a string. */
enum { HOSTILE_JSON_COUNT = HOSTILE_VALUE_COUNT + HOSTILE_COUNT };
static inline void hostile_fill_json(struct sf_text *out, const char *form, int i) {
  struct sf_text value = {0};
  if (i >= HOSTILE_VALUE_COUNT) hostile_append_string(&value, hostile_texts[i - HOSTILE_VALUE_COUNT]);
  hostile_fill(out, form, i < HOSTILE_VALUE_COUNT ? hostile_values[i] : value.data);
  sf_text_destroy(&value);
}

#endif
