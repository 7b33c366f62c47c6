/* Drawing into a page: inline SVG of fixed size in CSS pixels. Texts may be anybody's: they go through the sink of HTML. Lengths are in
 * pixels, y grows downwards. */
#ifndef SF_RUN_SVG_H
#define SF_RUN_SVG_H

#include "harness/run/plot/colours.h"

#include <stdbool.h>
#include <stdint.h>

struct sf_svg {
  struct sf_text *out;
  double width, height;
};

/* Of plain text in pictures: pixels. Widths follow from it, since its letters are all equally wide. */
enum { SF_SVG_LETTERS = 12, SF_SVG_LINE = 18 };
enum sf_svg_anchor { SF_SVG_START, SF_SVG_MIDDLE, SF_SVG_END };

/* what: what the picture shows, in words, for who does not see it. */
void sf_svg_begin(struct sf_svg *svg, struct sf_text *out, double width, double height, const char *what);
void sf_svg_end(struct sf_svg *svg); /* closes the picture */

/* How wide a text is at most when it is drawn; wide characters (of East Asia, emoji) count twice. */
double sf_svg_text_width(const char *text);
/* Copies as much of the text as `width` has room for. What is too long loses its middle: "decoder…linear_fc1". */
void sf_svg_text_fit(char *out, size_t size, const char *text, double width);
struct sf_svg_label {
  double x, y; /* of the base line */
  enum sf_svg_anchor anchor;
  enum sf_colour colour;
  double width; /* room for it */
  bool is_bold;
};
/* Draws a text, cut to its room; whoever points at it sees all of it. */
void sf_svg_text(struct sf_svg *svg, struct sf_svg_label label, const char *text);
/* The same of a text of our own: a printf format. */
void sf_svg_print(struct sf_svg *svg, struct sf_svg_label label, const char *format, ...) SF_PRINTF(3, 4);

struct sf_svg_box {
  double x, y, width, height;
};
/* A box filled with a colour. */
void sf_svg_fill(struct sf_svg *svg, struct sf_svg_box box, enum sf_colour colour);
/* The border of a box, a line so many pixels wide. */
void sf_svg_frame(struct sf_svg *svg, struct sf_svg_box box, enum sf_colour colour, double stroke);
/* A straight line so many pixels wide. */
void sf_svg_line(struct sf_svg *svg, double x, double y, double to_x, double to_y, enum sf_colour colour, double stroke);
/* A diamond around a point: "wrong", for who does not see colours. */
void sf_svg_diamond(struct sf_svg *svg, double x, double y, double radius, enum sf_colour colour);
/* A hatched box: what is not there. */
void sf_svg_hatch(struct sf_svg *svg, struct sf_svg_box box, enum sf_colour colour);

/* rows x cols cells that fill the box, row by row: colours[i], or -1 for none. Each colour is one path, and neighbours in a row are one
 * rectangle, so that a cell takes few bytes. */
void sf_svg_cells(struct sf_svg *svg, struct sf_svg_box box, int32_t rows, int32_t cols, const int *colours);

#endif
