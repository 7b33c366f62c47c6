#include "harness/base/status.h"

#include "harness/base/sinks.h"
#include "harness/base/utf8.h"

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

enum sf_status sf_error_set(struct sf_error *error, enum sf_status status, const char *format, ...) {
  if (error == NULL) return status;
  /* Through a second buffer, because an argument may be error->text itself. */
  char text[sizeof error->text + 4];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0) snprintf(text, sizeof text, "%s", sf_status_text(status));
  text[sf_utf8_cut(text, sizeof error->text - 1)] = '\0'; /* not inside of a character */
  error->status = status;
  sf_line_copy(error->text, sizeof error->text, text);
  return status;
}
