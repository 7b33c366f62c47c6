/* Bytes as a safetensors file. What is accepted must be consistent to the last byte. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/tensor/safetensors.h"
#include "tests/st_values.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entry(const struct sf_st_file *file, int32_t i) {
  const struct sf_st_entry *entry = &file->entries[i];
  int64_t count = 1;
  for (int32_t d = 0; d < entry->dim_count; d++) {
    SF_ASSERT_LE(0, entry->dims[d]);
    SF_ASSERT(!__builtin_mul_overflow(count, entry->dims[d], &count));
  }
  SF_ASSERT_EQ(count, entry->count);
  SF_ASSERT(i == 0 || strcmp(file->entries[i - 1].name, entry->name) < 0);
  SF_ASSERT(sf_st_find(file, entry->name) == entry);
  SF_ASSERT(entry->bytes >= file->raw.data && entry->bytes <= file->raw.data + file->raw.size_bytes);
  double *values = sf_alloc((size_t)count * sizeof *values); /* reads every byte of the tensor */
  if (values) st_load_f64(values, entry);
  sf_free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct sf_st_file file;
  struct sf_error error = {SF_OK, ""};
  const enum sf_status status = sf_st_parse(&file, data, size, "input.safetensors", &error);
  if (status != SF_OK) {
    SF_ASSERT_EQ(status, SF_EINPUT);
    SF_ASSERT(strncmp(error.text, "input.safetensors: ", 19) == 0);
    return 0;
  }
  for (int32_t i = 0; i < file.entry_count; i++) check_entry(&file, i);
  for (int32_t i = 0; i < file.meta_count; i++) SF_ASSERT(sf_st_meta(&file, file.meta_keys[i]) == file.meta_values[i]);
  sf_st_destroy(&file);
  return 0;
}
