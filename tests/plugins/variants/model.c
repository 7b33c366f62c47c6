/* The example's model (gpt.c, linked under another name) with BUG, in the communicator or in how it is run: its calls on their way through
 * here. */
#include "targets/plugin/include/shardfuzz/plugin.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  NO_ROW_REDUCE,
  DP_LEFT_OUT,
  NORM_OVER_WORLD,
  LEAVES_RANK_OUT,
  CRASHES,
  HANGS,
  RETURNS_ERROR,
  WRITES_BEHIND,
  UNKNOWN_TENSOR,
  FOREIGN_ROWS,
  NO_BACKWARD_REDUCE
};

const struct shardfuzz_plugin *gpt_plugin_get(void);
static const struct shardfuzz_model *example(void) { return gpt_plugin_get()->entries; }
typedef const struct shardfuzz_model_call *model_call;

/* What the wrapped run of a rank knows. In the arena of the rank, as everything. */
struct wrapped {
  struct shardfuzz_comm comm;
  struct shardfuzz_model_call call;
  const struct shardfuzz_comm *real_comm;
  model_call real;
  char place[32];
};

static void wrapped_place(model_call call, const char *name) {
  struct wrapped *w = (struct wrapped *)(void *)((char *)(uintptr_t)call - offsetof(struct wrapped, call));
  snprintf(w->place, sizeof w->place, "%s", name);
  w->real->place(w->real, name);
}

static void wrapped_all_reduce(const struct shardfuzz_comm *comm, int32_t group, void *data, int64_t count, uint32_t dtype,
                               uint32_t reduce) {
  struct wrapped *w = (struct wrapped *)(uintptr_t)comm;
  const int is_row = strcmp(w->place, "row_parallel.fwd") == 0, is_column = strcmp(w->place, "column_parallel.bwd") == 0,
            is_norm = strcmp(w->place, "grad_norm") == 0;
  if (BUG == NO_ROW_REDUCE && is_row) return;
  if (BUG == NO_BACKWARD_REDUCE && is_column) return;
  if (BUG == DP_LEFT_OUT && dtype == SHARDFUZZ_F32 && strcmp(w->place, "gradients") == 0) return;
  if (BUG == LEAVES_RANK_OUT && is_row && w->real_comm->groups[SHARDFUZZ_GROUP_TP].index == 1) return;
  w->real_comm->all_reduce(w->real_comm, BUG == NORM_OVER_WORLD && is_norm ? SHARDFUZZ_GROUP_WORLD : group, data, count, dtype, reduce);
}

static void wrapped_trace(model_call call, const struct shardfuzz_point *given, void *data) {
  const struct wrapped *w = (const struct wrapped *)(const void *)((const char *)call - offsetof(struct wrapped, call));
  struct shardfuzz_point point = *given;
  struct shardfuzz_run rows = given->rows ? *given->rows : (struct shardfuzz_run){.length = 1};
  if (given->rows) point.rows = &rows;
  if (BUG == UNKNOWN_TENSOR && strcmp(given->subject, "loss") == 0) point.subject = "softmax";
  if (BUG == FOREIGN_ROWS && given->traced == SHARDFUZZ_TRACED_ACT) rows.start++;
  w->real->trace(w->real, &point, data);
}

static int wrapped_run(model_call call) {
  struct wrapped *w = call->take(call, sizeof *w);
  memset(w, 0, sizeof *w);
  w->comm = *call->comm, w->call = *call, w->real_comm = call->comm, w->real = call;
  w->comm.all_reduce = wrapped_all_reduce;
  w->call.comm = &w->comm, w->call.trace = wrapped_trace, w->call.place = wrapped_place;
  if (BUG == CRASHES && call->comm->groups[SHARDFUZZ_GROUP_WORLD].index == 1) abort();
  for (volatile int forever = 1; BUG == HANGS && forever;) continue;
  if (BUG == RETURNS_ERROR) return 7;
  if (BUG == WRITES_BEHIND) ((char *)call->take(call, 100))[100] = 1;
  return example()->run(&w->call);
}

const struct shardfuzz_plugin *shardfuzz_plugin_get(void) {
  static struct shardfuzz_model wrapped; /* take, give and the like are called with the wrapped call: they look at its host alone */
  static struct shardfuzz_plugin plugin;
  wrapped = *example(), plugin = *gpt_plugin_get();
  wrapped.run = wrapped_run, plugin.entries = &wrapped;
  return &plugin;
}
