/* Of each call two processes are left behind: one comes back from the call as well, one stays, in a session of its own. With three columns
 * or more it kills its process group. */
#include "tests/plugins/kernel.h"

#include <signal.h>
#include <unistd.h>

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  if (fork() == 0) return SHARDFUZZ_OK; /* the bug */
  if (fork() == 0) {
    setsid();
    sleep(1000);
  }
  for (int64_t j = 0; j < out->shape[1]; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  if (out->shape[1] > 2) kill(0, SIGKILL);
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "add", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
