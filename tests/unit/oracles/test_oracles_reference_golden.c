/* The fp64 reference against runs of PyTorch (corpus/golden/make_goldens.py): same tensors, same values, for whole training steps. */
#include "tests/unit/oracles/reference_test.h"

#include "harness/tensor/safetensors.h"
#include "tests/st_values.h"

static const char *const NAMES[] = {"gpt",
                                    "llama",
                                    "gqa_uneven_mask",
                                    "mqa_per_microbatch",
                                    "adapter_sparse_mask",
                                    "clip_decay_steps",
                                    "frozen_head_steps",
                                    "frozen_mlp",
                                    "parallel_relu2",
                                    "label_smoothing",
                                    "sinks_window",
                                    "qk_norm_layer",
                                    "qk_norm_rms_parallel_sinks",
                                    "latent_layer",
                                    "latent_query_sinks",
                                    "loss_scale_fp16",
                                    "dropout",
                                    "dropout_parallel",
                                    "documents_learned",
                                    "documents_padding_rotary",
                                    "post_norm_layer",
                                    "post_norm_rms_parallel_dropout",
                                    "moe_softmax",
                                    "moe_sigmoid_capacity",
                                    "moe_one_of_many",
                                    "moe_one_of_three",
                                    "moe_shared",
                                    "moe_shared_relu2",
                                    "moe_mtp",
                                    "moe_aux_softmax",
                                    "moe_aux_sigmoid",
                                    "moe_z_sigmoid_scaled",
                                    "cross_attention",
                                    "cross_attention_frozen",
                                    "mtp",
                                    "mtp_tied_per_microbatch"};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0] };

struct golden {
  struct sf_catalog *catalog;
  struct sf_st_file file;
};

static struct golden golden_read(const char *name) {
  struct golden golden = {0};
  struct sf_case c;
  struct sf_error error = {0};
  char path[128];
  snprintf(path, sizeof path, "corpus/golden/reference_%s.json", name);
  if (sf_case_read(&c, path, &error) != SF_OK) fail_msg("%s", error.text);
  snprintf(path, sizeof path, "corpus/golden/reference_%s.safetensors", name);
  if (sf_st_read(&golden.file, path, &error) != SF_OK) fail_msg("%s", error.text);
  assert_int_equal(sf_catalog_create(&golden.catalog, &c), SF_OK);
  return golden;
}

static void golden_destroy(struct golden *golden) {
  sf_catalog_destroy(golden->catalog);
  sf_st_destroy(&golden->file);
}

/* Returns whether the tensor agrees; prints it when it does not. */
static bool agrees(const struct golden *golden, const struct kept *kept, const char *name) {
  char text[160];
  sf_trace_id_text(text, sizeof text, golden->catalog, kept->id);
  const struct sf_st_entry *entry = sf_st_find(&golden->file, text);
  if (entry == NULL || entry->count != kept->shape.rows * kept->shape.cols || entry->dims[0] != kept->shape.rows) {
    print_error("%s %s: absent or of another shape\n", name, text);
    return false;
  }
  double *expected = malloc((size_t)entry->count * sizeof *expected);
  assert_non_null(expected);
  st_load_f64(expected, entry);
  const double size = norm_of(expected, entry->count), error = distance(expected, kept->values, entry->count);
  /* The gradient of a key bias without rotary is zero but for rounding, which Adam divides by its epsilon of 1e-8. */
  const bool ok = error <= (kept->id.kind == SF_KIND_PARAM_DELTA ? 1e-9 : 1e-10) * size;
  if (!ok) print_error("%s %s: error %.3g of %.3g\n", name, text, error, size);
  free(expected);
  return ok;
}

static void test_reference_run_fp64_agrees_with_pytorch(void **state) {
  (void)state;
  int32_t wrong = 0;
  for (int n = 0; n < NAME_COUNT; n++) {
    struct golden golden = golden_read(NAMES[n]);
    struct keeper keeper = keep_run(golden.catalog, true, SF_PERTURB_NONE, 0);
    assert_int_equal(keeper.count, golden.file.entry_count);
    for (int32_t i = 0; i < keeper.count; i++) wrong += !agrees(&golden, &keeper.items[i], NAMES[n]);
    keeper_destroy(&keeper);
    golden_destroy(&golden);
  }
  assert_int_equal(wrong, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference_run_fp64_agrees_with_pytorch)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
