#include "harness/run/opfuzz/op_memory.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/opfuzz/case/op_fill.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Address space of far rows, and the part at its beginning that cannot be touched: a wrapped index reaches 2^31 elements back. */
#define FAR_BYTES (INT64_C(56) << 30)
#define FAR_BEFORE (INT64_C(16) << 30)
enum { GUARD_BYTES = 64, WALL_BYTES = 1 << 16, ELEMENT_MAX_BYTES = 8 };

/* Signalling NaNs; for E4M3 its only NaN. If a plugin calls free() on an operand, glibc takes the bytes before it for the size of a block.
 * Except for E5M2 they have bit 1 set, so glibc refuses at once ("munmap_chunk(): invalid pointer") and looks for no arena at an arbitrary
 * address. */
static uint64_t poison_of(const struct sf_op_place *place) {
  if (place->element == SF_OP_INT32) return 0x5a5a5a5a;
  if (place->element == SF_OP_UINT16) return 0xa7a7;
  switch (place->dtype) {
  case SF_F64: return UINT64_C(0x7ff5a7a7a7a7a7a7);
  case SF_BF16: return place->size_bytes == 2 ? 0x7fa7 : 0x7fa7a7a7;
  case SF_F16: return place->size_bytes == 2 ? 0x7da7 : 0x7fa7a7a7;
  case SF_F8E4M3: return place->size_bytes == 1 ? 0x7f : 0x7fa7a7a7;
  case SF_F8E5M2: return place->size_bytes == 1 ? 0x7d : 0x7fa7a7a7;
  default: return 0x7fa7a7a7;
  }
}

/* Whether an output with the poison was surely not written: an E4M3 number may well be NaN. */
static bool poison_is_telling(const struct sf_op_place *place) { return !(place->dtype == SF_F8E4M3 && place->size_bytes == 1); }

/* Memory with walls before and behind it. */
static void map_walled(struct sf_op_memory *out) {
  out->mapping_bytes = out->arena_bytes + 2 * WALL_BYTES;
  out->mapping = mmap(NULL, out->mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (out->mapping == MAP_FAILED) out->mapping = NULL;
  else if (mprotect(out->mapping + WALL_BYTES, out->arena_bytes, PROT_READ | PROT_WRITE) == 0) out->arena = out->mapping + WALL_BYTES;
}

enum sf_status sf_op_memory_create(struct sf_op_memory *out, int64_t max_elements, const struct sf_memory *from, bool walled) {
  memset(out, 0, sizeof *out);
  out->capacity = max_elements;
  /* Room for a case at the limit with rows SF_OP_PAD_MAX apart, guards, and starts of every operand. Cases that need more get no pad. */
  out->arena_bytes = ((size_t)max_elements * ELEMENT_MAX_BYTES * 8 + SF_OP_OPERANDS_MAX * 4096 + 4095) / 4096 * 4096;
  out->from = from;
  if (from) out->arena = from->alloc(from->context, out->arena_bytes);
  else map_walled(out);
  /* Blocks are up to twice as large as their contents. */
  out->snapshot_bytes = walled ? 2 * out->arena_bytes : out->arena_bytes;
  if (walled) out->walled = sf_walled_pool_create();
  const size_t count = (size_t)max_elements + 1;
  out->snapshot = sf_alloc(out->snapshot_bytes);
  out->dense = sf_alloc(count * sizeof(float));
  out->want = sf_alloc(count * sizeof(struct sf_num));
  for (int i = 0; i < 2; i++) out->got[i] = sf_alloc(count * sizeof(double));
  if (out->arena && (out->walled || !walled) && out->snapshot && out->dense && out->want && out->got[0] && out->got[1]) return SF_OK;
  sf_op_memory_destroy(out);
  return SF_ENOMEM;
}

void sf_op_memory_destroy(struct sf_op_memory *memory) {
  if (memory->far_mapping) munmap(memory->far_mapping, (size_t)FAR_BYTES);
  sf_walled_pool_destroy(memory->walled);
  if (memory->mapping) munmap(memory->mapping, memory->mapping_bytes);
  if (memory->from && memory->arena) memory->from->release(memory->from->context, memory->arena);
  sf_free(memory->snapshot);
  sf_free(memory->dense);
  sf_free(memory->want);
  sf_free(memory->got[0]);
  sf_free(memory->got[1]);
  memset(memory, 0, sizeof *memory);
}

static void describe(struct sf_op_place *place, const struct sf_op_operand *operand, const struct sf_op_case *c, bool packed) {
  place->element = operand->element;
  place->dtype = operand->element == SF_OP_INPUT    ? (enum sf_dtype)c->field[SF_OP_INPUTS]
                 : operand->element == SF_OP_STORED ? (enum sf_dtype)c->field[SF_OP_STORE]
                 : operand->element == SF_OP_DOUBLE ? SF_F64
                                                    : SF_F32;
  const bool number = operand->element == SF_OP_INPUT || operand->element == SF_OP_STORED;
  place->size_bytes = operand->element == SF_OP_UINT16   ? 2
                      : operand->element == SF_OP_DOUBLE ? 8
                      : packed && number                 ? sf_dtype_wire_bytes(place->dtype)
                                                         : 4;
}

/* Whether rows can be far apart. False if the system refuses the space, the device has memory of its own, or the operand does not fit: then
 * it gets no pad. */
static bool far_fits(struct sf_op_memory *memory, const struct sf_op_place *place, int64_t pad) {
  const int64_t most = FAR_BYTES - FAR_BEFORE - 4096;
  if (memory->from != NULL || memory->far_used || place->rows > SF_OP_FAR_ROWS ||
      (place->cols + pad) * place->rows * (int64_t)place->size_bytes > most)
    return false;
  if (memory->far_mapping) return true;
  void *space = mmap(NULL, (size_t)FAR_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return false;
  if (mprotect((char *)space + FAR_BEFORE, (size_t)(FAR_BYTES - FAR_BEFORE), PROT_READ | PROT_WRITE) != 0) {
    munmap(space, (size_t)FAR_BYTES);
    return false;
  }
  memory->far_mapping = space;
  return true;
}

static void put_far(struct sf_op_memory *memory, struct sf_op_place *place, int64_t pad, int64_t start) {
  place->far = memory->far_used = true;
  place->ld = place->cols + pad;
  place->at = memory->far_mapping + FAR_BEFORE + 4096 + (size_t)start * place->size_bytes;
  place->pitch = ((size_t)place->cols * place->size_bytes + 2 * GUARD_BYTES + 63) / 64 * 64;
  place->begin = place->home = memory->used;
  place->end = memory->used = place->begin + (size_t)place->rows * place->pitch;
  place->region = NULL;
  SF_ASSERT_LE(memory->used, memory->snapshot_bytes);
}

/* The begin of an operand's row r in the snapshot. */
static char *snapshot_row(const struct sf_op_memory *memory, const struct sf_op_place *place, int64_t r) {
  if (place->far) return memory->snapshot + place->home + (size_t)r * place->pitch + GUARD_BYTES;
  return memory->snapshot + place->home + (place->at - place->region) + (size_t)(r * place->ld) * place->size_bytes;
}

/* A far row with its guards. */
static char *far_row(const struct sf_op_place *place, int64_t r) {
  return place->at + (size_t)(r * place->ld) * place->size_bytes - GUARD_BYTES;
}

/* The number of elements from the first up to and including the last. */
static size_t extent(const struct sf_op_place *place) {
  return place->rows > 0 && place->cols > 0 ? (size_t)((place->rows - 1) * place->ld + place->cols) : 0;
}

/* Puts the operand at the end of a block of its own. False if there is no memory for one. */
static bool put_walled(struct sf_op_memory *memory, struct sf_op_place *place, int64_t start, int32_t number) {
  struct sf_walled *block =
      sf_walled_take(memory->walled, extent(place) * place->size_bytes, (size_t)start * place->size_bytes % SF_WALLED_ALIGNMENT);
  if (!block) return false;
  block->number = number;
  place->at = place->rows + place->cols > 0 ? block->data : NULL;
  place->region = block->begin;
  place->end = memory->used = place->begin + (size_t)(block->end - block->begin);
  return true;
}

/* Places operand i: in a region of its own, or in an input's. */
static void put(struct sf_op_memory *memory, const struct sf_op_case *c, const struct sf_op *op, int32_t i) {
  struct sf_op_place *place = &memory->places[i];
  const int32_t shared = c->field[SF_OP_IN_PLACE] && op->operands[i].in_place ? op->operands[i].in_place - 1 : -1;
  if (shared >= 0 && memory->places[shared].at) {
    place->at = memory->places[shared].at;
    place->ld = memory->places[shared].ld;
    place->far = memory->places[shared].far;
    place->region = memory->places[shared].region;
    place->home = memory->places[shared].home;
    place->pitch = memory->places[shared].pitch;
    place->begin = place->end = 0;
    return;
  }
  const int64_t pad = op->operands[i].strided ? c->field[SF_OP_PAD + i] : 0;
  place->far = false;
  if (pad > SF_OP_PAD_MAX && place->rows > 1 && place->cols > 0 && far_fits(memory, place, pad)) {
    put_far(memory, place, pad, c->field[SF_OP_START + i]);
    return;
  }
  const size_t left = memory->arena_bytes / (2 * SF_OP_OPERANDS_MAX);
  place->ld = place->cols + pad;
  if (pad > 0 && (size_t)(place->rows * place->ld) * place->size_bytes > left) place->ld = place->cols + 1;
  place->begin = place->home = memory->used;
  if (memory->walled && put_walled(memory, place, c->field[SF_OP_START + i], i)) {
    SF_ASSERT_LE(memory->used, memory->snapshot_bytes);
    return;
  }
  const size_t first = GUARD_BYTES + (size_t)c->field[SF_OP_START + i] * place->size_bytes;
  const size_t size_bytes = (first + (size_t)(place->rows * place->ld) * place->size_bytes + GUARD_BYTES + 63) / 64 * 64;
  place->region = memory->arena + memory->arena_used;
  place->at = place->rows + place->cols > 0 ? place->region + first : NULL;
  place->end = memory->used = place->begin + size_bytes;
  memory->arena_used += size_bytes;
  SF_ASSERT_LE(memory->arena_used, memory->arena_bytes);
}

static void poison(const struct sf_op_memory *memory, const struct sf_op_place *place) {
  uint64_t pattern = poison_of(place);
  for (size_t bytes = place->size_bytes; bytes < sizeof pattern; bytes *= 2) pattern |= pattern << 8 * bytes;
  for (size_t at = place->begin; at < place->end; at += sizeof pattern) memcpy(memory->snapshot + at, &pattern, sizeof pattern);
}

/* Copies dense values into the operand's memory. */
static void pack(struct sf_op_memory *memory, int32_t i) {
  const struct sf_op_place *place = &memory->places[i];
  const struct sf_op_array *array = &memory->view.at[i];
  for (int64_t r = 0; r < place->rows; r++) {
    char *to = snapshot_row(memory, place, r);
    const int64_t from = r * place->cols;
    if (place->element == SF_OP_UINT16)
      for (int64_t j = 0; j < place->cols; j++) ((uint16_t *)(void *)to)[j] = (uint16_t)array->ints[from + j];
    else if (place->size_bytes == 4)
      memcpy(to, place->element == SF_OP_INT32 ? (const void *)(array->ints + from) : array->x + from, (size_t)place->cols * 4);
    else if (place->size_bytes == 2) sf_pack((uint16_t *)(void *)to, array->x + from, place->cols, place->dtype);
    else
      for (int64_t j = 0; j < place->cols; j++) to[j] = (char)sf_f8_bits(array->x[from + j], place->dtype);
  }
}

/* Lays out the dense arrays of inputs, and the wanted values of outputs. */
static void lay_dense(struct sf_op_memory *memory, const struct sf_op *op) {
  int64_t dense = 0, want = 0;
  for (int32_t i = 0; i < op->operand_count; i++) {
    struct sf_op_array *array = &memory->view.at[i];
    const int64_t count = memory->places[i].rows * memory->places[i].cols;
    *array = (struct sf_op_array){.rows = memory->places[i].rows, .cols = memory->places[i].cols};
    if (op->operands[i].role != SF_OP_OUT) {
      const bool whole = op->operands[i].element == SF_OP_INT32 || op->operands[i].element == SF_OP_UINT16;
      if (whole) array->ints = (int32_t *)(void *)(memory->dense + dense);
      else array->x = memory->dense + dense;
      dense += count;
    }
    if (op->operands[i].role == SF_OP_IN) continue;
    array->want = memory->want + want;
    memory->results[i] = memory->got[0] + want;
    want += count;
  }
}

/* Copies the snapshot to the operands. */
static void lay_out(struct sf_op_memory *memory) {
  for (int32_t i = 0; i < memory->view.op->operand_count; i++) {
    const struct sf_op_place *place = &memory->places[i];
    if (!place->far) memcpy(place->region, memory->snapshot + place->begin, place->end - place->begin);
    for (int64_t r = 0; place->far && place->end > place->begin && r < place->rows; r++)
      memcpy(far_row(place, r), snapshot_row(memory, place, r) - GUARD_BYTES, place->pitch);
  }
}

void sf_op_memory_fill(struct sf_op_memory *memory, const struct sf_op_target *target, const struct sf_op_case *c,
                       const struct sf_op_shape *shapes) {
  const struct sf_op *op = sf_op_of(target, c);
  const bool packed = *target->path;
  if (memory->far_used) madvise(memory->far_mapping + FAR_BEFORE, (size_t)(FAR_BYTES - FAR_BEFORE), MADV_DONTNEED);
  if (memory->walled) sf_walled_give_all(memory->walled);
  memory->far_used = false;
  memory->used = memory->arena_used = 0;
  memory->view.op = op;
  memory->view.dims = c->field + SF_OP_DIM;
  memory->view.attrs = c->field + SF_OP_ATTR;
  memory->view.store = (enum sf_dtype)c->field[SF_OP_STORE];
  memory->view.plain_tails = packed;
  for (int32_t i = 0; i < op->operand_count; i++) {
    memory->places[i].rows = shapes[i].rows;
    memory->places[i].cols = shapes[i].cols;
    describe(&memory->places[i], &op->operands[i], c, packed);
    put(memory, c, op, i);
  }
  lay_dense(memory, op);
  for (int32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i].role != SF_OP_OUT) sf_op_fill(&memory->view, i, c);
  if (op->prepare) op->prepare(&memory->view);
  for (int32_t i = 0; i < op->operand_count; i++) {
    if (memory->places[i].end > memory->places[i].begin) poison(memory, &memory->places[i]);
    if (op->operands[i].role != SF_OP_OUT && memory->places[i].at) pack(memory, i);
  }
  lay_out(memory);
}

static double value_at(const char *at, const struct sf_op_place *place) {
  float x;
  double wide;
  uint16_t two;
  switch (place->size_bytes) {
  case 8: memcpy(&wide, at, sizeof wide); return wide;
  case 4: memcpy(&x, at, sizeof x); return (double)x;
  case 2: memcpy(&two, at, sizeof two); return (double)(place->dtype == SF_BF16 ? sf_bf16_value(two) : sf_f16_value(two));
  default: return (double)sf_f8_value((uint8_t)*at, place->dtype);
  }
}

int32_t sf_op_memory_collect(struct sf_op_memory *memory, int run, int64_t *element) {
  const struct sf_op *op = memory->view.op;
  int32_t unwritten = -1;
  for (int32_t i = 0; i < op->operand_count; i++) {
    const struct sf_op_place *place = &memory->places[i];
    if (op->operands[i].role == SF_OP_IN || !place->at) continue;
    double *out = memory->got[run] + (memory->results[i] - memory->got[0]);
    const uint64_t pattern = poison_of(place);
    const bool telling = op->operands[i].role == SF_OP_OUT && place->end > place->begin && poison_is_telling(place);
    for (int64_t r = 0; r < place->rows; r++) {
      char *row = place->at + (size_t)(r * place->ld) * place->size_bytes;
      for (int64_t j = 0; j < place->cols; j++) {
        const char *at = row + (size_t)j * place->size_bytes;
        out[r * place->cols + j] = value_at(at, place);
        if (telling && unwritten < 0 && memcmp(at, &pattern, place->size_bytes) == 0) unwritten = i, *element = r * place->cols + j;
      }
      memcpy(row, snapshot_row(memory, place, r), (size_t)place->cols * place->size_bytes);
    }
  }
  return unwritten;
}

/* Finds damage around rows that are far apart. */
static int32_t far_damage(const struct sf_op_memory *memory, bool *inside, int64_t *offset) {
  for (int32_t i = 0; memory->far_used && i < memory->view.op->operand_count; i++) {
    const struct sf_op_place *place = &memory->places[i];
    for (int64_t r = 0; place->far && place->end > place->begin && r < place->rows; r++) {
      const char *is = far_row(place, r), *was = snapshot_row(memory, place, r) - GUARD_BYTES;
      if (memcmp(is, was, place->pitch) == 0) continue;
      int64_t at = 0;
      while (is[at] == was[at]) at++;
      *inside = at >= GUARD_BYTES && (at - GUARD_BYTES) / (int64_t)place->size_bytes < place->cols;
      *offset = r * place->ld + (at >= GUARD_BYTES ? (at - GUARD_BYTES) / (int64_t)place->size_bytes : -1);
      return i;
    }
  }
  return -1;
}

int32_t sf_op_memory_damage(struct sf_op_memory *memory, bool *inside, int64_t *offset) {
  const int32_t far = far_damage(memory, inside, offset);
  if (far >= 0) return far;
  for (int32_t i = 0; i < memory->view.op->operand_count; i++) {
    const struct sf_op_place *place = &memory->places[i];
    const char *was = memory->snapshot + place->begin;
    if (place->far || memcmp(place->region, was, place->end - place->begin) == 0) continue;
    const char *is = place->region;
    while (*is == *was) is++, was++;
    const int64_t bytes = is - (place->at ? place->at : place->region);
    *offset = bytes >= 0 ? bytes / (int64_t)place->size_bytes : -((-bytes + (int64_t)place->size_bytes - 1) / (int64_t)place->size_bytes);
    *inside = *offset >= 0 && place->at && *offset < place->rows * place->ld && *offset % place->ld < place->cols;
    return i;
  }
  return -1;
}

int32_t sf_op_memory_where(char *out, size_t size, const struct sf_op_memory *memory, const char *address, bool writes) {
  const struct sf_op *op = memory->view.op;
  const struct sf_walled *block = sf_walled_near(memory->walled, address);
  int32_t found = block ? block->number : -1;
  char where[48] = "between rows of";
  for (int32_t i = 0; op && !block && i < op->operand_count; i++) {
    const struct sf_op_place *place = &memory->places[i];
    if (place->end > place->begin && !place->far && address >= place->region && address < place->region + (place->end - place->begin))
      found = i;
  }
  if (found < 0) return -1;
  const struct sf_op_place *place = &memory->places[found];
  const char *at = place->at ? place->at : place->region;
  for (int32_t i = 0; writes && op->operands[found].role == SF_OP_IN && i < op->operand_count; i++)
    if (op->operands[i].role != SF_OP_IN && place->at && memory->places[i].at == place->at) found = i;
  const size_t size_bytes = extent(place) * place->size_bytes;
  if (address < at || address >= at + size_bytes) sf_walled_where(where, sizeof where, at, size_bytes, address);
  snprintf(out, size, "%s %s %s", where, op->operands[found].role == SF_OP_IN ? "input" : "output", op->operands[found].name);
  return found;
}
