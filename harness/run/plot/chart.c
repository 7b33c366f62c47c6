#include "harness/run/plot/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHART_WIDTH = 680, CHART_HEIGHT = 220, BAR = 12 };

/* --- numbers ------------------------------------------------------------------------------------------------------ */

const char *sf_chart_count(char out[SF_CHART_NUMBER_TEXT], int64_t count) {
  char digits[SF_CHART_NUMBER_TEXT];
  const int length = snprintf(digits, sizeof digits, "%" PRId64, count);
  size_t at = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0) out[at++] = ' ';
    out[at++] = digits[i];
  }
  out[at] = '\0';
  return out;
}

const char *sf_chart_number(char out[SF_CHART_NUMBER_TEXT], double value) {
  if (isfinite(value) && value == floor(value) && fabs(value) < 1e6) return sf_chart_count(out, (int64_t)value);
  snprintf(out, SF_CHART_NUMBER_TEXT, "%.3g", value);
  return out;
}

static int class_of(double share, int first, int count) {
  if (isnan(share)) return -1;
  const int at = (int)(share * count);
  return first + (at < 0 ? 0 : at >= count ? count - 1 : at);
}

int sf_chart_value_colour(double value, double scale) {
  if (!isfinite(value)) return -1;
  return class_of(scale > 0 ? 0.5 + 0.5 * value / scale : 0.5, SF_COLOUR_V0, SF_COLOUR_VALUES);
}

int sf_chart_size_colour(double size, double scale) {
  if (!isfinite(size)) return -1;
  return size > 0 && scale > 0 ? class_of(size / scale, SF_COLOUR_M1, SF_COLOUR_SIZES - 1) : SF_COLOUR_M0;
}

/* --- bars --------------------------------------------------------------------------------------------------------- */

void sf_chart_bars(struct sf_text *out, const char *what, const struct sf_chart_bar *bars, int32_t count) {
  enum { NAMES = 300, NUMBERS = 80, GAP = 10 };
  const double room = CHART_WIDTH - NAMES - NUMBERS - 2 * GAP;
  double most = 0;
  struct sf_svg svg;
  for (int32_t i = 0; i < count; i++) most = bars[i].value > most ? bars[i].value : most;
  sf_svg_begin(&svg, out, CHART_WIDTH, SF_SVG_LINE * count + 4, what);
  for (int32_t i = 0; i < count; i++) {
    char number[SF_CHART_NUMBER_TEXT];
    const double y = SF_SVG_LINE * (i + 1) - 5, width = most > 0 ? room * bars[i].value / most : 0;
    sf_svg_text(&svg, (struct sf_svg_label){NAMES, y, SF_SVG_END, SF_COLOUR_INK, NAMES, false}, bars[i].name);
    sf_svg_fill(&svg, (struct sf_svg_box){NAMES + GAP, y - BAR + 2, width, BAR}, SF_COLOUR_CALM);
    sf_svg_print(&svg, (struct sf_svg_label){NAMES + 2 * GAP + width, y, SF_SVG_START, SF_COLOUR_SOFT, NUMBERS, false}, "%s",
                 sf_chart_number(number, bars[i].value));
  }
  sf_svg_end(&svg);
}

/* --- axes --------------------------------------------------------------------------------------------------------- */

/* The part of a chart inside its axes. */
static const struct sf_svg_box inside = {72, 16, CHART_WIDTH - 72 - 16, CHART_HEIGHT - 16 - 48};

/* 1, 2 or 5 times a power of ten, so that at most five steps are below `most`. */
static double step_of(double most) {
  static const double times[] = {0.2, 0.5, 1, 2};
  const double power = pow(10, floor(log10(most > 0 ? most : 1)));
  int i = 0;
  while (i < 3 && 5 * times[i] * power < most) i++;
  return times[i] * power;
}

static double draw_y_axis(struct sf_svg *svg, double most, const char *name) {
  const double step = fmax(1, step_of(most)), top = ceil(most / step) * step;
  char number[SF_CHART_NUMBER_TEXT];
  for (double value = 0; value <= top; value += step) {
    const double y = inside.y + inside.height * (1 - value / top);
    sf_svg_line(svg, inside.x, y, inside.x + inside.width, y, SF_COLOUR_LINE, 1);
    sf_svg_print(svg, (struct sf_svg_label){inside.x - 8, y + 4, SF_SVG_END, SF_COLOUR_SOFT, inside.x - 8, false}, "%s",
                 sf_chart_number(number, value));
  }
  sf_svg_text(svg, (struct sf_svg_label){0, 10, SF_SVG_START, SF_COLOUR_SOFT, CHART_WIDTH, false}, name);
  return top;
}

static void name_x_axis(struct sf_svg *svg, const char *name) {
  sf_svg_text(svg, (struct sf_svg_label){inside.x + inside.width, CHART_HEIGHT - 6, SF_SVG_END, SF_COLOUR_SOFT, inside.width, false}, name);
}

static void label_x(struct sf_svg *svg, double x, const char *text) {
  sf_svg_line(svg, x, inside.y + inside.height, x, inside.y + inside.height + 4, SF_COLOUR_MARK, 1);
  sf_svg_text(svg, (struct sf_svg_label){x, inside.y + inside.height + 18, SF_SVG_MIDDLE, SF_COLOUR_SOFT, 80, false}, text);
}

/* --- histograms --------------------------------------------------------------------------------------------------- */

void sf_chart_histogram(struct sf_text *out, const char *what, const struct sf_chart_histogram *h) {
  const double width = inside.width / h->count;
  struct sf_svg svg;
  char text[SF_CHART_NUMBER_TEXT];
  int64_t most = 1;
  for (int32_t i = 0; i < h->count; i++) most = h->counts[i] > most ? h->counts[i] : most;
  sf_svg_begin(&svg, out, CHART_WIDTH, CHART_HEIGHT, what);
  const double top = draw_y_axis(&svg, (double)most, "cases");
  for (int32_t i = 0; i < h->count; i++) {
    if (h->counts[i] == 0) continue;
    const double height = fmax(1, inside.height * (double)h->counts[i] / top);
    sf_svg_fill(&svg, (struct sf_svg_box){inside.x + width * i + 1, inside.y + inside.height - height, width - 2, height}, SF_COLOUR_CALM);
  }
  for (double at = ceil(h->low); at <= h->low + h->step * h->count + h->step / 2; at++) {
    snprintf(text, sizeof text, "%.3g", pow(10, at));
    label_x(&svg, inside.x + width * (at - h->low) / h->step, text);
  }
  const double limit = inside.x + width * (h->limit - h->low) / h->step;
  sf_svg_line(&svg, limit, inside.y - 4, limit, inside.y + inside.height, SF_COLOUR_BAD, 2);
  sf_svg_text(&svg, (struct sf_svg_label){limit + 6, inside.y + 8, SF_SVG_START, SF_COLOUR_BAD, 200, false}, h->limit_name);
  name_x_axis(&svg, h->axis_name);
  sf_svg_end(&svg);
}

/* --- curves ------------------------------------------------------------------------------------------------------- */

void sf_chart_curve(struct sf_text *out, const char *what, const struct sf_chart_curve *c) {
  struct sf_svg svg;
  char number[SF_CHART_NUMBER_TEXT];
  const double x_most = c->count > 0 && c->points[c->count - 1].x > 0 ? c->points[c->count - 1].x : 1;
  const double step = step_of(x_most);
  sf_svg_begin(&svg, out, CHART_WIDTH, CHART_HEIGHT, what);
  const double top = draw_y_axis(&svg, c->count > 0 ? c->points[c->count - 1].y : 1, c->y_name);
  for (double value = 0; value <= x_most; value += step)
    label_x(&svg, inside.x + inside.width * value / x_most, sf_chart_number(number, value));
  sf_text_append(out, "<path class=\"s-calm\" fill=\"none\" stroke-width=\"2\" d=\"");
  for (int32_t i = 0; i < c->count; i++)
    sf_text_append(out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', inside.x + inside.width * c->points[i].x / x_most,
                   inside.y + inside.height * (1 - c->points[i].y / top));
  sf_text_append(out, "\"/>\n");
  for (int32_t i = 0; i < c->mark_count; i++)
    sf_svg_diamond(&svg, inside.x + inside.width * c->marks[i].x / x_most, inside.y + inside.height * (1 - c->marks[i].y / top), 5,
                   SF_COLOUR_BAD);
  if (c->mark_count > 0) {
    sf_svg_diamond(&svg, inside.x + 8, CHART_HEIGHT - 10, 5, SF_COLOUR_BAD);
    sf_svg_text(&svg, (struct sf_svg_label){inside.x + 20, CHART_HEIGHT - 6, SF_SVG_START, SF_COLOUR_SOFT, 240, false}, c->mark_name);
  }
  name_x_axis(&svg, c->x_name);
  sf_svg_end(&svg);
}
