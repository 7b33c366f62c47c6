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

static int count_tied_results(const struct trial *t) {
  int count = 0;
  for (int32_t i = 0; i < t->judgement.result_count; i++) {
    const char *why = t->judgement.results[i].why_not;
    count += why != NULL && strcmp(why, "routing tie") == 0;
  }
  return count;
}

static void test_judge_ties_count_only_where_the_candidate_chose_otherwise(void **state) {
  (void)state;
  int judged = 0, left_out = 0;
  for (int seed = 1; seed <= SEEDS; seed++) {
    struct trial t;
    trial_with_noise(&t, seed, SF_PERTURB_STORED);
    int turned;
    const int ties = count_ties(&t, &turned);
    trial_judge(&t);
    if (t.judgement.verdict == SF_VERDICT_FINDING) print_findings(&t);
    assert_int_equal(t.judgement.finding_count, 0);
    assert_int_equal(count_tied_results(&t) > 0, turned > 0);
    if (turned == 0) assert_string_equal(sf_verdict_name(t.judgement.verdict), "PASS");
    judged += ties > 0 && turned == 0;
    left_out += turned > 0;
    trial_close(&t);
  }
  print_message("%d cases with ties were judged, %d had a turned one\n", judged, left_out);
  assert_true(judged > 0 && left_out > 0);
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

static struct tensor *tensor_of(const struct trial *t, struct sf_trace_id id) {
  for (int32_t i = 0; i < t->candidate.count; i++)
    if (sf_trace_key(t->candidate.tensors[i].id) == sf_trace_key(id)) return &t->candidate.tensors[i];
  fail_msg("not traced");
  return NULL;
}

/* The first gradient that a turned tie reaches, or the first that none does; NULL: no such tensor. */
static struct tensor *gradient_where(const struct trial *t, bool is_reached) {
  for (int32_t i = 0; i < t->judgement.result_count; i++) {
    const struct sf_tensor_result *result = &t->judgement.results[i];
    if (result->id.kind != SF_KIND_ACT_GRAD) continue;
    if (is_reached ? result->why_not != NULL && strcmp(result->why_not, "routing tie") == 0 : result->judged)
      return tensor_of(t, result->id);
  }
  return NULL;
}

/* Makes the candidate's only step one that an infinite gradient lets it skip. */
static void skip_step(struct trial *t) {
  const struct candidate *c = &t->candidate;
  param_tensor(c, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_QKV, 0, 0)->values[0] = INFINITY;
  scalar_tensor(c, SF_SCALAR_OVERFLOW, 0)->values[0] = 1;
  scalar_tensor(c, SF_SCALAR_GRAD_NORM, 0)->values[0] = 0;
  scalar_tensor(c, SF_SCALAR_CLIP, 0)->values[0] = 1;
  for (int32_t i = 0; i < c->count; i++) {
    struct tensor *tensor = &c->tensors[i];
    if (tensor->id.kind == SF_KIND_PARAM_DELTA) memset(tensor->values, 0, (size_t)tensor->count * sizeof *tensor->values);
    if (tensor->id.kind != SF_KIND_PARAM || tensor->id.step == 0) continue;
    memcpy(tensor->values, tensor_at(c, SF_KIND_PARAM, tensor->id.subject, 0, 0)->values, (size_t)tensor->count * sizeof *tensor->values);
  }
}

/* Perturbed runs do not turn ties, so none of them shows which numbers near the largest become infinite behind one. Where the reference is
 * far from the largest number, or no tie is before the tensor, an infinity is a finding. */
static void test_judge_infinity_behind_a_turned_tie_is_left_out_near_the_largest(void **state) {
  (void)state;
  static const struct {
    const char *precision;
    bool is_near;
  } cases[] = {{"fp16 precision.loss_scale_log2=15", true}, {"fp16 precision.loss_scale_log2=1", false}, {"bf16", false}};
  int tried[3] = {0}, before = 0;
  for (int k = 0; k < 3; k++) {
    for (int seed = 1; seed <= SEEDS; seed++) {
      char words[512];
      snprintf(words, sizeof words, WORDS "seed=%d precision.compute=%s ", seed, cases[k].precision);
      struct trial t;
      trial_with_words(&t, words, SF_PERTURB_STORED);
      trial_judge(&t);
      struct tensor *behind = gradient_where(&t, true), *elsewhere = gradient_where(&t, false);
      if (behind != NULL) {
        tried[k]++;
        const float own = behind->values[0];
        behind->values[0] = INFINITY;
        trial_judge(&t);
        if (cases[k].is_near && t.judgement.finding_count > 0) print_findings(&t);
        if (cases[k].is_near) assert_int_equal(t.judgement.finding_count, 0);
        if (!cases[k].is_near) assert_first_at(&t, SF_CLASS_NONFINITE, behind);
        behind->values[0] = own;
      }
      if (behind != NULL && elsewhere != NULL) {
        before++;
        const float own = elsewhere->values[0];
        elsewhere->values[0] = INFINITY;
        trial_judge(&t);
        assert_first_at(&t, SF_CLASS_NONFINITE, elsewhere);
        elsewhere->values[0] = own;
      }
      if (behind != NULL && cases[k].is_near) {
        skip_step(&t);
        trial_judge(&t);
        if (t.judgement.finding_count > 0) print_findings(&t);
        assert_int_equal(t.judgement.finding_count, 0);
      }
      trial_close(&t);
    }
  }
  print_message("%d, %d, %d infinities behind ties, %d elsewhere\n", tried[0], tried[1], tried[2], before);
  assert_true(tried[0] > 0 && tried[1] > 0 && tried[2] > 0 && before > 0);
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
      cmocka_unit_test(test_judge_ties_count_only_where_the_candidate_chose_otherwise),
      cmocka_unit_test(test_judge_behind_an_unturned_tie_finds_a_scaled_tensor),
      cmocka_unit_test(test_judge_infinity_behind_a_turned_tie_is_left_out_near_the_largest),
      cmocka_unit_test(test_rerun_sends_tokens_where_the_plain_run_did),
      cmocka_unit_test(test_run_overflowed_logits_choose_topk_experts),
      cmocka_unit_test(test_judge_lone_loss_is_judged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
