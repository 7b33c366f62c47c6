#include "tests/unit/run/run_fixture.h"

#include "harness/base/hash.h"
#include "harness/run/campaign/campaign.h"
#include "harness/run/power/power.h"
#include "harness/run/trial/chunk_log.h"
#include "harness/run/trial/engine.h"
#include "targets/builtin/faults/plants.h"
#include "tests/rounds.h"

static struct sf_engine *engine_make(void) {
  const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default(), .hash_trace = true};
  struct sf_engine *engine = NULL;
  assert_int_equal(sf_engine_create(&engine, &options), SF_OK);
  return engine;
}

static struct sf_outcome run(struct sf_engine *engine, const struct sf_case *c) {
  struct sf_outcome outcome;
  sf_engine_run(engine, c, NULL, &outcome);
  return outcome;
}

static void plant(struct sf_case *c, const char *id) { snprintf(c->plant, sizeof c->plant, "%s", id); }

static void test_engine_run_clean_case_passes_and_repeats(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make(), *other = engine_make();
  const struct sf_case c = case_make(CASE_TP2 " layout.sp=true schedule=7 train.steps=2");
  const struct sf_outcome first = run(engine, &c), again = run(engine, &c), fresh = run(other, &c);
  assert_int_equal(first.status, SF_OK);
  assert_int_equal(first.verdict, SF_VERDICT_PASS);
  assert_int_equal(first.ranks, 2);
  assert_true(first.checked > 20);
  assert_int_equal(first.trace_hash, again.trace_hash);
  assert_int_equal(first.trace_hash, fresh.trace_hash);
  assert_int_equal(sf_engine_judgement(engine)->finding_count, 0);
  assert_true(sf_engine_judgement(engine)->result_count > 20);
  sf_engine_destroy(engine);
  sf_engine_destroy(other);
}

static void test_engine_run_layouts_of_one_function_share_the_reference(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  const char *const layouts[] = {"layout.tp=1", "layout.tp=2", "layout.tp=2 layout.sp=true", "layout.dp=2",
                                 "layout.tp=2 layout.dp=2 schedule=5"};
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
    char text[256];
    snprintf(text, sizeof text, "mode=e2e model.heads=2 model.kv_heads=2 train.microbatches=2 %s", layouts[i]);
    const struct sf_case c = case_make(text);
    assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
    assert_int_equal(sf_engine_costs(engine)->references, 1);
  }
  const struct sf_case other = case_make("mode=e2e seed=1 model.heads=2 model.kv_heads=2 train.microbatches=2");
  assert_int_equal(run(engine, &other).verdict, SF_VERDICT_PASS);
  assert_int_equal(sf_engine_costs(engine)->references, 2);
  assert_int_equal(sf_engine_costs(engine)->trials, 6);
  sf_engine_destroy(engine);
}

/* What one trial leaves behind must not reach the next: planted, clean, broken and smaller cases in turn. */
static void test_engine_run_after_failed_trials_is_as_in_a_fresh_engine(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  struct sf_case c = case_make(CASE_TP2), small = case_make("mode=e2e");
  const uint64_t expected = run(engine, &c).trace_hash, expected_small = run(engine, &small).trace_hash;
  static const char *const plants[] = {"canary-deadlock", "canary-mismatch", "rowparallel-bias-xtp", "p2p-free-before-sent"};
  for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
    struct sf_case planted = c;
    plant(&planted, plants[i]);
    (void)run(engine, &planted);
    const struct sf_outcome clean = run(engine, &c), clean_small = run(engine, &small);
    assert_int_equal(clean.verdict, SF_VERDICT_PASS);
    assert_int_equal(clean.trace_hash, expected);
    assert_int_equal(clean_small.trace_hash, expected_small);
  }
  sf_engine_destroy(engine);
}

/* Draws cases until one contains the trigger. */
static bool draw_triggering(struct sf_case *out, const struct sf_plant *of, const struct sf_campaign_options *options, int64_t *index) {
  for (; *index < 2000; ++*index) {
    assert_int_equal(sf_campaign_case(out, options, *index, NULL), SF_OK);
    if (of->triggers(out)) return true;
  }
  return false;
}

static void test_engine_run_every_plant_is_found_and_its_case_is_clean_without_it(void **state) {
  (void)state;
  static struct sf_campaign_options options;
  enum { TRIES = 12 };
  struct sf_engine *engine = engine_make();
  sf_space_init(&options.space);
  options.space.max_ranks = 4;
  for (size_t i = 0; i < sizeof small_sizes / sizeof small_sizes[0]; i++)
    assert_int_equal(sf_space_set(&options.space, small_sizes[i], NULL), SF_OK);
  options.layouts = 1;
  options.seed = 31;
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) {
    const struct sf_plant *of = sf_plant_of((enum sf_fault)fault);
    if (fault == SF_FAULT_CANARY_CRASH || fault == SF_FAULT_CANARY_HANG || fault % SF_STRIDE != 0)
      continue; /* canaries take this process with them */
    bool found = false;
    int64_t index = 0;
    struct sf_case c;
    for (int try = 0; !found && try < TRIES && draw_triggering(&c, of, &options, &index); try++, index++) {
      plant(&c, of->id);
      const struct sf_outcome outcome = run(engine, &c);
      assert_int_equal(outcome.status, SF_OK);
      found = outcome.verdict == SF_VERDICT_FINDING;
      plant(&c, "");
      const struct sf_outcome clean = run(engine, &c);
      if (clean.verdict == SF_VERDICT_FINDING) fail_msg("case %d without a plant: %s", (int)index, clean.text);
    }
    if (!found) fail_msg("%s was not found in %d cases", of->id, TRIES);
  }
  sf_engine_destroy(engine);
}

static void test_engine_run_wrong_case_is_a_status_with_a_reason(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  struct sf_case c = case_make(CASE_TP2);
  plant(&c, "weeds");
  struct sf_outcome outcome = run(engine, &c);
  assert_int_equal(outcome.status, SF_EINPUT);
  assert_non_null(strstr(outcome.text, "weeds"));
  c = case_make(CASE_TP2);
  snprintf(c.target, sizeof c.target, "nobody");
  outcome = run(engine, &c);
  assert_int_equal(outcome.status, SF_EINPUT);
  assert_non_null(strstr(outcome.text, "nobody"));
  c = case_make(CASE_TP2);
  c.layout.tp = 3;
  outcome = run(engine, &c);
  assert_int_equal(outcome.status, SF_EINPUT);
  assert_non_null(strstr(outcome.text, "layout.tp"));
  c = case_make(CASE_TP2);
  assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
  sf_engine_destroy(engine);
}

struct hashed_log {
  uint64_t hash;
  int64_t count;
};

static void hash_chunk(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                       int64_t cols) {
  struct hashed_log *h = ctx;
  (void)map;
  h->hash = sf_hash_bytes(sf_hash_u64(sf_hash_u64(h->hash, (uint64_t)rank), sf_trace_key(id)), data, (size_t)(rows * cols) * sizeof *data);
  h->count++;
}

static void test_engine_run_record_holds_what_was_traced(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_chunk_log log = {0};
  struct sf_outcome outcome;
  struct hashed_log hashed = {0, 0};
  sf_engine_run(engine, &c, &log, &outcome);
  assert_false(log.failed);
  assert_true(sf_chunk_log_visit(log.data, log.size_bytes, hash_chunk, &hashed));
  assert_true(hashed.count > 40);
  assert_int_equal(hashed.hash, outcome.trace_hash);
  sf_chunk_log_destroy(&log);
  sf_engine_destroy(engine);
}

static void count_calls(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                        int64_t cols) {
  (void)rank;
  (void)map;
  int *calls = ctx;
  ++*calls;
  if (id.kind == SF_KIND_MAIN_GRAD && rows * cols > 0) data[0] += 1.0f;
}

static void test_engine_run_tampered_tensor_is_a_finding(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  const struct sf_case c = case_make(CASE_TP2);
  int calls = 0;
  sf_engine_set_tamper(engine, count_calls, &calls);
  const struct sf_outcome outcome = run(engine, &c);
  assert_true(calls > 40);
  assert_int_equal(outcome.verdict, SF_VERDICT_FINDING);
  sf_engine_set_tamper(engine, NULL, NULL);
  assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
  sf_engine_destroy(engine);
}

static void count_own(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                      int64_t cols) {
  (void)rank, (void)id, (void)map, (void)data, (void)rows, (void)cols;
  int *calls = ((int **)ctx)[0];
  const volatile int32_t *is_own = ((volatile int32_t **)ctx)[1];
  calls[*is_own != 0]++;
}

static void test_engine_run_notes_whether_code_under_test_runs(void **state) {
  (void)state;
  volatile int32_t is_own = 7;
  int calls[2] = {0, 0};
  void *ctx[2] = {calls, (void *)&is_own};
  const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default(), .is_own = &is_own};
  const struct sf_case c = case_make(CASE_TP2);
  struct sf_engine *engine = NULL;
  assert_int_equal(sf_engine_create(&engine, &options), SF_OK);
  sf_engine_set_tamper(engine, count_own, ctx);
  assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
  assert_true(calls[0] > 40);
  assert_int_equal(calls[1], 0);
  assert_int_equal(is_own, 1);
  sf_engine_destroy(engine);
}

/* The last bit of one value of each row-parallel linear, which bf16's tolerance does not see. */
static void tamper_last_bit(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                            int64_t cols) {
  (void)rank;
  (void)map;
  if (id.kind != SF_KIND_ACT || id.subject != *(const int32_t *)ctx || rows * cols == 0) return;
  data[0] = data[0] == 0 ? 0x1p-8f : data[0] * (1 + 0x1p-7f);
}

static void test_engine_run_exact_case_sees_what_tolerance_does_not(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  struct sf_case c =
      case_make("mode=isolated precision.compute=bf16 model.heads=2 model.kv_heads=2 model.hidden=32 model.bias=true layout.tp=2");
  assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
  int32_t proj = sf_catalog_module(sf_engine_catalog(engine), SF_MODULE_LINEAR_PROJ, 0);
  sf_engine_set_tamper(engine, tamper_last_bit, &proj);
  assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
  c.data.exact = true;
  const struct sf_outcome outcome = run(engine, &c);
  assert_int_equal(outcome.verdict, SF_VERDICT_FINDING);
  assert_int_equal(outcome.cls, SF_CLASS_EXACT);
  assert_int_equal(outcome.module_class, SF_MODULE_LINEAR_PROJ);
  sf_engine_set_tamper(engine, NULL, NULL);
  assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
  plant(&c, "rowparallel-bias-xtp");
  struct sf_outcome planted = run(engine, &c);
  assert_int_equal(planted.cls, SF_CLASS_EXACT);
  sf_engine_diagnose(engine, &c, NULL, &planted);
  assert_int_equal(planted.diagnosis.cls, SF_DIAGNOSIS_REPEATED_TERM);
  sf_engine_destroy(engine);
}

/* Each third number of a module's output, by a rounding: what a number makes of it that was rounded once more inside. */
static void tamper_roundings(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                             int64_t cols) {
  (void)rank;
  (void)map;
  if (id.kind != SF_KIND_ACT || id.subject != *(const int32_t *)ctx) return;
  for (int64_t i = 0; i < rows * cols; i += 3) data[i] = sf_bf16_round(data[i] * (1 + 0x1p-7f));
}

static void test_engine_run_roundings_of_built_in_layers_are_a_finding(void **state) {
  (void)state;
  static const char *const modes[] = {"isolated", "e2e"};
  for (size_t i = 0; i < 2; i++) {
    struct sf_engine *engine = engine_make();
    char text[256];
    snprintf(text, sizeof text,
             "mode=%s precision.compute=bf16 model.seq=16 model.heads=2 model.kv_heads=2 model.hidden=32 model.head_dim=16 layout.tp=2",
             modes[i]);
    const struct sf_case c = case_make(text);
    assert_int_equal(run(engine, &c).verdict, SF_VERDICT_PASS);
    int32_t attention = sf_catalog_module(sf_engine_catalog(engine), SF_MODULE_CORE_ATTENTION, 0);
    sf_engine_set_tamper(engine, tamper_roundings, &attention);
    struct sf_outcome outcome = run(engine, &c);
    assert_string_equal(outcome.signature, "rounding/act/self_attention.core_attention@tp");
    sf_engine_diagnose(engine, &c, NULL, &outcome);
    assert_int_equal(outcome.diagnosis.cls, SF_DIAGNOSIS_UNKNOWN);
    sf_engine_destroy(engine);
  }
}

/* Fails each allocation of a whole trial in turn, engine and all: either memory was out, and that is said, or the verdict is right. */
static void sweep(const struct sf_case *c, enum sf_verdict expected) {
  const struct sf_engine_options options = {.gemm = SF_CPU_GEMM_LOOPS};
  bool ended = false;
  int64_t refused = 0, k = 1;
  for (; !ended; k++) {
    struct sf_engine *engine = NULL;
    struct sf_outcome outcome;
    sf_alloc_fail_at(k);
    enum sf_status status = sf_engine_create(&engine, &options);
    if (status == SF_OK) {
      sf_engine_run(engine, c, NULL, &outcome);
      status = outcome.status;
    }
    ended = !sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (status == SF_OK)
      assert_int_equal(outcome.verdict, expected);
    else
      assert_int_equal(status, SF_ENOMEM);
    refused += status != SF_OK;
    if (engine) { /* it must be fit for use again */
      sf_engine_run(engine, c, NULL, &outcome);
      assert_int_equal(outcome.status, SF_OK);
      assert_int_equal(outcome.verdict, expected);
    }
    sf_engine_destroy(engine);
  }
  assert_true(refused > 10);
  assert_true(k > refused);
}

static void test_engine_run_each_allocation_fails_once_verdict_is_right_or_enomem(void **state) {
  (void)state;
  struct sf_case c = case_make("mode=e2e model.heads=2 model.kv_heads=2 model.bias=true layout.tp=2 layout.sp=true model.seq=2 schedule=3");
  sweep(&c, SF_VERDICT_PASS);
  plant(&c, "rowparallel-bias-xtp");
  sweep(&c, SF_VERDICT_FINDING);
}

#define LATENTS_TP2 CASE_TP2 " model.positions=rotary model.kv_lora_rank=8 model.qk_rope_dim=2"
#define VPP "model.layers=4 layout.pp=2 layout.vpp=2 layout.overlap=true"

static const struct {
  const char *plant, *assignments;
  enum sf_diagnosis_class cls;
} diagnosed[] = {
    {"rowparallel-bias-xtp", CASE_TP2, SF_DIAGNOSIS_REPEATED_TERM},
    {"sp-final-ln-nosync", CASE_TP2 " layout.sp=true", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"linear-frozen-dgrad-noar", CASE_TP2 " train.frozen=fc1", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"linear-frozen-dgrad-noar", CASE_TP2 " train.frozen=qkv layout.sp=true mode=isolated", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"accum-first-mb-only", "mode=e2e train.microbatches=2", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"attn-dq-wrong", "mode=e2e model.heads=2 model.kv_heads=2 model.seq=4 layout.tp=2", SF_DIAGNOSIS_PART},
    {"adam-synthetic-step", "mode=e2e train.lr_micro=1000", SF_DIAGNOSIS_SCALE},
    {"p2p-free-before-sent", "model.layers=2 layout.pp=2", SF_DIAGNOSIS_STALE},
    {"ls-local-vocab", CASE_TP2 " train.label_smoothing_milli=100", SF_DIAGNOSIS_UNSYNCHRONISED},
    {"linear-frozen-dgrad-noar", LATENTS_TP2 " train.frozen=qkv mode=isolated", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"linear-frozen-dgrad-noar", LATENTS_TP2 " train.frozen=qkv model.q_lora_rank=8 layout.sp=true", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"padmask-wrong-tp-group",
     CASE_TP2 " layout.sp=true layout.dp=2 train.microbatches=2 layout.order=dp-tp-cp-ep-pp moe.experts=4 moe.topk=2 moe.aux_micro=1000 "
              "moe.z_micro=1000 "
              "data.padding=3 model.seq=8 mode=isolated",
     SF_DIAGNOSIS_NEIGHBOUR},
    {"padmask-wrong-tp-group",
     CASE_TP2 " layout.sp=true layout.dp=2 train.microbatches=2 layout.order=dp-tp-cp-ep-pp moe.experts=4 moe.topk=2 moe.aux_micro=1000 "
              "moe.scope=microbatch moe.router=sigmoid data.padding=3 model.seq=8 mode=isolated",
     SF_DIAGNOSIS_NEIGHBOUR},
    {"mla-kpos-grad-noar", LATENTS_TP2, SF_DIAGNOSIS_MISSING_REDUCTION},
    {"mla-kpos-grad-noar", LATENTS_TP2 " layout.sp=true mode=isolated", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"tp-overlap-wgrad-wrong", CASE_TP2 " layout.sp=true layout.tp_overlap=true", SF_DIAGNOSIS_STALE},
    {"tp-overlap-wgrad-wrong", CASE_TP2 " layout.sp=true layout.tp_overlap=true mode=isolated model.tied=true", SF_DIAGNOSIS_STALE},
    {"tp-overlap-wgrad-wrong", CASE_TP2 " layout.sp=true layout.tp_overlap=true mode=isolated model.mtp_depth=1", SF_DIAGNOSIS_STALE},
    {"fp8-amax-wrong-group", CASE_TP2 " precision.compute=fp8 mode=isolated", SF_DIAGNOSIS_UNSYNCHRONISED},
    {"fp8-amax-wrong-group", CASE_TP2 " layout.sp=true precision.compute=fp8 mode=isolated", SF_DIAGNOSIS_UNSYNCHRONISED},
    {"fp8-layer-exempt-local-index", "model.layers=2 layout.pp=2 precision.compute=fp8 precision.fp8_bf16_first=1 mode=isolated",
     SF_DIAGNOSIS_SHIFTED},
    {"fp8-wrong-cast", "precision.compute=fp8 mode=isolated", SF_DIAGNOSIS_STALE},
    {"fp8-wrong-cast", CASE_TP2 " precision.compute=fp8 model.activation=swiglu model.bias=on", SF_DIAGNOSIS_STALE},
    {"cp-attn-bwd-wrong", "layout.cp=2 model.seq=8 mode=isolated", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"cp-attn-bwd-wrong", CASE_TP2 " layout.cp=2 model.seq=8 model.positions=rotary train.microbatch_size=2",
     SF_DIAGNOSIS_MISSING_REDUCTION},
    {"norm-ep-undercount", CASE_TP2 " layout.sp=true moe.experts=2 moe.topk=2", SF_DIAGNOSIS_MISSING_REDUCTION},
    {"etp-ep1-wrong-dp-group", "layout.dp=2 layout.etp=2 train.microbatches=2 moe.experts=2", SF_DIAGNOSIS_EXTRA_REDUCTION},
    {"cp-local-loss-mean", "layout.cp=2 train.loss_norm=per_microbatch data.mask=sparse model.seq=8 mode=isolated", SF_DIAGNOSIS_SCALE},
    {"mtp-local-token-norm", "layout.cp=2 model.mtp_depth=1 mode=isolated", SF_DIAGNOSIS_SCALE},
    {"vpp-gradsync-wrong-mb", VPP " layout.dp=2 train.microbatches=4", SF_DIAGNOSIS_UNSYNCHRONISED},
    {"vpp-gradsync-wrong-mb", VPP " layout.cp=2 train.microbatches=2", SF_DIAGNOSIS_UNSYNCHRONISED},
    {"recompute-wrong-tp-group",
     CASE_TP2 " layout.dp=2 train.microbatches=2 train.recompute_layers=1 layout.recompute_sharded=true layout.order=dp-tp-cp-ep-pp",
     SF_DIAGNOSIS_NEIGHBOUR},
    {"xattn-qkv-wrong-tp-group", CASE_TP2 " layout.dp=2 train.microbatches=2 model.memory_seq=1 layout.order=dp-tp-cp-ep-pp",
     SF_DIAGNOSIS_MISSING_REDUCTION},
    {"xattn-qkv-wrong-tp-group", CASE_TP2 " layout.sp=true layout.dp=2 train.microbatches=2 model.memory_seq=2 layout.order=dp-tp-cp-ep-pp",
     SF_DIAGNOSIS_NEIGHBOUR},
};

/* In a second run and from a log of the first alike; the judgement stays. */
/* long: its table */
static void test_engine_diagnose_says_what_was_planted(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  for (size_t i = 0; i < sizeof diagnosed / sizeof diagnosed[0]; i++) {
    struct sf_case c = case_make(diagnosed[i].assignments);
    struct sf_chunk_log log = {0};
    struct sf_outcome outcome;
    plant(&c, diagnosed[i].plant);
    sf_engine_run(engine, &c, &log, &outcome);
    if (outcome.verdict != SF_VERDICT_FINDING) fail_msg("%s: %s is not found", diagnosed[i].plant, diagnosed[i].assignments);
    assert_string_equal(outcome.diagnosis.text, "");
    const int32_t findings = sf_engine_judgement(engine)->finding_count;
    sf_engine_diagnose(engine, &c, NULL, &outcome);
    const struct sf_diagnosis again = outcome.diagnosis;
    sf_engine_diagnose(engine, &c, &log, &outcome);
    if (again.cls != diagnosed[i].cls) fail_msg("%s: %s: %s", diagnosed[i].plant, sf_diagnosis_class_name(again.cls), again.text);
    assert_string_equal(outcome.diagnosis.text, again.text);
    assert_int_equal(sf_engine_judgement(engine)->finding_count, findings);
    sf_chunk_log_destroy(&log);
  }
  sf_engine_destroy(engine);
}

/* Makes tensors wrong whose names are on a list. */
struct wrongs {
  const struct sf_engine *engine;
  const char *const *names;
  int32_t count;
};

static void make_wrong(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                       int64_t cols) {
  const struct wrongs *wrongs = ctx;
  char name[160];
  (void)rank;
  (void)map;
  sf_trace_id_text(name, sizeof name, sf_engine_catalog(wrongs->engine), id);
  for (int32_t i = 0; i < wrongs->count; i++)
    for (int64_t k = 0; strcmp(name, wrongs->names[i]) == 0 && k < rows * cols; k++) data[k] *= 1.5f;
}

/* Each tensor that is wrong by itself is a culprit; in isolated mode up to the first that is not replaced by a given one. */
static void test_engine_run_lists_each_culprit(void **state) {
  (void)state;
#define FC1 "s0/mb0/fwd/act/decoder.layers.0.mlp.linear_fc1/0"
#define QKV_GRAD "s0/mb0/bwd/act_grad/decoder.layers.0.self_attention.linear_qkv/0"
#define MAIN_GRAD "s0/mb0/step/main_grad/decoder.layers.0.self_attention.linear_qkv.weight/0"
#define LATER "s1/mb0/fwd/act/decoder.layers.0.self_attention.linear_proj/0"
  static const struct {
    const char *mode, *wrong[3];
    int32_t count, further;
    const char *signature; /* of the second one */
  } rows[] = {
      {"mode=isolated", {FC1, QKV_GRAD}, 2, 1, "tolerance/act_grad/self_attention.linear_qkv@tp"},
      {"mode=isolated", {FC1, QKV_GRAD, LATER}, 3, 2, "tolerance/act_grad/self_attention.linear_qkv@tp"},
      {"mode=isolated",
       {FC1, MAIN_GRAD, LATER},
       3,
       1,
       "tolerance/main_grad/self_attention.linear_qkv@tp"}, /* what comes after a wrong main gradient may follow from it */
      {"mode=e2e", {FC1, QKV_GRAD}, 2, 1, "tolerance/act_grad/self_attention.linear_qkv@tp"},
      {"mode=e2e precision.compute=bf16", {FC1, QKV_GRAD}, 2, 1, "tolerance/act_grad/self_attention.linear_qkv@tp"},
      {"mode=e2e", {FC1, LATER}, 2, 1, "tolerance/act/self_attention.linear_proj@tp"},
      {"mode=e2e", {FC1}, 1, 0, NULL}, /* what follows from it is none */
  };
  struct sf_engine *engine = engine_make();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char text[256];
    struct wrongs wrongs = {engine, rows[i].wrong, rows[i].count};
    snprintf(text, sizeof text, "model.heads=2 model.kv_heads=2 layout.tp=2 train.steps=2 %s", rows[i].mode);
    const struct sf_case c = case_make(text);
    sf_engine_set_tamper(engine, make_wrong, &wrongs);
    struct sf_outcome outcome = run(engine, &c);
    assert_int_equal(outcome.verdict, SF_VERDICT_FINDING);
    assert_string_equal(outcome.first_id, rows[i].wrong[0]);
    assert_int_equal(outcome.further_count, rows[i].further);
    for (int32_t k = 0; k < rows[i].further; k++) assert_string_equal(outcome.further[k].first_id, rows[i].wrong[k + 1]);
    if (rows[i].further == 0) continue;
    assert_string_equal(outcome.further[0].signature, rows[i].signature);
    assert_true(sf_outcome_turn_to(&outcome, outcome.further[0].shrink_key));
    sf_engine_diagnose(engine, &c, NULL, &outcome);
    assert_string_equal(outcome.first_id, rows[i].wrong[1]);
    assert_int_equal(outcome.diagnosis.cls, SF_DIAGNOSIS_SCALE);
  }
  sf_engine_destroy(engine);
}

/* The smallest case of every planted bug in the corpus: first divergence and diagnosis are what the plant table declares. */
static void test_engine_diagnose_plants_of_the_corpus_get_their_declared_class(void **state) {
  (void)state;
  struct sf_engine *engine = engine_make();
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) {
    const struct sf_plant *plant = sf_plant_of((enum sf_fault)fault);
    struct sf_case c;
    struct sf_outcome outcome;
    char path[128];
    if (*plant->label) continue; /* canaries have nothing to diagnose */
    snprintf(path, sizeof path, "corpus/regress/plant-%s.json", plant->id);
    assert_int_equal(sf_case_read(&c, path, NULL), SF_OK);
    sf_engine_run(engine, &c, NULL, &outcome);
    sf_engine_diagnose(engine, &c, NULL, &outcome);
    if (!sf_power_is_localised(plant, &outcome)) fail_msg("%s: first divergence %s", plant->id, outcome.first_id);
    if (!sf_power_is_diagnosed(plant, &outcome.diagnosis))
      fail_msg("%s: wanted %s, got %s: %s", plant->id, plant->diagnosis, sf_diagnosis_class_name(outcome.diagnosis.cls),
               outcome.diagnosis.text);
  }
  sf_engine_destroy(engine);
}

/* Where ranks part ways over a tensor, the call in which they do not meet hangs on what comes next; the tensor is named beside it. */
static void test_engine_diagnose_ranks_that_do_not_meet_get_the_tensor_before(void **state) {
  (void)state;
  static const struct {
    const char *path;
    enum sf_finding_class cls;
    const char *begins;
  } rows[] = {{"corpus/regress/overflow-in-one-expert.json", SF_CLASS_MISMATCH, "s0/mb0/step/scalar/overflow/0 was wrong before: rank 1"},
              {"corpus/regress/plant-canary-deadlock.json", SF_CLASS_DEADLOCK, ""},
              {"corpus/regress/plant-canary-mismatch.json", SF_CLASS_MISMATCH, ""}};
  struct sf_engine *engine = engine_make();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct sf_case c;
    struct sf_outcome outcome;
    assert_int_equal(sf_case_read(&c, rows[i].path, NULL), SF_OK);
    sf_engine_run(engine, &c, NULL, &outcome);
    assert_int_equal(outcome.cls, rows[i].cls);
    sf_engine_diagnose(engine, &c, NULL, &outcome);
    if (strncmp(outcome.diagnosis.text, rows[i].begins, *rows[i].begins ? strlen(rows[i].begins) : 1) != 0)
      fail_msg("%s: %s", rows[i].path, outcome.diagnosis.text);
    assert_int_equal(outcome.diagnosis.cls, *rows[i].begins ? SF_DIAGNOSIS_EARLIER : SF_DIAGNOSIS_UNKNOWN);
  }
  sf_engine_destroy(engine);
}

/* What is wrong beside the first tensor, as a rule that no right tensor keeps. */
static void test_engine_run_pattern_is_of_all_wrong_tensors_and_no_others(void **state) {
  (void)state;
  static const struct {
    const char *plant, *assignments, *pattern;
  } rows[] = {
      {"accum-first-mb-only", "train.microbatches=2", "all 9 main gradients are wrong"},
      {"ep-grad-no-divide", "layout.dp=2 layout.ep=2 moe.experts=2 train.microbatches=2",
       "both main gradients of experts are wrong, and none of the other 8"},
      {"sp-final-ln-nosync", CASE_TP2 " layout.sp=true model.norm=layer",
       "both main gradients of decoder.final_layernorm are wrong, and none of the other 14"},
      {"sp-final-ln-nosync", CASE_TP2 " layout.sp=true", ""}, /* one tensor alone */
  };
  struct sf_engine *engine = engine_make();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct sf_case c = case_make(rows[i].assignments);
    struct sf_outcome outcome;
    plant(&c, rows[i].plant);
    sf_engine_run(engine, &c, NULL, &outcome);
    assert_int_equal(outcome.verdict, SF_VERDICT_FINDING);
    assert_string_equal(outcome.pattern, rows[i].pattern);
  }
  sf_engine_destroy(engine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_engine_run_pattern_is_of_all_wrong_tensors_and_no_others),
      cmocka_unit_test(test_engine_run_clean_case_passes_and_repeats),
      cmocka_unit_test(test_engine_run_lists_each_culprit),
      cmocka_unit_test(test_engine_run_layouts_of_one_function_share_the_reference),
      cmocka_unit_test(test_engine_run_after_failed_trials_is_as_in_a_fresh_engine),
      cmocka_unit_test(test_engine_run_every_plant_is_found_and_its_case_is_clean_without_it),
      cmocka_unit_test(test_engine_run_wrong_case_is_a_status_with_a_reason),
      cmocka_unit_test(test_engine_run_record_holds_what_was_traced),
      cmocka_unit_test(test_engine_run_tampered_tensor_is_a_finding),
      cmocka_unit_test(test_engine_run_notes_whether_code_under_test_runs),
      cmocka_unit_test(test_engine_run_exact_case_sees_what_tolerance_does_not),
      cmocka_unit_test(test_engine_run_roundings_of_built_in_layers_are_a_finding),
      cmocka_unit_test(test_engine_diagnose_says_what_was_planted),
      cmocka_unit_test(test_engine_diagnose_plants_of_the_corpus_get_their_declared_class),
      cmocka_unit_test(test_engine_diagnose_ranks_that_do_not_meet_get_the_tensor_before),
      cmocka_unit_test(test_engine_run_each_allocation_fails_once_verdict_is_right_or_enomem),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
