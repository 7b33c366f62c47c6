/* Where a campaign stands, for people. */
#include "harness/base/sinks.h"
#include "harness/run/campaign/standing.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sf_span_text(char out[SF_SPAN_TEXT], double seconds) {
  const int64_t s = seconds > 0 && seconds < 1e12 ? (int64_t)seconds : 0;
  if (s >= 3600)
    snprintf(out, SF_SPAN_TEXT, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
  else if (s >= 60)
    snprintf(out, SF_SPAN_TEXT, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
  else
    snprintf(out, SF_SPAN_TEXT, "%" PRId64 "s", s);
}

/* "N what" behind `before`, which is ", " then; nothing for 0 and for what is not known. */
static void append_note(struct sf_text *out, const char **before, int64_t number, const char *what) {
  if (number <= 0) return;
  sf_text_append(out, "%s%" PRId64 " %s", *before, number, what);
  *before = ", ";
}

static void append_rate(struct sf_text *out, double rate) {
  if (isfinite(rate)) sf_text_append(out, ", %.*f/s", rate < 10 ? 1 : 0, rate);
}

/* "14 % of 10m00s, 8m37s left"; nothing without a limit. */
static void append_share(struct sf_text *out, const char *before, const struct sf_standing *s) {
  char wanted[SF_SPAN_TEXT], left[SF_SPAN_TEXT];
  if (!isfinite(s->share_done)) return;
  sf_text_append(out, "%s%.0f %%", before, 100 * s->share_done);
  sf_span_text(wanted, s->seconds_wanted);
  if (isfinite(s->seconds_wanted))
    sf_text_append(out, " of %s", wanted);
  else if (s->cases_wanted >= 0)
    sf_text_append(out, " of %" PRId64 " cases", s->cases_wanted);
  sf_span_text(left, s->seconds_left);
  if (isfinite(s->seconds_left) && s->state == SF_CAMPAIGN_RUNNING) sf_text_append(out, ", %s left", left);
}

void sf_standing_line(struct sf_text *out, const struct sf_standing *s) {
  const char *before = ", ";
  sf_text_append(out, "%" PRId64 " case%s", s->cases, sf_plural(s->cases));
  append_rate(out, s->cases_per_s);
  if (s->findings > 0)
    sf_text_append(out, ", %" PRId64 " finding%s", s->findings, sf_plural(s->findings));
  else
    sf_text_append(out, ", no findings");
  append_note(out, &before, s->signatures, "distinct");
  append_note(out, &before, s->shrinking, "being shrunk");
  append_share(out, ", ", s);
}

/* --- the screen ---------------------------------------------------------------------------------------------------- */

struct screen {
  struct sf_screen_line *lines;
  int32_t count;
};

static void add(struct screen *screen, const char *label, enum sf_screen_tone tone, struct sf_text *text) {
  struct sf_screen_line *line = &screen->lines[screen->count];
  if (text->data && *text->data) {
    line->label = label;
    line->tone = tone;
    sf_line_copy(line->text, sizeof line->text, text->data);
    screen->count++;
  }
  sf_text_destroy(text);
}

static void add_state(struct screen *screen, const struct sf_standing *s, double now) {
  struct sf_text text = {0};
  char age[SF_SPAN_TEXT];
  sf_text_append(&text, "%s", sf_campaign_state_text(s->state));
  sf_span_text(age, now - s->updated_at);
  const bool is_silent = isfinite(s->updated_at) && now - s->updated_at >= 10;
  if (s->state == SF_CAMPAIGN_RUNNING && is_silent) sf_text_append(&text, ", silent for %s", age);
  if (s->state != SF_CAMPAIGN_RUNNING && isfinite(s->updated_at)) sf_text_append(&text, " %s ago", age);
  if (s->state == SF_CAMPAIGN_KILLED) sf_text_append(&text, " or later, without a word");
  if (s->state == SF_CAMPAIGN_INTERRUPTED || s->state == SF_CAMPAIGN_KILLED) sf_text_append(&text, "; --resume goes on");
  sf_text_append(&text, ": %s", *s->target ? s->target : "builtin");
  if (s->seed >= 0) sf_text_append(&text, ", seed %" PRId64, s->seed);
  if (s->state == SF_CAMPAIGN_RUNNING && s->pid > 0) sf_text_append(&text, ", process %" PRId64 " on %s", s->pid, s->host);
  add(screen, "campaign", SF_TONE_PLAIN, &text);
}

static void add_time(struct screen *screen, const struct sf_standing *s) {
  struct sf_text text = {0};
  char run[SF_SPAN_TEXT], all[SF_SPAN_TEXT];
  if (!isfinite(s->seconds_run)) return;
  sf_span_text(run, s->seconds_run);
  sf_span_text(all, s->seconds);
  sf_text_append(&text, "%s", run);
  append_share(&text, ", ", s);
  if (isfinite(s->seconds) && s->seconds - s->seconds_run >= 1) sf_text_append(&text, "; %s with earlier runs", all);
  add(screen, "time", SF_TONE_PLAIN, &text);
}

static void add_findings(struct screen *screen, const struct sf_standing *s) {
  struct sf_text text = {0};
  const char *before = ", ";
  if (s->signatures < 0) return;
  sf_text_append(&text, "%" PRId64 " signature%s", s->signatures, sf_plural(s->signatures));
  append_note(&text, &before, s->new_signatures, "not known");
  append_note(&text, &before, s->shrinking, "being shrunk");
  add(screen, "findings", s->new_signatures > 0 ? SF_TONE_BAD : SF_TONE_PLAIN, &text);
}

static void add_newest(struct screen *screen, const struct sf_standing *s, double now) {
  struct sf_text text = {0};
  char age[SF_SPAN_TEXT];
  if (!*s->newest) return;
  sf_span_text(age, now - s->newest_at);
  if (isfinite(s->newest_at)) sf_text_append(&text, "%s ago: ", age);
  sf_text_append(&text, "%s", s->newest);
  if (s->newest_case >= 0) sf_text_append(&text, ", case %" PRId64, s->newest_case);
  add(screen, "newest", SF_TONE_PLAIN, &text);
}

static void add_machine(struct screen *screen, const struct sf_standing *s) {
  struct sf_text text = {0};
  const char *before = "";
  if (s->memory_bytes > 0) {
    sf_text_append(&text, "%.*f MiB", s->memory_bytes < 10 << 20 ? 1 : 0, (double)s->memory_bytes / (1 << 20));
    before = ", ";
  }
  append_note(&text, &before, s->processes, s->processes == 1 ? "process" : "processes");
  if (s->ranks_max > 1) sf_text_append(&text, "%scases of up to %" PRId64 " ranks", before, s->ranks_max);
  add(screen, "memory", SF_TONE_PLAIN, &text);
}

int32_t sf_standing_screen(struct sf_screen_line lines[SF_STANDING_LINES], const struct sf_standing *s, const char *store, double now) {
  struct screen screen = {.lines = lines};
  struct sf_text cases = {0}, verdicts = {0}, coverage = {0}, file = {0};
  add_state(&screen, s, now);
  add_time(&screen, s);
  sf_text_append(&cases, "%" PRId64, s->cases);
  append_rate(&cases, s->cases_per_s);
  if (s->cases_run >= 0 && s->cases_run != s->cases) sf_text_append(&cases, ", %" PRId64 " of them in this run", s->cases_run);
  add(&screen, "cases", SF_TONE_PLAIN, &cases);
  sf_text_append(&verdicts, "%" PRId64 " passed, %" PRId64 " with findings, %" PRId64 " inconclusive, %" PRId64 " skipped", s->passed,
                 s->findings, s->inconclusive, s->skipped);
  add(&screen, "verdicts", SF_TONE_PLAIN, &verdicts);
  add_findings(&screen, s);
  add_newest(&screen, s, now);
  if (s->pairs > 0)
    sf_text_append(&coverage, "%.1f %% of %" PRId64 " pairs of settings", 100.0 * (double)s->pairs_run / (double)s->pairs, s->pairs);
  add(&screen, "coverage", SF_TONE_PLAIN, &coverage);
  add_machine(&screen, s);
  sf_text_append(&file, "%s", store);
  add(&screen, "store", SF_TONE_PLAIN, &file);
  return screen.count;
}
