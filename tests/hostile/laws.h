/* The law of each sink, where texts of others end. Each function ends the test when the law is broken. */
#ifndef TESTS_HOSTILE_LAWS_H
#define TESTS_HOSTILE_LAWS_H

#include "harness/base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* stderr, stdout, text reports (assert_lines of texts.h has the law of a line). What refuses an input: status is SF_EINPUT or SF_EUSAGE,
 * and the text is one line of at least two words, which begins with `where` unless that is NULL, and stays one line when it is printed. */
void law_refusal(enum sf_status status, const struct sf_error *error, const char *where);

/* JSON: one line of ASCII that parses to the same value again. Takes the value. */
void law_json(json_t *value);
/* The same of a text of several lines, as reports in files are: well-formed, ASCII. Returns the value. */
json_t *law_json_text(const char *text);

/* XML and HTML: well-formed; each element is one of the names (separated by blanks). Returns how many there are of the first. */
int law_xml(const char *text, const char *elements);
/* HTML inside of an element or of an attribute in double quotes: no markup, no entity but five. */
void law_html_text(const char *text);

/* Markdown: one code span, also in a table. No run of backticks inside is as long as the outer ones, so nothing inside means anything, and
 * each bar is behind an odd number of backslashes, so it ends no cell. */
void law_code_span(const char *text);
/* A page for GitHub: what is left when code is taken away is ours. Blanks the code in place. */
void law_markdown_page(char *page);

/* GitHub's annotations: each line is one command of ours with the properties file and title, and nothing in it ends it. */
void law_annotations(const char *text, int32_t lines);
/* Prometheus's text format: each line is a comment, or a metric of ours with labels in quotes and one number. */
void law_prometheus(const char *text);

/* A shell gives the last word of a line back. */
void law_last_word(const char *line, size_t length, const char *expected);

#endif
