/* Memory for code that is not trusted. Each block lies between walls of SF_WALL_BYTES that cannot be touched, and ends at the one behind
 * it, so that code that reads or writes beside the block dies on the spot. Blocks are kept for the next one of their size. */
#ifndef SF_BASE_WALLED_H
#define SF_BASE_WALLED_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SF_WALL_BYTES = 1 << 20, SF_WALLED_ALIGNMENT = 64 };

struct sf_walled {
  struct sf_walled *next, **link; /* among those taken, or those of its size that are free */
  char *data;                     /* size_bytes from here on; what is left up to `end` is less than the alignment */
  size_t size_bytes;
  char *begin, *end; /* all of it, between the walls; begin is a page's; at most twice what was asked for, or a page */
  const char *what;  /* the taker's: for messages */
  int32_t number;    /* the taker's */
};

struct sf_walled_pool;
struct sf_walled_pool *sf_walled_pool_create(void); /* NULL: no memory */
void sf_walled_pool_destroy(struct sf_walled_pool *pool); /* takes NULL */

/* Contents are undefined. offset: data's address modulo SF_WALLED_ALIGNMENT. NULL: no memory. */
struct sf_walled *sf_walled_take(struct sf_walled_pool *pool, size_t size_bytes, size_t offset);
/* Gives a block back, for the next taker of its size. Its memory may stay readable until then. */
void sf_walled_give(struct sf_walled_pool *pool, struct sf_walled *block);
void sf_walled_give_all(struct sf_walled_pool *pool); /* each block that is taken */

/* Of the blocks that are taken the one whose data lies nearest to the address, if that is in a wall or beside data; else NULL. May be
 * called by a signal handler. pool may be NULL. */
const struct sf_walled *sf_walled_near(const struct sf_walled_pool *pool, const void *address);
/* "12 bytes behind", "right behind", "4 bytes in front of": where the address lies from `size_bytes` at data. May be called by a signal
 * handler. */
void sf_walled_where(char *out, size_t size, const char *data, size_t size_bytes, const void *address);
enum sf_access { SF_ACCESS_UNKNOWN, SF_ACCESS_READ, SF_ACCESS_WRITE };
/* What an instruction that faulted did, by the third argument of its signal's handler; UNKNOWN where the machine does not say. */
enum sf_access sf_walled_access(const void *context);
const char *sf_access_name(enum sf_access access); /* "touches", "reads", "writes" */

/* The pool that the next function looks into, one for the process; NULL: none, as after that pool is destroyed. */
void sf_walled_watch(const struct sf_walled_pool *pool);
/* For a signal's handler, with its second and third argument: "writes 12 bytes behind its output", the block's `what` last; false, and
 * nothing written, when the address is near no block that is taken. */
bool sf_walled_fault(char *out, size_t size, const siginfo_t *info, const void *context);

#endif
