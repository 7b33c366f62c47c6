/* Charts of numbers: bars with an axis, curves, and how numbers are put into classes of colour. */
#ifndef SF_RUN_CHART_H
#define SF_RUN_CHART_H

#include "harness/run/plot/svg.h"

enum { SF_CHART_NUMBER_TEXT = 32 };
/* A number as short as three digits allow: "0.31", "6.9e+05", "12 300". Returns out. */
const char *sf_chart_number(char out[SF_CHART_NUMBER_TEXT], double value);
/* A count with thin spaces between its thousands: "12 300". Returns out. */
const char *sf_chart_count(char out[SF_CHART_NUMBER_TEXT], int64_t count);
/* The colour of a value between -scale and scale; of a size between 0 and scale. Not finite: -1. */
int sf_chart_value_colour(double value, double scale);
int sf_chart_size_colour(double size, double scale);

struct sf_chart_bar {
  const char *name; /* may be anybody's */
  double value;     /* >= 0 */
};
/* Appends horizontal bars with their names on the left and their numbers on the right, the largest as wide as there is room. what: for who
 * does not see it. */
void sf_chart_bars(struct sf_text *out, const char *what, const struct sf_chart_bar *bars, int32_t count);

/* A histogram of counts in classes from `low` in steps of `step`, of numbers that are powers of ten: the axis names 10^low and so on. The
 * classes from `limit` on are beyond a limit, drawn as a line that is called `limit_name`. */
struct sf_chart_histogram {
  const int64_t *counts;
  int32_t count;
  double low, step; /* decimal logarithms */
  double limit;
  const char *limit_name, *axis_name;
};
/* Appends it. what: as of sf_chart_bars. */
void sf_chart_histogram(struct sf_text *out, const char *what, const struct sf_chart_histogram *histogram);

/* A curve through points that ascend in both coordinates, and marks on it. */
struct sf_chart_point {
  double x, y;
};
struct sf_chart_curve {
  const struct sf_chart_point *points, *marks;
  int32_t count, mark_count;
  const char *x_name, *y_name, *mark_name;
};
/* Appends it. what: as of sf_chart_bars. */
void sf_chart_curve(struct sf_text *out, const char *what, const struct sf_chart_curve *curve);

#endif
