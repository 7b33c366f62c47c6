/* The reference's large products on the emulated device: trials ask for them, and their verdicts are those of the CPU's table. */
#include "tests/unit/run/run_fixture.h"

#include "harness/run/trial/engine_internal.h"

enum { FAST, CHAIN, REFUSED, KINDS };

/* Counts what the reference asks of the device. */
struct asked {
  bool (*inner)(void *ctx, const struct sf_product *product);
  void *inner_ctx;
  int64_t count[KINDS], small;
};

static bool count_products(void *ctx, const struct sf_product *product) {
  struct asked *asked = ctx;
  const bool computed = asked->inner(asked->inner_ctx, product);
  if (!sf_run_product_pays(product)) {
    assert_false(computed);
    asked->small++;
  } else {
    asked->count[!computed ? REFUSED : product->in_order ? CHAIN : FAST]++;
  }
  return computed;
}

static struct sf_outcome run_on(enum sf_device_kind kind, const struct sf_case *c, struct asked *asked) {
  const struct sf_engine_options options = {.device = kind, .gemm = sf_cpu_gemm_default()};
  struct sf_engine *engine = NULL;
  struct sf_outcome outcome;
  assert_int_equal(sf_engine_create(&engine, &options), SF_OK);
  assert_true((engine->products.faster != NULL) == (kind == SF_DEVICE_CUDA));
  if (kind == SF_DEVICE_CUDA) {
    *asked = (struct asked){.inner = engine->products.faster, .inner_ctx = engine->products.ctx};
    engine->products.faster = count_products, engine->products.ctx = asked;
  }
  sf_engine_run(engine, c, NULL, &outcome);
  sf_engine_destroy(engine);
  assert_int_equal(outcome.status, SF_OK);
  return outcome;
}

/* Tokens x hidden x width of the MLP reaches the size from which copies pay, attention does not. */
#define LARGE \
  "mode=isolated model.hidden=256 model.heads=2 model.kv_heads=2 model.head_dim=128 model.ffn=1024 model.seq=128 model.vocab=64 " \
  "model.vocab_padded=64 " \
  "model.bias=true layout.tp=2 seed=4"

static struct sf_case large_case(const char *more, const char *plant) {
  char text[512];
  snprintf(text, sizeof text, LARGE " %s", more);
  struct sf_case c = case_make(text);
  snprintf(c.plant, sizeof c.plant, "%s", plant);
  return c;
}

static struct asked expect_same_verdict(const struct sf_case *c, enum sf_verdict verdict) {
  struct asked asked;
  const struct sf_outcome here = run_on(SF_DEVICE_CPU, c, &asked), there = run_on(SF_DEVICE_CUDA, c, &asked);
  assert_int_equal(here.verdict, verdict);
  assert_int_equal(there.verdict, verdict);
  assert_string_equal(there.signature, here.signature);
  assert_int_equal(there.checked, here.checked);
  assert_int_equal(there.unchecked, here.unchecked);
  return asked;
}

static void test_engine_run_large_case_products_go_to_the_device_same_verdict(void **state) {
  (void)state;
  const struct sf_case c = large_case("", "");
  const struct asked asked = expect_same_verdict(&c, SF_VERDICT_PASS);
  assert_true(asked.count[FAST] > 10);
  assert_true(asked.count[CHAIN] > 0);
  assert_true(asked.small > 0);
}

/* Small integers: no product may be off at all. */
static void test_engine_run_large_exact_case_with_a_plant_same_finding(void **state) {
  (void)state;
#ifdef SF_SANITIZE
  skip(); /* the same products */
#endif
  const struct sf_case c = large_case("data.exact=true", "rowparallel-bias-xtp");
  assert_true(expect_same_verdict(&c, SF_VERDICT_FINDING).count[FAST] > 0);
}

/* A GPU without room: the CPU computes. */
static void test_engine_run_no_memory_on_the_device_cpu_computes_same_verdict(void **state) {
  (void)state;
  const struct sf_case c = large_case("", "");
  struct asked asked;
  assert_int_equal(setenv("SF_EMULATED_OWN_MEMORY", "0", 1), 0);
  const struct sf_outcome outcome = run_on(SF_DEVICE_CUDA, &c, &asked);
  assert_int_equal(unsetenv("SF_EMULATED_OWN_MEMORY"), 0);
  assert_int_equal(outcome.verdict, SF_VERDICT_PASS);
  assert_int_equal(asked.count[FAST] + asked.count[CHAIN], 0);
  assert_true(asked.count[REFUSED] > 10);
}

/* The threshold: a product of large matrices pays, one that moves as much as it multiplies never does. */
static void test_product_pays_by_pairs_and_bytes(void **state) {
  (void)state;
  const struct sf_product cubes[] = {{.m = 128, .n = 128, .k = 128}, {.m = 512, .n = 512, .k = 512}},
                          thin = {.m = 1 << 14, .n = 1, .k = 1 << 14}, wide = {.fp64 = true, .m = 240, .n = 240, .k = 240},
                          narrow = {.m = 250, .n = 250, .k = 250};
  assert_false(sf_run_product_pays(&cubes[0]));
  assert_true(sf_run_product_pays(&cubes[1]));
  assert_false(sf_run_product_pays(&thin));
  assert_false(sf_run_product_pays(&wide));
  assert_true(sf_run_product_pays(&narrow));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_engine_run_large_case_products_go_to_the_device_same_verdict),
                                     cmocka_unit_test(test_engine_run_large_exact_case_with_a_plant_same_finding),
                                     cmocka_unit_test(test_engine_run_no_memory_on_the_device_cpu_computes_same_verdict),
                                     cmocka_unit_test(test_product_pays_by_pairs_and_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
