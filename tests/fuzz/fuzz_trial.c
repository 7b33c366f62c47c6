/* Bytes as the choices of a small case, the case as a trial on simulated ranks. The code under test has no known bug, so that
 * anything but a verdict without a finding is one: in the layers, the simulator, the reference or the comparison.
 *
 * Inputs are changed field by field and not byte by byte, so that they stay cases that the generator draws. What counts as new is, beside
 * branches, a pair of settings and a way that the judgement took. */
#include "generators/codec.h"
#include "generators/cover.h"
#include "generators/vary.h"
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/trial/engine.h"
#include "tests/fuzz/trial_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *data, size_t size, const uint8_t *other, size_t other_size, uint8_t *out, size_t max_size,
                                 unsigned seed);

/* Sanitizers cost a factor of ten: sizes at which a trial takes milliseconds. */
static void trial_space_create(struct sf_space *space) {
  static const char *const limits[] = {
      "model.layers=1..3", "model.hidden=4..8", "model.heads=1..4",        "model.head_dim=2..4",        "model.ffn=4..8",
      "model.vocab=2..16", "model.seq=1..4",    "train.microbatches=1..4", "train.microbatch_size=1..2", "train.steps=1..2",
  };
  struct sf_error error;
  sf_space_init(space);
  space->max_ranks = 8;
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    if (sf_space_set(space, limits[i], &error) == SF_OK) continue;
    fprintf(stderr, "%s\n", error.text);
    abort();
  }
}

/* --- what is new --------------------------------------------------------------------------------------------------- */

enum { PAIRS_MAX = 1 << 16 };
/* libFuzzer clears these before each run, and takes what it finds there for coverage. */
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t pairs[PAIRS_MAX], paths[SF_TRIAL_PATHS];

static void count_once(void *counters, int32_t number) { ((uint8_t *)counters)[number] = 1; }

/* --- the trial ----------------------------------------------------------------------------------------------------- */

static struct sf_space space;
static struct sf_table table;
static struct sf_engine *engine;
static struct sf_cover_count *cover;

static void begin(void) {
  const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default()};
  trial_space_create(&space);
  table = sf_layers_table(&space);
  SF_ASSERT_EQ(sf_engine_create(&engine, &options), SF_OK);
  SF_ASSERT_EQ(sf_cover_count_create(&cover, &table), SF_OK);
  SF_ASSERT_LE(sf_cover_count_numbers(cover), PAIRS_MAX);
}

/* Options that stand before those of the command line. The engine keeps a reference from one run to the next: libFuzzer would take each for
 * a leak, and run the input once more to look for it. What leaks is still found when the program ends. A case has thousands of pairs:
 * weighing inputs by how rare each is takes longer than the trial. */
static char no_leaks[] = "-detect_leaks=0", no_weights[] = "-entropic=0";

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  static char *arguments[256];
  const size_t given = (size_t)*argc - 1;
  SF_ASSERT_LT(given + 3, sizeof arguments / sizeof arguments[0]);
  arguments[0] = (*argv)[0];
  arguments[1] = no_leaks;
  arguments[2] = no_weights;
  memcpy(arguments + 3, *argv + 1, given * sizeof *arguments);
  *argv = arguments;
  *argc += 2;
  begin();
  return 0;
}

static void show(const struct sf_case *c, const struct sf_outcome *outcome) {
  char *json = NULL;
  if (sf_case_to_json(&json, c) == SF_OK) fputs(json, stderr);
  sf_free(json);
  fprintf(stderr, "status %s, verdict %s, %s\n%s\n", sf_status_text(outcome->status), sf_verdict_name(outcome->verdict), outcome->signature,
          outcome->text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct sf_draw draw;
  struct sf_case c;
  struct sf_error error;
  struct sf_outcome outcome;
  sf_draw_from_bytes(&draw, data, size);
  SF_ASSERT_EQ(sf_codec_decode(&c, &draw, &space, &error), SF_OK);
  SF_ASSERT_EQ(sf_case_validate(&c, &error), SF_OK);
  sf_engine_run(engine, &c, NULL, &outcome);
  if (outcome.status != SF_OK || outcome.verdict == SF_VERDICT_FINDING) {
    show(&c, &outcome);
    abort();
  }
  sf_cover_count_each(cover, &c, count_once, pairs);
  sf_trial_paths_each(engine, &outcome, count_once, paths);
  return 0;
}

/* --- changes of an input ------------------------------------------------------------------------------------------- */

static bool row_of(int64_t *row, const uint8_t *data, size_t size) {
  struct sf_draw draw;
  sf_draw_from_bytes(&draw, data, size);
  return sf_table_draw(row, &draw, &table, NULL, 0, NULL) == SF_OK;
}

/* Writes the row's choices without the zeros at their end. Returns 0 where they have no room, or the row has a value that is not drawn. */
static size_t put_row(uint8_t *data, size_t max_size, const int64_t *row) {
  unsigned char bytes[SF_CHOICE_BYTES_MAX];
  size_t count = sf_table_choices(bytes, row, &table);
  while (count > 1 && bytes[count - 1] == 0) count--;
  if (count > max_size) return 0;
  memcpy(data, bytes, count);
  return count;
}

/* other: NULL, or what the row is mixed with. Some changes lead to no row that is drawn, so several are tried. */
static size_t change(uint8_t *out, size_t max_size, const uint8_t *data, size_t size, const int64_t *other, unsigned seed) {
  enum { TRIES = 8 };
  int64_t from[SF_SPACE_FIELDS_MAX], row[SF_SPACE_FIELDS_MAX];
  if (!row_of(from, data, size)) return 0;
  for (uint64_t k = 0; k < TRIES; k++) {
    struct sf_draw draw;
    sf_draw_from_pcg(&draw, seed, k);
    if (!(other ? sf_vary_mix(row, from, other, &table, &draw) : sf_vary_row(row, from, &table, &draw))) continue;
    const size_t count = put_row(out, max_size, row);
    if (count > 0) return count;
  }
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
  const size_t count = change(data, max_size, data, size, NULL, seed);
  return count > 0 ? count : LLVMFuzzerMutate(data, size, max_size);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *data, size_t size, const uint8_t *other, size_t other_size, uint8_t *out, size_t max_size,
                                 unsigned seed) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  return row_of(row, other, other_size) ? change(out, max_size, data, size, row, seed) : 0;
}
