/* Text from anywhere (compiler output, file names, plugins) made fit for JSON and XML. */
#ifndef SF_RUN_UTF8_H
#define SF_RUN_UTF8_H

#include "harness/base/bytes.h"

/* Appends text as UTF-8 that XML 1.0 and JSON can hold: bytes that are no UTF-8 and control characters other than tab and newline become
 * U+FFFD; carriage returns are dropped. NULL appends nothing, but out->data is not NULL afterwards unless memory failed. */
void sf_utf8_append(struct sf_text *out, const char *text);

#endif
