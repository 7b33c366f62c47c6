/* What a library that computes on a rank is given, a layer's call or a model: memory between guards, and the communicator. */
#ifndef SF_TARGETS_PLUGGED_HOST_H
#define SF_TARGETS_PLUGGED_HOST_H

#include "harness/base/float_mode.h"
#include "targets/builtin/parallel/buffers.h"
#include "targets/builtin/parallel/parallel_state.h"
#include "targets/plugin/plugin_layers.h"

#include <sys/types.h>

struct sf_plugged_piece;
struct sf_plugged_pending;

struct sf_plugged_host {
  const struct sf_rank_env *env;
  struct sf_buffers *buffers;
  const char *pass, *name;               /* for messages: "backward" of "decoder.layers.3.mlp.linear_fc2"; name NULL: pass alone */
  const char (*labels)[SF_PLUGIN_LABEL_TEXT]; /* of its calls, by enum sf_comm_op; kept by their address */
  struct sf_plugged_piece *pieces;       /* of this call */
  struct sf_plugged_pending *pending;    /* calls that were started */
  struct sf_float_mode mode;             /* the plugin's, while it is in a function of ours */
  pid_t process;                         /* that the plugin runs in */
  const struct sf_group *groups[SHARDFUZZ_GROUPS]; /* size 0: this case has none */
  struct shardfuzz_member members[SHARDFUZZ_GROUPS];
  struct shardfuzz_comm comm;
};

/* Fills groups, members and the table of functions, whose host this one is; borrowed. */
void sf_plugged_comm_fill(struct sf_plugged_host *host, const struct sf_parallel_state *parallel);
/* Leaves the rank when a call was started and not waited for. */
void sf_plugged_comm_check(const struct sf_plugged_host *host);

/* A function of ours begins and ends. While a plugin's code runs it may change how it rounds; while ours runs the default holds. If a
 * process that the plugin forked calls or returns to our code, that process ends: it would run the case, and the campaign, a second time.
 */
void sf_plugged_enter(struct sf_plugged_host *host);
void sf_plugged_leave(const struct sf_plugged_host *host);
/* The plugin has returned `result`: shows where the rank is, and leaves it when the result is not success, or the plugin has changed how it
 * rounds, left a call open, or written where it may not. Ends in a barrier of the group: it detects a collective that one of its ranks left
 * out here, and not at the next common one. */
void sf_plugged_end(const struct sf_plugged_host *host, const char *label, int result, const struct sf_group *group);

/* Leaves the rank: the plugin broke its contract, in this manner. The host's name goes before the text. */
_Noreturn void sf_plugged_fail(const struct sf_plugged_host *host, enum sf_manner manner, const char *format, ...) SF_PRINTF(3, 4);

/* Memory for the plugin, filled with NaNs of every format: between walls (harness/base/system/walled.h), or between guards where the arena
 * is a device's. what: a constant, for messages. */
void *sf_plugged_take(struct sf_plugged_host *host, const char *what, size_t size_bytes);
/* The same with a copy of data, or of values packed into the format's own bytes; the plugin may not change either. */
void *sf_plugged_take_copy(struct sf_plugged_host *host, const char *what, const void *data, size_t size_bytes);
void *sf_plugged_take_values(struct sf_plugged_host *host, const char *what, const float *values, int64_t count, enum sf_dtype dtype);
/* Takes the piece with this data out of the host, so that releasing the host does not give it back. */
struct sf_plugged_piece *sf_plugged_keep(struct sf_plugged_host *host, const void *data);
/* Puts a kept piece back; returns its data. */
void *sf_plugged_return(struct sf_plugged_host *host, struct sf_plugged_piece *piece);
/* Gives a kept piece back; takes NULL. */
void sf_plugged_give_kept(const struct sf_rank_env *env, struct sf_buffers *buffers, struct sf_plugged_piece *piece);
/* Keeps and gives back the piece with this data. */
void sf_plugged_give(struct sf_plugged_host *host, const void *data);
/* Checks guards and values of one piece; leaves the rank when the host does not have it. */
void sf_plugged_check_piece(const struct sf_plugged_host *host, const void *data);
/* Gives all pieces back. */
void sf_plugged_release(struct sf_plugged_host *host);

size_t sf_plugged_bytes(int64_t count, enum sf_dtype dtype); /* of so many elements in the format's own bytes */
/* Floats on the format's grid <-> its own bytes. fp64: doubles are copied. */
void sf_plugged_pack(void *out, const float *values, int64_t count, enum sf_dtype dtype);
void sf_plugged_unpack(float *out, const void *packed, int64_t count, enum sf_dtype dtype);

#endif
