/* What formats for CI systems share, which show an item beside a file: its file, an identity that stays from run to run, its message. */
#ifndef SF_RUN_PLACES_H
#define SF_RUN_PLACES_H

#include "harness/run/report/report.h"

enum { SF_PLACE_FINGERPRINT_TEXT = 17 };
/* The path of the item's file, in the folder where the program runs if it lies there; "." if the item has none. */
const char *sf_place_path(const struct sf_report_item *item);
/* The same as a URI reference (RFC 3986). */
void sf_place_append_uri(struct sf_text *out, const struct sf_report_item *item);
/* 16 hexadecimal digits of the item's group and name: the same in each run. */
void sf_place_fingerprint(char out[SF_PLACE_FINGERPRINT_TEXT], const struct sf_report_item *item);
/* The item's message, or else its name. */
const char *sf_place_message(const struct sf_report_item *item);

#endif
