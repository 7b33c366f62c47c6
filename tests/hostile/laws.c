#include "tests/hostile/laws.h"

#include "tests/hostile/texts.h"

#include "harness/base/sinks.h"
#include "harness/run/support/json.h"

#include <libxml/xmlreader.h>
#include <stdio.h>

static bool begins_with_one_of(const char *line, const char *const *labels, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strncmp(line, labels[i], strlen(labels[i])) == 0) return true;
  return false;
}

void law_refusal(enum sf_status status, const struct sf_error *error, const char *where) {
  struct sf_text printed = {0};
  if ((status != SF_EINPUT && status != SF_EUSAGE) || error->status != status)
    fail_msg("status %d (%s) and a text of status %d: '%s'", status, sf_status_text(status), error->status, error->text);
  const size_t length = where == NULL ? 0 : strlen(where);
  if (where != NULL && strncmp(error->text, where, length) != 0) fail_msg("'%s' does not begin with '%s'", error->text, where);
  const char *said = error->text + length;
  while (*said == ':' || *said == ' ') said++;
  if (strchr(said, ' ') == NULL) fail_msg("'%s' says nothing", error->text);
  if (strstr(error->text, "(null)") != NULL) fail_msg("a text that is not there in '%s'", error->text);
  sf_line_append(&printed, "shardfuzz: %s\n", error->text);
  assert_lines(printed.data);
  assert_int_equal(line_count(printed.data), 1);
  sf_text_destroy(&printed);
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static void assert_ascii(const char *text) {
  for (; *text; text++)
    if ((*text < 0x20 && *text != '\n') || *text == 0x7f) fail_msg("no ASCII at '%.40s'", text);
}

json_t *law_json_text(const char *text) {
  json_error_t error;
  assert_lines(text);
  assert_ascii(text);
  json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  if (value == NULL) fail_msg("%s: %s", error.text, text);
  return value;
}

void law_json(json_t *value) {
  struct sf_text line = {0};
  assert_non_null(value);
  assert_int_equal(sf_json_append(&line, value, JSON_COMPACT), SF_OK);
  assert_int_equal(line_count(line.data), 0);
  json_t *again = law_json_text(line.data);
  assert_true(json_equal(value, again));
  json_decref(again);
  json_decref(value);
  sf_text_destroy(&line);
}

/* --- XML, HTML ---------------------------------------------------------------------------------------------------- */

static bool has_word(const char *words, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = words; (at = strstr(at, word)) != NULL; at += length)
    if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
  return false;
}

/* XML keeps tabs and newlines of others. */
static void assert_no_control(const char *text) {
  for (const char *at = text; *at; at += sf_utf8_length(at)) {
    const unsigned char first = (unsigned char)*at;
    if (sf_utf8_length(at) == 0) fail_msg("no UTF-8 at '%.40s'", at);
    if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f || (first == 0xc2 && (unsigned char)at[1] < 0xa0))
      fail_msg("a control character at '%.40s'", at);
  }
}

int law_xml(const char *text, const char *elements) {
  int count = 0, read = 0;
  const size_t first = strcspn(elements, " ");
  assert_no_control(text);
  xmlTextReaderPtr reader = xmlReaderForMemory(text, (int)strlen(text), "report", NULL, XML_PARSE_NONET | XML_PARSE_NOERROR);
  assert_non_null(reader);
  while ((read = xmlTextReaderRead(reader)) == 1) {
    if (xmlTextReaderNodeType(reader) != XML_READER_TYPE_ELEMENT) continue;
    const char *name = (const char *)xmlTextReaderConstName(reader);
    if (!has_word(elements, name)) fail_msg("an element %s", name);
    count += strlen(name) == first && strncmp(name, elements, first) == 0;
    while (xmlTextReaderMoveToNextAttribute(reader) == 1)
      if (strncmp((const char *)xmlTextReaderConstName(reader), "on", 2) == 0) fail_msg("an attribute that is a script");
  }
  if (read != 0) fail_msg("not well-formed: %s", text);
  xmlFreeTextReader(reader);
  return count;
}

void law_html_text(const char *text) {
  static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  assert_lines(text);
  assert_null(strpbrk(text, "<>\"'"));
  for (const char *at = text; (at = strchr(at, '&')) != NULL; at++)
    if (!begins_with_one_of(at, entities, sizeof entities / sizeof entities[0])) fail_msg("an entity at '%.20s'", at);
  assert_null(strstr(text, "\xef\xbf\xbe")); /* no character of XML */
}

/* --- Markdown ----------------------------------------------------------------------------------------------------- */

void law_code_span(const char *text) {
  const size_t length = strlen(text), fence = strspn(text, "`");
  int backslashes = 0;
  assert_null(strpbrk(text, "\r\n"));
  assert_true(fence > 0 && fence < length);
  for (size_t at = fence; at < length; at++) {
    const size_t run = strspn(text + at, "`");
    if (run > 0 && (run == fence) != (at + run == length)) fail_msg("not one span: %s", text);
    if (text[at] == '|' && backslashes % 2 == 0) fail_msg("a bar ends the cell: %s", text);
    backslashes = text[at] == '\\' ? backslashes + 1 : 0;
    if (run > 0) at += run - 1;
  }
}

/* Blanks what code spans and fenced blocks hold, as CommonMark finds them. */
static void blank_code(char *page) {
  for (char *at = page; *at != '\0';) {
    const size_t fence = strspn(at, "`");
    char *end = at + fence;
    if (fence == 0) {
      at++;
      continue;
    }
    while (*end != '\0' && strspn(end, "`") != fence) end += strspn(end, "`") + (*end != '`');
    if (*end == '\0') fail_msg("code without an end: %.80s", at);
    for (char *inside = at; inside < end + fence; inside++) {
      if (fence < 3 && *inside == '\n') fail_msg("a span of several lines: %.80s", at);
      if (*inside == '|' && inside[-1] != '\\' && fence < 3) fail_msg("a bar that ends a cell: %.80s", at);
    }
    for (; at < end + fence; at++)
      if (*at != '\n') *at = ' ';
  }
}

void law_markdown_page(char *page) {
  static const char *const tags[] = {"<details>", "</details>", "<summary>", "</summary>"};
  assert_lines(page);
  blank_code(page);
  for (const char *at = page; (at = strchr(at, '<')) != NULL; at++)
    if (!begins_with_one_of(at, tags, sizeof tags / sizeof tags[0])) fail_msg("HTML of others at %.40s", at);
  if (strpbrk(page, "`[]()!@~$\\\"'&")) fail_msg("text of others in %s", page);
  for (const char *line = page; *line; line = strchr(line, '\n') + 1) {
    int bars = 0;
    for (const char *at = line; *at != '\n'; at++) bars += *at == '|';
    if (bars != 0 && bars != 4) fail_msg("a cell of others in %.80s", line);
  }
}

/* --- lines for machines ------------------------------------------------------------------------------------------- */

void law_annotations(const char *text, int32_t lines) {
  static const char *const commands[] = {"::notice file=", "::error file=", "::warning file="};
  assert_int_equal(line_count(text), lines);
  for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
    char copy[8192];
    assert_true(strcspn(line, "\n") < sizeof copy);
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
    assert_lines(copy + 2);
    if (!begins_with_one_of(copy, commands, 3)) fail_msg("no command of ours: %s", copy);
    const char *file = strchr(copy, '=') + 1, *title = file + strcspn(file, ",:");
    if (strncmp(title, ",title=shardfuzz", 16) != 0) fail_msg("another property: %s", copy);
    title += strcspn(title, ":");
    if (strncmp(title, "::", 2) != 0) fail_msg("the properties do not end: %s", copy);
  }
}

void law_prometheus(const char *text) {
  assert_lines(text);
  for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
    if (*line == '#') continue;
    const char *at = line;
    if (strncmp(at, "shardfuzz_", 10) != 0) fail_msg("no metric of ours: %.80s", line);
    at += strcspn(at, "{\n");
    for (; *at == '{' || *at == ','; at++) {
      const char *label = at + 1;
      at = label + strspn(label, "abcdefghijklmnopqrstuvwxyz");
      if (at == label || strncmp(at, "=\"", 2) != 0) fail_msg("no label: %.80s", label);
      for (at += 2; *at != '"' && *at != '\n'; at++) at += *at == '\\';
      if (*at != '"') fail_msg("a label does not end: %.80s", label);
    }
    char *end = NULL;
    if (strncmp(at, "} ", 2) != 0) fail_msg("the labels do not end: %.80s", line);
    strtod(at + 2, &end);
    if (end == at + 2 || *end != '\n') fail_msg("no number: %.80s", line);
  }
}

void law_last_word(const char *line, size_t length, const char *expected) {
  struct sf_text command = {0};
  char seen[1024] = "";
  sf_text_append(&command, "set -- %.*s; shift $(($# - 1)); printf %%s \"$1\"", (int)length, line);
  FILE *shell = popen(command.data, "r");
  assert_non_null(shell);
  assert_true(fread(seen, 1, sizeof seen - 1, shell) < sizeof seen);
  assert_int_equal(pclose(shell), 0);
  assert_string_equal(seen, expected);
  sf_text_destroy(&command);
}
