#include "harness/base/nearest.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* Damerau's distance where no letter is touched twice (optimal string alignment). */
static int32_t distance_of(const char *a, int32_t a_length, const char *b, int32_t b_length) {
  int32_t rows[3][SF_NEAREST_LETTERS + 1];
  int32_t *before = rows[0], *above = rows[1], *row = rows[2];
  for (int32_t k = 0; k <= b_length; k++) above[k] = k;
  for (int32_t i = 1; i <= a_length; i++) {
    row[0] = i;
    for (int32_t k = 1; k <= b_length; k++) {
      row[k] = least(least(above[k], row[k - 1]) + 1, above[k - 1] + (a[i - 1] != b[k - 1]));
      const int swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
      if (swapped) row[k] = least(row[k], before[k - 2] + 1);
    }
    int32_t *const oldest = before;
    before = above, above = row, row = oldest;
  }
  return above[b_length];
}

/* The set of a word's letters, a bit for each. Letters whose codes differ by 64 share a bit: the bound below is weaker then, not wrong. */
static uint64_t letters_of(const char *word) {
  uint64_t letters = 0;
  for (; *word; word++) letters |= UINT64_C(1) << ((unsigned char)*word % 64);
  return letters;
}

/* A lower bound of their distance that costs less: one edit removes at most one letter that the other word lacks, a swap removes none. */
static int32_t distance_at_least(const char *a, const char *b) {
  const uint64_t of_a = letters_of(a), of_b = letters_of(b);
  const int32_t missing = __builtin_popcountll(of_a & ~of_b), added = __builtin_popcountll(of_b & ~of_a);
  return missing > added ? missing : added;
}

struct sf_nearest sf_nearest_to(const char *word) {
  return (struct sf_nearest){.word = word, .distance = INT32_MAX};
}

void sf_nearest_offer(struct sf_nearest *nearest, const char *known) {
  const size_t word_length = strlen(nearest->word), known_length = strlen(known);
  if (strcmp(nearest->word, known) == 0) { /* not mistyped, but out of place */
    *nearest->best = '\0';
    nearest->distance = 0;
    return;
  }
  if (word_length == 0 || word_length > SF_NEAREST_LETTERS || known_length > SF_NEAREST_LETTERS) return;
  const bool begins = word_length >= 3 && strncmp(known, nearest->word, word_length) == 0;
  const int32_t longer = (int32_t)(word_length > known_length ? word_length : known_length);
  const int32_t apart = longer - (int32_t)(word_length < known_length ? word_length : known_length); /* at least so many letters */
  if (!begins && (apart > longer / 3 || distance_at_least(nearest->word, known) > longer / 3)) return;
  const int32_t distance = begins ? 1 : distance_of(nearest->word, (int32_t)word_length, known, (int32_t)known_length);
  if (distance > longer / 3 || distance >= nearest->distance) return;
  memcpy(nearest->best, known, known_length + 1);
  nearest->distance = distance;
}

const char *sf_nearest_text(struct sf_nearest *nearest) {
  *nearest->text = '\0';
  if (*nearest->best) snprintf(nearest->text, sizeof nearest->text, "; did you mean %s?", nearest->best);
  return nearest->text;
}
