/* What launchers say in the environment of the processes that they start. */
#include "harness/base/system/launched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const names[] = {"OMPI_COMM_WORLD_RANK",       "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK",            "PMI_RANK",
                                    "PMI_SIZE",                   "MPI_LOCALRANKID",      "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",               "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                                    "SLURM_STEP_TASKS_PER_NODE"};

static void test_launched_reads_what_each_launcher_says(void **state) {
  (void)state;
  static const struct {
    const char *said[8]; /* name, value, .. */
    int32_t rank, size, local_rank, local_size;
  } table[] = {
      {{NULL}, -1, 0, 0, 1},
      {{"OMPI_COMM_WORLD_RANK", "5", "OMPI_COMM_WORLD_SIZE", "8", "OMPI_COMM_WORLD_LOCAL_RANK", "1", "OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
       5, 8, 1, 4},
      {{"PMI_RANK", "0", "PMI_SIZE", "2", "MPI_LOCALRANKID", "0", "MPI_LOCALNRANKS", "2"}, 0, 2, 0, 2},
      {{"SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS", "6", "SLURM_LOCALID", "1", "SLURM_STEP_TASKS_PER_NODE", "2(x3)"}, 3, 6, 1, 2},
      {{"PMIX_RANK", "1", "SLURM_STEP_NUM_TASKS", "4", "SLURM_PROCID", "2"}, 1, 4, 0, 1},
      {{"SLURM_PROCID", "0"}, -1, 0, 0, 1}, /* a batch script, which is no step */
      {{"PMI_RANK", "1"}, 1, 0, 0, 1},
      {{"OMPI_COMM_WORLD_RANK", "", "OMPI_COMM_WORLD_SIZE", "0", "MPI_LOCALNRANKS", "0"}, 0, 0, 0, 1},
      {{"OMPI_COMM_WORLD_RANK", "-3", "OMPI_COMM_WORLD_SIZE", "99999999999"}, -1, 0, 0, 1},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) unsetenv(names[k]);
    for (int k = 0; k < 8 && table[i].said[k] != NULL; k += 2) assert_int_equal(setenv(table[i].said[k], table[i].said[k + 1], 1), 0);
    assert_int_equal(sf_launched_rank(), table[i].rank);
    assert_int_equal(sf_launched_size(), table[i].size);
    assert_int_equal(sf_local_rank(), table[i].local_rank);
    assert_int_equal(sf_local_size(), table[i].local_size);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_launched_reads_what_each_launcher_says)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
