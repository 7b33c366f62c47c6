/* Where text of others (workers, plugins, file names, the command line) ends. Each kind of place has one function; whatever is printed goes
 * through one of them. JSON and XML: base/utf8.h. */
#ifndef SF_BASE_SINKS_H
#define SF_BASE_SINKS_H

#include "harness/base/bytes.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

/* --- terminals, logs, text reports ------------------------------------------------------------------------------ */

/* As sf_text_append, for lines that people read. The format is the program's own; the texts of %s and %c may come from anybody. Control
 * characters (newlines too), bytes that are not UTF-8, and characters that change the order or the width of the text become visible:
 * "\x1b", "\n". A precision cuts whole characters, a width counts them. A CI system never takes the result for one of its commands
 * (GitHub's "::error::", "##[error]", Azure's "##vso["). Conversions: d i u x o c s f e g %, with l, ll, z. */
void sf_line_append(struct sf_text *out, const char *format, ...) SF_PRINTF(2, 3);
#define SF_SAID_PREFIX "    | " /* before a line that somebody else printed */
/* Appends each line of a text behind a prefix; blank ones are left out. */
void sf_line_append_all(struct sf_text *out, const char *prefix, const char *text);
/* The same of one text at the beginning of a line, without allocating: as much as fits, whole characters and escapes alone. */
void sf_line_copy(char *out, size_t size, const char *text);

/* sf_line_append to a stream. One call makes a line: it ignores what stands before it in the stream. */
void sf_print(FILE *to, const char *format, ...) SF_PRINTF(2, 3);
/* The same with a va_list, which stays usable. */
void sf_print_arguments(FILE *to, const char *format, va_list arguments) SF_PRINTF(2, 0);
/* Prints several lines that sf_line_append made. Escapes again, where that is needed, everything but their newlines. NULL prints nothing.
 */
void sf_print_lines(FILE *to, const char *lines);

/* What stands behind a noun: "" of one thing, else "s". */
static inline const char *sf_plural(int64_t count) { return count == 1 ? "" : "s"; }

/* --- Markdown ----------------------------------------------------------------------------------------------------- */

/* Appends text in one line (as sf_line_append) as a code span, also for tables. Markdown, HTML and GitHub (mentions, links, emoji,
 * formulas) give nothing in it a meaning. In a table a bar after a backslash is shown with one backslash more. */
void sf_markdown_append(struct sf_text *out, const char *text);
/* The same of a text of several lines, as a fenced block of its own; blank lines are left out. Starts and ends at the beginning of a line.
 */
void sf_markdown_append_block(struct sf_text *out, const char *text);

/* --- HTML --------------------------------------------------------------------------------------------------------- */

/* As sf_line_append, for text in an element and for the value of an attribute in double quotes. It holds no markup, and what libxml2 reads
 * as XML too. */
void sf_html_append(struct sf_text *out, const char *format, ...) SF_PRINTF(2, 3);
/* The same of a text of several lines, for a <pre>; blank lines are left out. */
void sf_html_append_lines(struct sf_text *out, const char *text);

/* --- shell -------------------------------------------------------------------------------------------------------- */

/* Appends word so that /bin/sh takes it as it is, on one line that a terminal may show: in single quotes, or where that would not do as the
 * output of a printf. */
void sf_shell_append(struct sf_text *out, const char *word);

#endif
