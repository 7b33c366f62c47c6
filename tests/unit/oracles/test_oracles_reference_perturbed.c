/* The perturbed reruns: what each kind of them moves, and how far. */
#include "tests/unit/oracles/reference_test.h"

static const struct {
  const char *text;
  double unit;
} FORMATS[] = {{"precision.compute=fp32 ", 0x1p-24}, {"precision.compute=bf16 ", 0x1p-8}};

static struct sf_catalog *catalog_of_format(const char *words, int format) {
  char text[1024];
  snprintf(text, sizeof text, "%s%s", FORMATS[format].text, words);
  return catalog_of(text);
}

static bool is_norm(const struct sf_catalog *catalog, int32_t module) {
  const enum sf_module_class cls = catalog->modules[module].cls;
  return cls == SF_MODULE_INPUT_LAYERNORM || cls == SF_MODULE_POST_SELF_ATTN_LAYERNORM || cls == SF_MODULE_PRE_MLP_LAYERNORM ||
         cls == SF_MODULE_POST_MLP_LAYERNORM || cls == SF_MODULE_FINAL_LAYERNORM;
}

/* Numbers inside a module that cancel: values 8 standard deviations from zero lose 8 times as much in x - mean as in the norm's output. */
static void test_reference_run_stored_perturbed_reaches_inside_a_norm(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated data.acts=offset data.grads=offset");
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 1);
  for (int32_t i = 0; i < plain.count; i++) {
    const struct sf_trace_id id = plain.items[i].id;
    if ((id.kind != SF_KIND_ACT && id.kind != SF_KIND_ACT_GRAD) || !is_norm(catalog, id.subject)) continue;
    assert_true(relative_move(&plain.items[i], &moved.items[i]) > 4 * 0x1p-24); /* 1.2 when only what is stored moves */
  }
  keeper_destroy(&plain);
  keeper_destroy(&moved);
  sf_catalog_destroy(catalog);
}

/* Numbers that are in fp32 already move by half an ulp at least, or a tensor of one number would often not move at all. */
static void test_reference_run_stored_perturbed_in_fp32_moves_every_number(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated");
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 1);
  int64_t numbers = 0, still = 0;
  for (int32_t i = 0; i < plain.count; i++) {
    const struct sf_trace_id id = plain.items[i].id;
    if (id.kind != SF_KIND_ACT || catalog->modules[id.subject].cls != SF_MODULE_SELF_ATTN_BDA) continue;
    for (int64_t k = 0; k < count_of(&plain.items[i]); k++) {
      numbers += plain.items[i].values[k] != 0;
      still += plain.items[i].values[k] != 0 && plain.items[i].values[k] == moved.items[i].values[k];
    }
  }
  assert_true(numbers > 1000 && 200 * still < numbers);
  keeper_destroy(&plain);
  keeper_destroy(&moved);
  sf_catalog_destroy(catalog);
}

/* A share near 1 makes its gradient nearly the mean of the gradients, which follows it: what is left of their difference must move although
 * both move alike. Here the gradients are single products of bf16 numbers, so nothing else is rounded. */
static void test_reference_run_stored_perturbed_moves_what_is_left_of_a_share_near_one(void **state) {
  (void)state;
  enum { DRAWS = 64, ROW = 17, CHOSEN = 3 };
  struct sf_catalog *catalog = catalog_of("seed=953238542 mode=isolated model.layers=2 model.hidden=40 model.heads=1 model.kv_heads=1 "
                                          "model.head_dim=4 model.ffn=8 model.vocab=8 model.vocab_padded=8 model.seq=18 moe.experts=8 "
                                          "moe.topk=2 moe.ffn=8 precision.compute=bf16 data.acts=sparse");
  const struct sf_trace_id weights = act_of(catalog, SF_MODULE_ROUTING, 1, SF_KIND_ACT);
  const struct sf_trace_id id = act_of(catalog, SF_MODULE_ROUTING, 1, SF_KIND_ACT_GRAD);
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  const double share = keeper_find(&plain, weights)->values[ROW * 8 + CHOSEN], grad = keeper_find(&plain, id)->values[ROW * 8 + CHOSEN];
  assert_true(share > 0.98 && share < 1 && grad != 0);
  int still = 0;
  for (uint64_t draw = 1; draw <= DRAWS; draw++) {
    struct keeper moved = keep_run(catalog, false, SF_PERTURB_STORED, draw);
    still += fabs(keeper_find(&moved, id)->values[ROW * 8 + CHOSEN] - grad) < 0x1p-31; /* half an ulp of the mean */
    keeper_destroy(&moved);
  }
  assert_in_range(still, 0, DRAWS / 8); /* 8; 9 where either terms or shares stay as they are, 15 where both do */
  keeper_destroy(&plain);
  sf_catalog_destroy(catalog);
}

static void test_reference_run_stored_perturbed_moves_each_tensor_by_its_roundoff(void **state) {
  (void)state;
  for (int f = 0; f < 2; f++) {
    struct sf_catalog *catalog = catalog_of_format(LLAMA "mode=isolated", f);
    struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 1);
    struct keeper other = keep_run(catalog, false, SF_PERTURB_STORED, 2);
    for (int32_t i = 0; i < plain.count; i++) {
      const struct sf_trace_id id = plain.items[i].id;
      const double move = relative_move(&plain.items[i], &moved.items[i]);
      struct sf_trace_spec spec;
      assert_true(sf_trace_spec(&spec, catalog, id));
      if (id.kind == SF_KIND_PARAM && id.step == 0) assert_true(move == 0);
      if (id.kind != SF_KIND_ACT && id.kind != SF_KIND_ACT_GRAD && id.kind != SF_KIND_WGRAD && id.kind != SF_KIND_MAIN_GRAD) continue;
      assert_true(move > 0.4 * sf_dtype_unit_roundoff(spec.promised) && relative_move(&moved.items[i], &other.items[i]) > 0);
      /* bf16: fp32 sums of bf16 tensors, which are inputs: terms and result move, 2.4; a norm has fp32 numbers of its own, and draw 1 moves
       * equal ones alike */
      const bool of_bf16_inside = f == 1 && id.kind == SF_KIND_WGRAD;
      assert_true(move < (!of_bf16_inside ? 6 : is_norm(catalog, spec.module) ? 5 : 3) * sf_dtype_unit_roundoff(spec.promised));
    }
    keeper_destroy(&plain);
    keeper_destroy(&moved);
    keeper_destroy(&other);
    sf_catalog_destroy(catalog);
  }
}

/* What is left of terms that cancel moves as far as they do, not as an fp32 number of its own size (2^-23 of it). */
static void test_reference_run_stored_perturbed_moves_the_terms_of_sums(void **state) {
  (void)state;
  static const struct {
    enum sf_module_class cls;
    int ordinal;
  } sums[] = {{SF_MODULE_LINEAR_FC2, 0}, {SF_MODULE_LINEAR_FC2, 1}, {SF_MODULE_FINAL_LAYERNORM, 1}}; /* a product, sums of rows */
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated");
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 2);
  for (size_t s = 0; s < sizeof sums / sizeof sums[0]; s++) {
    const int32_t layer = sums[s].cls == SF_MODULE_LINEAR_FC2 ? 0 : -1;
    const struct sf_trace_id id = {
        .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .subject = sf_catalog_param(catalog, sums[s].cls, layer, sums[s].ordinal)};
    const struct kept *before = keeper_find(&plain, id), *after = keeper_find(&moved, id);
    double squares = 0;
    int64_t cancelled = 0, far = 0;
    for (int64_t k = 0; k < count_of(before); k++) squares += before->values[k] * before->values[k];
    for (int64_t k = 0; k < count_of(before); k++) {
      const double value = fabs(before->values[k]);
      if (value > 0.2 * sqrt(squares / (double)count_of(before))) continue;
      cancelled++;
      far += fabs(after->values[k] - before->values[k]) > 0x1p-22 * value;
    }
    assert_true(cancelled > 0 && 2 * far > cancelled);
  }
  keeper_destroy(&plain);
  keeper_destroy(&moved);
  sf_catalog_destroy(catalog);
}

static bool is_product(enum sf_module_class cls) {
  return cls == SF_MODULE_LINEAR_QKV || cls == SF_MODULE_LINEAR_PROJ || cls == SF_MODULE_LINEAR_FC1 || cls == SF_MODULE_LINEAR_FC2 ||
         cls == SF_MODULE_OUTPUT_LAYER || cls == SF_MODULE_CORE_ATTENTION;
}

static void test_reference_run_split_moves_products_only(void **state) {
  (void)state;
  for (int f = 0; f < 2; f++) {
    struct sf_catalog *catalog = catalog_of_format(LLAMA "mode=isolated", f);
    struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_SPLIT, 1);
    for (int32_t i = 0; i < plain.count; i++) {
      const struct sf_trace_id id = plain.items[i].id;
      const double move = relative_move(&plain.items[i], &moved.items[i]);
      if (id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD) {
        const bool product = is_product(catalog->modules[id.subject].cls);
        assert_int_equal(move > 0.1 * FORMATS[f].unit, product);
        assert_true(move < 10 * FORMATS[f].unit);
      }
      if (id.kind == SF_KIND_WGRAD && catalog->params[id.subject].row_cut != SF_CUT_EVEN) assert_true(move > 0 && move < 10 * 0x1p-24);
      if (id.kind == SF_KIND_MAIN_GRAD) assert_true(move == 0);
    }
    keeper_destroy(&plain);
    keeper_destroy(&moved);
    sf_catalog_destroy(catalog);
  }
}

static void test_split_shuffled_any_size_covers_each_index_once(void **state) {
  (void)state;
  static const enum sf_summing ways[] = {SF_SUMS_MIXED, SF_SUMS_IN_PARTS, SF_SUMS_TERM_BY_TERM};
  int wholes = 0;
  for (int64_t size = 1; size <= 40; size++)
    for (uint64_t number = 0; number < 30; number++) {
      int32_t order[40];
      bool seen[40] = {false};
      const enum sf_summing sums = ways[number % 3];
      const struct sf_split split = sf_split_shuffled(order, sums, 5, number, size);
      for (int64_t i = 0; i < size; i++) {
        assert_in_range(order[i], 0, size - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
      }
      for (int32_t p = 0; p < split.count; p++) assert_true(split.cut[p] < split.cut[p + 1]);
      assert_int_equal(split.cut[0], 0);
      assert_int_equal(split.cut[split.count], size);
      if (sums == SF_SUMS_IN_PARTS)
        assert_true(split.count == 2 || split.count == 4 || split.count == 8 || split.count == size);
      else if (sums == SF_SUMS_TERM_BY_TERM)
        assert_true(split.count == 1 && split.in_order);
      else
        wholes += split.count == 1;
    }
  assert_in_range(wholes, 40 * 10 * 6 / 10, 40 * 10 * 9 / 10); /* three in four */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference_run_stored_perturbed_reaches_inside_a_norm),
      cmocka_unit_test(test_reference_run_stored_perturbed_in_fp32_moves_every_number),
      cmocka_unit_test(test_reference_run_stored_perturbed_moves_what_is_left_of_a_share_near_one),
      cmocka_unit_test(test_reference_run_stored_perturbed_moves_each_tensor_by_its_roundoff),
      cmocka_unit_test(test_reference_run_stored_perturbed_moves_the_terms_of_sums),
      cmocka_unit_test(test_reference_run_split_moves_products_only),
      cmocka_unit_test(test_split_shuffled_any_size_covers_each_index_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
