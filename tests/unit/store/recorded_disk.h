/* A disk that keeps what SQLite does to a database and its logs, in order, so that a test can lay out what a power cut at any moment may
 * have left: what was synced is there; of what was not, any part may be, in sectors of 512 bytes. */
#ifndef TESTS_UNIT_STORE_RECORDED_DISK_H
#define TESTS_UNIT_STORE_RECORDED_DISK_H

#include "tests/unit/store/store_fixture.h"

enum disk_file { DISK_DATABASE, DISK_WAL, DISK_JOURNAL, DISK_FILES };
static const char *const disk_ends[DISK_FILES] = {"", "-wal", "-journal"};
enum disk_kind { DISK_WRITE, DISK_TRUNCATE, DISK_SYNC, DISK_REMOVE, DISK_MARK };
struct disk_event {
  enum disk_kind kind;
  enum disk_file file;
  int64_t offset, size; /* TRUNCATE: size. MARK: size is a number of the test */
  bool syncs_folder;    /* of a SYNC or a REMOVE: what was removed before, or is now, stays away */
  unsigned char *bytes; /* of a WRITE */
};
enum { DISK_EVENTS_MAX = 20000, DISK_SECTOR = 512 };
static struct {
  sqlite3_vfs vfs, *real;
  sqlite3_io_methods methods;
  char path[200]; /* of the database that is recorded */
  struct disk_event events[DISK_EVENTS_MAX];
  int64_t count;
} disk;
struct recorded_file {
  sqlite3_file base;
  int file;          /* -1: not recorded */
  bool syncs_folder; /* SQLite's first sync of a new log syncs the folder too, which has its name */
};

static inline sqlite3_file *real_of(sqlite3_file *file) { return (sqlite3_file *)((struct recorded_file *)file + 1); }

static inline struct disk_event *disk_note(enum disk_kind kind, int file, int64_t offset, int64_t size) {
  assert_true(disk.count < DISK_EVENTS_MAX);
  struct disk_event *event = &disk.events[disk.count++];
  *event = (struct disk_event){.kind = kind, .file = (enum disk_file)file, .offset = offset, .size = size};
  return event;
}
static inline void disk_mark(int64_t number) { disk_note(DISK_MARK, 0, 0, number); }

static inline int which_file(const char *name) {
  for (int i = 0; name != NULL && i < DISK_FILES; i++) {
    const size_t length = strlen(disk.path);
    if (strncmp(name, disk.path, length) == 0 && strcmp(name + length, disk_ends[i]) == 0) return i;
  }
  return -1;
}

static inline int disk_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset) {
  const int which = ((struct recorded_file *)file)->file;
  if (which >= 0) {
    struct disk_event *event = disk_note(DISK_WRITE, which, offset, count);
    event->bytes = test_malloc((size_t)count);
    memcpy(event->bytes, bytes, (size_t)count);
  }
  return real_of(file)->pMethods->xWrite(real_of(file), bytes, count, offset);
}
static inline int disk_truncate(sqlite3_file *file, sqlite3_int64 size) {
  const int which = ((struct recorded_file *)file)->file;
  if (which >= 0) disk_note(DISK_TRUNCATE, which, 0, size);
  return real_of(file)->pMethods->xTruncate(real_of(file), size);
}
/* The file system under the test need not do it: the test lays out by itself what it would have left. */
static inline int disk_sync(sqlite3_file *file, int flags) {
  struct recorded_file *recorded = (struct recorded_file *)file;
  (void)flags;
  if (recorded->file >= 0) disk_note(DISK_SYNC, recorded->file, 0, 0)->syncs_folder = recorded->syncs_folder;
  recorded->syncs_folder = false;
  return SQLITE_OK;
}
#define PASS(result, name, parameters, ...)                                                                                                \
  static inline result disk_##name parameters { return real_of(file)->pMethods->name(real_of(file), ##__VA_ARGS__); }
PASS(int, xClose, (sqlite3_file * file))
PASS(int, xRead, (sqlite3_file * file, void *bytes, int count, sqlite3_int64 offset), bytes, count, offset)
PASS(int, xFileSize, (sqlite3_file * file, sqlite3_int64 *size), size)
PASS(int, xLock, (sqlite3_file * file, int lock), lock)
PASS(int, xUnlock, (sqlite3_file * file, int lock), lock)
PASS(int, xCheckReservedLock, (sqlite3_file * file, int *is), is)
PASS(int, xFileControl, (sqlite3_file * file, int op, void *arg), op, arg)
PASS(int, xSectorSize, (sqlite3_file * file))
PASS(int, xDeviceCharacteristics, (sqlite3_file * file))
PASS(int, xShmMap, (sqlite3_file * file, int page, int size, int extend, void volatile **out), page, size, extend, out)
PASS(int, xShmLock, (sqlite3_file * file, int offset, int n, int flags), offset, n, flags)
PASS(void, xShmBarrier, (sqlite3_file * file))
PASS(int, xShmUnmap, (sqlite3_file * file, int remove), remove)
#undef PASS

static inline int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags) {
  struct recorded_file *recorded = (struct recorded_file *)file;
  (void)vfs;
  recorded->file = which_file(name);
  recorded->syncs_folder = (flags & SQLITE_OPEN_CREATE) != 0 && (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
  recorded->base.pMethods = NULL;
  const int code = disk.real->xOpen(disk.real, name, real_of(file), flags, out_flags);
  if (real_of(file)->pMethods != NULL) recorded->base.pMethods = &disk.methods;
  return code;
}
static inline int disk_remove(sqlite3_vfs *vfs, const char *name, int sync_folder) {
  (void)vfs;
  const int which = which_file(name), code = disk.real->xDelete(disk.real, name, 0);
  if (which >= 0 && code == SQLITE_OK) disk_note(DISK_REMOVE, which, 0, 0)->syncs_folder = sync_folder != 0;
  return code;
}

/* From here on SQLite's writes to this database are kept. */
static inline void disk_record(const char *path) {
  snprintf(disk.path, sizeof disk.path, "%s", path);
  disk.count = 0;
  disk.real = sqlite3_vfs_find(NULL);
  disk.methods = (sqlite3_io_methods){2,
                                      disk_xClose,
                                      disk_xRead,
                                      disk_write,
                                      disk_truncate,
                                      disk_sync,
                                      disk_xFileSize,
                                      disk_xLock,
                                      disk_xUnlock,
                                      disk_xCheckReservedLock,
                                      disk_xFileControl,
                                      disk_xSectorSize,
                                      disk_xDeviceCharacteristics,
                                      disk_xShmMap,
                                      disk_xShmLock,
                                      disk_xShmBarrier,
                                      disk_xShmUnmap,
                                      NULL,
                                      NULL};
  disk.vfs = *disk.real;
  disk.vfs.zName = "recorded";
  disk.vfs.szOsFile = (int)sizeof(struct recorded_file) + disk.real->szOsFile;
  disk.vfs.xOpen = disk_open;
  disk.vfs.xDelete = disk_remove;
  assert_int_equal(sqlite3_vfs_register(&disk.vfs, 1), SQLITE_OK);
}
/* From here on not; what was kept stays until disk_forget. */
static inline void disk_stop(void) {
  sqlite3_vfs_unregister(&disk.vfs);
  sqlite3_vfs_register(disk.real, 1);
}
static inline void disk_forget(void) {
  for (int64_t i = 0; i < disk.count; i++) test_free(disk.events[i].bytes);
  disk.count = 0;
}

/* --- a power cut ---------------------------------------------------------------------------------------------------- */

/* What of a file's unsynced writes reaches the disk. */
enum disk_cut { DISK_ALL, DISK_NONE, DISK_FIRST_ONES, DISK_ANY, DISK_ANY_SECTORS, DISK_CUTS };

struct laid_out {
  unsigned char *bytes;
  int64_t size, room;
  bool exists;
};

static inline void lay_size(struct laid_out *file, int64_t size) {
  if (size > file->room) {
    const int64_t room = 2 * size;
    file->bytes = test_realloc(file->bytes, (size_t)room);
    file->room = room;
  }
  if (size > file->size) memset(file->bytes + file->size, 0, (size_t)(size - file->size));
  file->size = size;
}

static inline void lay(struct laid_out *file, const struct disk_event *event, struct sf_pcg *dice, bool by_sectors) {
  if (event->kind == DISK_REMOVE) {
    file->exists = false;
    file->size = 0;
    return;
  }
  file->exists = true;
  if (event->kind == DISK_TRUNCATE && event->size < file->size) file->size = event->size;
  if (event->kind == DISK_TRUNCATE) lay_size(file, event->size);
  for (int64_t at = 0; event->kind == DISK_WRITE && at < event->size;) {
    const int64_t left = event->size - at, to_border = DISK_SECTOR - (event->offset + at) % DISK_SECTOR,
                  count = by_sectors && to_border < left ? to_border : left, end = event->offset + at + count;
    if (!by_sectors || sf_pcg_next(dice) % 2 == 0) {
      if (end > file->size) lay_size(file, end);
      memcpy(file->bytes + event->offset + at, event->bytes + at, (size_t)count);
    }
    at += count;
  }
}

/* Lays out below `path` what is left of the file after the first `end` events. */
static inline void lay_out_file(const char *path, enum disk_file which, int64_t end, enum disk_cut cut, struct sf_pcg *dice) {
  struct laid_out file = {.bytes = NULL};
  int64_t synced = 0, unsynced = 0, folder_synced = 0;
  for (int64_t i = 0; i < end; i++)
    if (disk.events[i].syncs_folder) folder_synced = i + 1;
  for (int64_t i = 0; i < end; i++) {
    const struct disk_event *event = &disk.events[i];
    if (event->kind == DISK_MARK || event->file != which) continue;
    const bool is_durable = event->kind == DISK_SYNC || (event->kind == DISK_REMOVE && i < folder_synced);
    synced = is_durable ? i + 1 : synced;
    unsynced = is_durable ? 0 : unsynced + 1;
  }
  const int64_t first_ones = unsynced > 0 ? (int64_t)(sf_pcg_next(dice) % (uint64_t)(unsynced + 1)) : 0;
  int64_t number = 0;
  for (int64_t i = 0; i < end; i++) {
    const struct disk_event *event = &disk.events[i];
    if (event->kind == DISK_MARK || event->file != which) continue;
    bool reaches = i < synced || cut == DISK_ALL;
    if (i >= synced && cut == DISK_FIRST_ONES) reaches = number < first_ones;
    if (i >= synced && (cut == DISK_ANY || cut == DISK_ANY_SECTORS)) reaches = sf_pcg_next(dice) % 2 == 0;
    number += i >= synced;
    if (reaches) lay(&file, event, dice, i >= synced && cut == DISK_ANY_SECTORS);
  }
  char name[256];
  snprintf(name, sizeof name, "%s%s", path, disk_ends[which]);
  unlink(name);
  if (file.exists) {
    FILE *out = fopen(name, "wb");
    assert_non_null(out);
    if (file.size > 0) assert_int_equal(fwrite(file.bytes, 1, (size_t)file.size, out), file.size);
    assert_int_equal(fclose(out), 0);
  }
  test_free(file.bytes);
}

#endif
