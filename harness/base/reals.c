#include "harness/base/reals.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 17, NUMBER_TEXT = 40 };

/* The shortest form of a value, with a point or an exponent, so that it stays a real number. */
static void shortest(char *out, size_t size, double value) {
  for (int digits = 1; digits <= DIGITS_MAX; digits++) {
    snprintf(out, size, "%.*g", digits, value);
    if (strtod(out, NULL) == value) break;
  }
  if (!strpbrk(out, ".e")) strcat(out, ".0");
}

/* Behind the string that begins at `at`. */
static const char *skip_string(const char *at) {
  for (at++; *at && *at != '"'; at++)
    if (*at == '\\' && at[1]) at++;
  return *at ? at + 1 : at;
}

void sf_reals_shorten(char *json) {
  const char *from = json;
  char *to = json;
  while (*from) {
    const char *end = *from == '"' ? skip_string(from) : from + strspn(from, "-+.0123456789eE");
    if (end == from) {
      *to++ = *from++;
      continue;
    }
    const size_t length = (size_t)(end - from);
    char number[NUMBER_TEXT + 2] = "", form[NUMBER_TEXT + 2] = "";
    if (*from != '"' && length < NUMBER_TEXT) memcpy(number, from, length);
    if (strpbrk(number, ".eE") && strpbrk(number, "0123456789")) shortest(form, NUMBER_TEXT, strtod(number, NULL));
    const bool is_shorter = *form && strlen(form) < length;
    memmove(to, is_shorter ? form : from, is_shorter ? strlen(form) : length);
    to += is_shorter ? strlen(form) : length;
    from = end;
  }
  *to = '\0';
}
