/* How many processes run cases when nobody says. */
#include "tests/unit/run/run_fixture.h"

#include "harness/run/trial/device_choice.h"

static void test_process_count_as_asked_for(void **state) {
  (void)state;
  assert_int_equal(sf_process_count(7, SF_DEVICE_CPU), 7);
  assert_int_equal(sf_process_count(7, SF_DEVICE_CUDA), 7);
}

static void test_process_count_cpu_is_one_per_core(void **state) {
  (void)state;
  assert_int_equal(sf_process_count(0, SF_DEVICE_CPU), sysconf(_SC_NPROCESSORS_ONLN));
}

/* The service is there while its pipe is. */
static void test_process_count_gpu_is_one_without_the_service(void **state) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  char pipe[256];
  assert_int_equal(setenv("CUDA_MPS_PIPE_DIRECTORY", *state, 1), 0);
  assert_int_equal(sf_process_count(0, SF_DEVICE_CUDA), 1);
  snprintf(pipe, sizeof pipe, "%s/control", (const char *)*state);
  assert_int_equal(sf_bytes_write_file(pipe, "", 0, NULL), SF_OK);
  assert_int_equal(sf_process_count(0, SF_DEVICE_CUDA), cores < 12 ? cores : 12);
  assert_int_equal(unsetenv("CUDA_MPS_PIPE_DIRECTORY"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_process_count_as_asked_for),
      cmocka_unit_test(test_process_count_cpu_is_one_per_core),
      FOLDER_TEST(test_process_count_gpu_is_one_without_the_service),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
