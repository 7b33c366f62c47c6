#include "harness/run/plot/colours.h"

#include <math.h>

struct colour {
  const char *name;
  unsigned rgb[2];
};
static const struct colour colours[SF_COLOUR_COUNT] = {
#define X(constant, name, light, dark) {name, {light, dark}},
    SF_COLOUR_MAP(X)
#undef X
};

const char *sf_colour_name(enum sf_colour colour) { return colours[colour].name; }

unsigned sf_colour_rgb(enum sf_colour colour, int is_dark) { return colours[colour].rgb[is_dark != 0]; }

/* Of sRGB, as WCAG defines relative luminance. */
static double luminance(unsigned rgb) {
  static const double shares[] = {0.0722, 0.7152, 0.2126}; /* blue, green, red */
  double sum = 0;
  for (int i = 0; i < 3; i++) {
    const double value = (double)(rgb >> 8 * i & 0xff) / 255;
    sum += shares[i] * (value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double sf_colour_contrast(unsigned a, unsigned b) {
  const double first = luminance(a) + 0.05, second = luminance(b) + 0.05;
  return first > second ? first / second : second / first;
}

static void append_values(struct sf_text *out, const char *begin, int is_dark, const char *end) {
  sf_text_append(out, "%s", begin);
  for (int i = 0; i < SF_COLOUR_COUNT; i++) sf_text_append(out, "--%s:#%06x;", colours[i].name, sf_colour_rgb((enum sf_colour)i, is_dark));
  sf_text_append(out, "%s\n", end);
}

void sf_colours_append(struct sf_text *out) {
  append_values(out, ":root{color-scheme:light dark;", 0, "}");
  append_values(out, "@media screen and (prefers-color-scheme:dark){:root{", 1, "}}");
  for (int i = 0; i < SF_COLOUR_COUNT; i++)
    sf_text_append(out, ".f-%s{fill:var(--%s)}.s-%s{stroke:var(--%s)}", colours[i].name, colours[i].name, colours[i].name, colours[i].name);
  sf_text_append(out, "\n");
}
