/* Decides when an asynchronous part's source is read and its destination written. Late transfers are as late as a correct program allows:
 * at the rank's own wait or, if another rank waits for the data, when no rank can go on without them. */
#include "harness/comm/sim_internal.h"

/* --- decisions -------------------------------------------------------------------------------------------------- */

/* Schedule 0: rendezvous at the wait. Otherwise one hash of (schedule, group or channel, number, member) gives three decisions. */
static void decide(struct sf_sim *sim, struct sim_part *part, bool blocking) {
  if (sim->options.schedule == 0) {
    part->read = SIM_READ_LATE;
    part->write_late = true;
    return;
  }
  const uint64_t hash = sf_hash_u64(part->op->hash, (uint64_t)(part - part->op->parts) + 1);
  if (blocking) {
    const bool eager = part->call.op == SF_COMM_SEND && (hash & 1) != 0;
    part->read = eager ? SIM_READ_EARLY : SIM_READ_LATE;
    return;
  }
  if (sim_call_reads(&part->call)) part->read = (enum sim_read)(hash & 3);
  part->write_late = (hash >> 2 & 1) != 0;
  part->countdown = (uint8_t)(1 + (hash >> 3 & 3));
}

/* --- the queue of stalled ops ----------------------------------------------------------------------------------- */

static void stall_enqueue(struct sf_sim *sim, struct sim_op *op) {
  if (op->in_stall) return;
  op->in_stall = true;
  op->stall_prev = sim->stall_last;
  op->stall_next = NULL;
  if (sim->stall_last == NULL)
    sim->stall_first = op;
  else
    sim->stall_last->stall_next = op;
  sim->stall_last = op;
}

static void stall_remove(struct sf_sim *sim, struct sim_op *op) {
  if (!op->in_stall) return;
  op->in_stall = false;
  *(op->stall_prev != NULL ? &op->stall_prev->stall_next : &sim->stall_first) = op->stall_next;
  *(op->stall_next != NULL ? &op->stall_next->stall_prev : &sim->stall_last) = op->stall_prev;
}

/* --- reading and completing ------------------------------------------------------------------------------------- */

static void complete(struct sf_sim *sim, struct sim_part *part) {
  part->complete = true;
  if (part->rank->blocked_on == part) sim_wake(sim, part->rank);
}

static void execute(struct sf_sim *sim, struct sim_op *op) {
  op->executed = true;
  stall_remove(sim, op);
  sim_op_execute(sim, op);
  for (int32_t i = 0; i < op->size; i++)
    if (!op->parts[i].complete) complete(sim, &op->parts[i]);
}

static void execute_if_readable(struct sf_sim *sim, struct sim_op *op) {
  if (op->arrived == op->size && op->unread == 0 && !op->executed) execute(sim, op);
}

static void forget_decision(struct sim_part *part) {
  if (part->read == SIM_READ_COUNTED) part->rank->counted--;
  if (part->read == SIM_READ_MATCHED) part->op->matched_reads--;
  part->read = SIM_READ_LATE;
}

/* Reads the caller's buffer directly: the rank is blocked, or the op is executed at once. */
static void read_in_place(struct sim_part *part) {
  forget_decision(part);
  part->source = part->call.send;
  part->is_read = true;
  part->op->unread--;
}

/* Copies the data, since the caller may overwrite its buffer afterwards. For its sender, a message is then gone. */
static void read_into_staging(struct sf_sim *sim, struct sim_part *part) {
  const int64_t elements = part->call.sends;
  part->staged = sim_buffer_take(sim, (size_t)elements * sf_dtype_held_bytes(part->call.wire));
  sim_copy_to_wire(part->staged, part->call.send, elements, part->call.wire);
  read_in_place(part);
  part->source = part->staged;
  if (part->call.op == SF_COMM_SEND) complete(sim, part);
}

/* Reads now; in place if that lets the op be executed at once. */
static void read_now(struct sf_sim *sim, struct sim_part *part) {
  struct sim_op *op = part->op;
  if (op->arrived == op->size && op->unread == 1)
    read_in_place(part);
  else
    read_into_staging(sim, part);
  execute_if_readable(sim, op);
}

/* All parts are posted: reads the sources that waited for this moment. */
static void read_matched(struct sf_sim *sim, struct sim_op *op) {
  const bool all = op->matched_reads == op->unread;
  for (int32_t i = 0; i < op->size && op->matched_reads > 0; i++) {
    struct sim_part *part = &op->parts[i];
    if (part->is_read || part->read != SIM_READ_MATCHED) continue;
    if (all)
      read_in_place(part);
    else
      read_into_staging(sim, part);
  }
}

/* --- stalls ----------------------------------------------------------------------------------------------------- */

/* Stalls an op that all have posted and that some rank waits for, while a source is still to be read late. */
static void stall_if_waited(struct sf_sim *sim, struct sim_op *op) {
  if (op->arrived < op->size || op->executed) return;
  for (int32_t i = 0; i < op->size; i++)
    if (op->parts[i].waiting) {
      stall_enqueue(sim, op);
      return;
    }
}

bool sim_stall_resolve(struct sf_sim *sim) {
  struct sim_op *op = sim->stall_first;
  if (op == NULL) return false;
  for (int32_t i = 0; i < op->size; i++)
    if (!op->parts[i].is_read && sim_call_reads(&op->parts[i].call)) read_in_place(&op->parts[i]);
  execute_if_readable(sim, op);
  return true;
}

/* --- the life of a part ----------------------------------------------------------------------------------------- */

void sim_part_post(struct sf_sim *sim, struct sim_part *part, bool blocking) {
  struct sim_op *op = part->op;
  decide(sim, part, blocking);
  if (sim_call_writes(&part->call)) sim_poison(&part->call);
  part->waiting = blocking;
  if (sim_call_reads(&part->call)) {
    op->unread++;
    if (part->read == SIM_READ_COUNTED) part->rank->counted++;
    if (part->read == SIM_READ_MATCHED) op->matched_reads++;
    if (part->read == SIM_READ_EARLY)
      read_into_staging(sim, part);
    else if (blocking)
      read_in_place(part);
  }
  if (op->arrived < op->size) return;
  if (op->matched_reads > 0) read_matched(sim, op);
  execute_if_readable(sim, op);
  stall_if_waited(sim, op);
}

void sim_part_wait(struct sf_sim *sim, struct sim_part *part) {
  struct sim_op *op = part->op;
  part->waiting = true;
  if (sim_call_reads(&part->call) && !part->is_read) read_in_place(part);
  execute_if_readable(sim, op);
  if (!part->complete && op->arrived == op->size && !op->executed) stall_enqueue(sim, op);
}

void sim_part_finish(struct sf_sim *sim, struct sim_part *part) {
  struct sim_op *op = part->op;
  part->waiting = false;
  if (++op->finished == op->size) sim_op_release(sim, op);
}

void sim_rank_count_call(struct sim_rank *self) {
  if (self->counted == 0) return;
  for (struct sim_part *part = self->open, *next; part != NULL; part = next) {
    next = part->next;
    if (part->is_read || part->read != SIM_READ_COUNTED || --part->countdown > 0) continue;
    read_now(self->sim, part);
  }
}
