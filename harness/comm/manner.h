/* The manner of a failure says more than its class (crash, mismatch), and is the same in every case that the same fault ends. It is part
 * of the key that findings are grouped by, so it is never taken from a message. */
#ifndef SF_COMM_MANNER_H
#define SF_COMM_MANNER_H

struct sf_comm_call;

/* The names are parts of keys. If one changes, old cases and lists of known findings no longer match. */
#define SF_MANNER_LIST(X)                                                                                                                  \
  X(NONE, "", "a deadlock or a hang, which say it all; or nobody knows")                                                                   \
  X(DIED, "died", "the process died, of a signal or by itself")                                                                            \
  X(REFUSED, "refused", "a rank's program gave up by itself, because of what it got")                                                      \
  X(LIBRARY, "library", "MPI, NCCL or CUDA said no")                                                                                       \
  X(ERROR, "error", "a plugin returned an error")                                                                                          \
  X(WRITE, "write", "a plugin wrote beside its memory")                                                                                    \
  X(READ, "read", "a plugin read beside its memory")                                                                                       \
  X(CHANGED, "changed", "a plugin wrote to what it may only read")                                                                         \
  X(ROUNDING, "rounding", "a plugin left the thread's floating-point mode changed")                                                        \
  X(ARGUMENT, "argument", "a call with a group, format, count or tensor that does not exist")                                              \
  X(REQUEST, "request", "a call that was started and not waited for, or waited for twice")                                                 \
  X(ABSENT, "absent", "one rank is in a barrier, another in a call that moves data: one of them left a call out")                          \
  X(OPERATION, "operation", "two ranks called different operations")                                                                       \
  X(FORMAT, "format", "two ranks' calls are of different formats")                                                                         \
  X(REDUCTION, "reduction", "two ranks' calls reduce differently")                                                                         \
  X(ROOT, "root", "two ranks' calls have different roots")                                                                                 \
  X(COUNT, "count", "two ranks' calls have different counts")

#define SF_MANNER_ENUM(NAME, name, meaning) SF_MANNER_##NAME,
enum sf_manner { SF_MANNER_LIST(SF_MANNER_ENUM) SF_MANNERS };
#undef SF_MANNER_ENUM

/* "write"; "" for SF_MANNER_NONE and numbers that are none. */
const char *sf_manner_name(enum sf_manner manner);

/* How two calls differ that should be the same: the first of the list above that holds, since a call of another operation has other counts
 * too. The two ends of a message are one operation. */
enum sf_manner sf_manner_of_calls(const struct sf_comm_call *a, const struct sf_comm_call *b);

#endif
