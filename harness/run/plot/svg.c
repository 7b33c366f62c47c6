#include "harness/run/plot/svg.h"

#include "harness/base/sinks.h"
#include "harness/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Of a letter of the common monospaced fonts, at 12 pixels; the widest of them has 0.602 em. */
static const double LETTER = 0.605 * SF_SVG_LETTERS;
static const char dots[] = "\xe2\x80\xa6";

void sf_svg_begin(struct sf_svg *svg, struct sf_text *out, double width, double height, const char *what) {
  *svg = (struct sf_svg){out, width, height};
  sf_text_append(
      out, "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" aria-label=\"",
      width, height, width, height);
  sf_html_append(out, "%s", what);
  sf_text_append(out, "\">\n");
}

void sf_svg_end(struct sf_svg *svg) { sf_text_append(svg->out, "</svg>\n"); }

/* --- text --------------------------------------------------------------------------------------------------------- */

/* Columns of a character of so many bytes: no font is asked, so all beyond the alphabets of Europe count twice. */
static int columns_of(int length) { return length > 2 ? 2 : 1; }

static int columns(const char *text) {
  int count = 0;
  for (const char *at = text; *at != '\0';) {
    const int length = sf_utf8_length(at), taken = length > 0 ? length : 1;
    count += strncmp(at, dots, sizeof dots - 1) == 0 ? 1 : columns_of(taken);
    at += taken;
  }
  return count;
}

double sf_svg_text_width(const char *text) { return LETTER * columns(text); }

/* The bytes of the first `room` columns. */
static size_t head_of(const char *text, int room) {
  size_t bytes = 0;
  while (text[bytes] != '\0') {
    const int length = sf_utf8_length(text + bytes), taken = length > 0 ? length : 1;
    room -= columns_of(taken);
    if (room < 0) break;
    bytes += (size_t)taken;
  }
  return bytes;
}

/* Where the last `room` columns begin. */
static const char *tail_of(const char *text, int room) {
  while (columns(text) > room) {
    const int length = sf_utf8_length(text);
    text += length > 0 ? length : 1;
  }
  return text;
}

void sf_svg_text_fit(char *out, size_t size, const char *text, double width) {
  struct sf_text shown = {0};
  sf_line_append(&shown, "%s", text);
  const char *line = shown.data != NULL ? shown.data : "";
  const int room = (int)(width / LETTER);
  if (columns(line) <= room) {
    snprintf(out, size, "%.*s", (int)sf_utf8_cut(line, size - 1), line);
  } else if (room < 1) {
    *out = '\0';
  } else {
    const int head = (room - 1) / 2;
    snprintf(out, size, "%.*s%s%s", (int)head_of(line, head), line, dots, tail_of(line, room - 1 - head));
  }
  sf_text_destroy(&shown);
}

void sf_svg_text(struct sf_svg *svg, struct sf_svg_label label, const char *text) {
  static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  char fitting[512];
  sf_svg_text_fit(fitting, sizeof fitting, text, label.width);
  sf_text_append(svg->out, "<text x=\"%.1f\" y=\"%.1f\"%s class=\"f-%s%s\">", label.x, label.y, anchors[label.anchor],
                 sf_colour_name(label.colour), label.is_bold ? " bold" : "");
  if (strcmp(fitting, text) != 0) {
    sf_text_append(svg->out, "<title>");
    sf_html_append(svg->out, "%s", text);
    sf_text_append(svg->out, "</title>");
  }
  sf_html_append(svg->out, "%s", fitting);
  sf_text_append(svg->out, "</text>\n");
}

void sf_svg_print(struct sf_svg *svg, struct sf_svg_label label, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  sf_svg_text(svg, label, text);
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

void sf_svg_fill(struct sf_svg *svg, struct sf_svg_box box, enum sf_colour colour) {
  sf_text_append(svg->out, "<path class=\"f-%s\" d=\"M%.1f %.1fh%.1fv%.1fh-%.1fz\"/>\n", sf_colour_name(colour), box.x, box.y, box.width,
                 box.height, box.width);
}

void sf_svg_frame(struct sf_svg *svg, struct sf_svg_box box, enum sf_colour colour, double stroke) {
  sf_text_append(svg->out, "<path class=\"s-%s\" fill=\"none\" stroke-width=\"%.1f\" d=\"M%.1f %.1fh%.1fv%.1fh-%.1fz\"/>\n",
                 sf_colour_name(colour), stroke, box.x, box.y, box.width, box.height, box.width);
}

void sf_svg_line(struct sf_svg *svg, double x, double y, double to_x, double to_y, enum sf_colour colour, double stroke) {
  sf_text_append(svg->out, "<path class=\"s-%s\" fill=\"none\" stroke-width=\"%.1f\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
                 sf_colour_name(colour), stroke, x, y, to_x, to_y);
}

void sf_svg_diamond(struct sf_svg *svg, double x, double y, double radius, enum sf_colour colour) {
  sf_text_append(svg->out, "<path class=\"f-%s\" d=\"M%.1f %.1fl%.1f %.1fl-%.1f %.1fl-%.1f -%.1fz\"/>\n", sf_colour_name(colour), x,
                 y - radius, radius, radius, radius, radius, radius, radius);
}

void sf_svg_hatch(struct sf_svg *svg, struct sf_svg_box box, enum sf_colour colour) {
  enum { STEP = 5 };
  sf_text_append(svg->out, "<path class=\"s-%s\" fill=\"none\" stroke-width=\"1\" d=\"", sf_colour_name(colour));
  for (double at = STEP; at < box.width + box.height; at += STEP) {
    const double x = at < box.height ? 0 : at - box.height, y = at < box.height ? at : box.height;
    const double length = at < box.height ? (at < box.width ? at : box.width) : (box.width - x < box.height ? box.width - x : box.height);
    sf_text_append(svg->out, "M%.1f %.1fl%.1f -%.1f", box.x + x, box.y + y, length, length);
  }
  sf_text_append(svg->out, "\"/>\n");
}

/* --- cells -------------------------------------------------------------------------------------------------------- */

/* The rectangles of one colour, in units of cells. */
static void append_runs(struct sf_text *out, int32_t rows, int32_t cols, const int *colours, int colour) {
  for (int32_t row = 0; row < rows; row++)
    for (int32_t col = 0; col < cols;) {
      int32_t end = col;
      while (end < cols && colours[(int64_t)row * cols + end] == colour) end++;
      if (end > col) sf_text_append(out, "M%d %dh%dv1h-%dz", col, row, end - col, end - col);
      col = end > col ? end : col + 1;
    }
}

void sf_svg_cells(struct sf_svg *svg, struct sf_svg_box box, int32_t rows, int32_t cols, const int *colours) {
  bool used[SF_COLOUR_COUNT] = {false};
  for (int64_t i = 0; i < (int64_t)rows * cols; i++)
    if (colours[i] >= 0) used[colours[i]] = true;
  sf_text_append(svg->out, "<g transform=\"translate(%.1f %.1f) scale(%.4f %.4f)\" shape-rendering=\"crispEdges\">\n", box.x, box.y,
                 box.width / cols, box.height / rows);
  for (int colour = 0; colour < SF_COLOUR_COUNT; colour++) {
    if (!used[colour]) continue;
    sf_text_append(svg->out, "<path class=\"f-%s\" d=\"", sf_colour_name((enum sf_colour)colour));
    append_runs(svg->out, rows, cols, colours, colour);
    sf_text_append(svg->out, "\"/>\n");
  }
  sf_text_append(svg->out, "</g>\n");
}
