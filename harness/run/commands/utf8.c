#include "harness/run/commands/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Length of the well-formed character at text (RFC 3629: shortest form, no surrogates, at most U+10FFFF), 0 when there is none. */
static int character_length(const unsigned char *text) {
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char first = text[0];
  if (first < 0x80) return 1;
  const int length = first >= 0xf0 && first < 0xf8 ? 4 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xc0 && first < 0xe0 ? 2 : 0;
  if (length == 0) return 0;
  uint32_t code = first & (0x7fu >> length);
  for (int i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0; /* also at the text's end */
    code = code << 6 | (text[i] & 0x3fu);
  }
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < smallest[length] || code > 0x10ffff || is_surrogate ? 0 : length;
}

/* U+FFFE and U+FFFF are no characters of XML; DEL is, but no terminal shows it. */
static bool is_allowed(const unsigned char *text, int length) {
  if (length == 1) return text[0] == '\t' || text[0] == '\n' || (text[0] >= 0x20 && text[0] != 0x7f);
  return !(length == 3 && text[0] == 0xef && text[1] == 0xbf && text[2] >= 0xbe);
}

void sf_utf8_append(struct sf_text *out, const char *text) {
  sf_text_append(out, "%s", "");
  const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);
  while (*at != '\0') {
    const unsigned char *start = at;
    int length = character_length(at);
    while (length > 0 && *at != '\0' && is_allowed(at, length)) {
      at += length;
      length = character_length(at);
    }
    sf_text_append(out, "%.*s", (int)(at - start), (const char *)start);
    if (*at == '\0') break;
    if (*at != '\r') sf_text_append(out, "\xef\xbf\xbd");
    at += length > 0 ? length : 1;
  }
}
