/* "Did you mean": words within a third of their letters are found, others are not. */
#include "harness/base/nearest.h"
#include "harness/base/pcg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *nearest_of(const char *word, const char *const *known) {
  static struct sf_nearest nearest;
  nearest = sf_nearest_to(word);
  for (; *known; known++) sf_nearest_offer(&nearest, *known);
  return nearest.best;
}

static void test_nearest_table(void **state) {
  (void)state;
  static const char *const known[] = {"model.hidden", "model.heads", "layout.tp", "steps", NULL};
  static const struct {
    const char *word, *best;
  } rows[] = {
      {"model.hiden", "model.hidden"},
      {"modle.heads", "model.heads"},
      {"mod", "model.hidden"},
      {"layout.pt", "layout.tp"},
      {"step", "steps"},
      {"setps", "steps"},
      {"spets", ""}, /* a third of five letters is one */
      {"steps", ""},
      {"LAYOUT.TP", ""},
      {"", ""},
      {"mo", ""},
      {"unrelated", ""},
      {"model.headdim", "model.heads"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) assert_string_equal(nearest_of(rows[i].word, known), rows[i].best);
}

/* At most a third of the letters are replaced, left out or swapped with their neighbour. */
static void test_nearest_drawn_edits_are_found(void **state) {
  (void)state;
  static const char *const known[] = {"optimizer.beta2_milli_of_the_second_moment", NULL};
  struct sf_pcg pcg = sf_pcg_create(3, 9);
  for (int round = 0; round < 2000; round++) {
    char word[80];
    strcpy(word, known[0]);
    const int edits = 1 + (int)sf_pcg_below(&pcg, strlen(word) / 3);
    for (int k = 0; k < edits; k++) {
      const size_t length = strlen(word), at = sf_pcg_below(&pcg, length - 1);
      const char letter = word[at];
      switch (sf_pcg_below(&pcg, 3)) {
      case 0:
        word[at] = (char)('a' + (int)sf_pcg_below(&pcg, 26));
        break;
      case 1:
        if (length > 38) memmove(word + at, word + at + 1, length - at);
        break;
      default: /* swaps that touch a letter twice count as two */
        if (k == 0) word[at] = word[at + 1], word[at + 1] = letter;
      }
    }
    if (strcmp(word, known[0]) != 0) assert_string_equal(nearest_of(word, known), known[0]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nearest_table),
      cmocka_unit_test(test_nearest_drawn_edits_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
