/* Routing ties end to end: a token whose choice of experts hangs on rounding is judged where candidate and reference chose alike, and takes
 * what follows with it where they did not. */
#include "tests/unit/oracles/candidate.h"

#include "oracles/judge/collector.h"

enum { EXPERTS = 8, TOPK = 2, SEEDS = 24 }; /* as in WORDS */
#define WORDS SMALL_MODEL E2E "precision.compute=bf16 moe.experts=8 moe.topk=2 moe.ffn=32 "

static bool is_chosen(const float *logits, int64_t e) {
  int ahead = 0;
  for (int64_t i = 0; i < EXPERTS; i++) ahead += logits[i] > logits[e] || (logits[i] == logits[e] && i < e);
  return ahead < TOPK;
}

static double margin_of(const float *logits) {
  double least = INFINITY, most = -INFINITY;
  for (int64_t e = 0; e < EXPERTS; e++) {
    if (is_chosen(logits, e))
      least = fmin(least, (double)logits[e]);
    else
      most = fmax(most, (double)logits[e]);
  }
  return least - most;
}

static bool is_router(const struct trial *t, struct sf_trace_id id) {
  return id.kind == SF_KIND_ACT && t->catalog->modules[id.subject].cls == SF_MODULE_ROUTER;
}

/* Tokens of all routers that are ties by the noise of the first draws; *turned: those among them that the candidate sends elsewhere. */
static int count_ties(struct trial *t, int *turned) {
  int ties = 0;
  *turned = 0;
  assert_int_equal(sf_expectations_raise(t->expectations, SF_LEVEL_FIRST), SF_OK);
  for (int32_t i = 0; i < t->candidate.count; i++) {
    const struct tensor *tensor = &t->candidate.tensors[i];
    if (!is_router(t, tensor->id)) continue;
    const struct sf_expected *e = sf_expectations_find(t->expectations, tensor->id);
    double *levels = malloc((size_t)e->spec.shape.rows * sizeof *levels);
    assert_non_null(levels);
    sf_row_noise(levels, e, SF_LEVEL_FIRST);
    for (int64_t r = 0; r < e->spec.shape.rows; r++) {
      if (margin_of(e->x + r * EXPERTS) > 2 * levels[r]) continue;
      ties++;
      bool differs = false;
      for (int64_t x = 0; x < EXPERTS; x++)
        differs = differs || is_chosen(e->x + r * EXPERTS, x) != is_chosen(tensor->values + r * EXPERTS, x);
      *turned += differs;
    }
    free(levels);
  }
  return ties;
}

static void trial_with_words(struct trial *t, const char *words, enum sf_perturb perturb) {
  trial_open(t, words);
  candidate_destroy(&t->candidate);
  candidate_run(&t->candidate, t->catalog, perturb, 1234567);
}

static void trial_with_noise(struct trial *t, int seed, enum sf_perturb perturb) {
  char words[512];
  snprintf(words, sizeof words, WORDS "seed=%d ", seed);
  trial_with_words(t, words, perturb);
}

/* A token that went to other experts is no finding, and what depends on it is judged by what the candidate's own tensors make. */
static void test_judge_turned_ties_are_judged_anchored(void **state) {
  (void)state;
  int unturned = 0, with_turned = 0;
  for (int seed = 1; seed <= SEEDS; seed++) {
    struct trial t;
    trial_with_noise(&t, seed, SF_PERTURB_STORED);
    int turned;
    const int ties = count_ties(&t, &turned);
    trial_judge(&t);
    if (t.judgement.verdict == SF_VERDICT_FINDING) print_findings(&t);
    assert_int_equal(t.judgement.finding_count, 0);
    assert_true(t.judgement.unchecked * 20 < t.judgement.checked);
    assert_string_equal(sf_verdict_name(t.judgement.verdict), "PASS");
    unturned += ties > 0 && turned == 0;
    with_turned += turned > 0;
    trial_close(&t);
  }
  print_message("%d cases had ties, %d a turned one\n", unturned + with_turned, with_turned);
  assert_true(unturned > 0 && with_turned > 0);
}

/* Behind a tie that the candidate decided as the reference did, an error is seen. */
static void test_judge_behind_an_unturned_tie_finds_a_scaled_tensor(void **state) {
  (void)state;
  int tried = 0;
  for (int seed = 1; seed <= SEEDS && tried < 3; seed++) {
    struct trial t;
    trial_with_noise(&t, seed, SF_PERTURB_STORED);
    int turned;
    if (count_ties(&t, &turned) > 0 && turned == 0) {
      struct tensor *combined = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_COMBINE, 1);
      for (int64_t i = 0; i < combined->count; i++) combined->values[i] *= 1.25f;
      trial_judge(&t);
      assert_first_at(&t, SF_CLASS_TOLERANCE, combined);
      tried++;
    }
    trial_close(&t);
  }
  assert_int_equal(tried, 3);
}

static const float *plain_of(void *ctx, struct sf_trace_id id) {
  const struct candidate *plain = ctx;
  for (int32_t i = 0; i < plain->count; i++)
    if (sf_trace_key(plain->tensors[i].id) == sf_trace_key(id)) return plain->tensors[i].values;
  return NULL;
}

/* Told the plain run's logits or not. */
static void test_rerun_sends_tokens_where_the_plain_run_did(void **state) {
  (void)state;
  int differing[2] = {0};
  for (int told = 0; told < 2; told++) {
    for (int seed = 1; seed <= SEEDS; seed++) {
      struct trial t;
      trial_with_noise(&t, seed, SF_PERTURB_NONE);
      struct candidate draw = {.catalog = t.catalog};
      struct sf_reference_options options = {.perturb = SF_PERTURB_STORED, .draw = 99, .gemm = &loops_table};
      if (told) options.plain = plain_of, options.plain_ctx = &t.candidate;
      const struct sf_reference_sink sink = {.ctx = &draw, .emit = candidate_emit};
      assert_int_equal(sf_reference_run(t.catalog, &options, &sink), SF_OK);
      for (int32_t i = 0; i < draw.count; i++) {
        const struct tensor *tensor = &draw.tensors[i];
        if (tensor->id.kind != SF_KIND_ACT || t.catalog->modules[tensor->id.subject].cls != SF_MODULE_ROUTING) continue;
        for (int64_t k = 0; k < tensor->count; k++) differing[told] += (tensor->values[k] == 0) != (t.candidate.tensors[i].values[k] == 0);
      }
      candidate_destroy(&draw);
      trial_close(&t);
    }
  }
  assert_true(differing[0] > 0);
  assert_int_equal(differing[1], 0);
}

/* A step that throws the weights away leaves logits that are no numbers; they choose experts all the same. */
static void test_run_overflowed_logits_choose_topk_experts(void **state) {
  (void)state;
  struct trial t;
  trial_open(
      &t, SMALL_MODEL E2E
      "precision.compute=fp16 moe.experts=8 moe.topk=2 moe.ffn=32 model.activation=relu2 train.weight_decay_milli=1000000 train.steps=3 train.lr_micro=1000000 ");
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
      cmocka_unit_test(test_judge_behind_an_unturned_tie_finds_a_scaled_tensor),
      cmocka_unit_test(test_rerun_sends_tokens_where_the_plain_run_did),
      cmocka_unit_test(test_run_overflowed_logits_choose_topk_experts),
      cmocka_unit_test(test_judge_lone_loss_is_judged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
