/* The program itself, for a few inputs of each kind. The environment's SHARDFUZZ names it. */
#ifndef TESTS_HOSTILE_PROGRAM_H
#define TESTS_HOSTILE_PROGRAM_H

/* Runs it with these arguments (at most 14), behind which stands NULL: it ends with 2 and one line on stderr that has `where` in it, prints
 * nothing on stdout, and leaves the folder as it was. */
void program_refuses(const char *folder, const char *where, const char *const *arguments);

#endif
