#include "harness/run/evidence/tally.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sf_tally_near(struct sf_tally *tally, double share) {
  if (share > tally->closest) tally->closest = share;
}

/* The entry of a module, "NAME=N"; NULL: there is none. */
static char *find_entry(char *text, const char *module) {
  const size_t length = strlen(module);
  for (char *at = text; *at; at += strcspn(at, " "), at += *at == ' ')
    if (strncmp(at, module, length) == 0 && at[length] == '=') return at;
  return NULL;
}

void sf_tally_unjudged(struct sf_tally *tally, const char *module) {
  char rest[SF_UNJUDGED_TEXT] = "", *entry = find_entry(tally->unjudged, module);
  const size_t length = strlen(tally->unjudged);
  int count = 1;
  if (!*module || strpbrk(module, " =\n")) return;
  if (entry) {
    const char *end = entry + strcspn(entry, " ");
    count += atoi(entry + strlen(module) + 1);
    snprintf(rest, sizeof rest, "%s", end);
  } else if (length + strlen(module) + 12 > sizeof tally->unjudged) {
    return;
  } else {
    entry = tally->unjudged + length;
  }
  const size_t at = (size_t)(entry - tally->unjudged);
  snprintf(entry, sizeof tally->unjudged - at, "%s%s=%d%s", length > 0 && !*rest && at == length ? " " : "", module, count, rest);
}
