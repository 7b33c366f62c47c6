/* A campaign as a whole, from one walk over its store. */
#include "harness/base/alloc.h"
#include "harness/run/figures/figures.h"
#include "harness/run/plot/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Classes of error over tolerance: eight for each power of ten, from a hundredth to ten. */
enum { POINTS_MAX = 256, MARKS_MAX = 256, CLASSES = 24, MODULES_MAX = 512, MODULES_SHOWN = 20, MODULE_TEXT = 96 };
static const double LOW = -2, STEP = 0.125;

struct module_count {
  char name[MODULE_TEXT];
  int64_t count;
};
struct walk {
  int64_t rows, cases, row_stride; /* row_stride: a point of the curve for each so many rows */
  double seconds;
  struct sf_chart_point points[POINTS_MAX + 1], marks[MARKS_MAX];
  int32_t point_count, mark_count;
  const char *seen[MARKS_MAX]; /* signatures that have a mark; owned */
  int64_t classes[CLASSES], noted;
  struct module_count modules[MODULES_MAX];
  int32_t module_count;
};

static void add_point(struct walk *w) {
  if (w->point_count <= POINTS_MAX) w->points[w->point_count++] = (struct sf_chart_point){w->seconds, (double)w->cases};
}

/* A mark where a signature is seen first. */
static void add_mark(struct walk *w, const char *signature) {
  for (int32_t i = 0; i < w->mark_count; i++)
    if (strcmp(w->seen[i], signature) == 0) return;
  if (w->mark_count == MARKS_MAX || !(w->seen[w->mark_count] = sf_strdup(signature))) return;
  w->marks[w->mark_count++] = (struct sf_chart_point){w->seconds, (double)w->cases};
}

static void add_closest(struct walk *w, double closest) {
  if (!(closest > 0)) return;
  const int at = (int)floor((log10(closest) - LOW) / STEP);
  w->noted++;
  w->classes[at < 0 ? 0 : at < CLASSES ? at : CLASSES - 1]++;
}

static void add_module(struct walk *w, const char *name, size_t length, int64_t count) {
  int32_t i = 0;
  if (length >= MODULE_TEXT) return;
  while (i < w->module_count && !(strncmp(w->modules[i].name, name, length) == 0 && w->modules[i].name[length] == '\0')) i++;
  if (i == MODULES_MAX) return;
  if (i == w->module_count) snprintf(w->modules[w->module_count++].name, MODULE_TEXT, "%.*s", (int)length, name);
  w->modules[i].count += count;
}

/* "loss=2 mlp.router=1" */
static void add_unjudged(struct walk *w, const char *text) {
  while (text && *text) {
    const size_t name = strcspn(text, "= "), end = strcspn(text, " ");
    if (text[name] == '=') add_module(w, text, name, strtoll(text + name + 1, NULL, 10));
    text += end + (text[end] == ' ');
  }
}

static enum sf_status visit(void *context, const struct sf_store_verdict *verdict) {
  struct walk *w = context;
  w->cases += verdict->count;
  w->seconds += verdict->seconds;
  if (verdict->signature && *verdict->signature) add_mark(w, verdict->signature);
  if (w->rows++ % w->row_stride == 0) add_point(w);
  if (verdict->verdict != SF_VERDICT_SKIP) add_closest(w, verdict->closest);
  add_unjudged(w, verdict->unjudged);
  return SF_OK;
}

static enum sf_status count_row(void *context, const struct sf_store_verdict *verdict) {
  (void)verdict;
  ++*(int64_t *)context;
  return SF_OK;
}

static int by_count(const void *a, const void *b) {
  const struct module_count *x = a, *y = b;
  return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : strcmp(x->name, y->name);
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static void append_time(struct sf_text *out, struct walk *w) {
  const double unit = w->seconds >= 2 * 3600 ? 3600 : w->seconds >= 120 ? 60 : 1;
  for (int32_t i = 0; i < w->point_count; i++) w->points[i].x /= unit;
  for (int32_t i = 0; i < w->mark_count; i++) w->marks[i].x /= unit;
  const struct sf_chart_curve curve = {.points = w->points,
                                       .marks = w->marks,
                                       .count = w->point_count,
                                       .mark_count = w->mark_count,
                                       .x_name = unit == 3600 ? "hours of computing"
                                                 : unit == 60 ? "minutes of computing"
                                                              : "seconds of computing",
                                       .y_name = "cases",
                                       .mark_name = "first case of a signature"};
  sf_figure_begin(out, "Cases over time", "The time is that of all cases one after the other; several jobs take less.");
  sf_chart_curve(out, "cases over time", &curve);
  sf_figure_end(out);
}

static void append_closest(struct sf_text *out, const struct walk *w) {
  char cases[SF_CHART_NUMBER_TEXT], all[SF_CHART_NUMBER_TEXT];
  if (w->noted == 0) return;
  const struct sf_chart_histogram histogram = {.counts = w->classes,
                                               .count = CLASSES,
                                               .low = LOW,
                                               .step = STEP,
                                               .limit = 0,
                                               .limit_name = "alarm",
                                               .axis_name = "error over what is allowed, of the case's closest clean tensor"};
  sf_figure_begin(
      out, "How near clean tensors come to the alarm",
      "In %s of %s cases some clean tensor was cleared only by all perturbed runs. The chart has the one of each such case that "
      "came closest to the alarm. A heap that touches the line would mean false alarms.",
      sf_chart_count(cases, w->noted), sf_chart_count(all, w->cases));
  sf_chart_histogram(out, "how near clean tensors come to the alarm", &histogram);
  sf_figure_end(out);
}

static void append_unjudged(struct sf_text *out, struct walk *w) {
  struct sf_chart_bar bars[MODULES_SHOWN];
  char more[64] = "";
  if (w->module_count == 0) return;
  qsort(w->modules, (size_t)w->module_count, sizeof w->modules[0], by_count);
  const int32_t count = w->module_count < MODULES_SHOWN ? w->module_count : MODULES_SHOWN;
  for (int32_t i = 0; i < count; i++) bars[i] = (struct sf_chart_bar){w->modules[i].name, (double)w->modules[i].count};
  if (count < w->module_count) snprintf(more, sizeof more, " %d more modules have fewer.", w->module_count - count);
  sf_figure_begin(out, "Tensors that could not be judged",
                  "By module: a tensor is zero, its values are alike, or rounding alone moves it too far.%s", more);
  sf_chart_bars(out, "tensors that could not be judged, by module", bars, count);
  sf_figure_end(out);
}

enum sf_status sf_figures_of_campaign(struct sf_text *out, struct sf_store *store, struct sf_error *error) {
  int64_t rows = 0;
  char *pairs = NULL;
  struct walk *w = sf_alloc(sizeof *w);
  enum sf_status status = w ? sf_store_each_verdict(store, count_row, &rows, error) : SF_ENOMEM;
  if (status == SF_OK) {
    w->row_stride = rows / POINTS_MAX + 1;
    status = sf_store_each_verdict(store, visit, w, error);
  }
  if (status == SF_OK) status = sf_store_pairs(store, &pairs, error);
  if (status == SF_OK && w->cases > 0) {
    add_point(w);
    append_time(out, w);
    append_closest(out, w);
    sf_figure_pairs(out, pairs);
    append_unjudged(out, w);
  }
  if (!w) sf_error_set(error, status, "%s", sf_status_text(status));
  for (int32_t i = 0; w && i < w->mark_count; i++) sf_free((void *)(uintptr_t)w->seen[i]);
  sf_free(pairs);
  sf_free(w);
  return status;
}
