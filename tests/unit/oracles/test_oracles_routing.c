/* Routing ties end to end: where rounding sends a token to other experts, what follows is judged by the candidate's own choice. */
#include "tests/unit/oracles/candidate.h"

#include "oracles/judge/collector.h"

enum { EXPERTS = 8, TOPK = 2, SEEDS = 24 }; /* as in WORDS */
#define WORDS SMALL_MODEL E2E "precision.compute=bf16 moe.experts=8 moe.topk=2 moe.ffn=32 "

static bool is_chosen(const float *logits, int64_t e) {
  int ahead = 0;
  for (int64_t i = 0; i < EXPERTS; i++) ahead += logits[i] > logits[e] || (logits[i] == logits[e] && i < e);
  return ahead < TOPK;
}

static bool is_router(const struct trial *t, struct sf_trace_id id) {
  return id.kind == SF_KIND_ACT && t->catalog->modules[id.subject].cls == SF_MODULE_ROUTER;
}

/* Tokens of all routers that the candidate sends elsewhere than the reference does. */
static int count_turned(const struct trial *t) {
  int turned = 0;
  for (int32_t i = 0; i < t->candidate.count; i++) {
    const struct tensor *tensor = &t->candidate.tensors[i];
    if (!is_router(t, tensor->id)) continue;
    const struct sf_expected *e = sf_expectations_find(t->expectations, tensor->id);
    for (int64_t r = 0; r < e->spec.shape.rows; r++) {
      bool differs = false;
      for (int64_t x = 0; x < EXPERTS; x++)
        differs = differs || is_chosen(e->x + r * EXPERTS, x) != is_chosen(tensor->values + r * EXPERTS, x);
      turned += differs;
    }
  }
  return turned;
}

/* A candidate that is right, with roundings of its own. */
static void trial_with_noise(struct trial *t, int seed) {
  char words[512];
  snprintf(words, sizeof words, WORDS "seed=%d ", seed);
  trial_open(t, words);
  candidate_destroy(&t->candidate);
  candidate_run(&t->candidate, t->catalog, SF_PERTURB_STORED, 1234567);
}

/* A token that went to other experts is no finding, and what depends on it is judged by what the candidate's own tensors make. */
static void test_judge_turned_ties_are_judged_anchored(void **state) {
  (void)state;
  int unturned = 0;
  for (int seed = 1; seed <= SEEDS; seed++) {
    struct trial t;
    trial_with_noise(&t, seed);
    unturned += count_turned(&t) == 0;
    trial_judge(&t);
    if (t.judgement.verdict == SF_VERDICT_FINDING) print_findings(&t);
    assert_int_equal(t.judgement.finding_count, 0);
    assert_true(t.judgement.unchecked * 20 < t.judgement.checked);
    assert_string_equal(sf_verdict_name(t.judgement.verdict), "PASS");
    trial_close(&t);
  }
  print_message("%d of %d cases had no turned token\n", unturned, SEEDS);
  assert_true(unturned > 0 && unturned < SEEDS);
}

/* An error behind a router is seen, whether tokens turned there or not. */
static void test_judge_behind_turned_ties_finds_a_scaled_tensor(void **state) {
  (void)state;
  int with_turned = 0;
  for (int seed = 1; seed <= 6; seed++) {
    struct trial t;
    trial_with_noise(&t, seed);
    with_turned += count_turned(&t) > 0;
    struct tensor *combined = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_COMBINE, 1);
    for (int64_t i = 0; i < combined->count; i++) combined->values[i] *= 1.25f;
    trial_judge(&t);
    assert_first_at(&t, SF_CLASS_TOLERANCE, combined);
    trial_close(&t);
  }
  assert_true(with_turned > 0);
}

/* A candidate whose experts take more tokens than they may. The router is wrong, in every layer; the experts and what is made of their
 * outputs are right by the weights that they were given. */
static void test_judge_other_dropped_tokens_blame_the_router_alone(void **state) {
  (void)state;
  struct trial t;
  struct sf_catalog *larger = catalog_of(WORDS "moe.capacity_milli=1000 seed=3 ");
  trial_open(&t, WORDS "moe.capacity_milli=500 seed=3 ");
  candidate_destroy(&t.candidate);
  candidate_run(&t.candidate, larger, SF_PERTURB_NONE, 0);
  trial_judge(&t);
  assert_true(t.judgement.finding_count > 0);
  for (int32_t i = 0; i < t.judgement.finding_count; i++) {
    const bool is_routing = t.catalog->modules[t.judgement.findings[i].module].cls == SF_MODULE_ROUTING;
    if (!is_routing) print_findings(&t);
    assert_true(is_routing);
  }
  trial_close(&t);
  sf_catalog_destroy(larger);
}

/* A step that throws the weights away leaves logits that are no numbers; they choose experts all the same. */
static void test_run_overflowed_logits_choose_topk_experts(void **state) {
  (void)state;
  struct trial t;
  trial_open(
      &t, SMALL_MODEL E2E
      "precision.compute=fp16 moe.experts=8 moe.topk=2 moe.ffn=32 model.activation=relu2 train.weight_decay_milli=1000000 train.steps=3 "
      "train.lr_micro=1000000 ");
  int64_t nans = 0;
  for (int32_t i = 0; i < t.candidate.count; i++) {
    const struct tensor *tensor = &t.candidate.tensors[i];
    for (int64_t k = 0; is_router(&t, tensor->id) && k < tensor->count; k++) nans += tensor->values[k] != tensor->values[k];
  }
  assert_true(nans > 0);
  trial_judge(&t);
  if (t.judgement.finding_count > 0) print_findings(&t);
  assert_int_equal(t.judgement.finding_count, 0);
  trial_close(&t);
}

/* A z loss is one number: no rolled copy of it could pass. */
static void test_judge_lone_loss_is_judged(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL "mode=isolated moe.experts=4 moe.topk=2 moe.ffn=32 moe.z_micro=1000 ");
  struct tensor *tensor = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_AUX_LOSS, 0);
  assert_int_equal(tensor->count, 1);
  trial_judge(&t);
  assert_passes(&t);
  assert_true(result_of(&t, tensor->id)->judged);
  tensor->values[0] *= 1.001f;
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, tensor);
  trial_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_turned_ties_are_judged_anchored),
      cmocka_unit_test(test_judge_behind_turned_ties_finds_a_scaled_tensor),
      cmocka_unit_test(test_judge_other_dropped_tokens_blame_the_router_alone),
      cmocka_unit_test(test_run_overflowed_logits_choose_topk_experts),
      cmocka_unit_test(test_judge_lone_loss_is_judged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
