/* How many cases it takes to find a planted bug, by the way that cases are chosen: drawn as a campaign draws them, with or without a
 * covering table, or guided by what earlier cases have shown. All ways draw from one space and count cases. A case that cannot show the bug
 * counts too; it is run only where its trial teaches something. One line for each plant. */
#include "tests/bench/bench_common.h"

#include "generators/cover.h"
#include "generators/vary.h"
#include "harness/base/alloc.h"
#include "harness/run/trial/mutants.h"
#include "tests/fuzz/trial_paths.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS_MAX = 64, PLANTS_MAX = 96, ROWS_MAX = 4096, PAIRS_MAX = 1 << 16, CANDIDATES = 8, LAYOUTS = 2 };

#define WAYS(X)                                                                                                                            \
  X(PLAIN, "plain")          /* drawn */                                                                                                   \
  X(COVER, "covering")       /* drawn, first along the covering table: what `fuzz` does */                                                 \
  X(PATHS, "guided")         /* rows that showed a new pair of settings or a new way of the judgement are varied and mixed */              \
  X(PAIRS, "by_pairs")       /* the same, of new pairs alone */                                                                            \
  X(RAREST, "rarest")        /* of CANDIDATES drawn ones the case whose pairs have run least */                                            \
  X(THEN, "covering_rarest") /* along the covering table, then as RAREST */
enum way {
#define X(name, text) name,
  WAYS(X)
#undef X
      WAY_COUNT
};
static const char *const way_names[WAY_COUNT] = {
#define X(name, text) text,
    WAYS(X)
#undef X
};

struct args {
  int64_t cases, seed, seeds, jobs;
  struct sf_texts plants, ways, sets, presets;
};

struct run {
  struct sf_campaign_options draws;
  int64_t cases, seed, seeds, plant_count;
  const char *plants[PLANTS_MAX];
  bool asked[WAY_COUNT];
};
/* at: the number of cases up to the first with a finding; 0: none has one. */
struct found {
  int64_t at[PLANTS_MAX][WAY_COUNT][SEEDS_MAX];
  int64_t trials, cpu_us;
};

/* What a search remembers. */
struct search {
  enum way way;
  const struct run *run;
  struct sf_campaign_options draws;
  struct sf_table table;
  const struct sf_cover_count *bins; /* numbers pairs; counts none */
  struct sf_draw draw;
  int32_t row_count;
  int64_t rows[ROWS_MAX][SF_CASE_DRAWN];
  uint32_t pairs[PAIRS_MAX];
  unsigned char paths[SF_TRIAL_PATHS];
  bool is_new;
  double rarity;
  int64_t covered; /* cases along the covering table */
};

/* --- feedback ------------------------------------------------------------------------------------------------------ */

static void note_pair(void *ctx, int32_t number) {
  struct search *s = ctx;
  s->is_new |= s->pairs[number]++ == 0;
}

static void note_path(void *ctx, int32_t number) {
  struct search *s = ctx;
  s->is_new |= s->paths[number] == 0;
  s->paths[number] = 1;
}

static void add_rarity(void *ctx, int32_t number) {
  struct search *s = ctx;
  s->rarity += 1.0 / (1.0 + s->pairs[number]);
}

/* engine: NULL, or where the trial ran. */
static void learn(struct search *s, const struct sf_case *c, const struct sf_engine *engine, const struct sf_outcome *outcome) {
  s->is_new = false;
  sf_cover_count_each(s->bins, c, note_pair, s);
  if (engine) sf_trial_paths_each(engine, outcome, note_path, s);
  if (!s->is_new) return;
  const int32_t at = s->row_count < ROWS_MAX ? s->row_count++ : (int32_t)sf_draw_choice(&s->draw, ROWS_MAX, NULL);
  (void)s->table.kind->of_case(s->rows[at], &s->table, c);
}

/* --- choosing ------------------------------------------------------------------------------------------------------ */

/* A row that showed something new: one of the last ones in half of the draws. */
static const int64_t *pick(struct search *s) {
  enum { LAST = 32 };
  const int32_t recent = s->row_count < LAST ? s->row_count : LAST;
  const bool is_recent = sf_draw_choice(&s->draw, 2, NULL) == 0;
  const uint64_t back = sf_draw_choice(&s->draw, (uint64_t)(is_recent ? recent : s->row_count), NULL);
  return s->rows[s->row_count - 1 - (int32_t)back];
}

static void vary(struct search *s, struct sf_case *c) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  unsigned char bytes[SF_CHOICE_BYTES_MAX];
  for (;;) {
    const bool mixes = sf_draw_choice(&s->draw, 4, NULL) == 0;
    const bool made = s->row_count == 0 ? sf_table_draw(row, &s->draw, &s->table, NULL, 0, NULL) == SF_OK
                      : mixes           ? sf_vary_mix(row, pick(s), pick(s), &s->table, &s->draw)
                                        : sf_vary_row(row, pick(s), &s->table, &s->draw);
    if (made && sf_table_choices(bytes, row, &s->table) > 0 && s->table.kind->to_case(c, &s->table, row, NULL) == SF_OK) return;
  }
}

static void choose_rarest(struct search *s, struct sf_case *c, int64_t index) {
  double best = -1;
  for (int64_t k = 0; k < CANDIDATES; k++) {
    struct sf_case candidate;
    sf_bench_case(&candidate, &s->draws, s->covered + index * CANDIDATES + k);
    s->rarity = 0;
    sf_cover_count_each(s->bins, &candidate, add_rarity, s);
    if (s->rarity <= best) continue;
    best = s->rarity;
    *c = candidate;
  }
}

static void choose(struct search *s, struct sf_case *c, int64_t index) {
  if (s->way == PATHS || s->way == PAIRS)
    vary(s, c);
  else if (s->way == RAREST || (s->way == THEN && index >= s->covered))
    choose_rarest(s, c, index);
  else
    sf_bench_case(c, &s->draws, index);
}

/* --- searching ----------------------------------------------------------------------------------------------------- */

/* Whether a case may show it; a case that cannot is not run where the trial teaches nothing. */
static bool can_show(const char *id, const struct sf_case *c) {
  const struct sf_plant *plant = sf_plant_find(id);
  if (plant) return sf_plant_is_triggered(plant, c);
  return strncmp(id, "mutant:loss_scaler.", 19) != 0 || c->precision.loss_scale_log2 > 0;
}

static int64_t search_one(struct search *s, struct sf_engine *engine, const char *id, int64_t *trials) {
  for (int64_t index = 0; index < s->run->cases; index++) {
    struct sf_case c;
    struct sf_outcome outcome;
    choose(s, &c, index);
    const bool runs = s->way == PATHS || can_show(id, &c);
    snprintf(c.plant, sizeof c.plant, "%s", id);
    if (runs) {
      sf_engine_run(engine, &c, NULL, &outcome);
      ++*trials;
      if (outcome.status != SF_OK) sf_bench_die("%s: %s", id, outcome.text);
      if (outcome.verdict == SF_VERDICT_FINDING) return index + 1;
    }
    if (s->way > COVER) learn(s, &c, s->way == PATHS ? engine : NULL, &outcome);
  }
  return 0;
}

static void begin_search(struct search *s, const struct run *run, const struct sf_cover_count *bins, enum way way, uint64_t seed) {
  struct sf_error error = {SF_OK, ""};
  memset(s, 0, sizeof *s);
  s->run = run;
  s->way = way;
  s->bins = bins;
  s->draws = run->draws;
  s->draws.seed = seed;
  s->draws.layouts = way <= COVER || way == THEN ? LAYOUTS : 1;
  s->table = sf_layers_table(&s->draws.space);
  sf_draw_from_pcg(&s->draw, seed, UINT64_MAX);
  if (way != COVER && way != THEN) return;
  if (sf_campaign_cover(&s->draws, &error) != SF_OK) sf_bench_die("%s", error.text);
  s->covered = sf_cover_rows(s->draws.cover);
}

static void work(struct sf_bench_worker *worker) {
  const struct run *run = worker->ctx;
  struct found *found = worker->result;
  struct search *s = sf_alloc(sizeof *s);
  struct sf_engine *engine = sf_bench_engine(false, false);
  const struct sf_table table = sf_layers_table(&run->draws.space);
  struct sf_cover_count *bins = NULL;
  int64_t first, last;
  if (!s || sf_cover_count_create(&bins, &table) != SF_OK) sf_bench_die("out of memory");
  if (sf_cover_count_numbers(bins) > PAIRS_MAX) sf_bench_die("more pairs than there is room for");
  while (sf_bench_next(worker, &first, &last)) {
    for (int64_t i = first; i < last; i++) {
      const int64_t seed = i % run->seeds, way = i / run->seeds % WAY_COUNT, plant = i / run->seeds / WAY_COUNT;
      if (!run->asked[way]) continue;
      begin_search(s, run, bins, (enum way)way, (uint64_t)(run->seed + seed));
      found->at[plant][way][seed] = search_one(s, engine, run->plants[plant], &found->trials);
      sf_cover_destroy(s->draws.cover);
    }
  }
  found->cpu_us = (int64_t)(1e6 * sf_bench_cpu_seconds());
  sf_cover_count_destroy(bins);
  sf_engine_destroy(engine);
  sf_free(s);
}

static void merge(void *into, const void *from) { sf_bench_add_counts(into, from, sizeof(struct found)); }

/* --- the report ---------------------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* A search that found nothing counts as one that needs more cases than it had. */
static void way_out(struct sf_json_out *json, const struct run *run, const int64_t *at, const char *name) {
  int64_t sorted[SEEDS_MAX], found = 0;
  for (int64_t i = 0; i < run->seeds; i++) {
    found += at[i] > 0;
    sorted[i] = at[i] > 0 ? at[i] : run->cases + 1;
  }
  qsort(sorted, (size_t)run->seeds, sizeof *sorted, by_number);
  sf_json_out_object(json, name);
  sf_json_out_int(json, "found", found);
  sf_json_out_real(json, "median", 0.5 * (double)(sorted[(run->seeds - 1) / 2] + sorted[run->seeds / 2]));
  sf_json_out_array(json, "cases");
  for (int64_t i = 0; i < run->seeds; i++) sf_json_out_int(json, NULL, sorted[i]);
  sf_json_out_end(json);
  sf_json_out_end(json);
}

static const struct sf_option options[] = {
    SF_BENCH_WORK_OPTIONS(struct args, 1, 1000000, "Cases of each search, at most.", "The first seed."),
    SF_BENCH_NUMBER_AT(struct args, seeds, 1, SEEDS_MAX, "Searches for each plant and way, with consecutive seeds."),
    {.name = "plant", .type = SF_OPTION_TEXTS, .offset = offsetof(struct args, plants), .help = "A plant or mutant; default: every plant."},
    {.name = "way", .type = SF_OPTION_TEXTS, .offset = offsetof(struct args, ways), .help = "A way to choose cases; default: every one."},
    SF_BENCH_SPACE_OPTIONS(struct args, SF_OPTION_TEXTS, presets),
};
static const struct sf_command command = {.name = "bench_guided",
                                          .help = "Cases until a planted bug is found, by the way that cases are chosen.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

static void fill_run(struct run *run, const struct args *args) {
  for (int32_t i = 0; i < args->plants.count; i++) run->plants[run->plant_count++] = args->plants.items[i];
  for (int fault = 1; fault < SF_FAULT_COUNT && args->plants.count == 0; fault++)
    if (!*sf_plants[fault - 1].label) run->plants[run->plant_count++] = sf_plants[fault - 1].id;
  for (int way = 0; way < WAY_COUNT; way++) {
    run->asked[way] = args->ways.count == 0;
    for (int32_t i = 0; i < args->ways.count; i++) run->asked[way] |= strcmp(args->ways.items[i], way_names[way]) == 0;
  }
}

int main(int argc, char **argv) {
  struct args args = {.cases = 1000, .seed = 1, .seeds = 20, .jobs = 1};
  static struct found found;
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  struct run run = {.cases = args.cases, .seed = args.seed, .seeds = args.seeds};
  sf_bench_draws(&run.draws, 0, LAYOUTS, &args.presets, &args.sets);
  fill_run(&run, &args);
  sf_bench_fork_merge(&found, args.jobs, sizeof found, run.plant_count * WAY_COUNT * run.seeds, 1, work, &run, merge);
  for (int64_t plant = 0; plant < run.plant_count; plant++) {
    struct sf_json_out *json = sf_bench_report("bench_guided", argc, argv);
    sf_json_out_text(json, "plant", run.plants[plant]);
    for (int way = 0; way < WAY_COUNT; way++)
      if (run.asked[way]) way_out(json, &run, found.at[plant][way], way_names[way]);
    if (sf_bench_end(json, false) != 0) return 3;
  }
  fprintf(stderr, "%" PRId64 " trials, %.0f CPU seconds\n", found.trials, 1e-6 * (double)found.cpu_us);
  return 0;
}
