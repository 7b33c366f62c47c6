/* A set of ranks that a launcher (mpirun) starts on this machine, or a zygote forks: how it is started, how its ranks connect, how it is
 * waited for, how it ends, and what its processes printed last. What is asked of the ranks is the owner's: JSON lines of a framework
 * (worker_set.h), or jobs for the built-in layers, which a process of a pool passes on (harness/run/process/launch.c).
 *
 * Every rank finds a Unix socket by the environment's SHARDFUZZ_SOCKET, connects, and says {"hello": 1, "rank": R, "ranks": N}. The
 * launcher is the ward of a watcher. */
#ifndef SF_WORKER_RANK_SET_H
#define SF_WORKER_RANK_SET_H

#include "harness/worker/line_buffer.h"
#include "harness/worker/wait.h"
#include "harness/worker/watcher.h"

#include "harness/base/status.h"

#include <jansson.h>
#include <stdint.h>

enum { SF_WORKER_OUTPUT_TEXT = 4096, SF_SOCKET_PATH_TEXT = 100 };

struct sf_rank_set_options {
  const char *command;  /* for /bin/sh, after the launcher: the words that it is to run on every rank */
  const char *launcher; /* with {n}, such as "mpirun --oversubscribe -n {n}" */
  int32_t ranks;        /* >= 1 */
  const char *zygote;   /* NULL, or the socket of a zygote (zygote.h) that forks the ranks: then command and launcher are not used */
  bool may_fork;        /* of one rank: it is told that it may become a zygote */
  double start_seconds; /* for all ranks to say hello */
  const char *folder;   /* an existing folder of ours for the socket */
  int held;             /* the folder's lock (sf_temporary), which is held until every process of the set has ended; -1: none */
  const volatile sig_atomic_t *stop; /* NULL, or waiting ends with SF_WORKER_STOPPED once it is set */
  bool shows_output;                 /* what the set prints goes where this process prints, and is not kept */
  double silent_seconds; /* of worker_set.h: how long a rank may say nothing while a request is under way; the whole request ten times as
                            long */
};

/* How a start, or a request, ended. After the first four the set goes on. */
enum sf_worker_end {
  SF_WORKER_ANSWERED,  /* every rank answered; value is what rank 0 gave */
  SF_WORKER_REFUSED,   /* every rank said that it does not support the case */
  SF_WORKER_FULL,      /* there was no room for what some rank traced; every rank goes on */
  SF_WORKER_RAISED,    /* every rank said that it failed, and goes on */
  SF_WORKER_ONE_SIDED, /* some ranks failed, the others did not or wait for them */
  SF_WORKER_DIED,      /* a rank's connection closed */
  SF_WORKER_SILENT,    /* past the deadline */
  SF_WORKER_GARBLED,   /* what a rank said is no answer to the request */
  SF_WORKER_UNSTARTED, /* not every rank said hello */
  SF_WORKER_UNABLE,    /* this machine could not start the set: the command has not run */
  SF_WORKER_UNUSABLE,  /* a rank said that the machine failed, such as the GPU's service, and not the framework */
  SF_WORKER_STOPPED,   /* *stop was set */
};
/* Whether the set can be asked again. */
static inline bool sf_worker_goes_on(enum sf_worker_end end) { return end <= SF_WORKER_RAISED; }
const char *sf_worker_end_name(enum sf_worker_end end); /* "answered", "one-sided", ... */

struct sf_worker_report {
  enum sf_worker_end end;
  int32_t rank;      /* the one that it began with; -1 = none alone */
  char text[480];    /* one line: why; empty when answered */
  int32_t said;      /* where in it begins what tells one failure from another: what a rank said, not what the others did meanwhile */
  json_t *value;     /* ANSWERED: a new reference, else NULL */
  bool may_be_spent; /* the set was ended, and its processes together had used about the processor time that one of them has (ulimit -t) */
  char output[SF_WORKER_OUTPUT_TEXT]; /* what the ranks printed last */
};

struct sf_rank {
  int fd;         /* does not block; -1: not connected */
  pid_t pid;      /* 0: not known */
  bool greeted;   /* has said hello */
  int32_t state;  /* the owner's */
  double heard;   /* when a message came last, by the set's watch */
  double starved; /* sf_starved_seconds at that time */
  struct sf_line_buffer lines;
};

struct sf_rank_set {
  int32_t count;
  struct sf_rank *ranks; /* in the order of ranks once all have said hello; before, in the order of their connections */
  struct pollfd *fds;    /* of the ranks, after sf_rank_set_wait */
  struct sf_watch watch; /* for all deadlines of the set */
  const volatile sig_atomic_t *stop;
  double silent_seconds;   /* as in the options */
  int64_t id;              /* of worker_set.h: of the current or last request */
  bool over, may_be_spent; /* it has ended; as in the report */
  bool is_done;            /* a rank ends after its answer: the set takes no further request */
  bool is_zygote;          /* its rank has said that it forks sets, for those who ask at zygote_path; it runs nothing itself */
  struct sf_watcher watcher;
  int leader_fd; /* of ranks that a zygote forked, else -1 */
  int listen_fd, output_fd;
  char socket_path[SF_SOCKET_PATH_TEXT], zygote_path[SF_SOCKET_PATH_TEXT];
  char output[SF_WORKER_OUTPUT_TEXT]; /* end of what was printed */
  size_t output_length;
};

/* Starts the ranks into a zeroed set and waits until each has said hello. On failure the set is over, the report says why (UNSTARTED,
 * UNABLE, GARBLED, STOPPED), and the set must still be given to sf_rank_set_destroy. SF_EIO, SF_ENOMEM. */
enum sf_status sf_rank_set_start(struct sf_rank_set *out, struct sf_worker_report *report,
                                 const struct sf_rank_set_options *options) SF_MUST_USE;
/* Ends every process of the set and frees what it has. Takes a zeroed one. */
void sf_rank_set_destroy(struct sf_rank_set *set);
/* Waits a moment for the ranks, and for fd (-1: none), whose event is fds[count]; keeps what was printed. False: all have ended. */
bool sf_rank_set_wait(struct sf_rank_set *set, int fd, int timeout_ms);
double sf_rank_set_now(struct sf_rank_set *set); /* seconds by its watch */
/* The rank is alive now: from here on counts its silence. */
void sf_rank_set_note_heard(struct sf_rank_set *set, struct sf_rank *rank);
/* Whether a rank with state `waited_for` has said nothing for `seconds`. Time in which one of them had no processor does not count: the
 * others may wait for that rank. */
bool sf_rank_set_is_silent(struct sf_rank_set *set, int32_t waited_for, double seconds);
/* Takes what is printed, until a set that died has no more to say, or had time to say why. */
void sf_rank_set_hear_last_words(struct sf_rank_set *set);
/* Takes what is printed, until it names the error, "TYPE: text", or the ranks had time to print it: launchers forward what ranks print, and
 * it may come after their answers. */
void sf_rank_set_hear_of(struct sf_rank_set *set, const char *error);
/* Fills the report. A set that does not go on is ended. */
void sf_rank_set_fail(struct sf_rank_set *set, struct sf_worker_report *report, enum sf_worker_end end, const char *format, ...)
    SF_PRINTF(4, 5);
/* Parses a rank's line as an object (a new reference); NULL, with the reason ("is no JSON"), when it is not one. */
json_t *sf_rank_line_parse(const char *line, size_t length, const char **wrong);
/* For a rank: connects to the socket and says hello. Returns the connection, or -1. */
int sf_rank_connect(const char *socket_path, int32_t rank, int32_t ranks);

#endif
