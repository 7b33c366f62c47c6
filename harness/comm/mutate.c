#include "harness/comm/mutate.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <string.h>

/* --- names --------------------------------------------------------------------------------------------------------- */

static const char prefix[] = "mutant:";

const char *sf_mutation_kind_name(enum sf_mutation_kind kind) {
  static const char *const names[SF_MUTATION_KINDS] = {
#define X(name, text) [SF_MUTATION_##name] = text,
      SF_MUTATION_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)kind, SF_MUTATION_KINDS);
  return names[kind];
}

static bool reduces(enum sf_comm_op op) { return op == SF_COMM_ALL_REDUCE || op == SF_COMM_REDUCE_SCATTER; }

bool sf_mutation_applies(enum sf_mutation_kind kind, enum sf_comm_op op, enum sf_reduce reduce) {
  if (op == SF_COMM_RECV) return false;
  switch (kind) {
  case SF_MUTATION_DROP:
  case SF_MUTATION_DUPLICATE:
  case SF_MUTATION_OBSERVE:
    return true;
  case SF_MUTATION_OP_SUM:
    return reduces(op) && reduce == SF_REDUCE_MAX;
  case SF_MUTATION_OP_MAX:
    return reduces(op) && reduce != SF_REDUCE_MAX;
  case SF_MUTATION_OP_AVG:
    return reduces(op) && reduce != SF_REDUCE_AVG;
  case SF_MUTATION_WRONG_GROUP:
    return op != SF_COMM_SEND;
  case SF_MUTATION_MISSING_SCALE:
    return reduces(op);
  case SF_MUTATION_EXTRA_SCALE:
    return reduces(op) && reduce != SF_REDUCE_SUM;
  case SF_MUTATION_STALE:
  case SF_MUTATION_POISON:
    return op != SF_COMM_BARRIER;
  case SF_MUTATION_SHIFT:
    return op == SF_COMM_REDUCE_SCATTER || op == SF_COMM_ALL_GATHER || op == SF_COMM_ALL_TO_ALL;
  case SF_MUTATION_KINDS:
    break;
  }
  return false;
}

bool sf_mutation_is_named(const char *text) { return strncmp(text, prefix, sizeof prefix - 1) == 0; }

static bool parse_occurrence(int64_t *out, const char *text) {
  if (*text == '\0') return false;
  int64_t value = 0;
  for (; *text; text++) {
    if (*text < '0' || *text > '9' || value > 1000000000) return false;
    value = value * 10 + (*text - '0');
  }
  *out = value;
  return true;
}

enum sf_status sf_mutation_parse(struct sf_mutation *out, const char *text, struct sf_error *error) {
  struct sf_mutation m = {.occurrence = -1, .kind = SF_MUTATION_KINDS};
  if (!sf_mutation_is_named(text)) return sf_error_set(error, SF_EINPUT, "a mutant is mutant:LABEL:KIND or mutant:LABEL:KIND:OCCURRENCE");
  const char *label = text + sizeof prefix - 1, *kind = strchr(label, ':');
  if (kind == NULL || kind == label || (size_t)(kind - label) >= sizeof m.label)
    return sf_error_set(error, SF_EINPUT, "%.100s: a mutant is mutant:LABEL:KIND or mutant:LABEL:KIND:OCCURRENCE", text);
  memcpy(m.label, label, (size_t)(kind - label));
  kind++;
  const char *occurrence = strchr(kind, ':');
  const size_t length = occurrence ? (size_t)(occurrence - kind) : strlen(kind);
  for (int i = 0; i < SF_MUTATION_KINDS; i++) {
    const char *name = sf_mutation_kind_name((enum sf_mutation_kind)i);
    if (strlen(name) == length && memcmp(name, kind, length) == 0) m.kind = (enum sf_mutation_kind)i;
  }
  if (m.kind == SF_MUTATION_KINDS) return sf_error_set(error, SF_EINPUT, "%.100s: there is no kind '%.*s'", text, (int)length, kind);
  if (occurrence && !parse_occurrence(&m.occurrence, occurrence + 1))
    return sf_error_set(error, SF_EINPUT, "%.100s: the occurrence is no number", text);
  *out = m;
  return SF_OK;
}

static size_t element_bytes(const struct sf_comm_call *call) { return sf_dtype_held_bytes(call->wire); }

/* --- an asynchronous call between start and wait -------------------------------------------------------------------- */

struct sf_mutator_pending {
  struct sf_mutator_pending *next;
  sf_request request, again; /* again: the second one of a duplicated message */
  struct sf_comm_call call;
  struct sf_group group;
};

static void *take(struct sf_comm *comm, size_t size_bytes) {
  void *memory = sf_arena_alloc(comm->mutator->arena, size_bytes > 0 ? size_bytes : 1);
  if (memory == NULL) sf_comm_fail(comm, SF_ENOMEM, "no memory for a mutant's copy of %zu bytes", size_bytes);
  return memory;
}

/* --- what is changed before the call --------------------------------------------------------------------------------- */

/* A group of another axis with as many members; false when there is none. */
static bool find_other_group(struct sf_comm *comm, struct sf_group *out, const struct sf_group *group) {
  const struct sf_mesh *mesh = comm->mutator->mesh;
  int32_t *ranks = take(comm, (size_t)mesh->world * sizeof *ranks), index = 0;
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++) {
    if (sf_mesh_group(mesh, comm->rank, SF_AXES(axis), ranks, &index) != group->size) continue;
    *out = sf_group_create(ranks, group->size, index);
    if (out->key != group->key) return true;
  }
  return false;
}

/* Keeps this call's input for the next occurrence. */
static void remember_input(struct sf_comm *comm, const void *input, size_t size_bytes) {
  struct sf_mutator *m = comm->mutator;
  if (size_bytes > m->previous_room || m->previous == NULL) {
    m->previous = take(comm, size_bytes);
    m->previous_room = size_bytes;
  }
  memcpy(m->previous, input, size_bytes);
  m->previous_bytes = size_bytes;
}

/* Replaces this occurrence's input by the previous one's. An in-place call's own buffer is overwritten; else the caller's stays as it
 * is. */
static void make_stale(struct sf_comm *comm, struct sf_comm_call *call, bool fires) {
  struct sf_mutator *m = comm->mutator;
  const size_t bytes = (size_t)call->sends * element_bytes(call);
  if (call->send == NULL) return;
  void *copy = take(comm, bytes);
  memset(copy, 0, bytes);
  if (m->previous != NULL && m->previous_bytes == bytes) memcpy(copy, m->previous, bytes);
  remember_input(comm, call->send, bytes);
  if (!fires) return;
  if (call->send == call->recv)
    memcpy(call->recv, copy, bytes);
  else
    call->send = copy;
}

/* Member i sends to i the piece that was meant for i + 1. */
static void rotate_input(struct sf_comm *comm, struct sf_comm_call *call) {
  const size_t piece = (size_t)call->count * element_bytes(call), all = piece * (size_t)call->group->size;
  char *copy = take(comm, all);
  memcpy(copy, (const char *)call->send + piece, all - piece);
  memcpy(copy + all - piece, call->send, piece);
  call->send = copy;
}

/* Changes the call; false when this kind has nothing to change in it. */
static bool change_call(struct sf_comm *comm, struct sf_comm_call *call, struct sf_group *group) {
  switch (comm->mutator->mutation->kind) {
  case SF_MUTATION_OP_SUM:
    call->reduce = SF_REDUCE_SUM;
    return true;
  case SF_MUTATION_OP_MAX:
    call->reduce = SF_REDUCE_MAX;
    return true;
  case SF_MUTATION_OP_AVG:
    call->reduce = SF_REDUCE_AVG;
    return true;
  case SF_MUTATION_WRONG_GROUP:
    if (!find_other_group(comm, group, call->group)) return false;
    call->group = group;
    return true;
  case SF_MUTATION_SHIFT:
    if (call->op == SF_COMM_REDUCE_SCATTER) rotate_input(comm, call);
    return true;
  default:
    return true;
  }
}

/* --- what is changed afterwards --------------------------------------------------------------------------------------- */

static void scale_output(const struct sf_comm_call *call, double factor) {
  const int64_t count = call->receives;
  if (call->wire == SF_F64) {
    for (int64_t i = 0; i < count; i++) ((double *)call->recv)[i] *= factor;
    return;
  }
  float *out = call->recv;
  for (int64_t i = 0; i < count; i++) out[i] = sf_round((float)((double)out[i] * factor), call->wire);
}

/* Puts every member's piece into its neighbour's place. */
static void rotate_output(struct sf_comm *comm, const struct sf_comm_call *call) {
  const int64_t first = call->op == SF_COMM_ALL_TO_ALL ? call->recv_counts[0] : call->count;
  const size_t piece = (size_t)first * element_bytes(call), all = (size_t)call->receives * element_bytes(call);
  char *copy = take(comm, piece), *out = call->recv;
  memcpy(copy, out, piece);
  memmove(out, out + piece, all - piece);
  memcpy(out + all - piece, copy, piece);
}

static void finish_call(struct sf_comm *comm, const struct sf_comm_call *call) {
  struct sf_mutator *m = comm->mutator;
  const size_t bytes = (size_t)call->receives * element_bytes(call);
  if (bytes == 0) return;
  const double n = call->group != NULL ? (double)call->group->size : 1.0;
  if (m->mutation->kind == SF_MUTATION_MISSING_SCALE) scale_output(call, n);
  if (m->mutation->kind == SF_MUTATION_EXTRA_SCALE) scale_output(call, 1.0 / n);
  if (m->mutation->kind == SF_MUTATION_SHIFT && call->op != SF_COMM_REDUCE_SCATTER) rotate_output(comm, call);
  m->output_hash = sf_hash_bytes(m->output_hash, call->recv, bytes);
  if (m->mutation->kind == SF_MUTATION_POISON) memset(call->recv, 0xff, bytes);
}

/* --- the wrapper's operations ------------------------------------------------------------------------------------------ */

static bool is_named(const struct sf_mutation *mutation, const struct sf_comm_call *call) {
  if (strcmp(call->label, mutation->label) == 0) return call->group == NULL || call->group->size > 1;
  return mutation->receive_label != NULL && strcmp(call->label, mutation->receive_label) == 0;
}

static sf_request start_changed(struct sf_comm *comm, const struct sf_comm_call *call, bool blocking) {
  struct sf_mutator *m = comm->mutator;
  const bool twice = m->mutation->kind == SF_MUTATION_DUPLICATE;
  const sf_request request = m->inner->start(comm, call, blocking);
  if (blocking) {
    if (twice) (void)m->inner->start(comm, call, true);
    finish_call(comm, call);
    return request;
  }
  struct sf_mutator_pending *pending = take(comm, sizeof *pending);
  *pending = (struct sf_mutator_pending){.next = m->pending, .request = request, .call = *call};
  if (call->group != NULL) {
    pending->group = *call->group;
    pending->call.group = &pending->group;
  } else if (twice) {
    pending->again = m->inner->start(comm, call, false);
  }
  m->pending = pending;
  return request;
}

static sf_request mutate_start(struct sf_comm *comm, const struct sf_comm_call *call, bool blocking) {
  struct sf_mutator *m = comm->mutator;
  const struct sf_mutation *mutation = m->mutation;
  if (!is_named(mutation, call)) return m->inner->start(comm, call, blocking);
  bool fires = mutation->occurrence < 0 || mutation->occurrence == (int64_t)call->occurrence;
  struct sf_comm_call changed = *call;
  struct sf_group *group = take(comm, sizeof *group); /* an asynchronous call reads it later */
  if (mutation->kind == SF_MUTATION_STALE) make_stale(comm, &changed, fires);
  fires = fires && change_call(comm, &changed, group);
  if (!fires) return m->inner->start(comm, call, blocking);
  m->fired++;
  if (mutation->kind != SF_MUTATION_DROP) return start_changed(comm, &changed, blocking);
  finish_call(comm, &changed);
  return 0;
}

static void mutate_wait(struct sf_comm *comm, sf_request request) {
  struct sf_mutator *m = comm->mutator;
  struct sf_mutator_pending **at = &m->pending, *pending;
  while (*at != NULL && (*at)->request != request) at = &(*at)->next;
  pending = *at;
  m->inner->wait(comm, request);
  if (pending == NULL) return;
  *at = pending->next;
  if (pending->again != 0)
    m->inner->wait(comm, pending->again);
  else if (m->mutation->kind == SF_MUTATION_DUPLICATE)
    (void)m->inner->start(comm, &pending->call, true); /* all members wait in the same order, as for the call itself */
  finish_call(comm, &pending->call);
}

__attribute__((noreturn)) static void mutate_fail(struct sf_comm *comm, enum sf_status status, enum sf_manner manner, const char *text) {
  comm->mutator->inner->fail(comm, status, manner, text);
}

void sf_mutator_install(struct sf_mutator *mutator, struct sf_comm *comm) {
  static const struct sf_comm_ops ops = {.name = "mutant", .start = mutate_start, .wait = mutate_wait, .fail = mutate_fail};
  SF_ASSERT(mutator->mutation != NULL && mutator->mesh != NULL && mutator->arena != NULL);
  mutator->inner = comm->ops;
  mutator->pending = NULL;
  comm->mutator = mutator;
  comm->ops = &ops;
}
