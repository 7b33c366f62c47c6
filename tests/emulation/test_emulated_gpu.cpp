/* The emulated GPU itself: work is late and in order, and memory is closed to a host that has not waited. */
#include "tests/emulation/cuda_runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

/* Whether the host may read it: the system says so without a signal. */
static bool is_open(const void *memory) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const bool open = write(ends[1], memory, 1) == 1;
  close(ends[0]), close(ends[1]);
  return open;
}

static int *number_of(cudaError_t (*give)(int **out)) {
  int *number = NULL;
  assert_int_equal(give(&number), cudaSuccess);
  return number;
}
static int *managed_number(void) {
  return number_of([](int **out) { return cudaMallocManaged((void **)out, sizeof **out, cudaMemAttachGlobal); });
}
static int *own_number(void) {
  return number_of([](int **out) { return cudaMalloc((void **)out, sizeof **out); });
}

static cudaError_t copy(int *to, const int *from, cudaMemcpyKind kind) {
  return cudaMemcpy2DAsync(to, sizeof *to, from, sizeof *from, sizeof *to, 1, kind, NULL);
}

__global__ static void append_kernel(int *at, int digit) { *at = *at * 10 + digit; }

static void test_launch_before_the_wait_managed_memory_is_closed(void **state) {
  (void)state;
  int *number = managed_number(), digit = 3;
  assert_true(is_open(number));
  *number = 12;
  SF_CUDA_LAUNCH(append_kernel, 1, 1, NULL, number, digit);
  digit = 4;
  assert_false(is_open(number));
  SF_CUDA_LAUNCH(append_kernel, 1, 1, NULL, number, digit);
  int *other = managed_number();
  assert_false(is_open(other));
  assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
  assert_true(is_open(other));
  assert_int_equal(*number, 1234);
  assert_int_equal(cudaFree(number), cudaSuccess);
  assert_int_equal(cudaFree(other), cudaSuccess);
}

static void test_copy_before_the_wait_host_memory_is_as_it_was(void **state) {
  (void)state;
  int *own = own_number(), from = 1, to = 0;
  assert_int_equal(copy(own, &from, cudaMemcpyHostToDevice), cudaSuccess);
  SF_CUDA_LAUNCH(append_kernel, 1, 1, NULL, own, 2);
  assert_int_equal(copy(&to, own, cudaMemcpyDeviceToHost), cudaSuccess);
  from = 5; /* is read late */
  assert_int_equal(to, 0);
  assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
  assert_int_equal(to, 52);
  assert_false(is_open(own));
  assert_int_equal(cudaFree(own), cudaSuccess);
}

static void test_free_waits_for_what_was_launched(void **state) {
  (void)state;
  int *number = managed_number(), *other = own_number();
  *number = 7;
  SF_CUDA_LAUNCH(append_kernel, 1, 1, NULL, number, 8);
  assert_int_equal(cudaFree(other), cudaSuccess);
  assert_int_equal(*number, 78);
  assert_int_equal(cudaFree(number), cudaSuccess);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_launch_before_the_wait_managed_memory_is_closed),
                                     cmocka_unit_test(test_copy_before_the_wait_host_memory_is_as_it_was),
                                     cmocka_unit_test(test_free_waits_for_what_was_launched)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
