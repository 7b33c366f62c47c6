#include "harness/base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int sf_utf8_length(const char *text) {
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char first = (unsigned char)text[0];
  if (first < 0x80) return 1;
  const int length = first >= 0xf0 && first < 0xf8 ? 4 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xc0 && first < 0xe0 ? 2 : 0;
  if (length == 0) return 0;
  uint32_t code = first & (0x7fu >> length);
  for (int i = 1; i < length; i++) {
    if (((unsigned char)text[i] & 0xc0) != 0x80) return 0; /* also at the text's end */
    code = code << 6 | ((unsigned char)text[i] & 0x3fu);
  }
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < smallest[length] || code > 0x10ffff || is_surrogate ? 0 : length;
}

size_t sf_utf8_cut(const char *text, size_t limit) {
  const size_t length = strnlen(text, limit + 1);
  if (length <= limit) return length;
  for (size_t back = 1; back < 4 && back <= limit; back++) {
    const int character = sf_utf8_length(text + limit - back);
    if (character > (int)back) return limit - back;
    if (character > 0) break;
  }
  return limit;
}

/* U+FFFE and U+FFFF are no characters of XML; DEL and U+0080 to U+009F are, but terminals take them for commands. */
static bool is_allowed(const char *text, int length) {
  const unsigned char *bytes = (const unsigned char *)text;
  if (length == 1) return bytes[0] == '\t' || bytes[0] == '\n' || (bytes[0] >= 0x20 && bytes[0] != 0x7f);
  if (length == 2 && bytes[0] == 0xc2 && bytes[1] < 0xa0) return false;
  return !(length == 3 && bytes[0] == 0xef && bytes[1] == 0xbf && bytes[2] >= 0xbe);
}

void sf_utf8_append(struct sf_text *out, const char *text) {
  sf_text_append(out, "%s", "");
  for (const char *at = text == NULL ? "" : text; *at != '\0';) {
    const char *start = at;
    int length = sf_utf8_length(at);
    while (length > 0 && *at != '\0' && is_allowed(at, length)) {
      at += length;
      length = sf_utf8_length(at);
    }
    sf_text_append(out, "%.*s", (int)(at - start), start);
    if (*at == '\0') break;
    if (*at != '\r') sf_text_append(out, "\xef\xbf\xbd");
    at += length > 0 ? length : 1;
  }
}
