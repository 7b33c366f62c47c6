/* Names that tell one thing from another (modules, signatures, labels), in fields of a fixed size. */
#ifndef SF_BASE_NAMES_H
#define SF_BASE_NAMES_H

#include <stddef.h>
#include <stdint.h>

/* What stands behind a name that was cut: '~' and 16 hexadecimal digits, a hash of the whole name that is the same on every machine. */
enum { SF_NAME_HASH_LENGTH = 17 };

/* Copies length bytes of name and a NUL into out of size bytes (size > SF_NAME_HASH_LENGTH + 1). A name that is too long is cut between two
 * UTF-8 characters and ends in its hash, so that different names stay different. */
void sf_name_fit(char *out, size_t size, const char *name, size_t length);

/* As sf_name_fit, but as one component of a path: every byte other than a letter, a digit and one of "._@+~" becomes '-'. The first
 * `slashes` slashes come out as '-' and no more; whatever else could make two names alike, a '-' behind those slashes or a byte that was
 * replaced, adds the hash. */
void sf_name_fit_path(char *out, size_t size, const char *name, int32_t slashes);

#endif
