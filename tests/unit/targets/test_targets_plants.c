/* Planted faults: each changes what its row promises on a case that triggers it, nothing on a case that does not; canaries end as they
 * must. */
#include "tests/rounds.h"
#include "tests/unit/targets/target_world.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "model.layers=2 model.heads=4 model.kv_heads=2 model.seq=8 model.vocab=16 model.vocab_padded=16 model.positions=rotary "

/* A case that triggers the fault, shown in isolated mode. */
static const struct {
  enum sf_fault fault;
  const char *sets;
} TRIGGERS[] = {
    {SF_FAULT_TP_EMBED_MASK, MODEL "layout.tp=2 data.tokens=edge train.microbatch_size=4"},
    {SF_FAULT_RECOMPUTE_CHUNK_STALE_INPUT, MODEL "train.recompute_layers=2"},
    {SF_FAULT_SP_FINAL_LN_NOSYNC, MODEL "layout.tp=2 layout.sp=true model.norm=layer"},
    {SF_FAULT_SP_ROUTER_NOSYNC, MODEL "layout.tp=2 layout.sp=true moe.experts=4 moe.topk=2"},
    {SF_FAULT_ROUTER_PARTIAL_AS_REPLICATED, MODEL "layout.tp=2 layout.sp=true moe.experts=4 moe.topk=2"},
    {SF_FAULT_EP_GRAD_NO_DIVIDE, MODEL "layout.dp=2 layout.ep=2 moe.experts=4 moe.topk=2 train.microbatches=2"},
    {SF_FAULT_NORM_EP_UNDERCOUNT, MODEL "layout.tp=2 layout.sp=true layout.ep=2 moe.experts=4 moe.topk=2"},
    {SF_FAULT_ETP_EP1_WRONG_DP_GROUP, MODEL "layout.dp=2 layout.etp=2 moe.experts=4 moe.topk=2 train.microbatches=2"},
    {SF_FAULT_ATTN_DQ_WRONG, MODEL},
    {SF_FAULT_PP_UNEVEN_OFFSET, MODEL "model.layers=3 layout.pp=2 layout.pp_last_layers=1"},
    {SF_FAULT_PP_UNEVEN_OFFSET, MODEL "model.layers=5 layout.pp=3 layout.pp_last_layers=1"},
    {SF_FAULT_MEAN_OF_MEANS_ACCUM, MODEL "train.microbatches=2 data.mask=uneven"},
    {SF_FAULT_GATHER_BWD_INFLATES, MODEL "layout.tp=2 layout.sp=true model.adapter=true"},
    {SF_FAULT_LINEAR_FROZEN_DGRAD_NOAR, MODEL "layout.tp=2 train.frozen=fc1"},
    {SF_FAULT_LINEAR_FROZEN_DGRAD_NOAR, MODEL "layout.tp=2 layout.sp=true train.frozen=qkv"},
    {SF_FAULT_LINEAR_FROZEN_DGRAD_NOAR, MODEL "layout.tp=2 model.tied=true train.frozen=embedding"},
    {SF_FAULT_MQA_KV_GRAD_NOAR, MODEL "layout.tp=4 model.bias=true"},
    {SF_FAULT_GROUP_ORDER_CROSSTALK, MODEL "layout.pp=2 layout.dp=2 model.tied=true train.microbatches=2"},
    {SF_FAULT_REDUCE_BEFORE_WGRAD, MODEL "layout.dp=2 layout.overlap=true train.microbatches=2"},
    {SF_FAULT_REDUCE_BEFORE_WGRAD, MODEL "layout.dp=2 layout.overlap=true train.microbatches=4 layout.bucket_elements=1 schedule=3"},
    {SF_FAULT_P2P_FREE_BEFORE_SENT, MODEL "layout.pp=2"},
    {SF_FAULT_NORM_REPLICA_OVERCOUNT, MODEL "layout.tp=2"},
    {SF_FAULT_CLIP_NOT_ON_ALL_REPLICAS, MODEL "layout.tp=2 train.steps=2 train.clip_milli=10"},
    {SF_FAULT_ACCUM_FIRST_MB_ONLY, MODEL "train.microbatches=2"},
    {SF_FAULT_ROWPARALLEL_BIAS_XTP, MODEL "layout.tp=2 model.bias=true"},
    {SF_FAULT_FUSED_PROJ_CONTIGUOUS_SPLIT, MODEL "layout.tp=2 model.activation=swiglu"},
    {SF_FAULT_FUSED_PROJ_CONTIGUOUS_SPLIT, MODEL "layout.tp=4"},
    {SF_FAULT_NONAUTOGRAD_ALLREDUCE, MODEL "layout.tp=2"},
    {SF_FAULT_ADAM_SYNTHETIC_STEP, MODEL},
    {SF_FAULT_VPP_GRADSYNC_WRONG_MB, MODEL "model.layers=4 layout.pp=2 layout.vpp=2 layout.dp=2 layout.overlap=true train.microbatches=4"},
    {SF_FAULT_VPP_GRADSYNC_WRONG_MB,
     MODEL "model.layers=8 layout.pp=2 layout.vpp=4 layout.dp=2 layout.overlap=true train.microbatches=20 layout.zero=1 schedule=5"},
    {SF_FAULT_ZERO_TIED_UNTIE, MODEL "layout.pp=2 layout.dp=2 layout.zero=1 model.tied=true train.microbatches=2"},
    {SF_FAULT_ZERO_PARAM_GATHER_SKIPPED, MODEL "layout.dp=2 layout.zero=1 train.microbatches=2"},
    {SF_FAULT_ZERO_PARAM_UPDATE_LOST, MODEL "layout.dp=2 layout.zero=1 train.microbatches=2"},
    {SF_FAULT_ZERO_PARAM_UPDATE_LOST, MODEL "layout.dp=4 layout.zero=2 train.microbatches=4 layout.bucket_elements=1"},
    {SF_FAULT_FSDP_SCALE_WRONG_BUFFER, MODEL "layout.dp=2 layout.zero=2 train.microbatches=2"},
    {SF_FAULT_ZERO_BOUNDARY_DROPS_ACCUM, MODEL "layout.dp=2 layout.zero=2 train.microbatches=4"},
    {SF_FAULT_SHARED_BUF_OVERZERO, MODEL "layout.dp=2 layout.zero=1 train.microbatches=2 layout.bucket_elements=100"},
    {SF_FAULT_WGRAD_RS_LOW_PRECISION, MODEL "layout.dp=2 layout.zero=1 train.microbatches=2 precision.compute=bf16"},
    {SF_FAULT_REDUCE_BEFORE_WGRAD, MODEL "layout.dp=2 layout.zero=1 layout.overlap=true train.microbatches=2"},
    {SF_FAULT_REDUCE_BEFORE_WGRAD, MODEL "layout.dp=2 layout.zero=2 layout.overlap=true train.microbatches=4"},
    {SF_FAULT_EMBED_SCATTER_WRONG_TP_GROUP,
     MODEL "layout.tp=2 layout.sp=true layout.dp=2 train.microbatches=2 layout.order=dp-tp-cp-ep-pp"},
    {SF_FAULT_CP_LOCAL_LOSS_MEAN,
     MODEL "layout.cp=2 layout.cp_comm=allgather train.loss_norm=per_microbatch data.mask=uneven train.microbatch_size=2"
           " train.microbatches=2"},
    {SF_FAULT_CP_LOCAL_LOSS_MEAN, MODEL "layout.cp=4 layout.tp=2 train.loss_norm=per_microbatch data.mask=sparse"},
    {SF_FAULT_CP_ATTN_BWD_WRONG, MODEL "layout.cp=2"},
    {SF_FAULT_CP_ATTN_BWD_WRONG, MODEL "layout.cp=4 layout.tp=2 layout.order=cp-tp-dp-pp-ep"},
    {SF_FAULT_CP_LOSS_SCALE, MODEL "layout.cp=2 layout.cp_comm=a2a"},
    {SF_FAULT_CP_LOSS_SCALE, MODEL "layout.cp=2 precision.compute=fp16 precision.loss_scale_log2=4"},
    {SF_FAULT_DP_SCALE_EXCL_CP, MODEL "layout.cp=2 layout.dp=2 train.microbatches=2 train.loss_norm=per_microbatch"},
    {SF_FAULT_DDP_GROUP_EXCLUDES_CP, MODEL "layout.cp=2"},
    {SF_FAULT_DDP_GROUP_EXCLUDES_CP, MODEL "layout.cp=2 layout.dp=2 train.microbatches=2 layout.overlap=true"},
    {SF_FAULT_ROPE_CP_WRONG_DIM, MODEL "layout.cp=2 train.microbatch_size=4"},
    {SF_FAULT_MTP_LOCAL_TOKEN_NORM, MODEL "layout.cp=2 model.mtp_depth=1"},
    {SF_FAULT_MTP_LOCAL_TOKEN_NORM, MODEL "layout.dp=2 train.microbatches=2 data.mask=uneven model.mtp_depth=2"},
    {SF_FAULT_RNG_SP_SAME_SEED, MODEL "layout.tp=2 layout.sp=true train.dropout_milli=100"},
    {SF_FAULT_RNG_REPLICA_DESYNC, MODEL "layout.tp=2 train.dropout_milli=100"},
    {SF_FAULT_RECOMPUTE_WRONG_TP_GROUP, MODEL
     "layout.tp=2 layout.dp=2 train.microbatches=2 train.recompute_layers=1 layout.recompute_sharded=true layout.order=dp-tp-cp-ep-pp"},
    {SF_FAULT_RECOMPUTE_WRONG_TP_GROUP,
     MODEL "layout.tp=2 layout.cp=2 layout.pp=2 train.recompute_layers=2 layout.recompute_sharded=true layout.order=cp-tp-dp-ep-pp"},
    {SF_FAULT_TP_OVERLAP_WGRAD_WRONG, MODEL "layout.tp=2 layout.sp=true layout.tp_overlap=true"},
    {SF_FAULT_TP_OVERLAP_WGRAD_WRONG, MODEL "layout.tp=4 layout.sp=true layout.tp_overlap=true model.tied=true train.frozen=qkv"},
    {SF_FAULT_XATTN_QKV_WRONG_TP_GROUP,
     MODEL "layout.tp=2 layout.dp=2 train.microbatches=2 layout.order=dp-tp-cp-ep-pp model.memory_seq=3"},
    {SF_FAULT_XATTN_QKV_WRONG_TP_GROUP,
     MODEL "layout.tp=2 layout.sp=true layout.dp=2 layout.pp=2 train.microbatches=2 layout.order=dp-tp-cp-ep-pp model.memory_seq=4"},
    {SF_FAULT_FP8_AMAX_WRONG_GROUP, MODEL "layout.tp=2 precision.compute=fp8"},
    {SF_FAULT_FP8_LAYER_EXEMPT_LOCAL_INDEX, MODEL "layout.pp=2 precision.compute=fp8 precision.fp8_bf16_first=1"},
    {SF_FAULT_FP8_WEIGHT_CACHE_STALE, MODEL "precision.compute=fp8 precision.fp8_recipe=delayed train.steps=2 train.microbatches=2"},
    {SF_FAULT_FP8_WRONG_CAST, MODEL "precision.compute=fp8"},
    {SF_FAULT_MLA_KPOS_GRAD_NOAR, MODEL "layout.tp=2 model.kv_heads=4 model.kv_lora_rank=8 model.qk_rope_dim=2"},
    {SF_FAULT_MLA_KPOS_GRAD_NOAR,
     MODEL "layout.tp=4 layout.sp=true model.kv_heads=4 model.kv_lora_rank=8 model.q_lora_rank=8 model.qk_rope_dim=2"},
    {SF_FAULT_AUX_LOSS_NO_CP, MODEL "layout.cp=2 moe.experts=4 moe.topk=2 moe.aux_micro=10000"},
    {SF_FAULT_AUX_LOSS_NO_CP, MODEL "layout.cp=2 layout.ep=2 moe.experts=4 moe.z_micro=1000 train.loss_norm=per_microbatch"},
    {SF_FAULT_AUX_LOSS_TP_MULTIPLE, MODEL "layout.tp=2 layout.sp=true moe.experts=4 moe.topk=2 moe.aux_micro=10000 moe.z_micro=1000"},
    {SF_FAULT_AUX_PER_TOKEN_EXTRA_DIV, MODEL "train.microbatches=2 moe.experts=4 moe.z_micro=1000"},
    {SF_FAULT_PADMASK_WRONG_TP_GROUP, MODEL
     "layout.tp=2 layout.sp=true layout.dp=2 train.microbatches=2 layout.order=dp-tp-cp-ep-pp moe.experts=4 moe.aux_micro=10000 "
     "data.padding=4"},
    {SF_FAULT_PADMASK_WRONG_TP_GROUP, MODEL
     "layout.tp=2 layout.sp=true layout.cp=2 layout.order=cp-tp-dp-ep-pp moe.experts=4 moe.scope=microbatch moe.z_micro=1000 data.padding=5"
     " train.microbatch_size=2"},
    {SF_FAULT_CKPT_LOCAL_LAYER_NAMES, MODEL "layout.dp=2 train.microbatches=2 train.steps=2 reload.after_step=1 reload.pp=2"},
    {SF_FAULT_CKPT_LOCAL_LAYER_NAMES,
     MODEL "model.layers=4 layout.pp=2 train.microbatches=2 train.steps=2 reload.after_step=1 reload.pp=2 reload.vpp=2"},
    {SF_FAULT_CKPT_BUCKET_OVERWRITE,
     MODEL "layout.dp=2 layout.zero=1 layout.bucket_elements=100 train.microbatches=2 train.steps=2 reload.after_step=1 reload.tp=2"},
    {SF_FAULT_STALE_MASTER_AFTER_LOAD, MODEL "mode=e2e precision.compute=bf16 train.steps=2 reload.after_step=1"},
    {SF_FAULT_STALE_MASTER_AFTER_LOAD,
     MODEL "mode=e2e precision.compute=fp16 layout.tp=2 train.microbatches=2 train.steps=2 reload.after_step=1 reload.dp=2 reload.zero=1"},
    {SF_FAULT_ZERO_PARAM_UPDATE_LOST, MODEL "layout.tp=2 train.microbatches=2 train.steps=2 reload.after_step=1 reload.dp=2 reload.zero=1"},
    {SF_FAULT_LS_LOCAL_VOCAB, MODEL "layout.tp=2 train.label_smoothing_milli=100"},
};
enum { TRIGGER_COUNT = sizeof TRIGGERS / sizeof TRIGGERS[0] };

static bool same_bits(const struct world_tensor *a, const struct world_tensor *b) {
  const size_t count = (size_t)(a->shape.rows * a->shape.cols);
  return memcmp(a->values, b->values, count * sizeof(float)) == 0 && memcmp(a->seen, b->seen, count) == 0;
}

static bool is_promised(const struct world *w, const struct sf_plant *plant, struct sf_trace_id id) {
  struct sf_trace_spec spec;
  if (!sf_trace_spec(&spec, w->catalog, id)) return false;
  return (plant->kinds >> id.kind & 1) && sf_plant_may_blame(plant, w->catalog->modules[spec.module].cls);
}

struct change {
  int64_t changed, promised;
};

/* Tensors of `clean` that the faulty run has otherwise or not at all; and how many of them the plant's row names. */
static struct change compare(const struct world *clean, const struct world *faulty, const struct sf_plant *plant) {
  struct change out = {0};
  for (int i = 0; i < WORLD_SLOTS; i++) {
    if (!clean->tensors[i].used) continue;
    const struct sf_trace_id id = sf_trace_id_from_key(clean->tensors[i].key);
    const struct world_tensor *other = world_find(faulty, id);
    if (other != NULL && same_bits(&clean->tensors[i], other)) continue;
    out.changed++;
    out.promised += is_promised(clean, plant, id);
  }
  return out;
}

/* Replicas are merged by keeping the first that comes, so a fault on one replica shows as a conflict. */
static void check_trigger(enum sf_fault fault, const char *sets) {
  const struct sf_plant *plant = sf_plant_of(fault);
  const struct sf_case c = world_case(sets);
  if (!sf_plant_is_triggered(plant, &c)) fail_msg("%s: not triggered by \"%s\"", plant->id, sets);
  struct world *clean = world_run(&c, SF_FAULT_NONE), *faulty = world_run(&c, fault);
  assert_int_equal(clean->report.status, SF_OK);
  assert_int_equal(faulty->report.status, SF_OK);
  assert_int_equal(clean->conflicts, 0);
  const struct change change = compare(clean, faulty, plant);
  const bool conflict = faulty->conflicts > 0 && is_promised(faulty, plant, faulty->first_conflict);
  if (change.promised == 0 && !conflict) fail_msg("%s: %d tensors changed, none where it was promised", plant->id, (int)change.changed);
  world_destroy(clean);
  world_destroy(faulty);
}

static void test_plants_on_triggering_case_change_what_they_promise(void **state) {
  (void)state;
  for (int i = 0; i < TRIGGER_COUNT; i++) check_trigger(TRIGGERS[i].fault, TRIGGERS[i].sets);
}

static void test_plants_every_fault_has_a_triggering_case_here(void **state) {
  (void)state;
  for (int fault = 1; fault < SF_FAULT_CANARY_CRASH; fault++) {
    bool found = false;
    for (int i = 0; i < TRIGGER_COUNT; i++) found |= TRIGGERS[i].fault == (enum sf_fault)fault;
    if (!found) fail_msg("%s has none", sf_plant_of((enum sf_fault)fault)->id);
  }
}

/* Every fault on every case above: where `triggers` says no, not a bit changes. */
static void test_plants_on_other_cases_change_nothing(void **state) {
  (void)state;
  int checked = 0;
  for (int i = 0; i < TRIGGER_COUNT; i++) {
    const struct sf_case c = world_case(TRIGGERS[i].sets);
    struct world *clean = world_run(&c, SF_FAULT_NONE);
    for (int fault = 1; fault < SF_FAULT_CANARY_CRASH; fault++) {
      const struct sf_plant *plant = sf_plant_of((enum sf_fault)fault);
      if ((i + fault) % SF_STRIDE != 0 || sf_plant_is_triggered(plant, &c)) continue;
      struct world *faulty = world_run(&c, plant->fault);
      const struct change change = compare(clean, faulty, plant);
      if (change.changed > 0 || faulty->conflicts > 0) fail_msg("%s shows on \"%s\"", plant->id, TRIGGERS[i].sets);
      world_destroy(faulty);
      checked++;
    }
    world_destroy(clean);
  }
  assert_true(checked > TRIGGER_COUNT * 5);
}

static void test_plants_table_is_whole_and_minimal_fields_parse(void **state) {
  (void)state;
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) {
    const struct sf_plant *plant = sf_plant_of((enum sf_fault)fault);
    assert_int_equal(plant->fault, fault);
    assert_ptr_equal(sf_plant_find(plant->id), plant);
    assert_non_null(plant->triggers);
    assert_true(strlen(plant->what) > 10);
    const bool canary = fault >= SF_FAULT_CANARY_CRASH;
    assert_int_equal(canary, plant->label[0] != '\0');
    assert_int_equal(canary, plant->kinds == 0);
    assert_int_equal(canary, plant->source[0] == '\0');
    assert_true(plant->minimal.ranks >= 1 && plant->minimal.layers >= 1);
    (void)world_case(plant->minimal.fields);
  }
  assert_null(sf_plant_of(SF_FAULT_NONE));
  assert_null(sf_plant_find("no-such-plant"));
  assert_null(sf_plant_find(""));
}

static void check_report(enum sf_fault fault, enum sf_status status) {
  const struct sf_case c = world_case("layout.tp=2 model.heads=2 layout.dp=2 train.microbatches=2");
  struct world *w = world_run(&c, fault);
  assert_int_equal(w->report.status, status);
  assert_string_equal(w->report.label, sf_plant_of(fault)->label);
  assert_true(w->report.rank >= 0);
  world_destroy(w);
}

static void test_canary_deadlock_is_reported_at_its_label(void **state) {
  (void)state;
  check_report(SF_FAULT_CANARY_DEADLOCK, SF_EDEADLOCK);
}
static void test_canary_mismatch_is_reported_at_its_label(void **state) {
  (void)state;
  check_report(SF_FAULT_CANARY_MISMATCH, SF_EMISMATCH);
}

/* Runs a canary in a child whose progress record is shared with this process. */
static pid_t start_canary(enum sf_fault fault, struct sf_comm_progress *progress) {
  const struct sf_case c = world_case("layout.tp=2 model.heads=2");
  const pid_t child = fork();
  if (child != 0) return child;
  signal(SIGSEGV, SIG_DFL);
  struct world *w = world_create(&c, fault);
  _exit(world_start(w, progress) == SF_OK ? 0 : 1);
}

static struct sf_comm_progress *shared_progress(void) {
  struct sf_comm_progress *progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(progress, MAP_FAILED);
  return progress;
}

static void test_canary_crash_dies_at_its_label(void **state) {
  (void)state;
  struct sf_comm_progress *progress = shared_progress();
  const pid_t child = start_canary(SF_FAULT_CANARY_CRASH, progress);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGSEGV);
  assert_string_equal(progress->label, sf_plant_of(SF_FAULT_CANARY_CRASH)->label);
  assert_int_equal(progress->rank, 1);
  munmap(progress, sizeof *progress);
}

/* The child can only be at the label for good: nothing but the loop follows it. */
static void test_canary_hang_stays_at_its_label(void **state) {
  (void)state;
  struct sf_comm_progress *progress = shared_progress();
  const pid_t child = start_canary(SF_FAULT_CANARY_HANG, progress);
  int status = 0;
  pid_t ended = 0;
  while (ended == 0 && strcmp((const char *)progress->label, sf_plant_of(SF_FAULT_CANARY_HANG)->label) != 0) {
    usleep(1000);
    ended = waitpid(child, &status, WNOHANG);
  }
  assert_int_equal(ended, 0);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGKILL);
  munmap(progress, sizeof *progress);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plants_on_triggering_case_change_what_they_promise),
      cmocka_unit_test(test_plants_every_fault_has_a_triggering_case_here),
      cmocka_unit_test(test_plants_on_other_cases_change_nothing),
      cmocka_unit_test(test_plants_table_is_whole_and_minimal_fields_parse),
      cmocka_unit_test(test_canary_deadlock_is_reported_at_its_label),
      cmocka_unit_test(test_canary_mismatch_is_reported_at_its_label),
      cmocka_unit_test(test_canary_crash_dies_at_its_label),
      cmocka_unit_test(test_canary_hang_stays_at_its_label),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
