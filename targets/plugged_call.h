/* One call of a plugin's layer: its memory and its communication. */
#ifndef SF_TARGETS_PLUGGED_CALL_H
#define SF_TARGETS_PLUGGED_CALL_H

#include "targets/plugged_layer.h"

struct sf_plugged_piece;

struct sf_plugged_call {
  struct sf_rank_run *run;
  struct sf_plugged *plugged;
  bool backward;
  struct sf_plugged_piece *pieces; /* of this call */
  const struct sf_group *groups[SHARDFUZZ_GROUPS];
  struct shardfuzz_member members[SHARDFUZZ_GROUPS];
  struct shardfuzz_comm comm;
};

/* Fills groups, members and the table of functions. */
void sf_plugged_comm_fill(struct sf_plugged_call *call);

/* Leaves the rank: the plugin broke its contract. The text goes behind the module's name. */
_Noreturn void sf_plugged_fail(const struct sf_plugged_call *call, const char *format, ...) SF_PRINTF(2, 3);

/* Memory between guards, filled with NaNs of every format. what: a constant, for messages. */
void *sf_plugged_take(struct sf_plugged_call *call, const char *what, size_t size_bytes);
/* The same with values in the format's own bytes, which the plugin may not change. */
void *sf_plugged_take_values(struct sf_plugged_call *call, const char *what, const float *values, int64_t count, enum sf_dtype dtype);
/* Takes the piece out of the call: it is not given back with it. */
void sf_plugged_keep(struct sf_plugged_call *call, const void *data);
/* Puts a kept piece back. */
void sf_plugged_return(struct sf_plugged_call *call, void *data);
/* Checks guards and values of all pieces. */
void sf_plugged_check(const struct sf_plugged_call *call);
/* Gives all pieces back. */
void sf_plugged_release(struct sf_plugged_call *call);
void sf_plugged_give_kept(struct sf_rank_run *run, void *data); /* takes NULL */

size_t sf_plugged_bytes(int64_t count, enum sf_dtype dtype);
/* Floats on the format's grid <-> its own bytes. fp64: doubles are copied. */
void sf_plugged_pack(void *out, const float *values, int64_t count, enum sf_dtype dtype);
void sf_plugged_unpack(float *out, const void *packed, int64_t count, enum sf_dtype dtype);

#endif
