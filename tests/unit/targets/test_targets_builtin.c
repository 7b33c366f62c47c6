/* The built-in target as a whole: what it refuses, memory, failures. */
#include "tests/unit/targets/target_world.h"

#define MODEL "model.layers=4 model.heads=4 model.kv_heads=2 model.seq=8 model.positions=rotary model.adapter=true mode=e2e "

static void test_find_known_and_unknown_names_give_target_and_null(void **state) {
  (void)state;
  assert_ptr_equal(sf_target_find("builtin"), &sf_target_builtin);
  assert_null(sf_target_find("builtins"));
  assert_null(sf_target_find(""));
}

static size_t peak_bytes(const char *sets) {
  const struct sf_case c = world_case(sets);
  struct world *w = world_run(&c, SF_FAULT_NONE);
  assert_int_equal(w->report.status, SF_OK);
  size_t peak = 0;
  for (int32_t rank = 0; rank < sf_case_ranks(&c); rank++) {
    const size_t bytes = sf_arena_peak_bytes(w->arenas[rank]);
    if (bytes > peak) peak = bytes;
  }
  world_destroy(w);
  return peak;
}

/* Activations follow the microbatches in flight, not those of the step, nor the steps. */
static void test_run_more_microbatches_and_steps_take_no_more_memory(void **state) {
  (void)state;
  const size_t few = peak_bytes(MODEL "layout.pp=4 layout.tp=2 layout.sp=true train.microbatches=4");
  assert_int_equal(peak_bytes(MODEL "layout.pp=4 layout.tp=2 layout.sp=true train.microbatches=16"), few);
  assert_int_equal(peak_bytes(MODEL "layout.pp=4 layout.tp=2 layout.sp=true train.microbatches=4 train.steps=3"), few);
}

static void test_run_recompute_takes_less_memory(void **state) {
  (void)state;
  const size_t kept = peak_bytes(MODEL "train.microbatch_size=8"),
               again = peak_bytes(MODEL "train.microbatch_size=8 train.recompute_layers=1");
  assert_true(again < kept);
}

/* The plain products need no memory of their own, so that every allocation is the world's. */
static void use_loops(struct world *w) {
  sf_device_destroy(w->device);
  assert_int_equal(sf_cpu_device_create(&w->device, SF_CPU_GEMM_LOOPS), SF_OK);
  for (int32_t rank = 0; rank < sf_case_ranks(&w->c); rank++) w->envs[rank].device = w->device;
}

/* Every allocation that the ranks' arenas make is refused once: the rank leaves with that status and the world ends. */
static void test_run_each_refused_allocation_ends_the_world_with_enomem(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL "model.hidden=32 layout.pp=2 layout.tp=2 layout.sp=true train.microbatches=2");
  int refused = 0;
  for (int64_t k = 1; k < 10000; k++) {
    struct world *w = world_create(&c, SF_FAULT_NONE);
    w->sink = (struct sf_trace_sink){0};
    use_loops(w);
    sf_alloc_fail_at(k);
    const enum sf_status status = world_start(w, NULL);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_true(failed ? status == SF_ENOMEM || w->report.status == SF_ENOMEM : w->report.status == SF_OK);
    world_destroy(w);
    if (!failed) break;
    refused++;
  }
  assert_true(refused > 20);
}

/* Loss and token count of the smallest case, from the traced losses and the mask. */
static void test_run_scalars_follow_from_losses_and_masks(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL "train.microbatches=4 layout.dp=2 layout.pp=2 data.mask=uneven");
  struct world *w = world_run(&c, SF_FAULT_NONE);
  const int32_t loss_module = sf_catalog_module(w->catalog, SF_MODULE_LOSS, -1);
  double sum = 0.0, kept = 0.0;
  for (uint16_t m = 0; m < 4; m++) {
    float mask[8];
    sf_data_microbatch(NULL, NULL, mask, &c, 0, m);
    const struct world_tensor *loss =
        world_find(w, (struct sf_trace_id){.microbatch = m, .pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = loss_module});
    assert_non_null(loss);
    for (int t = 0; t < 8; t++) sum += (double)mask[t] * (double)loss->values[t], kept += (double)mask[t];
  }
  const struct world_tensor *scalar =
      world_find(w, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = SF_SCALAR_LOSS});
  const struct world_tensor *tokens =
      world_find(w, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = SF_SCALAR_TOKENS});
  assert_non_null(scalar);
  assert_non_null(tokens);
  assert_true(fabs((double)scalar->values[0] - sum / kept) <= 1e-6 * fabs(sum / kept));
  assert_true((double)tokens->values[0] == kept);
  world_destroy(w);
}

/* The norm counts each logical element once, whatever is replicated; the clip factor and Adam's first change follow from it. */
static void test_run_grad_norm_and_clip_follow_from_main_gradients(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL "model.bias=true model.norm=layer model.tied=true train.microbatches=2 layout.tp=4 "
                                            "layout.sp=true layout.dp=2 layout.pp=2 train.clip_milli=100");
  struct world *w = world_run(&c, SF_FAULT_NONE);
  double sum = 0.0;
  for (int32_t p = 0; p < w->catalog->param_count; p++) {
    const struct world_tensor *grad = world_find(w, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_MAIN_GRAD, .subject = p});
    assert_non_null(grad);
    for (int64_t i = 0; i < grad->shape.rows * grad->shape.cols; i++) sum += (double)grad->values[i] * (double)grad->values[i];
  }
  const struct world_tensor *norm =
      world_find(w, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = SF_SCALAR_GRAD_NORM});
  const struct world_tensor *clip =
      world_find(w, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = SF_SCALAR_CLIP});
  assert_true(fabs((double)norm->values[0] - sqrt(sum)) <= 1e-6 * sqrt(sum));
  const double factor = fmin(1.0, 0.1 / (sqrt(sum) + 1e-6));
  assert_true(factor < 1.0);
  assert_true(fabs((double)clip->values[0] - factor) <= 1e-6 * factor);
  world_destroy(w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_find_known_and_unknown_names_give_target_and_null),
      cmocka_unit_test(test_run_more_microbatches_and_steps_take_no_more_memory),
      cmocka_unit_test(test_run_recompute_takes_less_memory),
      cmocka_unit_test(test_run_each_refused_allocation_ends_the_world_with_enomem),
      cmocka_unit_test(test_run_scalars_follow_from_losses_and_masks),
      cmocka_unit_test(test_run_grad_norm_and_clip_follow_from_main_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
