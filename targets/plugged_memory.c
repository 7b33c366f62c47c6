#include "harness/base/hash.h"
#include "targets/plugged_host.h"

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

void sf_plugged_fail(const struct sf_plugged_host *host, const char *format, ...) {
  char text[240];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (host->name == NULL) sf_comm_fail(host->env->comm, SF_ERANK, "the plugin's %s %s", host->pass, text);
  sf_comm_fail(host->env->comm, SF_ERANK, "the plugin's %s of %s %s", host->pass, host->name, text);
}

void sf_plugged_enter(struct sf_plugged_host *host) { host->mode = sf_float_mode_restore(); }
void sf_plugged_leave(const struct sf_plugged_host *host) {
  if (!sf_float_mode_is_default(host->mode)) sf_float_mode_set(host->mode);
}

void sf_plugged_check_end(const struct sf_plugged_host *host, int result) {
  const struct sf_float_mode left = sf_float_mode_restore();
  char text[120];
  sf_float_mode_text(text, sizeof text, left);
  if (!sf_float_mode_is_default(left)) sf_plugged_fail(host, "left the thread's floating-point mode changed: %s", text);
  if (result != SHARDFUZZ_OK) sf_plugged_fail(host, "returned %d", result);
}

/* Powers of two: buffers are kept by their size. */
static struct sf_plugged_piece *piece_create(struct sf_buffers *buffers, const char *what, size_t size_bytes) {
  size_t rounded = LEAST_BYTES;
  while (rounded < size_bytes + HEADER_BYTES + 2 * GUARD_BYTES) rounded *= 2;
  struct sf_plugged_piece *piece = sf_buffers_take_bytes(buffers, rounded);
  *piece = (struct sf_plugged_piece){.what = what, .size_bytes = size_bytes};
  memset((char *)piece + HEADER_BYTES, FILL, size_bytes + 2 * GUARD_BYTES);
  return piece;
}

void *sf_plugged_take(struct sf_plugged_host *host, const char *what, size_t size_bytes) {
  struct sf_plugged_piece *piece = piece_create(host->buffers, what, size_bytes);
  piece->next = host->pieces;
  host->pieces = piece;
  return data_of(piece);
}

/* From now on its bytes may not change. */
static void *sealed(void *data) {
  struct sf_plugged_piece *piece = piece_of(data);
  piece->hash = sf_hash_bytes(0, data, piece->size_bytes);
  piece->is_values = true;
  return data;
}

void *sf_plugged_take_copy(struct sf_plugged_host *host, const char *what, const void *data, size_t size_bytes) {
  return sealed(memcpy(sf_plugged_take(host, what, size_bytes), data, size_bytes));
}

void *sf_plugged_take_values(struct sf_plugged_host *host, const char *what, const float *values, int64_t count, enum sf_dtype dtype) {
  void *data = sf_plugged_take(host, what, sf_plugged_bytes(count, dtype));
  sf_plugged_pack(data, values, count, dtype);
  return sealed(data);
}

void sf_plugged_keep(struct sf_plugged_host *host, const void *data) {
  struct sf_plugged_piece *piece = piece_of(data), **at = &host->pieces;
  while (*at != piece) at = &(*at)->next;
  *at = piece->next;
  piece->next = NULL;
}

void sf_plugged_return(struct sf_plugged_host *host, void *data) {
  struct sf_plugged_piece *piece = piece_of(data);
  piece->next = host->pieces;
  host->pieces = piece;
}

static bool is_filled(const char *at) {
  for (int i = 0; i < GUARD_BYTES; i++)
    if ((unsigned char)at[i] != FILL) return false;
  return true;
}

static void check_piece(const struct sf_plugged_host *host, struct sf_plugged_piece *piece) {
  char *data = data_of(piece);
  if (!is_filled(data - GUARD_BYTES)) sf_plugged_fail(host, "wrote in front of its %s", piece->what);
  if (!is_filled(data + piece->size_bytes)) sf_plugged_fail(host, "wrote behind its %s", piece->what);
  if (piece->is_values && sf_hash_bytes(0, data, piece->size_bytes) != piece->hash) sf_plugged_fail(host, "changed its %s", piece->what);
}

void sf_plugged_check(const struct sf_plugged_host *host) {
  for (struct sf_plugged_piece *piece = host->pieces; piece != NULL; piece = piece->next) check_piece(host, piece);
}

void sf_plugged_check_piece(const struct sf_plugged_host *host, const void *data) {
  struct sf_plugged_piece *piece = host->pieces;
  while (piece != NULL && data_of(piece) != data) piece = piece->next;
  if (piece == NULL) sf_plugged_fail(host, "gave back memory that it does not have");
  check_piece(host, piece);
}

void sf_plugged_release(struct sf_plugged_host *host) {
  while (host->pieces != NULL) {
    struct sf_plugged_piece *piece = host->pieces;
    host->pieces = piece->next;
    sf_buffers_give_bytes(host->buffers, piece);
  }
}

void sf_plugged_give_kept(struct sf_buffers *buffers, void *data) {
  if (data != NULL) sf_buffers_give_bytes(buffers, piece_of(data));
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
