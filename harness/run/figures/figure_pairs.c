/* The matrix of pairs of settings, field by field, with the holes by name. */
#include "harness/base/alloc.h"
#include "harness/base/sinks.h"
#include "harness/run/figures/figures.h"
#include "harness/run/plot/chart.h"

#include <stdio.h>
#include <string.h>

enum { BINS_MAX = 512, FIELDS_MAX = 160, NAME_TEXT = 64, HOLES_SHOWN = 24, NAMES = 226, CELL = 7, LINE = 12 };

/* A bin is a field with values; its states are those of its pairs with the bins before it. */
struct bin {
  const char *states, *name;
  size_t states_length, name_length;
  int32_t field;
};
struct share {
  int32_t run, all;
};
struct matrix {
  struct bin bins[BINS_MAX];
  int32_t bin_count, field_count;
  char fields[FIELDS_MAX][NAME_TEXT];
  struct share shares[FIELDS_MAX][FIELDS_MAX];
  struct share all;
};

static int32_t field_of(struct matrix *m, const char *name, size_t length) {
  char field[NAME_TEXT];
  const size_t end = strcspn(name, "=<> ");
  snprintf(field, sizeof field, "%.*s", (int)(end < length ? end : length), name);
  int32_t i = 0;
  while (i < m->field_count && strcmp(m->fields[i], field) != 0) i++;
  if (i == FIELDS_MAX) return -1;
  if (i == m->field_count) snprintf(m->fields[m->field_count++], NAME_TEXT, "%s", field);
  return i;
}

/* Takes the note apart; lines that are none are left out. */
static void read_bins(struct matrix *m, const char *pairs) {
  for (const char *line = pairs; *line && m->bin_count < BINS_MAX;) {
    const size_t length = strcspn(line, "\n"), states = strcspn(line, " ");
    struct bin bin = {.states = line, .states_length = m->bin_count == 0 ? 0 : states};
    if (states < length && (m->bin_count == 0 || states == (size_t)m->bin_count)) {
      bin.name = line + states + 1;
      bin.name_length = length - states - 1;
      bin.field = field_of(m, bin.name, bin.name_length);
      if (bin.field >= 0) m->bins[m->bin_count++] = bin;
    }
    line += length + (line[length] == '\n');
  }
}

static void count_pairs(struct matrix *m) {
  for (int32_t a = 0; a < m->bin_count; a++)
    for (size_t b = 0; b < m->bins[a].states_length; b++) {
      const char state = m->bins[a].states[b];
      if (state != 'x' && state != 'o') continue;
      const int32_t x = m->bins[a].field, y = m->bins[b].field;
      struct share *share = &m->shares[x > y ? x : y][x > y ? y : x];
      share->all++, m->all.all++;
      share->run += state == 'x', m->all.run += state == 'x';
    }
}

/* The darker, the fewer of a field's pairs have run. */
static int colour_of(struct share share) {
  if (share.all == 0) return -1;
  const double missing = 1 - (double)share.run / share.all;
  return sf_chart_size_colour(missing, 1);
}

static void draw(struct sf_text *out, const struct matrix *m) {
  const int32_t n = m->field_count;
  const double size = CELL * (double)n;
  int *colours = sf_alloc((size_t)n * n * sizeof *colours), scale[SF_COLOUR_SIZES];
  struct sf_svg svg;
  if (!colours) {
    out->failed = 1;
    return;
  }
  for (int32_t a = 0; a < n; a++)
    for (int32_t b = 0; b < n; b++) colours[a * n + b] = b < a ? colour_of(m->shares[a][b]) : -1;
  const double height = LINE * (double)n;
  sf_svg_begin(&svg, out, size + NAMES, height + 64, "share of pairs of settings that ran together, field by field");
  sf_svg_cells(&svg, (struct sf_svg_box){0, 4, size, height}, n, n, colours);
  for (int32_t i = 0; i < n; i++)
    sf_svg_text(&svg, (struct sf_svg_label){CELL * (i + 1.0), LINE * (i + 1), SF_SVG_START, SF_COLOUR_INK, NAMES - 8, false}, m->fields[i]);
  for (int i = 0; i < SF_COLOUR_SIZES; i++) scale[i] = SF_COLOUR_M0 + i;
  sf_svg_cells(&svg, (struct sf_svg_box){1, height + 22, 84, 14}, 1, SF_COLOUR_SIZES, scale);
  sf_svg_frame(&svg, (struct sf_svg_box){1, height + 22, 84, 14}, SF_COLOUR_MARK, 1);
  sf_svg_text(&svg, (struct sf_svg_label){0, height + 52, SF_SVG_START, SF_COLOUR_SOFT, 80, false}, "all ran");
  sf_svg_text(&svg, (struct sf_svg_label){84, height + 52, SF_SVG_START, SF_COLOUR_SOFT, 120, false}, "none ran");
  sf_svg_end(&svg);
  sf_free(colours);
}

static void append_hole(struct sf_text *out, const struct bin *a, const struct bin *b) {
  sf_text_append(out, "<tr><td>");
  sf_html_append(out, "%.*s", (int)b->name_length, b->name);
  sf_text_append(out, "</td><td>");
  sf_html_append(out, "%.*s", (int)a->name_length, a->name);
  sf_text_append(out, "</td></tr>\n");
}

/* The pairs of fields of which the smallest share has run go first, so that the list does not tell of one field alone: one hole each. */
static void append_holes(struct sf_text *out, const struct matrix *m) {
  int32_t shown = 0, holes = m->all.all - m->all.run;
  bool told[FIELDS_MAX] = {false};
  if (holes == 0) return;
  sf_text_append(out,
                 "<details class=\"more\">\n<summary>%d pairs have not run together</summary>\n<div class=\"scroll\">\n<table>\n"
                 "<tr><th>this setting</th><th>with this one</th></tr>\n",
                 holes);
  for (int turn = 0; turn < 2 && shown < HOLES_SHOWN; turn++)
    for (int32_t a = 0; a < m->bin_count && shown < HOLES_SHOWN; a++)
      for (size_t b = 0; b < m->bins[a].states_length && shown < HOLES_SHOWN; b++) {
        const bool is_first_of_field = !told[m->bins[a].field];
        if (m->bins[a].states[b] != 'o' || (turn == 0) != is_first_of_field) continue;
        if (turn == 0) told[m->bins[a].field] = true;
        append_hole(out, &m->bins[a], &m->bins[b]);
        shown++;
      }
  sf_text_append(out, "</table>\n</div>\n");
  if (shown < holes) sf_text_append(out, "<p class=\"note\">%d of them are listed.</p>\n", shown);
  sf_text_append(out, "</details>\n");
}

void sf_figure_pairs(struct sf_text *out, const char *pairs) {
  struct matrix *m = sf_alloc(sizeof *m);
  if (!m) {
    out->failed = 1;
    return;
  }
  read_bins(m, pairs ? pairs : "");
  count_pairs(m);
  if (m->all.all > 0) {
    char run[SF_CHART_NUMBER_TEXT], all[SF_CHART_NUMBER_TEXT];
    sf_figure_begin(
        out, "Pairs of settings that ran together",
        "%s of %s pairs ran in some case (%.1f %%). A field's name ends its row and heads its column; the darker a cell, the more "
        "pairs of values of its two fields have not run together.",
        sf_chart_count(run, m->all.run), sf_chart_count(all, m->all.all), 100.0 * m->all.run / m->all.all);
    draw(out, m);
    sf_figure_end(out);
    append_holes(out, m);
  }
  sf_free(m);
}
