#include "harness/base/system/temporary.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder that processes still write to while it is removed is tried again for KEEPER_TRIES pauses. */
enum { DEPTH_MAX = 200, CREATE_ATTEMPTS = 100, RANDOM_LETTERS = 6, KEEPER_TRIES = 100, PAUSE_US = 100000 };

static const char prefix[] = "shardfuzz-", keeper_name[] = "shardfuzz-keep";

/* --- removing --------------------------------------------------------------------------------------------------- */

static void remove_entry(int folder, const char *name, int32_t depth);

/* spared: NULL, or a name that stays. */
static void empty_folder(int folder, const char *spared, int32_t depth) {
  const int copy = dup(folder);
  DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
  if (!list) {
    if (copy >= 0) close(copy);
    return;
  }
  fchmod(folder, 0700); /* or its entries could not be removed */
  for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (spared && strcmp(name, spared) == 0)) continue;
    remove_entry(folder, name, depth + 1);
  }
  closedir(list);
}

static int open_folder(int at, const char *name) { return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

static void remove_entry(int folder, const char *name, int32_t depth) {
  struct stat about;
  if (unlinkat(folder, name, 0) == 0 || depth > DEPTH_MAX) return;
  if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(about.st_mode)) return;
  int inner = open_folder(folder, name);
  if (inner < 0 && errno == EACCES && fchmodat(folder, name, 0700, 0) == 0) inner = open_folder(folder, name);
  if (inner < 0) return;
  empty_folder(inner, NULL, depth);
  close(inner);
  unlinkat(folder, name, AT_REMOVEDIR);
}

void sf_remove_tree(const char *path) { remove_entry(AT_FDCWD, path, 0); }

/* The lock goes last: who is interrupted leaves a folder that others still find. */
static void remove_folder(int base, const char *name) {
  const int folder = open_folder(base, name);
  if (folder < 0) return;
  empty_folder(folder, SF_TEMPORARY_LOCK, 0);
  unlinkat(folder, SF_TEMPORARY_LOCK, 0);
  close(folder);
  unlinkat(base, name, AT_REMOVEDIR);
}

/* --- leftovers -------------------------------------------------------------------------------------------------- */

static bool is_our_name(const char *name) {
  const size_t before = sizeof prefix - 1;
  if (strncmp(name, prefix, before) != 0 || strlen(name) != before + RANDOM_LETTERS) return false;
  for (const char *at = name + before; *at; at++)
    if (!isalnum((unsigned char)*at)) return false;
  return true;
}

/* The descriptor of the folder's lock, which is held from here on; -1: somebody holds it, or it is no folder of this user with a lock in
 * it. */
static int take_lock(int base, const char *name) {
  struct stat about;
  const int folder = open_folder(base, name);
  if (folder < 0) return -1;
  const bool own = fstat(folder, &about) == 0 && about.st_uid == geteuid();
  const int lock = own ? openat(folder, SF_TEMPORARY_LOCK, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
  close(folder);
  if (lock < 0) return -1;
  if (fstat(lock, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() && flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  close(lock);
  return -1;
}

void sf_temporary_sweep(const char *base) {
  DIR *list = opendir(base);
  if (!list) return;
  for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
    const int lock = is_our_name(entry->d_name) ? take_lock(dirfd(list), entry->d_name) : -1;
    if (lock < 0) continue;
    remove_folder(dirfd(list), entry->d_name);
    close(lock);
  }
  closedir(list);
}

/* --- life ------------------------------------------------------------------------------------------------------- */

static void lock_path(char *out, size_t size, const struct sf_temporary *temporary) {
  snprintf(out, size, "%s/%s", temporary->path, SF_TEMPORARY_LOCK);
}

/* Between the making of its lock and the locking a sweep may take the folder for a dead one's: false with errno EAGAIN then. Where locks do
 * not work there is none, and nobody sweeps. */
static bool hold(struct sf_temporary *temporary) {
  char path[SF_TEMPORARY_PATH + sizeof SF_TEMPORARY_LOCK];
  struct stat about;
  lock_path(path, sizeof path, temporary);
  temporary->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (temporary->lock < 0) return false;
  const bool taken = flock(temporary->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!taken && fstat(temporary->lock, &about) == 0 && about.st_nlink > 0) return true;
  close(temporary->lock);
  errno = EAGAIN;
  return false;
}

enum sf_status sf_temporary_create(struct sf_temporary *out, const char *base, struct sf_error *error) {
  struct sf_temporary made = {.lock = -1};
  sf_temporary_sweep(base);
  errno = EAGAIN;
  for (int32_t attempt = 0; attempt < CREATE_ATTEMPTS && errno == EAGAIN; attempt++) {
    if (snprintf(made.path, sizeof made.path, "%s/%sXXXXXX", base, prefix) >= (int)sizeof made.path) {
      errno = ENAMETOOLONG;
    } else if (mkdtemp(made.path)) {
      if (hold(&made)) return *out = made, SF_OK;
      const int reason = errno;
      rmdir(made.path);
      errno = reason;
    }
  }
  const int cause = errno;
  return sf_error_set(error, sf_status_of_errno(cause), "%.200s: no temporary folder can be made there: %s", base,
                      sf_errno_text(cause).text);
}

/* Nothing of the owner's stays open here: not its lock, and not what its callers wait to see closed. */
static _Noreturn void keeper_main(const char *path, const char *lock_file, const struct stat *folder) {
  struct stat about;
  const int lock = fcntl(open(lock_file, O_RDWR | O_NOFOLLOW), F_DUPFD, 4), nothing = fcntl(open("/dev/null", O_RDWR), F_DUPFD, 4);
  if (lock < 0 || nothing < 0) _exit(0);
  dup2(lock, 3);
  for (int fd = 0; fd < 3; fd++) dup2(nothing, fd);
  close_range(4, ~0u, 0);
  if (chdir("/") != 0) _exit(0);
  while (flock(3, LOCK_EX) != 0)
    if (errno != EINTR) _exit(0);
  for (int32_t i = 0; i < KEEPER_TRIES; i++) {
    if (lstat(path, &about) != 0 || about.st_dev != folder->st_dev || about.st_ino != folder->st_ino) break;
    remove_folder(AT_FDCWD, path);
    if (lstat(path, &about) != 0) break;
    usleep(PAUSE_US);
  }
  _exit(0);
}

bool sf_temporary_is_keeper(pid_t pid) {
  char path[64], name[32] = "";
  snprintf(path, sizeof path, "/proc/%ld/comm", (long)pid);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  const bool read = fgets(name, sizeof name, file) != NULL;
  fclose(file);
  name[strcspn(name, "\n")] = '\0';
  return read && strcmp(name, keeper_name) == 0;
}

/* Out of the owner's process group, and under the name by which it is spared. */
static void become_keeper(void) {
  prctl(PR_SET_NAME, keeper_name);
  setsid();
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
}

/* Through a process that ends at once, so that the keeper is no child of the owner's. When that one has ended, nobody who ends the owner's
 * group or descendants takes the keeper for one of them. */
void sf_temporary_keep(const struct sf_temporary *temporary) {
  char lock_file[SF_TEMPORARY_PATH + sizeof SF_TEMPORARY_LOCK];
  char *path = realpath(temporary->path, NULL);
  struct stat folder;
  lock_path(lock_file, sizeof lock_file, temporary);
  if (!path || lstat(path, &folder) != 0) {
    free(path);
    return;
  }
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    become_keeper();
    const pid_t keeper = fork();
    if (keeper == 0) keeper_main(path, lock_file, &folder);
    _exit(0);
  }
  while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  free(path); /* libc's own memory */
}

void sf_temporary_remove(struct sf_temporary *temporary) {
  if (!*temporary->path) return;
  remove_folder(AT_FDCWD, temporary->path);
  flock(temporary->lock, LOCK_UN); /* for processes that hold it too */
  close(temporary->lock);
  *temporary = (struct sf_temporary){.lock = -1};
}
