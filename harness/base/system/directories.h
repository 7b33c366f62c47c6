/* Folders and files that the program is going to write. */
#ifndef SF_BASE_DIRECTORIES_H
#define SF_BASE_DIRECTORIES_H

#include "harness/base/status.h"

/* Bytes of the longest path that the program takes, its end included. */
enum { SF_PATH_TEXT = 1024 };

/* mkdir -p. SF_EINPUT when there can be no such folder or it takes no files, SF_EIO when the disk does not take it, SF_EUSAGE when the path
 * is too long. */
enum sf_status sf_make_directories(const char *path, struct sf_error *error) SF_MUST_USE;

/* A file that a command is going to write: its folder must be there and take files, and nothing but a file may lie at the path. Found out
 * before hours of work. path NULL: nothing to check. SF_EUSAGE. */
enum sf_status sf_output_check(const char *path, struct sf_error *error) SF_MUST_USE;

/* The status of a system call on a path that failed with this errno: SF_EIO for a full or broken disk, else SF_EINPUT. */
enum sf_status sf_status_of_path(int code);

#endif
