/* Matches calls: the n-th collective of a group, first-in-first-out messages of a channel, open requests. Also the run's memory. */
#include "harness/comm/sim_internal.h"

#include <string.h>

/* --- memory of one run ------------------------------------------------------------------------------------------ */

void *sim_arena_alloc(struct sf_sim *sim, size_t size_bytes) {
  void *memory = sf_arena_alloc(sim->arena, size_bytes);
  if (memory == NULL) sim_out_of_memory(sim);
  return memory;
}

/* Buffer sizes are powers of two. The size class lies before the data, in 64 bytes so that the data stay aligned. */
enum { BUFFER_HEADER_BYTES = 64 };

void *sim_buffer_take(struct sf_sim *sim, size_t size_bytes) {
  uint64_t class = 0;
  while (((size_t)1 << (class + SIM_BUFFER_MIN_LOG2)) < size_bytes) class ++;
  SF_ASSERT_LT(class, SIM_BUFFER_CLASSES);
  char *memory = sim->buffers[class];
  if (memory != NULL) {
    memcpy(&sim->buffers[class], memory, sizeof(void *));
    return memory;
  }
  memory = sim_arena_alloc(sim, BUFFER_HEADER_BYTES + ((size_t)1 << (class + SIM_BUFFER_MIN_LOG2)));
  memcpy(memory, &class, sizeof class);
  return memory + BUFFER_HEADER_BYTES;
}

void sim_buffer_give(struct sf_sim *sim, void *buffer) {
  if (buffer == NULL) return;
  uint64_t class;
  memcpy(&class, (char *)buffer - BUFFER_HEADER_BYTES, sizeof class);
  memcpy(buffer, &sim->buffers[class], sizeof(void *));
  sim->buffers[class] = buffer;
}

enum sf_status sim_tables_create(struct sf_sim *sim) {
  sim->group_mask = 63;
  sim->channel_mask = 255;
  sim->groups = sf_alloc((sim->group_mask + 1) * sizeof(struct sim_group *));
  sim->channels = sf_alloc((sim->channel_mask + 1) * sizeof *sim->channels);
  return sim->groups != NULL && sim->channels != NULL ? SF_OK : SF_ENOMEM;
}

void sim_tables_reset(struct sf_sim *sim) {
  sf_arena_reset(sim->arena);
  memset((void *)sim->groups, 0, (sim->group_mask + 1) * sizeof(struct sim_group *));
  memset(sim->channels, 0, (sim->channel_mask + 1) * sizeof *sim->channels);
  memset(sim->buffers, 0, sizeof sim->buffers);
  sim->group_count = sim->channel_count = 0;
  sim->free_pairs = NULL;
  sim->request_used = sim->request_free_count = 0;
  if (sim->request_capacity > 0) memset(sim->request_serials, 0, sim->request_capacity * sizeof *sim->request_serials);
}

void sim_tables_destroy(struct sf_sim *sim) {
  sf_free((void *)sim->groups);
  sf_free(sim->channels);
  sf_free((void *)sim->requests);
  sf_free(sim->request_serials);
  sf_free(sim->request_free);
}

/* --- ops -------------------------------------------------------------------------------------------------------- */

static struct sim_op *op_take(struct sf_sim *sim, struct sim_op **free_list, int32_t size) {
  struct sim_op *op = *free_list;
  if (op != NULL)
    *free_list = op->next;
  else
    op = sim_arena_alloc(sim, sizeof *op + (size_t)size * sizeof op->parts[0]);
  memset(op, 0, sizeof *op);
  op->size = size;
  return op;
}

void sim_op_release(struct sf_sim *sim, struct sim_op *op) {
  for (int32_t i = 0; i < op->size; i++) sim_buffer_give(sim, op->parts[i].staged);
  sim_buffer_give(sim, op->result);
  struct sim_op **free_list = op->group != NULL ? &op->group->free_ops : &sim->free_pairs;
  op->next = *free_list;
  *free_list = op;
}

static struct sim_part *part_take(struct sim_op *op, int32_t index, struct sim_rank *self, const struct sf_comm_call *call) {
  struct sim_part *part = &op->parts[index];
  memset(part, 0, sizeof *part);
  part->call = *call;
  part->op = op;
  part->rank = self;
  op->arrived++;
  return part;
}

/* --- collectives ------------------------------------------------------------------------------------------------ */

static void groups_grow(struct sf_sim *sim) {
  const uint64_t mask = 2 * sim->group_mask + 1;
  struct sim_group **groups = sf_alloc((mask + 1) * sizeof(struct sim_group *));
  if (groups == NULL) sim_out_of_memory(sim);
  for (uint64_t i = 0; i <= sim->group_mask; i++) {
    if (sim->groups[i] == NULL) continue;
    uint64_t slot = sim->groups[i]->key & mask;
    while (groups[slot] != NULL) slot = (slot + 1) & mask;
    groups[slot] = sim->groups[i];
  }
  sf_free((void *)sim->groups);
  sim->groups = groups;
  sim->group_mask = mask;
}

static void *arena_zeroed(struct sf_sim *sim, size_t size_bytes) { return memset(sim_arena_alloc(sim, size_bytes), 0, size_bytes); }

static struct sim_group *group_create(struct sf_sim *sim, const struct sf_group *from) {
  const size_t size = (size_t)from->size;
  struct sim_group *group = arena_zeroed(sim, sizeof *group);
  group->key = from->key;
  group->size = from->size;
  group->ranks = sim_arena_alloc(sim, size * sizeof *group->ranks);
  memcpy(group->ranks, from->ranks, size * sizeof *group->ranks);
  for (size_t i = 0; i < size; i++) {
    SF_ASSERT_LE(0, group->ranks[i]);
    SF_ASSERT_LT(group->ranks[i], sim->options.world);
  }
  group->order = sim_arena_alloc(sim, size * sizeof *group->order);
  group->numbers = arena_zeroed(sim, size * sizeof *group->numbers);
  group->open_mask = 3;
  group->open = arena_zeroed(sim, 4 * sizeof(struct sim_op *));
  return group;
}

static struct sim_group *group_find(struct sf_sim *sim, const struct sf_group *wanted) {
  uint64_t slot = wanted->key & sim->group_mask;
  for (; sim->groups[slot] != NULL; slot = (slot + 1) & sim->group_mask)
    if (sim->groups[slot]->key == wanted->key) return sim->groups[slot];
  if (4 * (sim->group_count + 1) > 3 * (sim->group_mask + 1)) {
    groups_grow(sim);
    return group_find(sim, wanted);
  }
  sim->group_count++;
  return sim->groups[slot] = group_create(sim, wanted);
}

/* Grows the ring of a group's open ops, when one member is a whole ring ahead of another. */
static void open_grow(struct sf_sim *sim, struct sim_group *group) {
  const uint64_t mask = 2 * group->open_mask + 1;
  struct sim_op **open = arena_zeroed(sim, (mask + 1) * sizeof(struct sim_op *));
  for (uint64_t i = 0; i <= group->open_mask; i++)
    if (group->open[i] != NULL) open[group->open[i]->number & mask] = group->open[i];
  group->open = open;
  group->open_mask = mask;
}

static struct sim_op *group_op(struct sf_sim *sim, struct sim_group *group, uint64_t number) {
  for (;;) {
    struct sim_op **slot = &group->open[number & group->open_mask];
    if (*slot != NULL && (*slot)->number == number) return *slot;
    if (*slot == NULL) {
      *slot = op_take(sim, &group->free_ops, group->size);
      (*slot)->group = group;
      (*slot)->number = number;
      (*slot)->hash = sf_hash_u64(sf_hash_u64(sim->options.schedule, group->key), number);
      return *slot;
    }
    open_grow(sim, group);
  }
}

struct sim_part *sim_match_collective(struct sim_rank *self, const struct sf_comm_call *call) {
  struct sf_sim *sim = self->sim;
  struct sim_group *group = group_find(sim, call->group);
  const int32_t index = call->group->index;
  SF_ASSERT_EQ(group->size, call->group->size);
  SF_ASSERT_EQ(group->ranks[index], self->comm.rank);
  const uint64_t number = group->numbers[index]++;
  struct sim_op *op = group_op(sim, group, number);
  struct sim_part *part = part_take(op, index, self, call);
  if (op->arrived == 1) {
    op->first_index = index;
  } else {
    sim_check_same(sim, &op->parts[op->first_index], part);
  }
  if (op->arrived == op->size) {
    group->open[number & group->open_mask] = NULL;
    if (call->op == SF_COMM_ALL_TO_ALL) sim_check_all_to_all(sim, op);
  }
  return part;
}

/* --- messages --------------------------------------------------------------------------------------------------- */

static uint64_t channel_key(int32_t from, int32_t to, int32_t tag) {
  return sf_hash_u64(sf_mix64((uint64_t)(uint32_t)from << 32 | (uint32_t)to), (uint64_t)(uint32_t)tag);
}

static void channels_grow(struct sf_sim *sim) {
  const uint64_t mask = 2 * sim->channel_mask + 1;
  struct sim_channel *channels = sf_alloc((mask + 1) * sizeof *channels);
  if (channels == NULL) sim_out_of_memory(sim);
  for (uint64_t i = 0; i <= sim->channel_mask; i++) {
    if (!sim->channels[i].used) continue;
    uint64_t slot = sim->channels[i].key & mask;
    while (channels[slot].used) slot = (slot + 1) & mask;
    channels[slot] = sim->channels[i];
  }
  sf_free(sim->channels);
  sim->channels = channels;
  sim->channel_mask = mask;
}

/* The result is valid until the next call. */
static struct sim_channel *channel_find(struct sf_sim *sim, int32_t from, int32_t to, int32_t tag) {
  const uint64_t key = channel_key(from, to, tag);
  uint64_t slot = key & sim->channel_mask;
  for (; sim->channels[slot].used; slot = (slot + 1) & sim->channel_mask) {
    struct sim_channel *at = &sim->channels[slot];
    if (at->key == key && at->from == from && at->to == to && at->tag == tag) return at;
  }
  if (4 * (sim->channel_count + 1) > 3 * (sim->channel_mask + 1)) {
    channels_grow(sim);
    return channel_find(sim, from, to, tag);
  }
  sim->channel_count++;
  sim->channels[slot] = (struct sim_channel){.key = key, .from = from, .to = to, .tag = tag, .used = true};
  return &sim->channels[slot];
}

/* Takes the oldest message that waits for this end, or makes a new one that waits for the other. */
static struct sim_op *channel_op(struct sf_sim *sim, struct sim_channel *channel, bool is_send) {
  const uint64_t number = is_send ? channel->sent++ : channel->received++;
  struct sim_op *op = channel->first;
  if (op != NULL && channel->sends_wait != is_send) {
    channel->first = op->next;
    SF_ASSERT(op->number == number);
    return op;
  }
  op = op_take(sim, &sim->free_pairs, 2);
  op->number = number;
  op->hash = sf_hash_u64(sf_hash_u64(sim->options.schedule, channel->key), number);
  if (channel->first == NULL)
    channel->first = op;
  else
    channel->last->next = op;
  channel->last = op;
  channel->sends_wait = is_send;
  return op;
}

struct sim_part *sim_match_message(struct sim_rank *self, const struct sf_comm_call *call) {
  struct sf_sim *sim = self->sim;
  const bool is_send = call->op == SF_COMM_SEND;
  const int32_t from = is_send ? self->comm.rank : call->peer, to = is_send ? call->peer : self->comm.rank;
  struct sim_op *op = channel_op(sim, channel_find(sim, from, to, call->tag), is_send);
  struct sim_part *part = part_take(op, is_send ? 0 : 1, self, call);
  if (op->arrived == 2) sim_check_same(sim, &op->parts[is_send ? 1 : 0], part);
  return part;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static void requests_grow(struct sf_sim *sim) {
  const uint32_t capacity = sim->request_capacity ? 2 * sim->request_capacity : 64;
  struct sim_part **requests = sf_realloc((void *)sim->requests, capacity * sizeof(struct sim_part *));
  if (requests != NULL) sim->requests = requests;
  uint32_t *serials = sf_realloc(sim->request_serials, capacity * sizeof *serials);
  if (serials != NULL) sim->request_serials = serials;
  uint32_t *free_slots = sf_realloc(sim->request_free, capacity * sizeof *free_slots);
  if (free_slots != NULL) sim->request_free = free_slots;
  if (requests == NULL || serials == NULL || free_slots == NULL) sim_out_of_memory(sim);
  memset(serials + sim->request_capacity, 0, (capacity - sim->request_capacity) * sizeof *serials);
  sim->request_capacity = capacity;
}

/* A request is its slot + 1; the bits above count how often the slot was used, so that an old request differs from a new one. */
void sim_request_open(struct sf_sim *sim, struct sim_part *part) {
  if (sim->request_free_count == 0 && sim->request_used == sim->request_capacity) requests_grow(sim);
  const uint32_t slot = sim->request_free_count > 0 ? sim->request_free[--sim->request_free_count] : sim->request_used++;
  sim->requests[slot] = part;
  part->request = (uint64_t)++sim->request_serials[slot] << 32 | (slot + 1);
  part->next = part->rank->open;
  if (part->next != NULL) part->next->prev = part;
  part->rank->open = part;
}

struct sim_part *sim_request_find(struct sf_sim *sim, sf_request request) {
  const uint64_t slot = (request & UINT32_MAX) - 1;
  if (slot >= sim->request_used || sim->requests[slot] == NULL || sim->requests[slot]->request != request) return NULL;
  return sim->requests[slot];
}

void sim_request_close(struct sf_sim *sim, struct sim_part *part) {
  const uint32_t slot = (uint32_t)(part->request & UINT32_MAX) - 1;
  sim->requests[slot] = NULL;
  sim->request_free[sim->request_free_count++] = slot;
  if (part->prev != NULL)
    part->prev->next = part->next;
  else
    part->rank->open = part->next;
  if (part->next != NULL) part->next->prev = part->prev;
}
