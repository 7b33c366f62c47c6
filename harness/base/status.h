/* Status codes: what the harness itself could or could not do. What a trial showed is a verdict, never a status. */
#ifndef SF_BASE_STATUS_H
#define SF_BASE_STATUS_H

#define SF_STATUS_MAP(X)                                          \
  X(OK, "ok")                                                     \
  X(ENOMEM, "out of memory")                                      \
  X(EUSAGE, "bad usage")                                          \
  X(EINPUT, "bad input")                                          \
  X(ENOTFOUND, "not found")                                       \
  X(EIO, "input or output failed")                                \
  X(ENOSPC, "no room is left")                                    \
  X(ENOTSUP, "not supported")                                     \
  X(EDEADLOCK, "ranks wait for each other")                       \
  X(EMISMATCH, "ranks called different operations")               \
  X(ERANK, "a rank failed")                                       \
  X(ETIMEDOUT, "timed out")                                       \
  X(ECANCELLED, "cancelled")                                       \
  X(ENODEVICE, "there is no such device here")

enum sf_status {
#define X(name, text) SF_##name,
  SF_STATUS_MAP(X)
#undef X
};

#define SF_MUST_USE __attribute__((warn_unused_result))
#define SF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The one-line text of a status; never NULL, also for other numbers. */
const char *sf_status_text(enum sf_status status);

/* What a failed system call's errno means: ENOENT is SF_ENOTFOUND, a full disk, quota or file size limit SF_ENOSPC, ENOMEM SF_ENOMEM, all
 * else SF_EIO. */
enum sf_status sf_status_of_errno(int code);
struct sf_errno_text {
  char text[160];
};
/* strerror, and behind it, where a limit of this process was reached (open files: EMFILE; processes: EAGAIN), that limit and how to raise
 * it. */
struct sf_errno_text sf_errno_text(int code);

/* Detail of a failure, for the caller that wants it: every function that takes one accepts NULL. */
struct sf_error {
  enum sf_status status;
  char text[480]; /* one line, no newline at the end */
};

/* Fills *error (when not NULL) and returns status, so that a failing function can end with
 * `return sf_error_set(error, SF_EINPUT, "...", ...)`. */
enum sf_status sf_error_set(struct sf_error *error, enum sf_status status, const char *format, ...) SF_PRINTF(3, 4);

#endif
