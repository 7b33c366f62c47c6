/* "Did you mean": the known word that a mistyped one comes nearest to. Offer every known word, then ask for the text:
 *
 *   struct sf_nearest nearest = sf_nearest_to(word);
 *   for (...) sf_nearest_offer(&nearest, names[i]);
 *   sf_error_set(error, SF_EUSAGE, "there is no plant '%s'%s", word, sf_nearest_text(&nearest)); */
#ifndef SF_BASE_NEAREST_H
#define SF_BASE_NEAREST_H

#include <stdint.h>

enum { SF_NEAREST_LETTERS = 64, SF_NEAREST_TEXT = 128 };

struct sf_nearest {
  const char *word;                  /* borrowed */
  char best[SF_NEAREST_LETTERS + 1]; /* "" while nothing is near */
  int32_t distance;                  /* of best: letters inserted, left out, replaced, or swapped with their neighbour */
  char text[SF_NEAREST_TEXT];
};

/* Begins a search. word: what was typed; borrowed while words are offered. */
struct sf_nearest sf_nearest_to(const char *word);
/* Near are words in which at most a third of the letters differ, and words that begin with the mistyped one (three letters or more). The
 * first of equally near ones stays. Nothing is near a word that is itself among the known ones. known is copied; words of more than 64
 * letters are not looked at. */
void sf_nearest_offer(struct sf_nearest *nearest, const char *known);
/* "; did you mean NAME?", or "" when nothing is near. Lives as long as *nearest. */
const char *sf_nearest_text(struct sf_nearest *nearest);

#endif
