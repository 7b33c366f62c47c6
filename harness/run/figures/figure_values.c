/* Heat maps of a wrong tensor: expected, got, and how far apart. */
#include "harness/run/figures/figures.h"
#include "harness/run/plot/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { PANEL_WIDTH = 288, PANEL_HEIGHT = 208, CELL_MAX = 22, LEFT = 36, TOP = 36, LEGEND = 46, SWATCH = 12, RIGHT = 4 };

struct panel {
  const struct sf_picture *picture;
  struct sf_svg svg;
  struct sf_svg_box map;
  double cell;
};

/* --- scales ------------------------------------------------------------------------------------------------------- */

static double larger(double a, float b) { return isfinite(b) && fabs((double)b) > a ? fabs((double)b) : a; }

static double value_scale(const struct sf_picture *picture) {
  double scale = 0;
  for (int32_t i = 0; i < picture->rows * picture->cols; i++) scale = larger(larger(scale, picture->want[i]), picture->got[i]);
  return scale;
}

/* How far a cell is off; 0 where that is allowed, NaN where nobody holds it, infinite where it is not finite. */
static double distance_of(const struct sf_picture *picture, int32_t cell) {
  const double want = (double)picture->want[cell], got = (double)picture->got[cell], distance = fabs(got - want);
  if (isnan(picture->allowed[cell])) return NAN;
  if (isnan(distance)) return isfinite(want) ? INFINITY : 0;
  return distance <= (double)picture->allowed[cell] ? 0 : distance;
}

static double distance_scale(const struct sf_picture *picture) {
  double scale = 0;
  for (int32_t i = 0; i < picture->rows * picture->cols; i++) scale = larger(scale, (float)distance_of(picture, i));
  return scale;
}

/* --- borders ------------------------------------------------------------------------------------------------------ */

static bool same_holders(const struct sf_picture *picture, int32_t a, int32_t b) {
  for (int32_t i = 0; i < picture->holder_count; i++)
    if (sf_picture_holds(&picture->holders[i], a) != sf_picture_holds(&picture->holders[i], b)) return false;
  return true;
}

static bool has_borders(const struct sf_picture *picture) {
  for (int32_t i = 1; i < picture->rows * picture->cols; i++)
    if (!same_holders(picture, 0, i)) return true;
  return false;
}

static bool has_holes(const struct sf_picture *picture) {
  for (int32_t i = 0; i < picture->rows * picture->cols; i++)
    if (!isfinite(picture->want[i]) || !isfinite(picture->got[i])) return true;
  return false;
}

static void append_border(struct panel *p, enum sf_colour colour, double width) {
  const int32_t rows = p->picture->rows, cols = p->picture->cols;
  struct sf_text *out = p->svg.out;
  sf_text_append(out, "<path class=\"s-%s\" fill=\"none\" stroke-width=\"%.1f\" d=\"M0 0", sf_colour_name(colour), width);
  for (int32_t row = 0; row < rows; row++)
    for (int32_t col = 0; col < cols; col++) {
      const int32_t cell = row * cols + col;
      const double x = p->map.x + p->cell * (col + 1), y = p->map.y + p->cell * (row + 1);
      if (col + 1 < cols && !same_holders(p->picture, cell, cell + 1)) sf_text_append(out, "M%.1f %.1fv-%.1f", x, y, p->cell);
      if (row + 1 < rows && !same_holders(p->picture, cell, cell + cols)) sf_text_append(out, "M%.1f %.1fh-%.1f", x, y, p->cell);
    }
  sf_text_append(out, "\"/>\n");
}

/* --- panels ------------------------------------------------------------------------------------------------------- */

static void number_axes(struct panel *p) {
  const struct sf_picture *picture = p->picture;
  const int64_t first = picture->first_row, last = first + picture->shape.rows - 1;
  const double right = p->map.x + p->map.width, bottom = p->map.y + p->map.height;
  sf_svg_print(&p->svg, (struct sf_svg_label){p->map.x - 6, p->map.y + 10, SF_SVG_END, SF_COLOUR_SOFT, LEFT - 6, false}, "%" PRId64, first);
  if (last > first && p->map.height >= 2 * SF_SVG_LINE)
    sf_svg_print(&p->svg, (struct sf_svg_label){p->map.x - 6, bottom - 1, SF_SVG_END, SF_COLOUR_SOFT, LEFT - 6, false}, "%" PRId64, last);
  sf_svg_text(&p->svg, (struct sf_svg_label){p->map.x, p->map.y - 6, SF_SVG_START, SF_COLOUR_SOFT, 20, false}, "0");
  if (picture->shape.cols > 1 && p->map.width >= 60)
    sf_svg_print(&p->svg, (struct sf_svg_label){right, p->map.y - 6, SF_SVG_END, SF_COLOUR_SOFT, 60, false}, "%" PRId64,
                 picture->shape.cols - 1);
}

/* The swatches from `first` on, with what the ends of the scale mean. */
static void append_legend(struct panel *p, enum sf_colour first, int count, const char *low, const char *high) {
  int colours[SF_COLOUR_COUNT];
  const double y = p->map.y + p->map.height + 12, width = SWATCH * count;
  for (int i = 0; i < count; i++) colours[i] = (int)first + i;
  sf_svg_cells(&p->svg, (struct sf_svg_box){p->map.x, y, width, SWATCH}, 1, count, colours);
  sf_svg_frame(&p->svg, (struct sf_svg_box){p->map.x, y, width, SWATCH}, SF_COLOUR_LINE, 1);
  sf_svg_text(&p->svg, (struct sf_svg_label){p->map.x, y + SWATCH + 14, SF_SVG_START, SF_COLOUR_SOFT, 80, false}, low);
  sf_svg_text(&p->svg, (struct sf_svg_label){p->map.x + width, y + SWATCH + 14, SF_SVG_START, SF_COLOUR_SOFT, 100, false}, high);
}

static void begin_panel(struct panel *p, struct sf_text *out, const struct sf_picture *picture, const char *title) {
  enum { LEAST = 220 }; /* so that titles and legends have room */
  const double by_width = (double)PANEL_WIDTH / picture->cols, by_height = (double)PANEL_HEIGHT / picture->rows;
  *p = (struct panel){.picture = picture};
  p->cell = floor(fmin(CELL_MAX, fmin(by_width, by_height)));
  p->map = (struct sf_svg_box){LEFT, TOP, p->cell * picture->cols, p->cell * picture->rows};
  const double width = fmax(LEAST, LEFT + p->map.width + RIGHT);
  sf_svg_begin(&p->svg, out, width, TOP + p->map.height + LEGEND, title);
  sf_svg_text(&p->svg, (struct sf_svg_label){0, 12, SF_SVG_START, SF_COLOUR_INK, width, true}, title);
  sf_svg_hatch(&p->svg, p->map, SF_COLOUR_MARK);
  number_axes(p);
}

static void end_panel(struct panel *p, const int *colours) {
  sf_svg_cells(&p->svg, p->map, p->picture->rows, p->picture->cols, colours);
  if (has_borders(p->picture)) {
    append_border(p, SF_COLOUR_PAPER, 4);
    append_border(p, SF_COLOUR_INK, 1.6);
  }
  sf_svg_frame(&p->svg, p->map, SF_COLOUR_MARK, 1);
}

static void values_panel(struct sf_text *out, const struct sf_picture *picture, const char *title, const float *values) {
  struct panel p;
  int colours[SF_PICTURE_CELLS];
  char low[SF_CHART_NUMBER_TEXT], high[SF_CHART_NUMBER_TEXT];
  const double scale = value_scale(picture);
  for (int32_t i = 0; i < picture->rows * picture->cols; i++) colours[i] = sf_chart_value_colour((double)values[i], scale);
  begin_panel(&p, out, picture, title);
  end_panel(&p, colours);
  append_legend(&p, SF_COLOUR_V0, SF_COLOUR_VALUES, sf_chart_number(low, -scale), sf_chart_number(high, scale));
  sf_svg_end(&p.svg);
}

static void distance_panel(struct sf_text *out, const struct sf_picture *picture) {
  struct panel p;
  int colours[SF_PICTURE_CELLS];
  char high[SF_CHART_NUMBER_TEXT];
  const double scale = distance_scale(picture);
  const int32_t worst = picture->worst_cell;
  for (int32_t i = 0; i < picture->rows * picture->cols; i++) {
    const double distance = distance_of(picture, i);
    colours[i] = isinf(distance) ? SF_COLOUR_M5 : sf_chart_size_colour(distance, scale);
  }
  begin_panel(&p, out, picture, "difference");
  end_panel(&p, colours);
  if (worst >= 0) {
    const struct sf_svg_box box = {p.map.x + p.cell * (worst % picture->cols), p.map.y + p.cell * (worst / picture->cols), p.cell, p.cell};
    sf_svg_frame(&p.svg, box, SF_COLOUR_PAPER, 4);
    sf_svg_frame(&p.svg, box, SF_COLOUR_INK, 2);
  }
  append_legend(&p, SF_COLOUR_M0, SF_COLOUR_SIZES, "allowed", sf_chart_number(high, scale));
  sf_svg_end(&p.svg);
}

/* --- the figure --------------------------------------------------------------------------------------------------- */

void sf_figure_values(struct sf_text *out, const struct sf_picture *picture) {
  const struct sf_shape shape = picture->shape;
  const bool is_reduced = picture->rows < shape.rows || picture->cols < shape.cols;
  struct sf_text note = {0};
  if (!picture->has_values || shape.rows * shape.cols < 2) return;
  if (shape.rows < picture->of_rows)
    sf_text_append(&note, "Rows %" PRId64 " to %" PRId64 " of %" PRId64 ". ", picture->first_row, picture->first_row + shape.rows - 1,
                   picture->of_rows);
  sf_text_append(&note, "%s", has_borders(picture) ? "Lines are borders between what ranks hold. " : "");
  if (is_reduced)
    sf_text_append(
        &note, "%" PRId64 " x %" PRId64 " elements are drawn as %d x %d cells; a cell shows the element of its block that is off by most. ",
        shape.rows, shape.cols, picture->rows, picture->cols);
  sf_text_append(&note, "The framed cell is off by most.%s",
                 has_holes(picture) ? " Hatched is what no rank holds, or what is not finite." : "");
  sf_figure_begin(out, "The wrong tensor", "%s", note.data ? note.data : "");
  sf_text_append(out, "<div class=\"row\">\n");
  values_panel(out, picture, "expected", picture->want);
  values_panel(out, picture, "got", picture->got);
  distance_panel(out, picture);
  sf_text_append(out, "</div>\n");
  sf_figure_end(out);
  sf_text_destroy(&note);
}
