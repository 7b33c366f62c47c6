/* UTF-8 (RFC 3629), and text from anywhere (compiler output, file names, plugins) made fit for JSON and XML. */
#ifndef SF_BASE_UTF8_H
#define SF_BASE_UTF8_H

#include "harness/base/bytes.h"

/* Length in bytes of the well-formed character at text (shortest form, no surrogates, at most U+10FFFF); 1 for a NUL; 0 when the bytes are
 * not a character. */
int sf_utf8_length(const char *text);
/* The largest length up to limit at which text can be cut without leaving a part of a character. */
size_t sf_utf8_cut(const char *text, size_t limit);

/* The sink of JSON and XML: appends text as UTF-8 that XML 1.0 and JSON can hold. Bytes that are not UTF-8, and control characters other
 * than tab and newline, become U+FFFD; carriage returns are dropped. NULL appends nothing, but out->data is not NULL afterwards unless
 * memory failed. */
void sf_utf8_append(struct sf_text *out, const char *text);

#endif
