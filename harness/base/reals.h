/* Real numbers in JSON texts. */
#ifndef SF_BASE_REALS_H
#define SF_BASE_REALS_H

/* Rewrites, in place, each number of a JSON text that has a point or an exponent as its shortest form that reads back the same:
 * 0.10000000000000001 as 0.1. Strings stay as they are; a form that would not be shorter stays too. */
void sf_reals_shorten(char *json);

#endif
