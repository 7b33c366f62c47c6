#include "harness/base/system/local_rank.h"

#include <stdlib.h>

int32_t sf_local_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *text = getenv(names[i]);
    const long rank = text != NULL ? strtol(text, NULL, 10) : -1;
    if (rank >= 0 && rank <= INT32_MAX) return (int32_t)rank;
  }
  return 0;
}
