/* The way of the shrinker, and errors over the steps of a trace. */
#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/check/trace_name.h"
#include "harness/run/figures/figures.h"
#include "harness/run/plot/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- shrinking ---------------------------------------------------------------------------------------------------- */

static void append_step(struct sf_text *out, int32_t number, const char *line, size_t length, bool all) {
  sf_text_append(out, "<tr><td class=\"number\">%d</td>%s<td>", number, !all ? "" : *line == '+' ? "<td>yes</td>" : "<td>no</td>");
  sf_html_append(out, "%.*s", (int)length - 1, line + 1);
  sf_text_append(out, "</td></tr>\n");
}

/* Rows of the steps; only those that were kept, or all. */
static void append_steps(struct sf_text *out, const char *steps, bool all) {
  int32_t number = 0;
  sf_text_append(out, "<table>\n<tr><th class=\"number\">trial</th>%s<th>what became smaller</th></tr>\n", all ? "<th>kept</th>" : "");
  for (const char *line = steps; *line;) {
    const size_t length = strcspn(line, "\n");
    number++;
    if (length > 0 && (all || *line == '+')) append_step(out, number, line, length, all);
    line += length + (line[length] == '\n');
  }
  sf_text_append(out, "</table>\n");
}

void sf_figure_steps(struct sf_text *out, const char *steps) {
  int32_t kept = 0, all = 0;
  if (!steps || !*steps) return;
  for (const char *line = steps; *line; line += strcspn(line, "\n") + 1, all++) {
    kept += *line == '+';
    if (line[strcspn(line, "\n")] == '\0') {
      all++;
      break;
    }
  }
  sf_figure_begin(out, "How it became small",
                  "%d of %d trials made the case smaller and failed in the same way. These were kept, in their order.", kept, all);
  append_steps(out, steps, false);
  sf_figure_end(out);
  if (kept == all) return;
  sf_text_append(out, "<details class=\"more\">\n<summary>All %d trials</summary>\n<div class=\"scroll\">\n", all);
  append_steps(out, steps, true);
  sf_text_append(out, "</div>\n</details>\n");
}

/* --- steps of a trace --------------------------------------------------------------------------------------------- */

enum { MODULES_MAX = 48, STEPS_MAX = 48, MODULE_TEXT = 128, NAMES = 262, CELL = 14, HEAD = 40, LEGEND = 52 };

struct module_row {
  char name[MODULE_TEXT];
  double share[STEPS_MAX]; /* NaN: nothing judged there */
  bool flagged[STEPS_MAX];
};
struct step_map {
  struct module_row *rows;
  int32_t count, wanted; /* wanted: rows that there would be with more room */
  int64_t steps, per_cell;
};

/* Where a tensor stands: "decoder.layers.3", or the module outside of layers. */
static void layer_of(char out[MODULE_TEXT], const struct sf_trace_name *name) {
  int32_t length = name->subject_length < MODULE_TEXT - 1 ? name->subject_length : MODULE_TEXT - 1;
  snprintf(out, MODULE_TEXT, "%.*s", (int)length, name->subject);
  char *last = sf_kind_is_of_param(name->kind) ? strrchr(out, '.') : NULL;
  if (last) *last = '\0';
  char *at = strstr(out, "layers.");
  const size_t digits = at ? strspn(at + 7, "0123456789") : 0;
  if (digits > 0) at[7 + digits] = '\0';
}

static struct module_row *row_of(struct step_map *map, const char *layer) {
  for (int32_t i = 0; i < map->count; i++)
    if (strcmp(map->rows[i].name, layer) == 0) return &map->rows[i];
  map->wanted++;
  if (map->count == MODULES_MAX) return NULL;
  struct module_row *row = &map->rows[map->count++];
  snprintf(row->name, sizeof row->name, "%s", layer);
  for (int i = 0; i < STEPS_MAX; i++) row->share[i] = NAN;
  return row;
}

static void add_tensor(struct step_map *map, const struct sf_evidence_tensor *tensor) {
  struct sf_trace_name name;
  char layer[MODULE_TEXT];
  if (!sf_trace_name_parse(&name, tensor->name)) return;
  layer_of(layer, &name);
  struct module_row *row = row_of(map, layer);
  const int64_t at = name.step / map->per_cell;
  if (!row || at >= STEPS_MAX || !tensor->judged) return;
  const double share = isnan(tensor->share) ? INFINITY : tensor->share;
  if (!(share <= row->share[at])) row->share[at] = share;
  row->flagged[at] |= tensor->flagged;
}

static int64_t count_steps(const struct sf_evidence *evidence) {
  int64_t steps = 0;
  for (int32_t i = 0; i < evidence->tensor_count; i++) {
    struct sf_trace_name name;
    if (sf_trace_name_parse(&name, evidence->tensors[i].name) && name.step >= steps) steps = name.step + 1;
  }
  return steps;
}

/* A class for each decade of error over tolerance, from a hundredth to a thousand. */
static int colour_of(double share) {
  if (isnan(share)) return -1;
  if (share == 0) return SF_COLOUR_M0;
  const int decade = isinf(share) ? SF_COLOUR_SIZES : 2 + (int)floor(log10(share)) + 1;
  return SF_COLOUR_M0 + (decade < 0 ? 0 : decade >= SF_COLOUR_SIZES ? SF_COLOUR_SIZES - 1 : decade);
}

static void draw_map(struct sf_text *out, const struct step_map *map) {
  const int32_t cols = (int32_t)((map->steps + map->per_cell - 1) / map->per_cell);
  const double width = cols * CELL, height = CELL * map->count;
  int *colours = sf_alloc((size_t)(map->count * cols) * sizeof *colours);
  struct sf_svg svg;
  if (!colours) {
    out->failed = 1;
    return;
  }
  for (int32_t i = 0; i < map->count * cols; i++) colours[i] = colour_of(map->rows[i / cols].share[i % cols]);
  sf_svg_begin(&svg, out, fmax(NAMES + width + 8, NAMES + 230), HEAD + height + LEGEND, "error by layer and step");
  sf_svg_text(&svg, (struct sf_svg_label){NAMES, 12, SF_SVG_START, SF_COLOUR_INK, 100, true}, "step");
  sf_svg_text(&svg, (struct sf_svg_label){NAMES, HEAD - 8, SF_SVG_START, SF_COLOUR_SOFT, 20, false}, "0");
  if (cols > 3)
    sf_svg_print(&svg, (struct sf_svg_label){NAMES + width, HEAD - 8, SF_SVG_END, SF_COLOUR_SOFT, 80, false}, "%" PRId64, map->steps - 1);
  sf_svg_cells(&svg, (struct sf_svg_box){NAMES, HEAD, width, height}, map->count, cols, colours);
  sf_svg_frame(&svg, (struct sf_svg_box){NAMES, HEAD, width, height}, SF_COLOUR_MARK, 1);
  for (int32_t i = 0; i < map->count; i++) {
    const double y = HEAD + CELL * (i + 1) - 3;
    sf_svg_text(&svg, (struct sf_svg_label){NAMES - 8, y, SF_SVG_END, SF_COLOUR_INK, NAMES - 8, false}, map->rows[i].name);
    for (int32_t k = 0; k < cols; k++)
      if (map->rows[i].flagged[k]) {
        sf_svg_diamond(&svg, NAMES + CELL * (k + 0.5), HEAD + CELL * (i + 0.5), 5, SF_COLOUR_PAPER);
        sf_svg_diamond(&svg, NAMES + CELL * (k + 0.5), HEAD + CELL * (i + 0.5), 3, SF_COLOUR_INK);
      }
  }
  int scale[SF_COLOUR_SIZES];
  for (int i = 0; i < SF_COLOUR_SIZES; i++) scale[i] = SF_COLOUR_M0 + i;
  const double y = HEAD + height + 12;
  sf_svg_cells(&svg, (struct sf_svg_box){NAMES, y, 6 * CELL, CELL}, 1, SF_COLOUR_SIZES, scale);
  sf_svg_frame(&svg, (struct sf_svg_box){NAMES, y, 6 * CELL, CELL}, SF_COLOUR_LINE, 1);
  sf_svg_text(&svg, (struct sf_svg_label){NAMES, y + CELL + 14, SF_SVG_START, SF_COLOUR_SOFT, 60, false}, "< 0.01");
  sf_svg_text(&svg, (struct sf_svg_label){NAMES + 6 * CELL, y + CELL + 14, SF_SVG_START, SF_COLOUR_SOFT, 120, false}, "> 100 times");
  sf_svg_end(&svg);
  sf_free(colours);
}

void sf_figures_of_steps(struct sf_text *out, const struct sf_evidence *evidence) {
  struct step_map map = {.steps = count_steps(evidence)};
  if (map.steps < 2) return;
  map.per_cell = (map.steps + STEPS_MAX - 1) / STEPS_MAX;
  map.rows = sf_alloc(MODULES_MAX * sizeof *map.rows);
  if (!map.rows) {
    out->failed = 1;
    return;
  }
  for (int32_t i = 0; i < evidence->tensor_count; i++) add_tensor(&map, &evidence->tensors[i]);
  char more[64] = "", cells[64] = "";
  if (map.wanted > map.count) snprintf(more, sizeof more, " Not all layers have room here.");
  if (map.per_cell > 1) snprintf(cells, sizeof cells, " A cell is %" PRId64 " steps.", map.per_cell);
  sf_figure_begin(
      out, "Error by layer and step",
      "Error over what is allowed, the worst tensor of each layer in each step, a colour for each decade; the diamonds are tensors that "
      "are wrong.%s%s",
      cells, more);
  draw_map(out, &map);
  sf_figure_end(out);
  sf_free(map.rows);
}
