#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "harness/base/system/walled.h"
#include "targets/plugin/plugged_host.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { GUARD_BYTES = 64, FILL = 0xff };

/* [begin, end) is the whole piece; the plugin's part is size_bytes at data. */
struct sf_plugged_piece {
  struct sf_plugged_piece *next;
  struct sf_walled *block; /* NULL: it lies in a buffer */
  char *begin, *data, *end;
  const char *what;
  size_t size_bytes;
  uint64_t hash; /* of values */
  bool is_values;
};

void sf_plugged_fail(const struct sf_plugged_host *host, enum sf_manner manner, const char *format, ...) {
  char text[240];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (host->name == NULL) sf_comm_fail_in(host->env->comm, SF_ERANK, manner, "the plugin's %s %s", host->pass, text);
  sf_comm_fail_in(host->env->comm, SF_ERANK, manner, "the plugin's %s of %s %s", host->pass, host->name, text);
}

static void end_if_forked(const struct sf_plugged_host *host) {
  if (getpid() != host->process) _exit(0);
}

void sf_plugged_enter(struct sf_plugged_host *host) {
  end_if_forked(host);
  host->mode = sf_float_mode_restore();
}
void sf_plugged_leave(const struct sf_plugged_host *host) {
  if (!sf_float_mode_is_default(host->mode)) sf_float_mode_set(host->mode);
}

/* Powers of two: buffers are kept by their size. */
static size_t buffer_bytes(size_t size_bytes) {
  size_t rounded = 512;
  while (rounded < size_bytes + 2 * GUARD_BYTES) rounded *= 2;
  return rounded;
}

static struct sf_plugged_piece *piece_create(const struct sf_plugged_host *host, const char *what, size_t size_bytes) {
  struct sf_plugged_piece *piece = sf_buffers_take_bytes(host->buffers, sizeof *piece);
  *piece = (struct sf_plugged_piece){.what = what, .size_bytes = size_bytes};
  if (host->env->walled != NULL) {
    struct sf_walled *block = sf_walled_take(host->env->walled, size_bytes, 0);
    if (block == NULL) sf_comm_fail(host->env->comm, SF_ENOMEM, "a plugin's memory: %zu bytes refused", size_bytes);
    block->what = what;
    piece->block = block, piece->begin = block->begin, piece->data = block->data, piece->end = block->end;
  } else {
    piece->begin = sf_buffers_take_bytes(host->buffers, buffer_bytes(size_bytes));
    piece->data = piece->begin + GUARD_BYTES;
    piece->end = piece->data + size_bytes + GUARD_BYTES;
  }
  memset(piece->begin, FILL, (size_t)(piece->end - piece->begin));
  return piece;
}

static void piece_give(const struct sf_rank_env *env, struct sf_buffers *buffers, struct sf_plugged_piece *piece) {
  if (piece->block != NULL) sf_walled_give(env->walled, piece->block);
  else sf_buffers_give_bytes(buffers, piece->begin);
  sf_buffers_give_bytes(buffers, piece);
}

void *sf_plugged_take(struct sf_plugged_host *host, const char *what, size_t size_bytes) {
  struct sf_plugged_piece *piece = piece_create(host, what, size_bytes);
  piece->next = host->pieces;
  host->pieces = piece;
  return piece->data;
}

/* Seals the newest piece: from now on its bytes may not change. */
static void *sealed(struct sf_plugged_host *host) {
  struct sf_plugged_piece *piece = host->pieces;
  piece->hash = sf_hash_bytes(0, piece->data, piece->size_bytes);
  piece->is_values = true;
  return piece->data;
}

void *sf_plugged_take_copy(struct sf_plugged_host *host, const char *what, const void *data, size_t size_bytes) {
  memcpy(sf_plugged_take(host, what, size_bytes), data, size_bytes);
  return sealed(host);
}

void *sf_plugged_take_values(struct sf_plugged_host *host, const char *what, const float *values, int64_t count, enum sf_dtype dtype) {
  void *data = sf_plugged_take(host, what, sf_plugged_bytes(count, dtype));
  sf_plugged_pack(data, values, count, dtype);
  return sealed(host);
}

/* The link in the list to the piece with this data, or to NULL. */
static struct sf_plugged_piece **link_to(struct sf_plugged_host *host, const void *data) {
  struct sf_plugged_piece **at = &host->pieces;
  while (*at != NULL && (*at)->data != data) at = &(*at)->next;
  return at;
}

struct sf_plugged_piece *sf_plugged_keep(struct sf_plugged_host *host, const void *data) {
  struct sf_plugged_piece **at = link_to(host, data), *piece = *at;
  SF_ASSERT(piece != NULL);
  *at = piece->next;
  piece->next = NULL;
  return piece;
}

void *sf_plugged_return(struct sf_plugged_host *host, struct sf_plugged_piece *piece) {
  piece->next = host->pieces;
  host->pieces = piece;
  return piece->data;
}

/* Whether all bytes still have the filling. */
static bool is_filled(const char *from, const char *to) {
  unsigned char all = FILL;
  for (; from < to; from++) all &= (unsigned char)*from;
  return all == FILL;
}

static void check_piece(const struct sf_plugged_host *host, const struct sf_plugged_piece *piece) {
  const char *end = piece->data + piece->size_bytes;
  char where[48];
  if (!is_filled(piece->begin, piece->data)) {
    const char *at = piece->data - 1;
    while ((unsigned char)*at == FILL) at--;
    sf_walled_where(where, sizeof where, piece->data, piece->size_bytes, at);
    sf_plugged_fail(host, SF_MANNER_WRITE, "wrote %s its %s", where, piece->what);
  }
  if (!is_filled(end, piece->end)) {
    while ((unsigned char)*end == FILL) end++;
    sf_walled_where(where, sizeof where, piece->data, piece->size_bytes, end);
    sf_plugged_fail(host, SF_MANNER_WRITE, "wrote %s its %s", where, piece->what);
  }
  if (piece->is_values && sf_hash_bytes(0, piece->data, piece->size_bytes) != piece->hash)
    sf_plugged_fail(host, SF_MANNER_CHANGED, "changed its %s", piece->what);
}

void sf_plugged_end(const struct sf_plugged_host *host, const char *label, int result, const struct sf_group *group) {
  end_if_forked(host);
  sf_comm_show_progress(host->env->comm, label);
  const struct sf_float_mode left = sf_float_mode_restore();
  char text[120];
  sf_float_mode_text(text, sizeof text, left);
  if (!sf_float_mode_is_default(left)) sf_plugged_fail(host, SF_MANNER_ROUNDING, "left the thread's floating-point mode changed: %s", text);
  if (result != SHARDFUZZ_OK) sf_plugged_fail(host, SF_MANNER_ERROR, "returned %d", result);
  sf_plugged_comm_check(host);
  for (const struct sf_plugged_piece *piece = host->pieces; piece != NULL; piece = piece->next) check_piece(host, piece);
  sf_barrier(host->env->comm, group, label);
}

void sf_plugged_check_piece(const struct sf_plugged_host *host, const void *data) {
  const struct sf_plugged_piece *piece = host->pieces;
  while (piece != NULL && piece->data != data) piece = piece->next;
  if (piece == NULL) sf_plugged_fail(host, SF_MANNER_ARGUMENT, "gave back memory that it does not have");
  check_piece(host, piece);
}

void sf_plugged_release(struct sf_plugged_host *host) {
  while (host->pieces != NULL) {
    struct sf_plugged_piece *piece = host->pieces;
    host->pieces = piece->next;
    piece_give(host->env, host->buffers, piece);
  }
}

void sf_plugged_give_kept(const struct sf_rank_env *env, struct sf_buffers *buffers, struct sf_plugged_piece *piece) {
  if (piece != NULL) piece_give(env, buffers, piece);
}

void sf_plugged_give(struct sf_plugged_host *host, const void *data) { piece_give(host->env, host->buffers, sf_plugged_keep(host, data)); }

size_t sf_plugged_bytes(int64_t count, enum sf_dtype dtype) { return (size_t)count * sf_dtype_wire_bytes(dtype); }

void sf_plugged_pack(void *out, const float *values, int64_t count, enum sf_dtype dtype) {
  if (sf_dtype_is_packed(dtype)) sf_pack(out, values, count, dtype);
  else memcpy(out, values, sf_plugged_bytes(count, dtype));
}

void sf_plugged_unpack(float *out, const void *packed, int64_t count, enum sf_dtype dtype) {
  if (sf_dtype_is_packed(dtype)) sf_unpack(out, packed, count, dtype);
  else memcpy(out, packed, sf_plugged_bytes(count, dtype));
}
