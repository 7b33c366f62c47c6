/* Bytes as the choices of a small case, the case as a trial on simulated ranks. The code under test has no known bug, so that
 * anything but a verdict without a finding is one: in the layers, the simulator, the reference or the comparison. */
#include "generators/codec.h"
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/trial/engine.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

static void show(const struct sf_case *c, const struct sf_outcome *outcome) {
  char *json = NULL;
  if (sf_case_to_json(&json, c) == SF_OK) fputs(json, stderr);
  sf_free(json);
  fprintf(stderr, "status %s, verdict %s, %s\n%s\n", sf_status_text(outcome->status), sf_verdict_name(outcome->verdict), outcome->signature,
          outcome->text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct sf_engine *engine;
  static struct sf_space space;
  static struct sf_draw draw;
  struct sf_case c;
  struct sf_error error;
  struct sf_outcome outcome;
  if (!engine) {
    const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default()};
    trial_space_create(&space);
    SF_ASSERT_EQ(sf_engine_create(&engine, &options), SF_OK);
  }
  sf_draw_from_bytes(&draw, data, size);
  SF_ASSERT_EQ(sf_codec_decode(&c, &draw, &space, &error), SF_OK);
  SF_ASSERT_EQ(sf_case_validate(&c, &error), SF_OK);
  sf_engine_run(engine, &c, NULL, &outcome);
  if (outcome.status != SF_OK || outcome.verdict == SF_VERDICT_FINDING) {
    show(&c, &outcome);
    abort();
  }
  return 0;
}
