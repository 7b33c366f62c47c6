/* Runs every kind and says how many inputs of each were tried. */
#include "tests/hostile/hostile.h"
#include "tests/rounds.h"

#include <stdio.h>

enum { INPUTS_MIN = 5000, SAMPLE_EVERY = 400 * SF_STRIDE }; /* of each kind every so many goes through the program too */

static const char *const kind_texts[] = {
#define TEXT(kind, text) text,
    HOSTILE_KIND_MAP(TEXT)
#undef TEXT
};
static int32_t tried[HOSTILE_KINDS];

bool hostile_try(enum hostile_kind kind) { return tried[kind]++ % SAMPLE_EVERY == 0; }

int main(void) {
  static int (*const run[])(void) = {hostile_run_cases,       hostile_run_lists,  hostile_run_options,
                                     hostile_run_safetensors, hostile_run_traces, hostile_run_workers,
                                     hostile_run_plugins,     hostile_run_sinks,  hostile_run_reports};
  int failed = 0;
  int32_t all = 0;
  for (size_t i = 0; i < sizeof run / sizeof run[0]; i++) failed += run[i]();
  for (int i = 0; i < HOSTILE_KINDS; i++) {
    printf("%6d %s\n", tried[i], kind_texts[i]);
    all += tried[i];
  }
  printf("%6d hostile inputs, at least %d wanted\n", all, INPUTS_MIN);
  return failed > 0 || all < INPUTS_MIN;
}
