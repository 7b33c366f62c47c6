/* The linear layers of fp8 cases against PyTorch's casts (corpus/golden/make_fp8_goldens.py): current and delayed scaling, layers that stay
 * in bf16, values that saturate. */
#include "tests/unit/oracles/reference_test.h"

#include "harness/tensor/safetensors.h"
#include "tests/st_values.h"

static const char *const NAMES[] = {"current", "exempt", "delayed", "delayed_history", "shared_expert"};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0] };

static bool is_linear(const struct sf_catalog *catalog, int32_t module) {
  const enum sf_module_class cls = catalog->modules[module].cls;
  return cls == SF_MODULE_LINEAR_QKV || cls == SF_MODULE_LINEAR_PROJ || cls == SF_MODULE_LINEAR_FC1 || cls == SF_MODULE_LINEAR_FC2 ||
         cls == SF_MODULE_SHARED_FC1 || cls == SF_MODULE_SHARED_FC2;
}

static bool is_golden(const struct sf_catalog *catalog, struct sf_trace_id id) {
  if (id.kind == SF_KIND_WGRAD) return is_linear(catalog, catalog->params[id.subject].module);
  return (id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD) && is_linear(catalog, id.subject);
}

/* bf16: a sum of products in fp32 may round to the other neighbour, which is told as `other`; nothing may be further away. */
static bool element_agrees(double expected, double value, double norm, bool is_bf16, int64_t *other) {
  const double least = 2e-6 * norm, apart = fabs(value - expected);
  if (is_bf16 && apart != 0) ++*other;
  return apart <= (is_bf16 ? least + 0x1p-7 * fabs(expected) : least);
}

static bool agrees(const struct sf_catalog *catalog, const struct kept *kept, const struct sf_st_file *file, int64_t *other, int64_t *all) {
  char text[160];
  sf_trace_id_text(text, sizeof text, catalog, kept->id);
  const struct sf_st_entry *entry = sf_st_find(file, text);
  if (entry == NULL || entry->dims[0] != kept->shape.rows || entry->count != kept->shape.rows * kept->shape.cols) {
    print_error("%s: absent or of another shape\n", text);
    return false;
  }
  double *expected = malloc((size_t)entry->count * sizeof *expected);
  assert_non_null(expected);
  st_load_f64(expected, entry);
  const double norm = norm_of(expected, entry->count);
  const bool is_bf16 = kept->id.kind != SF_KIND_WGRAD;
  int64_t wrong = 0;
  for (int64_t i = 0; i < entry->count; i++) wrong += !element_agrees(expected[i], kept->values[i], norm, is_bf16, other);
  if (is_bf16) *all += entry->count;
  if (wrong > 0) print_error("%s: %lld of %lld elements differ\n", text, (long long)wrong, (long long)entry->count);
  free(expected);
  return wrong == 0;
}

static int32_t wrong_tensors(const char *name) {
  struct sf_case c;
  struct sf_error error = {0};
  struct sf_st_file file;
  struct sf_catalog *catalog;
  char path[128];
  snprintf(path, sizeof path, "corpus/golden/fp8_%s.json", name);
  if (sf_case_read(&c, path, &error) != SF_OK) fail_msg("%s", error.text);
  snprintf(path, sizeof path, "corpus/golden/fp8_%s.safetensors", name);
  if (sf_st_read(&file, path, &error) != SF_OK) fail_msg("%s", error.text);
  assert_int_equal(sf_catalog_create(&catalog, &c), SF_OK);
  struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  int32_t wrong = 0, seen = 0;
  int64_t other = 0, all = 0;
  for (int32_t i = 0; i < keeper.count; i++) {
    if (!is_golden(catalog, keeper.items[i].id)) continue;
    wrong += !agrees(catalog, &keeper.items[i], &file, &other, &all);
    seen++;
  }
  assert_int_equal(seen, file.entry_count);
  if (wrong > 0 || other > 0) print_message("%s: %lld of %lld rounded to the other neighbour\n", name, (long long)other, (long long)all);
  assert_true(other * 200 <= all);
  keeper_destroy(&keeper);
  sf_catalog_destroy(catalog);
  sf_st_destroy(&file);
  return wrong;
}

static void test_reference_run_fp8_linears_agree_with_pytorch(void **state) {
  (void)state;
  for (int n = 0; n < NAME_COUNT; n++) assert_int_equal(wrong_tensors(NAMES[n]), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference_run_fp8_linears_agree_with_pytorch)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
