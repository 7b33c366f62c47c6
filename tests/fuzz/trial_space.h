/* The cases that fuzz_trial runs. */
#ifndef TESTS_FUZZ_TRIAL_SPACE_H
#define TESTS_FUZZ_TRIAL_SPACE_H

#include "generators/codec.h"

#include <stdio.h>
#include <stdlib.h>

/* Sanitizers cost a factor of ten: sizes at which a trial takes milliseconds. */
static inline void trial_space_create(struct sf_space *space) {
  static const char *const limits[] = {
      "model.layers=1..3", "model.hidden=4..8",  "model.heads=1..4",        "model.head_dim=2..4",        "model.ffn=4..8",
      "model.vocab=2..16", "model.seq=1..4",     "train.microbatches=1..4", "train.microbatch_size=1..2", "train.steps=1..2",
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

#endif
