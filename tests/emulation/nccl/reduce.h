/* Sums and maxima of NCCL's types. */
#ifndef SF_TESTS_EMULATION_NCCL_REDUCE_H
#define SF_TESTS_EMULATION_NCCL_REDUCE_H

#include <stddef.h>

size_t element_bytes(int type);
/* out[i] = the members' parts[m][i], joined in an order that depends on i alone, each partial result rounded to the type. */
void reduce_parts(void *out, char *const *parts, int members, size_t count, int type, int op);

#endif
