#include "harness/base/sinks.h"

#include "harness/base/assert.h"
#include "harness/base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

/* --- what is shown of a character --------------------------------------------------------------------------------- */

enum { SHOWN_TEXT = 20 }; /* four bytes as "\xff" */

/* Beyond ASCII: control characters, separators of lines, and what has no width or turns the direction. */
static bool is_hidden(const char *text, int length) {
  const unsigned char *b = (const unsigned char *)text;
  if (length == 2) return b[0] == 0xc2 && b[1] < 0xa0;
  if (length != 3) return length == 4 && b[0] == 0xf3 && b[1] == 0xa0; /* tags */
  if (b[0] == 0xef) return b[1] == 0xbb && b[2] == 0xbf;
  return b[0] == 0xe2 && ((b[1] == 0x80 && ((b[2] >= 0x8b && b[2] <= 0x8f) || (b[2] >= 0xa8 && b[2] <= 0xae))) ||
                          (b[1] == 0x81 && b[2] >= 0xa0 && b[2] <= 0xaf));
}

/* What is shown of the character at text: itself or its bytes' escapes. Returns its bytes; 1 where there is no character. */
static int show(char out[SHOWN_TEXT], const char *text) {
  static const char named[] = "\n\t\r", names[] = "ntr";
  const int length = sf_utf8_length(text), taken = length > 0 ? length : 1;
  const unsigned char first = (unsigned char)*text;
  const char *name = strchr(named, *text);
  if (length == 1 && name != NULL) {
    snprintf(out, SHOWN_TEXT, "\\%c", names[name - named]);
  } else if (length == 0 || first < 0x20 || first == 0x7f || is_hidden(text, length)) {
    for (int i = 0; i < taken; i++) snprintf(out + 4 * i, SHOWN_TEXT - 4 * (size_t)i, "\\x%02x", (unsigned char)text[i]);
  } else {
    memcpy(out, text, (size_t)taken);
    out[taken] = '\0';
  }
  return taken;
}

/* --- commands of CI systems --------------------------------------------------------------------------------------- */

/* Whether `next` behind the line so far makes a command: "##[", "##vso[" anywhere; "::" at its beginning, where other white space than a
 * blank may stand. */
static bool makes_command(const char *line, size_t length, char next) {
  if (next == '[') {
    while (length > 0 && isalpha((unsigned char)line[length - 1])) length--;
    return length >= 2 && line[length - 1] == '#' && line[length - 2] == '#';
  }
  if (next != ':' || length == 0 || line[length - 1] != ':') return false;
  for (size_t i = 0; i + 1 < length; i++)
    if (line[i] != ' ' && ((unsigned char)line[i] < 0x80)) return false;
  return true;
}

void sf_line_copy(char *out, size_t size, const char *text) {
  size_t at = 0;
  char shown[SHOWN_TEXT];
  while (*text != '\0') {
    text += show(shown, text);
    if (makes_command(out, at, *shown)) snprintf(shown, sizeof shown, "\\x%02x", (unsigned char)*shown);
    const size_t length = strlen(shown);
    if (at + length >= size) break;
    memcpy(out + at, shown, length);
    at += length;
  }
  out[at] = '\0';
}

/* Appends lines, without commands in them. */
static void append_guarded(struct sf_text *out, const char *lines) {
  const char *newline = out->length > 0 ? memrchr(out->data, '\n', out->length) : NULL;
  size_t begin = newline != NULL ? (size_t)(newline - out->data) + 1 : 0;
  sf_text_append(out, "%s", "");
  while (*lines != '\0' && !out->failed) {
    const size_t plain = strcspn(lines, "[:\n");
    sf_text_append(out, "%.*s", (int)plain, lines);
    lines += plain;
    if (*lines == '\0' || out->failed) break;
    sf_text_append(out, makes_command(out->data + begin, out->length - begin, *lines) ? "\\x%02x" : "%c", *lines);
    if (*lines == '\n') begin = out->length;
    lines++;
  }
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

struct arguments {
  va_list list;
};

/* "%-60.*s": as it was written, without its stars. */
struct conversion {
  char spec[40];
  bool left;
  int width, precision; /* -1: none */
  int longs;            /* l: 1, ll or z: 2 */
  char letter;
};

static int read_number(const char **at, struct arguments *arguments) {
  int number = 0;
  if (**at == '*') {
    (*at)++;
    return va_arg(arguments->list, int);
  }
  for (; isdigit((unsigned char)**at); (*at)++) number = 10 * number + (**at - '0');
  return number;
}

/* Behind the '%'. Returns where the format goes on. */
static const char *read_conversion(struct conversion *out, const char *at, struct arguments *arguments) {
  char flags[8] = "", precision[16] = "";
  *out = (struct conversion){.precision = -1};
  const size_t flag_count = strspn(at, "-+ #0");
  SF_ASSERT_LT(flag_count, sizeof flags);
  memcpy(flags, at, flag_count);
  at += flag_count;
  out->width = read_number(&at, arguments);
  out->left = strchr(flags, '-') != NULL || out->width < 0;
  if (out->width < 0) out->width = -out->width;
  if (*at == '.') {
    at++;
    out->precision = read_number(&at, arguments);
    if (out->precision >= 0) snprintf(precision, sizeof precision, ".%d", out->precision);
  }
  const char *lengths = at;
  at += strspn(at, "hlz");
  out->longs = *lengths == 'z' ? 2 : *lengths == 'l' ? (int)(at - lengths) : 0;
  out->letter = *at;
  char width[16] = "";
  if (out->width > 0) snprintf(width, sizeof width, "%d", out->width);
  snprintf(out->spec, sizeof out->spec, "%%%s%s%s%s%s%c", flags, out->left && !strchr(flags, '-') ? "-" : "", width, precision,
           out->longs > 0 ? "ll" : "", out->letter);
  return at + 1;
}

static size_t characters(const char *text, size_t length) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
  return count;
}

static void append_shown(struct sf_text *out, const char *text, const struct conversion *c) {
  char shown[SHOWN_TEXT];
  struct sf_text clean = {0};
  const char *from = text != NULL ? text : "(null)",
             *end = from + (c->precision >= 0 ? sf_utf8_cut(from, (size_t)c->precision) : strlen(from));
  sf_text_append(&clean, "%s", "");
  while (from < end) {
    from += show(shown, from);
    sf_text_append(&clean, "%s", shown);
  }
  if (clean.failed) out->failed = 1;
  else {
    const size_t count = characters(clean.data, clean.length);
    const int pad = count < (size_t)c->width ? c->width - (int)count : 0;
    sf_text_append(out, "%*s%s%*s", c->left ? 0 : pad, "", clean.data, c->left ? pad : 0, "");
  }
  sf_text_destroy(&clean);
}

static void append_value(struct sf_text *out, const struct conversion *c, struct arguments *arguments) {
  char character[2] = "";
  switch (c->letter) {
  case '%': sf_text_append(out, "%%"); break;
  case 's': append_shown(out, va_arg(arguments->list, const char *), c); break;
  case 'c':
    *character = (char)va_arg(arguments->list, int);
    append_shown(out, character, c);
    break;
  case 'd':
  case 'i':
    if (c->longs > 0)
      sf_text_append(out, c->spec, c->longs > 1 ? va_arg(arguments->list, long long) : (long long)va_arg(arguments->list, long));
    else sf_text_append(out, c->spec, va_arg(arguments->list, int));
    break;
  case 'u':
  case 'x':
  case 'o':
    if (c->longs > 0)
      sf_text_append(out, c->spec,
                     c->longs > 1 ? va_arg(arguments->list, unsigned long long)
                                  : (unsigned long long)va_arg(arguments->list, unsigned long));
    else sf_text_append(out, c->spec, va_arg(arguments->list, unsigned));
    break;
  default:
    SF_ASSERT(c->letter != '\0' && strchr("feg", c->letter) != NULL);
    sf_text_append(out, c->spec, va_arg(arguments->list, double));
  }
}

static void append_format(struct sf_text *out, const char *format, struct arguments *arguments) {
  struct sf_text made = {0};
  sf_text_append(&made, "%s", "");
  while (*format != '\0') {
    struct conversion conversion;
    const size_t plain = strcspn(format, "%");
    sf_text_append(&made, "%.*s", (int)plain, format);
    format += plain;
    if (*format == '\0') break;
    format = read_conversion(&conversion, format + 1, arguments);
    append_value(&made, &conversion, arguments);
  }
  if (made.failed) out->failed = 1;
  else append_guarded(out, made.data);
  sf_text_destroy(&made);
}

void sf_line_append(struct sf_text *out, const char *format, ...) {
  struct arguments arguments;
  va_start(arguments.list, format);
  append_format(out, format, &arguments);
  va_end(arguments.list);
}

void sf_line_append_all(struct sf_text *out, const char *prefix, const char *text) {
  for (const char *at = text; *at != '\0';) {
    const size_t length = strcspn(at, "\n");
    if (strspn(at, " \t\r") < length) sf_line_append(out, "%s%.*s\n", prefix, (int)length, at);
    at += length + (at[length] == '\n');
  }
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static void print_text(FILE *to, const struct sf_text *text) {
  fputs(text->failed ? "(out of memory)\n" : text->data, to);
}

void sf_print_arguments(FILE *to, const char *format, va_list list) {
  struct sf_text text = {0};
  struct arguments arguments;
  va_copy(arguments.list, list);
  append_format(&text, format, &arguments);
  va_end(arguments.list);
  print_text(to, &text);
  sf_text_destroy(&text);
}

void sf_print(FILE *to, const char *format, ...) {
  va_list list;
  va_start(list, format);
  sf_print_arguments(to, format, list);
  va_end(list);
}

void sf_print_lines(FILE *to, const char *lines) {
  struct sf_text text = {0};
  while (lines != NULL && *lines != '\0') {
    const size_t length = strcspn(lines, "\n");
    sf_line_append(&text, lines[length] == '\n' ? "%.*s\n" : "%.*s", (int)length, lines);
    lines += length + (lines[length] == '\n');
  }
  if (text.data != NULL) print_text(to, &text);
  sf_text_destroy(&text);
}

/* --- Markdown ----------------------------------------------------------------------------------------------------- */

/* Longer than every run of backticks in the text. */
static int fence_length(const char *text, int least) {
  int length = least, run = 0;
  for (const char *at = text; *at != '\0'; at++) {
    run = *at == '`' ? run + 1 : 0;
    if (run >= length) length = run + 1;
  }
  return length;
}

static void append_fence(struct sf_text *out, int length) {
  for (int i = 0; i < length; i++) sf_text_append(out, "`");
}

/* A table takes a bar behind an odd number of backslashes for text, and takes the last of them away. */
static void append_cell(struct sf_text *out, const char *code) {
  int backslashes = 0;
  for (const char *at = code; *at != '\0'; at++) {
    if (*at == '|') sf_text_append(out, backslashes % 2 == 0 ? "\\" : "\\\\");
    sf_text_append(out, "%c", *at);
    backslashes = *at == '\\' ? backslashes + 1 : 0;
  }
}

void sf_markdown_append(struct sf_text *out, const char *text) {
  struct sf_text line = {0};
  sf_line_append(&line, "%s", text);
  const char *code = line.data != NULL ? line.data : "";
  const char last = line.length > 0 ? code[line.length - 1] : ' ';
  const int fence = fence_length(code, 1);
  const char *pad = *code == '`' || last == '`' || (*code == ' ' && last == ' ') || *code == '\0' ? " " : "";
  append_fence(out, fence);
  sf_text_append(out, "%s", pad);
  append_cell(out, code);
  sf_text_append(out, "%s", pad);
  append_fence(out, fence);
  if (line.failed) out->failed = 1;
  sf_text_destroy(&line);
}

void sf_markdown_append_block(struct sf_text *out, const char *text) {
  struct sf_text lines = {0};
  sf_line_append_all(&lines, "", text);
  const char *code = lines.data != NULL ? lines.data : "";
  const int fence = fence_length(code, 3);
  append_fence(out, fence);
  sf_text_append(out, "\n%s", code);
  append_fence(out, fence);
  sf_text_append(out, "\n");
  if (lines.failed) out->failed = 1;
  sf_text_destroy(&lines);
}

/* --- HTML --------------------------------------------------------------------------------------------------------- */

static const char *entity_of(char c) {
  switch (c) {
  case '&': return "&amp;";
  case '<': return "&lt;";
  case '>': return "&gt;";
  case '"': return "&quot;";
  default: return "&#39;";
  }
}

/* line: as sf_line_append makes it. */
static void append_html(struct sf_text *out, const struct sf_text *line) {
  struct sf_text clean = {0};
  sf_utf8_append(&clean, line->data);
  for (const char *at = clean.data != NULL ? clean.data : ""; *at != '\0';) {
    const size_t plain = strcspn(at, "&<>\"'");
    sf_text_append(out, "%.*s", (int)plain, at);
    at += plain;
    if (*at != '\0') sf_text_append(out, "%s", entity_of(*at++));
  }
  if (line->failed || clean.failed) out->failed = 1;
  sf_text_destroy(&clean);
}

void sf_html_append(struct sf_text *out, const char *format, ...) {
  struct sf_text line = {0};
  struct arguments arguments;
  va_start(arguments.list, format);
  append_format(&line, format, &arguments);
  va_end(arguments.list);
  append_html(out, &line);
  sf_text_destroy(&line);
}

void sf_html_append_lines(struct sf_text *out, const char *text) {
  struct sf_text lines = {0};
  sf_line_append_all(&lines, "", text);
  append_html(out, &lines);
  sf_text_destroy(&lines);
}

/* --- shell -------------------------------------------------------------------------------------------------------- */

static void append_quoted(struct sf_text *out, const char *word) {
  sf_text_append(out, "'");
  for (;;) {
    const size_t plain = strcspn(word, "'");
    sf_text_append(out, "%.*s", (int)plain, word);
    if (word[plain] == '\0') break;
    sf_text_append(out, "'\\''");
    word += plain + 1;
  }
  sf_text_append(out, "'");
}

/* "$(printf '\033[31m')": what no line may hold in octal. The shell takes newlines from the end of an output: they stand behind it, as the
 * last character of IFS. */
static void append_printf(struct sf_text *out, const char *word) {
  size_t length = strlen(word);
  int newlines = 0;
  while (length > 0 && word[length - 1] == '\n') length--, newlines++;
  sf_text_append(out, "\"$(printf '");
  for (size_t i = 0; i < length; i++) {
    const bool plain = isalnum((unsigned char)word[i]) || strchr(" _./-=,@+", word[i]) != NULL;
    sf_text_append(out, plain ? "%c" : "\\%03o", (unsigned char)word[i]);
  }
  sf_text_append(out, "')");
  while (newlines-- > 0) sf_text_append(out, "${IFS#??}");
  sf_text_append(out, "\"");
}

void sf_shell_append(struct sf_text *out, const char *word) {
  struct sf_text line = {0};
  sf_line_append(&line, "'%s", word);
  if (line.failed) out->failed = 1;
  else if (strcmp(line.data + 1, word) == 0) append_quoted(out, word);
  else append_printf(out, word);
  sf_text_destroy(&line);
}
