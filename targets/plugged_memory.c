#include "harness/base/hash.h"
#include "targets/plugged_call.h"

#include <stdarg.h>
#include <stdio.h>

enum { HEADER_BYTES = 64, GUARD_BYTES = 64, LEAST_BYTES = 512, FILL = 0xff };

/* Stands before a piece, a guard between them. */
struct sf_plugged_piece {
  struct sf_plugged_piece *next;
  const char *what;
  size_t size_bytes;
  uint64_t hash; /* of values */
  bool is_values;
};
_Static_assert(sizeof(struct sf_plugged_piece) <= HEADER_BYTES, "a piece's head");

static char *data_of(struct sf_plugged_piece *piece) { return (char *)piece + HEADER_BYTES + GUARD_BYTES; }
static struct sf_plugged_piece *piece_of(const void *data) { return (struct sf_plugged_piece *)(void *)((char *)(uintptr_t)data - GUARD_BYTES - HEADER_BYTES); }

void sf_plugged_fail(const struct sf_plugged_call *call, const char *format, ...) {
  char text[240];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  sf_comm_fail(call->run->env->comm, SF_ERANK, "the plugin's %s of %s %s", call->backward ? "backward" : "forward", call->plugged->name, text);
}

/* Powers of two: buffers are kept by their size. */
static struct sf_plugged_piece *piece_create(struct sf_rank_run *run, const char *what, size_t size_bytes) {
  size_t rounded = LEAST_BYTES;
  while (rounded < size_bytes + HEADER_BYTES + 2 * GUARD_BYTES) rounded *= 2;
  struct sf_plugged_piece *piece = sf_buffers_take_bytes(&run->acts, rounded);
  *piece = (struct sf_plugged_piece){.what = what, .size_bytes = size_bytes};
  memset((char *)piece + HEADER_BYTES, FILL, size_bytes + 2 * GUARD_BYTES);
  return piece;
}

void *sf_plugged_take(struct sf_plugged_call *call, const char *what, size_t size_bytes) {
  struct sf_plugged_piece *piece = piece_create(call->run, what, size_bytes);
  piece->next = call->pieces;
  call->pieces = piece;
  return data_of(piece);
}

void *sf_plugged_take_values(struct sf_plugged_call *call, const char *what, const float *values, int64_t count, enum sf_dtype dtype) {
  void *data = sf_plugged_take(call, what, sf_plugged_bytes(count, dtype));
  struct sf_plugged_piece *piece = piece_of(data);
  sf_plugged_pack(data, values, count, dtype);
  piece->hash = sf_hash_bytes(0, data, piece->size_bytes);
  piece->is_values = true;
  return data;
}

void sf_plugged_keep(struct sf_plugged_call *call, const void *data) {
  struct sf_plugged_piece *piece = piece_of(data), **at = &call->pieces;
  while (*at != piece) at = &(*at)->next;
  *at = piece->next;
  piece->next = NULL;
}

void sf_plugged_return(struct sf_plugged_call *call, void *data) {
  struct sf_plugged_piece *piece = piece_of(data);
  piece->next = call->pieces;
  call->pieces = piece;
}

static bool is_filled(const char *at) {
  for (int i = 0; i < GUARD_BYTES; i++)
    if ((unsigned char)at[i] != FILL) return false;
  return true;
}

void sf_plugged_check(const struct sf_plugged_call *call) {
  for (struct sf_plugged_piece *piece = call->pieces; piece != NULL; piece = piece->next) {
    char *data = data_of(piece);
    if (!is_filled(data - GUARD_BYTES)) sf_plugged_fail(call, "wrote in front of its %s", piece->what);
    if (!is_filled(data + piece->size_bytes)) sf_plugged_fail(call, "wrote behind its %s", piece->what);
    if (piece->is_values && sf_hash_bytes(0, data, piece->size_bytes) != piece->hash) sf_plugged_fail(call, "changed its %s", piece->what);
  }
}

void sf_plugged_release(struct sf_plugged_call *call) {
  while (call->pieces != NULL) {
    struct sf_plugged_piece *piece = call->pieces;
    call->pieces = piece->next;
    sf_buffers_give_bytes(&call->run->acts, piece);
  }
}

void sf_plugged_give_kept(struct sf_rank_run *run, void *data) {
  if (data != NULL) sf_buffers_give_bytes(&run->acts, piece_of(data));
}

size_t sf_plugged_bytes(int64_t count, enum sf_dtype dtype) { return (size_t)count * sf_dtype_wire_bytes(dtype); }

void sf_plugged_pack(void *out, const float *values, int64_t count, enum sf_dtype dtype) {
  if (sf_dtype_is_packed(dtype)) sf_pack(out, values, count, dtype);
  else memcpy(out, values, sf_plugged_bytes(count, dtype));
}

void sf_plugged_unpack(float *out, const void *packed, int64_t count, enum sf_dtype dtype) {
  if (sf_dtype_is_packed(dtype)) sf_unpack(out, packed, count, dtype);
  else memcpy(out, packed, sf_plugged_bytes(count, dtype));
}
