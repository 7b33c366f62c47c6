#include "harness/base/system/launched.h"

#include <stddef.h>
#include <stdlib.h>

enum { NAMES_MAX = 4 };

/* The number in the first of the variables that is set, "4" or Slurm's "4(x3)"; `otherwise` where none is. */
static int32_t number_of(const char *const names[NAMES_MAX], int32_t least, int32_t otherwise) {
  for (int i = 0; i < NAMES_MAX && names[i] != NULL; i++) {
    const char *text = getenv(names[i]);
    const long number = text != NULL ? strtol(text, NULL, 10) : -1;
    if (number >= least && number <= INT32_MAX) return (int32_t)number;
  }
  return otherwise;
}

int32_t sf_launched_rank(void) {
  static const char *const names[NAMES_MAX] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}, *const slurm[NAMES_MAX] = {"SLURM_PROCID"};
  const int32_t rank = number_of(names, 0, -1);
  /* A batch script has a number too, and is no step. */
  return rank < 0 && getenv("SLURM_STEP_NUM_TASKS") != NULL ? number_of(slurm, 0, -1) : rank;
}

int32_t sf_launched_size(void) {
  static const char *const names[NAMES_MAX] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  return sf_launched_rank() >= 0 ? number_of(names, 1, 0) : 0;
}

int32_t sf_local_rank(void) {
  static const char *const names[NAMES_MAX] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
  return number_of(names, 0, 0);
}

int32_t sf_local_size(void) {
  static const char *const names[NAMES_MAX] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"};
  return sf_launched_rank() >= 0 ? number_of(names, 1, 1) : 1;
}
