#include "harness/base/status.h"

#include "harness/base/sinks.h"
#include "harness/base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

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

static void append_limit(struct sf_errno_text *out, const char *what, int resource, const char *flag) {
  struct rlimit limit;
  const size_t length = strlen(out->text);
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  snprintf(out->text + length, sizeof out->text - length, " (the limit on %s is %llu: raise ulimit %s)", what,
           (unsigned long long)limit.rlim_cur, flag);
}

struct sf_errno_text sf_errno_text(int code) {
  struct sf_errno_text out;
  snprintf(out.text, sizeof out.text, "%.80s", strerror(code));
  if (code == EMFILE) append_limit(&out, "open files", RLIMIT_NOFILE, "-n");
  if (code == EAGAIN) append_limit(&out, "processes", RLIMIT_NPROC, "-u");
  return out;
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
