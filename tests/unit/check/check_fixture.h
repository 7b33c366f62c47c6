/* References of one tensor or a few, their noise levels, and candidates that are judged by them. */
#ifndef SF_TESTS_CHECK_FIXTURE_H
#define SF_TESTS_CHECK_FIXTURE_H

#include "tests/unit/check/trace_fixture.h"

#include "harness/check/check.h"

enum { ROWS = 4, COLS = 8, COUNT = ROWS * COLS };
#define ACT "s0/mb0/fwd/act/m/0"
#define WGRAD "s0/mb0/bwd/wgrad/w/0"
#define MAIN_GRAD "s0/mb0/step/main_grad/w/0"
#define NORM "s0/mb0/step/scalar/grad_norm/0"

/* The reference's values; a draw and a candidate are off by some of 2^-20. */
static inline void fill(float *out, float times) {
  for (int i = 0; i < COUNT; i++) out[i] = (float)(i % 7 - 3 + (i % 5) * 0.25) + times * (float)(i % 3 - 1) * 0x1p-20f;
}

static inline struct part act_part(const char *name, const float *values) {
  return (struct part){name, SF_F32, 2, {ROWS, COLS}, values, NULL};
}

static inline enum sf_status noise_make_of(const char *dir, const char *const *draws, int count, int distinct_min, bool first,
                                           struct sf_error *error) {
  char path[400];
  struct sf_trace_set reference = set_open(dir, "ref"), sets[10];
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", dir);
  for (int i = 0; i < count; i++) sets[i] = set_open(dir, draws[i]);
  const enum sf_status status = sf_noise_make(
      path, &reference, &(struct sf_noise_draws){.sets = sets, .count = count, .distinct_min = distinct_min, .first = first}, error);
  for (int i = 0; i < count; i++) sf_trace_set_close(&sets[i]);
  sf_trace_set_close(&reference);
  return status;
}

static inline enum sf_status noise_make(const char *dir, const char *const *draws, int count, struct sf_error *error) {
  return noise_make_of(dir, draws, count, 0, true, error);
}

/* A reference with one activation, and noise of one draw. */
static inline void act_reference(const char *dir) {
  static const char *const draws[] = {"draw"};
  float x[COUNT], d[COUNT];
  fill(x, 0);
  fill(d, 1);
  const struct part reference = act_part(ACT, x), draw = act_part(ACT, d);
  rank_write(dir, "ref", 0, 1, "e2e", &reference, 1);
  rank_write(dir, "draw", 0, 1, "e2e", &draw, 1);
  assert_int_equal(noise_make(dir, draws, 1, NULL), SF_OK);
}

struct judged {
  struct sf_trace_set reference, candidate;
  struct sf_noise_file noise;
  struct sf_check_report report;
};

/* DIR/FOLDER, judged by DIR/ref. */
static inline void judged_open_supposing(struct judged *out, const char *dir, const char *folder, const struct sf_suppositions *supposed) {
  char path[400];
  struct sf_error error = {SF_OK, ""};
  out->reference = set_open(dir, "ref");
  out->candidate = set_open(dir, folder);
  snprintf(path, sizeof path, "%s/ref/noise.safetensors", dir);
  if (sf_noise_open(&out->noise, path, &out->reference, &error) != SF_OK) fail_msg("%s", error.text);
  if (sf_check_run(&out->report, &out->reference, &out->noise, &out->candidate, supposed, &error) != SF_OK) fail_msg("%s", error.text);
}

static inline void judged_open(struct judged *out, const char *dir, const char *folder) { judged_open_supposing(out, dir, folder, NULL); }

static inline void judged_close(struct judged *j) {
  sf_check_report_destroy(&j->report);
  sf_noise_close(&j->noise);
  sf_trace_set_close(&j->candidate);
  sf_trace_set_close(&j->reference);
}

#endif
