#include "harness/run/framework/framework_sets.h"

#include "harness/worker/zygote.h"

#include <stdio.h>
#include <string.h>

/* A second attempt in case the machine was busy, or the zygote is gone. */
enum { START_ATTEMPTS = 2 };

static void free_place(struct sf_framework_sets *sets, int32_t place) {
  sf_worker_set_end(sets->kept[place].set);
  memset(&sets->kept[place], 0, sizeof sets->kept[place]);
}

static void drop_set(struct sf_framework_sets *sets, int32_t place) {
  free_place(sets, place);
  sets->restarts++;
}

/* The place of the set that was used longest ago; -1: none. spared: ranks of a set that is not to go. */
static int32_t find_oldest(const struct sf_framework_sets *sets, int32_t spared) {
  int32_t oldest = -1;
  for (int32_t i = 0; i < SF_FRAMEWORK_SETS_MAX; i++) {
    const bool can_go = sets->kept[i].ranks && sets->kept[i].ranks != spared;
    if (can_go && (oldest < 0 || sets->kept[i].used < sets->kept[oldest].used)) oldest = i;
  }
  return oldest;
}

/* The place of the set of that many ranks, or one for it. A set of one rank, which every case needs, stays if the launcher started it. */
static int32_t place_of(struct sf_framework_sets *sets, int32_t ranks) {
  int32_t free_one = -1;
  for (int32_t i = 0; i < SF_FRAMEWORK_SETS_MAX; i++) {
    if (sets->kept[i].ranks == ranks) return i;
    if (sets->kept[i].ranks == 0) free_one = i;
  }
  if (free_one >= 0) return free_one;
  const int32_t oldest = find_oldest(sets, 1);
  free_place(sets, oldest);
  return oldest;
}

/* Ends sets until that many more ranks may live. A case needs a set of one rank and one of its own ranks: these two may live. */
static void make_room(struct sf_framework_sets *sets, int32_t ranks) {
  int32_t alive = ranks;
  for (int32_t i = 0; i < SF_FRAMEWORK_SETS_MAX; i++) alive += sets->kept[i].ranks;
  for (int32_t oldest; alive > sets->ranks_max && (oldest = find_oldest(sets, 1)) >= 0;) {
    alive -= sets->kept[oldest].ranks;
    free_place(sets, oldest);
  }
}

/* Whether a zygote was there and is gone: then the launcher starts sets from now on. */
static bool note_zygote(struct sf_framework_sets *sets) {
  const bool is_gone = *sets->zygote && !sf_zygote_lives(sets->zygote);
  if (is_gone) *sets->zygote = '\0';
  return is_gone;
}

static enum sf_status start_set(struct sf_framework_sets *sets, struct sf_rank_set **out, struct sf_worker_report *report, int32_t ranks) {
  struct sf_rank_set_options options = sets->start;
  options.ranks = ranks;
  options.zygote = *sets->zygote ? sets->zygote : NULL;
  options.may_fork = options.may_fork && !options.zygote && !sets->own_zygote && ranks == 1;
  if (options.zygote) make_room(sets, ranks);
  const enum sf_status status = sf_worker_set_start(out, report, &options);
  if (status == SF_OK) return SF_OK;
  sets->restarts++;
  note_zygote(sets);
  return status;
}

/* Finds or starts a set. */
static enum sf_status find_set(struct sf_framework_sets *sets, int32_t *out, struct sf_worker_report *report, int32_t ranks) {
  const int32_t place = *out = place_of(sets, ranks);
  memset(report, 0, sizeof *report);
  report->rank = -1;
  if (sets->kept[place].set && !sf_worker_set_is_sound(sets->kept[place].set)) drop_set(sets, place);
  for (int32_t attempt = 0; !sets->kept[place].set && attempt < START_ATTEMPTS && report->end != SF_WORKER_STOPPED; attempt++) {
    if (start_set(sets, &sets->kept[place].set, report, ranks) == SF_ENOMEM) return SF_ENOMEM;
  }
  if (sets->kept[place].set) sets->kept[place].ranks = ranks;
  return SF_OK;
}

static enum sf_status status_of(enum sf_status status, const struct sf_worker_report *report) {
  return status == SF_OK && report->end == SF_WORKER_STOPPED ? SF_ECANCELLED : status;
}

enum sf_status sf_framework_sets_ask(struct sf_framework_sets *sets, struct sf_worker_report *report, json_t *request, int32_t ranks) {
  int32_t place = 0;
  sets->died_with_zygote = false;
  enum sf_status status = request ? find_set(sets, &place, report, ranks) : SF_ENOMEM;
  if (status == SF_OK && sets->kept[place].set) {
    sets->kept[place].used = ++sets->requests;
    status = sf_worker_set_ask(sets->kept[place].set, report, request);
    if (!sf_worker_goes_on(report->end)) drop_set(sets, place);
    if (report->end == SF_WORKER_UNUSABLE) sf_framework_sets_rest(sets); /* a GPU's service restarts once no process uses it */
    sets->died_with_zygote = (report->end == SF_WORKER_DIED || report->end == SF_WORKER_ONE_SIDED) && note_zygote(sets);
  }
  json_decref(request);
  return status_of(status, report);
}

/* Starts the worker's first process. If it can fork its ranks it is the zygote from now on. */
static enum sf_status start_first(struct sf_framework_sets *sets, struct sf_worker_report *report) {
  int32_t place = 0;
  const enum sf_status status = find_set(sets, &place, report, 1);
  struct sf_rank_set *set = sets->kept[place].set;
  if (status == SF_OK && set && set->is_zygote) {
    sets->own_zygote = set;
    memcpy(sets->zygote, set->zygote_path, sizeof sets->zygote);
    memset(&sets->kept[place], 0, sizeof sets->kept[place]);
  }
  return status;
}

enum sf_status sf_framework_sets_describe(struct sf_framework_sets *sets, struct sf_worker_report *report) {
  memset(report, 0, sizeof *report);
  enum sf_status status = sets->start.may_fork && !*sets->zygote ? start_first(sets, report) : SF_OK;
  if (status != SF_OK || report->end != SF_WORKER_ANSWERED) return status_of(status, report);
  json_t *request = json_pack("{s:s}", "request", "describe");
  if (!sets->own_zygote) return sf_framework_sets_ask(sets, report, request, 1);
  status = request ? sf_worker_set_ask(sets->own_zygote, report, request) : SF_ENOMEM;
  json_decref(request);
  return status_of(status, report);
}

void sf_framework_sets_rest(struct sf_framework_sets *sets) {
  for (int32_t i = 0; i < SF_FRAMEWORK_SETS_MAX; i++) free_place(sets, i);
}

void sf_framework_sets_end(struct sf_framework_sets *sets) {
  sf_framework_sets_rest(sets);
  sf_worker_set_end(sets->own_zygote);
  sets->own_zygote = NULL;
}
