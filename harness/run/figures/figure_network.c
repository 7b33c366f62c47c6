/* The network from input to loss: how far each module's tensors are off, forward and backward. */
#include "harness/base/alloc.h"
#include "harness/check/trace_name.h"
#include "harness/run/figures/figures.h"
#include "harness/run/plot/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FORWARD, BACKWARD, GRADIENT, UPDATE, COLUMN_COUNT, ROW_TEXT = 128 };
static const char *const column_names[COLUMN_COUNT] = {"forward", "backward", "weight grads", "update"};
static const int column_of_kind[SF_KIND_COUNT] = {
    [SF_KIND_ACT] = FORWARD,        [SF_KIND_ACT_GRAD] = BACKWARD, [SF_KIND_WGRAD] = GRADIENT, [SF_KIND_MAIN_GRAD] = GRADIENT,
    [SF_KIND_PARAM_DELTA] = UPDATE, [SF_KIND_PARAM] = UPDATE,      [SF_KIND_SCALAR] = UPDATE,
};

/* The worst of the tensors of a module in one column. */
struct cell {
  int32_t count, judged;
  bool flagged;
  double share;
};
struct row {
  char module[ROW_TEXT];
  bool is_guilty, is_shown;
  struct cell cells[COLUMN_COUNT];
};
struct network {
  struct row *rows;
  int32_t count;
  bool failed;
};

/* --- rows --------------------------------------------------------------------------------------------------------- */

static struct row *find_row(struct network *n, const char *module, int32_t length) {
  for (int32_t i = 0; i < n->count; i++)
    if ((int32_t)strlen(n->rows[i].module) == length && memcmp(n->rows[i].module, module, (size_t)length) == 0) return &n->rows[i];
  return NULL;
}

static struct row *add_row(struct network *n, const char *module, int32_t length) {
  struct row *grown = sf_grown(n->rows, n->count, sizeof *grown);
  if (!grown) {
    n->failed = true;
    return NULL;
  }
  n->rows = grown;
  snprintf(grown[n->count].module, ROW_TEXT, "%.*s", (int)length, module);
  return &grown[n->count++];
}

/* The module of a tensor: of a parameter the longest name of a module before it, or all but its last part. */
static struct row *row_of(struct network *n, const struct sf_trace_name *name) {
  const bool is_module = name->kind == SF_KIND_ACT || name->kind == SF_KIND_ACT_GRAD || name->kind == SF_KIND_SCALAR;
  int32_t length = name->subject_length < ROW_TEXT - 1 ? name->subject_length : ROW_TEXT - 1, last = length;
  struct row *row = find_row(n, name->subject, length);
  for (int32_t end = length - 1; !row && !is_module && end > 0; end--) {
    if (name->subject[end] != '.') continue;
    last = last == length ? end : last;
    row = find_row(n, name->subject, end);
  }
  return row ? row : add_row(n, name->subject, is_module ? length : last);
}

/* Outputs of modules come first, in the order in which the reference computes them: they order the rows. */
static void add_tensor(struct network *n, const struct sf_evidence_tensor *tensor, bool of_outputs) {
  struct sf_trace_name name;
  if (!sf_trace_name_parse(&name, tensor->name) || (name.kind == SF_KIND_ACT) != of_outputs) return;
  struct row *row = row_of(n, &name);
  if (!row) return;
  struct cell *cell = &row->cells[column_of_kind[name.kind]];
  cell->count++;
  cell->judged += tensor->judged;
  if (tensor->judged && !(tensor->share <= cell->share)) cell->share = isnan(tensor->share) ? INFINITY : tensor->share;
  cell->flagged |= tensor->flagged;
}

static void light(struct network *n, const struct sf_culprit *culprit) {
  struct sf_trace_name name;
  if (!sf_trace_name_parse(&name, culprit->first_id)) return;
  struct row *row = row_of(n, &name);
  if (!row) return;
  row->is_guilty = true; /* structure, such as replicas that differ, flags no distance */
  row->cells[column_of_kind[name.kind]].flagged = true;
}

static bool is_wrong(const struct row *row) {
  bool wrong = row->is_guilty;
  for (int i = 0; i < COLUMN_COUNT; i++) wrong |= row->cells[i].flagged;
  return wrong;
}

/* Where there are many modules, those far from every wrong one are left out. */
static void choose_rows(struct network *n) {
  enum { ROWS_MAX = 64, AROUND = 3, ENDS = 2 };
  const bool are_few = n->count <= ROWS_MAX;
  int32_t shown = 0;
  for (int32_t i = 0; i < n->count; i++) n->rows[i].is_shown = are_few || i < ENDS || i >= n->count - ENDS;
  for (int32_t i = 0; i < n->count && !are_few; i++)
    for (int32_t k = i - AROUND; is_wrong(&n->rows[i]) && k <= i + AROUND; k++) {
      if (k < 0 || k >= n->count || n->rows[k].is_shown) continue;
      n->rows[k].is_shown = n->rows[i].is_guilty || shown++ < ROWS_MAX;
    }
}

/* --- drawing ------------------------------------------------------------------------------------------------------ */

enum { NAMES = 244, COLUMN = 117, BARS = 62, GAP = 8, HEAD_HEIGHT = 44 };
/* Decades of error over tolerance that a bar has room for; the alarm is at 1. */
static const double LOW = -3, HIGH = 6;

static double bar_at(double share) {
  const double place = (log10(fmax(share, pow(10, LOW))) - LOW) / (HIGH - LOW);
  return BARS * (place > 1 ? 1 : place);
}

static double column_x(int column) { return NAMES + COLUMN * column + GAP; }

static void draw_cell(struct sf_svg *svg, const struct cell *cell, int column, double y) {
  const double x = column_x(column);
  char number[SF_CHART_NUMBER_TEXT];
  if (cell->count == 0) return;
  if (cell->judged == 0) {
    sf_svg_text(svg, (struct sf_svg_label){x, y, SF_SVG_START, SF_COLOUR_SOFT, COLUMN - 2 * GAP, false}, "not judged");
    return;
  }
  sf_svg_fill(svg, (struct sf_svg_box){x, y - 9, fmax(1, bar_at(cell->share)), 9}, cell->flagged ? SF_COLOUR_BAD : SF_COLOUR_CALM);
  if (!cell->flagged) return;
  sf_svg_diamond(svg, x + BARS + 6, y - 4.5, 4.5, SF_COLOUR_BAD);
  if (cell->share > 1 && isfinite(cell->share)) {
    snprintf(number, sizeof number, cell->share < 9.5 ? "%.1f" : cell->share < 999.5 ? "%.0f" : "%.0e", cell->share);
    sf_svg_text(svg, (struct sf_svg_label){x + BARS + 13, y, SF_SVG_START, SF_COLOUR_BAD, 40, false}, number);
  }
}

static void draw_head(struct sf_svg *svg, double height) {
  for (int i = 0; i < COLUMN_COUNT; i++) {
    const double alarm = column_x(i) + bar_at(1);
    sf_svg_text(svg, (struct sf_svg_label){column_x(i), 14, SF_SVG_START, SF_COLOUR_INK, COLUMN - GAP, true}, column_names[i]);
    sf_svg_line(svg, alarm, HEAD_HEIGHT - 10, alarm, height, SF_COLOUR_MARK, 1);
    sf_svg_text(svg, (struct sf_svg_label){alarm, HEAD_HEIGHT - 14, SF_SVG_MIDDLE, SF_COLOUR_SOFT, 60, false}, i == 0 ? "alarm" : "");
  }
}

/* The part of a name that names the layer, "decoder.layers.3.": its length; 0: none. */
static size_t layer_length(const char *module) {
  const char *at = strstr(module, "layers.");
  if (!at) return 0;
  const size_t digits = strspn(at + 7, "0123456789");
  return digits > 0 && at[7 + digits] == '.' ? (size_t)(at - module) + 8 + digits : 0;
}

/* Rows and headings of layers, from top to bottom. svg NULL: only counts their lines. */
static int32_t draw_rows(struct sf_svg *svg, const struct network *n) {
  int32_t line = 0, hidden = 0;
  char layer[ROW_TEXT] = "";
  for (int32_t i = 0; i <= n->count; i++) {
    const struct row *row = &n->rows[i];
    const bool is_end = i == n->count;
    if (hidden > 0 && (is_end || row->is_shown)) {
      const double y = HEAD_HEIGHT + SF_SVG_LINE * (double)++line - 5;
      if (svg) sf_svg_print(svg, (struct sf_svg_label){0, y, SF_SVG_START, SF_COLOUR_SOFT, NAMES, false}, "(%d more modules)", hidden);
      hidden = 0;
    }
    if (is_end) break;
    if (!row->is_shown) {
      hidden++;
      continue;
    }
    const size_t length = layer_length(row->module);
    if (length > 0 && (strncmp(layer, row->module, length) != 0 || layer[length] != '\0')) {
      snprintf(layer, sizeof layer, "%.*s", (int)length, row->module);
      const double y = HEAD_HEIGHT + SF_SVG_LINE * (double)++line - 5;
      if (svg) sf_svg_print(svg, (struct sf_svg_label){0, y, SF_SVG_START, SF_COLOUR_SOFT, NAMES, false}, "%.*s", (int)length - 1, layer);
    }
    const double y = HEAD_HEIGHT + SF_SVG_LINE * (double)++line - 5, indent = length > 0 ? 16 : 0;
    if (!svg) continue;
    if (row->is_guilty) {
      sf_svg_fill(svg, (struct sf_svg_box){0, y - 13, svg->width, SF_SVG_LINE}, SF_COLOUR_GLOW);
      sf_svg_fill(svg, (struct sf_svg_box){0, y - 13, 4, SF_SVG_LINE}, SF_COLOUR_BAD);
    }
    sf_svg_text(svg,
                (struct sf_svg_label){indent + 8, y, SF_SVG_START, row->is_guilty ? SF_COLOUR_BAD : SF_COLOUR_INK, NAMES - indent - 12,
                                      row->is_guilty},
                row->module + length);
    for (int column = 0; column < COLUMN_COUNT; column++) draw_cell(svg, &row->cells[column], column, y);
  }
  return line;
}

void sf_figure_network(struct sf_text *out, const struct sf_finding_view *view) {
  struct network n = {0};
  struct sf_svg svg;
  for (int turn = 0; turn < 2; turn++)
    for (int32_t i = 0; i < view->evidence->tensor_count; i++) add_tensor(&n, &view->evidence->tensors[i], turn == 0);
  light(&n, view->culprit);
  for (int32_t i = 0; i < view->further_count; i++) light(&n, &view->further[i]);
  if (n.count > 0 && view->evidence->tensor_count > 0) {
    choose_rows(&n);
    const double height = HEAD_HEIGHT + SF_SVG_LINE * (double)draw_rows(NULL, &n) + 4;
    sf_figure_begin(
        out, "From input to loss",
        "Error over what is allowed, for each module's output (forward), the gradient of its input (backward), its weight gradients, "
        "and the step. The scale is logarithmic, from 0.001 to a million; beyond the line at 1 a tensor is wrong. Of several "
        "steps and microbatches the worst is shown. The noise of a clean tensor is measured only until it is clear, so its bar may be too "
        "long, never too short. Modules that are wrong by themselves are marked.");
    sf_svg_begin(&svg, out, NAMES + COLUMN * COLUMN_COUNT + GAP, height, "errors of all modules");
    draw_rows(&svg, &n);
    draw_head(&svg, height);
    sf_svg_end(&svg);
    sf_figure_end(out);
  }
  if (n.failed) out->failed = 1;
  sf_free(n.rows);
}
