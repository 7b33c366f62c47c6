/* A CUDA driver and an NCCL without a GPU, as shared libraries of the real ones' names, for tests alone: libcuda.so.1 has streams and
 * events, and libnccl.so.2 runs collectives between processes through files that they map. What they are strict about: work runs later than
 * it is asked for, and only when the driver is asked how it stands; memory of the GPU is what the driver gave; a call inside a group has
 * not begun when the group ends; abort and destroy wait for the other members, and what was under way may write to its buffers for a while;
 * a thread of the library's own stays in it. Threads may call them side by side.
 *
 * The environment: SF_EMULATED_DEVICES (GPUs, 1), SF_EMULATED_APART=1 (each rank sees GPUs of its own under the same numbers),
 * SF_EMULATED_GPU_BYTES (memory of a GPU for each rank), SF_EMULATED_NCCL_VERSION (23203), SF_EMULATED_NCCL_FAULT=RANK:N (the N-th
 * operation of that rank of the job, from 1, ends in an error of a peer; with ":memory" behind it for want of memory),
 * SF_EMULATED_NCCL_NOTICES=1 (what is under way of members ends in an error when one aborts), SF_EMULATED_NCCL_STUCK=RANK (no communicator
 * of that rank ever ends), SF_EMULATED_NCCL_LOG (a file that gets a line for each context, and for each communicator that is opened or
 * aborted). */
#ifndef SF_TESTS_EMULATION_NCCL_EMULATED_H
#define SF_TESTS_EMULATION_NCCL_EMULATED_H

#include "harness/comm/nccl/nccl_api.h"

#include <stdbool.h>

/* Work of a stream: called again and again until it says that it is done, and never after that. */
typedef bool (*emulated_work)(void *argument);
void sf_emulated_enqueue(cu_stream stream, emulated_work work, void *argument);
/* Every stream does what it can. */
void sf_emulated_advance(void);
/* Whether all of it is memory of the GPU. */
bool sf_emulated_owns(const void *memory, size_t size_bytes);
/* Which GPU the calling thread's context is of, the same number for all ranks that share it; -1: the thread has none. */
int sf_emulated_device(void);
/* Whether the environment's text begins with the number of this rank of the job. */
bool sf_emulated_names_rank(const char *text);
void sf_emulated_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One thread at a time is in the driver or the library, but for waits. Locks nest. */
void sf_emulated_lock(void);
void sf_emulated_unlock(void);
/* Lets the others go on before a condition is looked at again. Without the lock. */
void sf_emulated_pause(void);
_Noreturn void sf_emulated_end(const char *what);

#endif
