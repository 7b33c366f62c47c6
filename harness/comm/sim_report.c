/* Describes a run that went wrong: which rank waits for which, which calls differ, what was left open. */
#include "harness/comm/sim_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text that is cut at the end of its room. */
struct text {
  char *at;
  size_t room, length;
};

static void SF_PRINTF(2, 3) append(struct text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int wrote = vsnprintf(text->at + text->length, text->room - text->length, format, args);
  va_end(args);
  if (wrote > 0) text->length += (size_t)wrote;
  if (text->length >= text->room) text->length = text->room - 1;
}

static struct text report_text(struct sf_sim *sim) { return (struct text){.at = sim->report.text, .room = sizeof sim->report.text}; }

static void report_where(struct sf_sim *sim, enum sf_status status, enum sf_manner manner, const struct sim_part *part) {
  sim->report.status = status;
  sim->report.manner = manner;
  sim->report.rank = part->rank->comm.rank;
  snprintf(sim->report.label, sizeof sim->report.label, "%s", part->call.label);
}

static void append_group(struct text *text, const struct sim_group *group) {
  enum { SHOWN = 8 };
  append(text, "{");
  for (int32_t i = 0; i < group->size && i < SHOWN; i++) append(text, i > 0 ? ",%d" : "%d", group->ranks[i]);
  append(text, group->size > SHOWN ? ",... %d ranks}" : "}", group->size);
}

/* "all_reduce 'mlp.fwd' #2" */
static void append_call(struct text *text, const struct sf_comm_call *call) {
  append(text, "%s '%.60s' #%u", sf_comm_op_name(call->op), call->label, call->occurrence);
}

/* --- deadlock --------------------------------------------------------------------------------------------------- */

/* Whether a rank has posted its part of the op that `part` belongs to. */
static bool has_posted(const struct sim_op *op, int32_t index) { return op->group->numbers[index] > op->number; }

static int32_t first_awaited(const struct sim_part *part) {
  const struct sim_op *op = part->op;
  if (op->group == NULL) return part->call.peer;
  for (int32_t i = 0; i < op->size; i++)
    if (!has_posted(op, i)) return op->group->ranks[i];
  return -1;
}

static int32_t awaited_count(const struct sim_part *part) {
  const struct sim_op *op = part->op;
  if (op->group == NULL) return 1;
  int32_t count = 0;
  for (int32_t i = 0; i < op->size; i++) count += !has_posted(op, i);
  return count;
}

static void append_wait(struct text *text, const struct sim_part *part) {
  append(text, "waits in ");
  append_call(text, &part->call);
  if (part->op->group == NULL) {
    append(text, " %s rank %d (tag %d)", part->call.op == SF_COMM_SEND ? "to" : "from", part->call.peer, part->call.tag);
    return;
  }
  append(text, " of group ");
  append_group(text, part->op->group);
  append(text, " for rank %d", first_awaited(part));
  if (awaited_count(part) > 1) append(text, " and %d more", awaited_count(part) - 1);
}

/* Appends one chain: a rank, the rank it waits for, and so on, up to one that was named before. told: one flag per rank. */
static int32_t append_chain(struct sf_sim *sim, struct text *text, bool *told, int32_t rank) {
  int32_t links = 0;
  append(text, "rank %d ", rank);
  while (true) {
    const struct sim_part *part = sim->ranks[rank]->blocked_on;
    told[rank] = true;
    links++;
    append_wait(text, part);
    rank = first_awaited(part);
    const struct sim_rank *next = sim->ranks[rank];
    if (next->state == SIM_FINISHED) append(text, ", which has finished");
    if (next->state != SIM_BLOCKED || told[rank] || text->room - text->length < 200) return links;
    append(text, ", which ");
  }
}

void sim_report_deadlock(struct sf_sim *sim) {
  struct text text = report_text(sim);
  bool *told = memset(sim_arena_alloc(sim, (size_t)sim->options.world), 0, (size_t)sim->options.world);
  int32_t untold = 0;
  for (int32_t r = 0; r < sim->options.world; r++) untold += sim->ranks[r]->state == SIM_BLOCKED;
  for (int32_t r = 0; r < sim->options.world; r++) {
    if (sim->ranks[r]->state != SIM_BLOCKED || told[r]) continue;
    if (sim->report.rank < 0)
      report_where(sim, SF_EDEADLOCK, SF_MANNER_NONE, sim->ranks[r]->blocked_on);
    else
      append(&text, "; ");
    untold -= append_chain(sim, &text, told, r);
    if (text.room - text.length < 200) break;
  }
  if (untold > 0) append(&text, "; and %d more ranks wait", untold);
  sim_end(sim);
}

/* --- mismatch --------------------------------------------------------------------------------------------------- */

/* "rank 1 calls all_reduce 'mlp.fwd' #2 (16 x fp32, sum)" */
static void append_side(struct text *text, const struct sim_part *part) {
  const struct sf_comm_call *call = &part->call;
  append(text, "rank %d calls ", part->rank->comm.rank);
  append_call(text, call);
  append(text, " (%lld x %s", (long long)call->count, sf_dtype_name(call->wire));
  if (call->op == SF_COMM_ALL_REDUCE || call->op == SF_COMM_REDUCE_SCATTER) append(text, ", %s", sf_reduce_name(call->reduce));
  if (call->op == SF_COMM_BROADCAST) append(text, ", root %d", call->root);
  append(text, ")");
}

static _Noreturn void report_mismatch(struct sf_sim *sim, const struct sim_part *a, const struct sim_part *b) {
  const struct sim_op *op = a->op;
  if (b->rank->comm.rank < a->rank->comm.rank) {
    const struct sim_part *swapped = a;
    a = b;
    b = swapped;
  }
  struct text text = report_text(sim);
  report_where(sim, SF_EMISMATCH, sf_manner_of_calls(&a->call, &b->call), a);
  if (op->group != NULL) {
    append(&text, "collective %llu of group ", (unsigned long long)op->number);
    append_group(&text, op->group);
  } else {
    append(&text, "message %llu with tag %d", (unsigned long long)op->number, a->call.tag);
  }
  append(&text, ": ");
  append_side(&text, a);
  append(&text, ", ");
  append_side(&text, b);
  sim_end(sim);
}

/* All-to-all counts are compared piece by piece when all have come. Labels are information only. */
void sim_check_same(struct sf_sim *sim, struct sim_part *first, struct sim_part *second) {
  const struct sf_comm_call *a = &first->call, *b = &second->call;
  const bool message = first->op->group == NULL;
  const bool same = (message || a->op == b->op) && a->wire == b->wire && (a->count == b->count || a->op == SF_COMM_ALL_TO_ALL) &&
                    a->reduce == b->reduce && a->root == b->root;
  if (!same) report_mismatch(sim, first, second);
}

void sim_check_all_to_all(struct sf_sim *sim, struct sim_op *op) {
  for (int32_t from = 0; from < op->size; from++)
    for (int32_t to = 0; to < op->size; to++) {
      const struct sim_part *send = &op->parts[from], *recv = &op->parts[to];
      const int64_t sent = send->call.send_counts[to], expected = recv->call.recv_counts[from];
      if (sent == expected) continue;
      struct text text = report_text(sim);
      report_where(sim, SF_EMISMATCH, SF_MANNER_COUNT, send);
      append(&text, "collective %llu of group ", (unsigned long long)op->number);
      append_group(&text, op->group);
      append(&text, ": rank %d sends %lld elements to rank %d in ", op->group->ranks[from], (long long)sent, op->group->ranks[to]);
      append_call(&text, &send->call);
      append(&text, ", which expects %lld in ", (long long)expected);
      append_call(&text, &recv->call);
      sim_end(sim);
    }
}

/* --- requests --------------------------------------------------------------------------------------------------- */

void sim_report_leak(struct sf_sim *sim, struct sim_rank *self) {
  int32_t count = 0;
  const struct sim_part *oldest = NULL;
  for (const struct sim_part *part = self->open; part != NULL; part = part->next, count++) oldest = part;
  struct text text = report_text(sim);
  report_where(sim, SF_ERANK, SF_MANNER_REQUEST, oldest);
  append(&text, "rank %d ended without waiting for ", self->comm.rank);
  append_call(&text, &oldest->call);
  if (count > 1) append(&text, " and %d more requests", count - 1);
  sim_end(sim);
}

void sim_report_request(struct sf_sim *sim, struct sim_rank *self, sf_request request) {
  struct text text = report_text(sim);
  sim->report.status = SF_ERANK;
  sim->report.manner = SF_MANNER_REQUEST;
  sim->report.rank = self->comm.rank;
  append(&text, "rank %d waits for request %llx, which it has not open (waited for twice?)", self->comm.rank, (unsigned long long)request);
  sim_end(sim);
}
