#include "harness/base/sinks.h"
#include "harness/run/figures/figures.h"

#include <stdarg.h>
#include <stdio.h>

static void append_text(struct sf_text *out, const char *format, va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  sf_html_append(out, "%s", text);
}

void sf_figure_begin(struct sf_text *out, const char *title, const char *note, ...) {
  va_list arguments;
  sf_text_append(out, "<figure>\n<h3>");
  sf_html_append(out, "%s", title);
  sf_text_append(out, "</h3>\n<figcaption>");
  va_start(arguments, note);
  append_text(out, note, arguments);
  va_end(arguments);
  sf_text_append(out, "</figcaption>\n<div class=\"scroll\">\n");
}

void sf_figure_end(struct sf_text *out) { sf_text_append(out, "</div>\n</figure>\n"); }

void sf_figure_fact(struct sf_text *out, const char *name, const char *format, ...) {
  va_list arguments;
  sf_text_append(out, "<dt>");
  sf_html_append(out, "%s", name);
  sf_text_append(out, "</dt><dd>");
  va_start(arguments, format);
  append_text(out, format, arguments);
  va_end(arguments);
  sf_text_append(out, "</dd>\n");
}
