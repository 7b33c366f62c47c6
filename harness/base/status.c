#include "harness/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

const char *sf_status_text(enum sf_status status) {
  switch (status) {
#define X(name, text) case SF_##name: return text;
    SF_STATUS_MAP(X)
#undef X
  }
  return "unknown status";
}

enum sf_status sf_status_of_errno(int code) {
  switch (code) {
    case ENOENT: return SF_ENOTFOUND;
    case ENOMEM: return SF_ENOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return SF_ENOSPC;
    default: return SF_EIO;
  }
}

/* Names and file texts end up in messages; a message stays one printable line whatever they hold. */
static void make_one_line(char *text) {
  for (char *at = text; *at != '\0'; at++) {
    const unsigned char byte = (unsigned char)*at;
    if (byte < 0x20u || byte == 0x7fu) *at = '?';
  }
}

enum sf_status sf_error_set(struct sf_error *error, enum sf_status status, const char *format, ...) {
  if (error == NULL) return status;
  /* Through a second buffer, because an argument may be error->text itself. */
  char text[sizeof error->text];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0) snprintf(text, sizeof text, "%s", sf_status_text(status));
  make_one_line(text);
  error->status = status;
  snprintf(error->text, sizeof error->text, "%s", text);
  return status;
}
