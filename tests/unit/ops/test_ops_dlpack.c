/* The plugin's tensor is laid out like DLPack's. Without DLPack's header (Debian: libdlpack-dev) the test says that it was skipped. */
#include "targets/plugin/include/shardfuzz/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>

#define SAME(ours, theirs)                                                                                \
  assert_int_equal(offsetof(struct shardfuzz_tensor, ours), offsetof(DLTensor, theirs));                  \
  assert_int_equal(sizeof(((struct shardfuzz_tensor *)0)->ours), sizeof(((DLTensor *)0)->theirs))

static void test_tensor_layout_is_dlpacks(void **state) {
  (void)state;
  assert_int_equal(sizeof(struct shardfuzz_tensor), sizeof(DLTensor));
  SAME(data, data);
  SAME(device, device);
  SAME(device.type, device.device_type);
  SAME(device.id, device.device_id);
  SAME(ndim, ndim);
  SAME(dtype, dtype);
  SAME(dtype.code, dtype.code);
  SAME(dtype.bits, dtype.bits);
  SAME(dtype.lanes, dtype.lanes);
  SAME(shape, shape);
  SAME(strides, strides);
  SAME(byte_offset, byte_offset);
  assert_int_equal(SHARDFUZZ_CODE_INT, kDLInt);
  assert_int_equal(SHARDFUZZ_CODE_UINT, kDLUInt);
  assert_int_equal(SHARDFUZZ_CODE_FLOAT, kDLFloat);
  assert_int_equal(SHARDFUZZ_CODE_BFLOAT, kDLBfloat);
}
#else
static void test_tensor_layout_is_dlpacks(void **state) {
  (void)state;
  skip();
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tensor_layout_is_dlpacks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
