/* The table of communication labels against what the layers call, and the search for mutants of those calls. */
#include "harness/comm/group_lists.h"
#include "harness/comm/sim.h"
#include "harness/device/cpu.h"
#include "harness/run/campaign/campaign.h"
#include "harness/run/power/power_mutants.h"
#include "harness/run/trial/mutants.h"
#include "targets/builtin/parallel/labels.h"
#include "targets/target.h"
#include "tests/rounds.h"
#include "tests/unit/run/run_fixture.h"
#include "tests/comm_watch.h"

/* --- the table of labels --------------------------------------------------------------------------------------------- */

static bool reached[256];
static char wrong[200]; /* what the last call that is not as its row says is instead */

static void check_call(struct sf_comm *comm, const struct sf_comm_call *call) {
  const struct sf_comm_label *row = sf_comm_label_find(call->label);
  (void)comm;
  if (row == NULL)
    snprintf(wrong, sizeof wrong, "the call '%s' (%s) has no row in targets/builtin/parallel/labels.c", call->label,
             sf_comm_op_name(call->op));
  else if (row->op != call->op)
    snprintf(wrong, sizeof wrong, "'%s' is a %s, not a %s", row->name, sf_comm_op_name(call->op), sf_comm_op_name(row->op));
  else
    reached[row - sf_comm_labels] = true;
}

static void rank_main(struct sf_comm *comm, void *arg) {
  struct sf_rank_env *env = arg;
  comm_watch(comm, check_call);
  env->comm = comm;
  sf_target_builtin.run(env);
}

enum { RANKS_MAX = 8 };
struct runner {
  struct sf_sim *sim;
  struct sf_device *device;
  struct sf_group_lists *groups;
  struct sf_arena *arenas[RANKS_MAX];
};

/* The case's calls; nobody watches its tensors. */
static void run_case(struct runner *runner, const struct sf_case *c) {
  struct sf_catalog *catalog;
  struct sf_rank_env envs[RANKS_MAX];
  void *args[RANKS_MAX];
  struct sf_comm_report report;
  static const struct sf_trace_sink nobody = {NULL, NULL};
  assert_int_equal(sf_catalog_create(&catalog, c), SF_OK);
  sf_group_lists_reset(runner->groups);
  for (int32_t i = 0; i < sf_case_ranks(c); i++) {
    sf_arena_reset(runner->arenas[i]);
    envs[i] = (struct sf_rank_env){.c = c,
                                   .catalog = catalog,
                                   .mesh = sf_mesh_from_layout(&c->layout),
                                   .default_mesh = sf_mesh_default_order(&c->layout),
                                   .device = runner->device,
                                   .arena = runner->arenas[i],
                                   .groups = runner->groups,
                                   .sink = &nobody};
    args[i] = &envs[i];
  }
  const struct sf_sim_options options = {.world = (int32_t)sf_case_ranks(c), .schedule = (uint64_t)c->schedule};
  assert_int_equal(sf_sim_run(runner->sim, &options, rank_main, args, &report), SF_OK);
  if (*wrong != '\0') fail_msg("%s", wrong);
  if (report.status != SF_OK) fail_msg("%s", report.text);
  sf_catalog_destroy(catalog);
}

static void space_make(struct sf_space *space) {
  sf_space_init(space);
  for (size_t i = 0; i < sizeof small_sizes / sizeof small_sizes[0]; i++)
    assert_int_equal(sf_space_set(space, small_sizes[i], NULL), SF_OK);
}

static void test_labels_drawn_cases_call_each_row_and_nothing_else(void **state) {
  (void)state;
  static struct sf_campaign_options options;
  struct runner runner = {0};
  space_make(&options.space);
  options.seed = 1;
  options.layouts = 4;
  assert_int_equal(sf_sim_create(&runner.sim), SF_OK);
  assert_int_equal(sf_group_lists_create(&runner.groups), SF_OK);
  assert_int_equal(sf_cpu_device_create(&runner.device, sf_cpu_gemm_default()), SF_OK);
  for (int32_t i = 0; i < RANKS_MAX; i++) assert_non_null(runner.arenas[i] = sf_arena_create(1 << 18, true));
  for (int64_t index = 0; index < SF_ROUNDS(600); index++) {
    struct sf_case c;
    assert_int_equal(sf_campaign_case(&c, &options, index, NULL), SF_OK);
    if (sf_case_ranks(&c) <= RANKS_MAX) run_case(&runner, &c);
  }
#ifndef SF_SANITIZE /* fewer cases do not reach them all */
  for (int i = 0; i < sf_comm_label_count; i++)
    if (!reached[i]) fail_msg("no case calls '%s': its row in targets/builtin/parallel/labels.c is dead", sf_comm_labels[i].name);
#endif
  for (int32_t i = 0; i < RANKS_MAX; i++) sf_arena_destroy(runner.arenas[i]);
  sf_device_destroy(runner.device);
  sf_sim_destroy(runner.sim);
  sf_group_lists_destroy(runner.groups);
}

static void test_labels_names_stand_once_and_messages_have_both_ends(void **state) {
  (void)state;
  assert_true(sf_comm_label_count <= (int)(sizeof reached / sizeof reached[0]));
  for (int i = 0; i < sf_comm_label_count; i++) {
    const struct sf_comm_label *row = &sf_comm_labels[i];
    assert_ptr_equal(sf_comm_label_find(row->name), row);
    assert_int_equal(row->receive_name != NULL, row->op == SF_COMM_SEND);
    if (row->receive_name == NULL) continue;
    const struct sf_comm_label *other = sf_comm_label_find(row->receive_name);
    assert_non_null(other);
    assert_int_equal(other->op, SF_COMM_RECV);
  }
  assert_null(sf_comm_label_find("no.such.label"));
}

/* --- names ----------------------------------------------------------------------------------------------------------- */

static void test_mutant_list_every_name_is_found(void **state) {
  (void)state;
  assert_true(sf_mutant_count() > 4 * sf_comm_label_count);
  for (int32_t i = 0; i < sf_mutant_count(); i++) {
    char name[SF_NAME_TEXT];
    struct sf_mutation mutation;
    struct sf_case c;
    sf_mutant_name(name, i);
    assert_int_equal(sf_mutant_find(&mutation, name, NULL), SF_OK);
    assert_int_equal(sf_plant_id_check(name, NULL), SF_OK);
    sf_case_init(&c);
    assert_int_equal(sf_case_field_parse(&c, "plant.id", name, NULL), SF_OK);
  }
}

static void test_plant_id_check_unknown_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "no-such-plant",
                                    "mutant:no.such.label:drop",
                                    "mutant:adam.grad_norm:shift",
                                    "mutant:adam.grad_norm:op-sum",
                                    "mutant:pipeline_schedule.recv_forward:drop"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct sf_error error = {SF_OK, ""};
    if (sf_plant_id_check(bad[i], &error) != SF_EINPUT) fail_msg("\"%s\" passed", bad[i]);
    assert_true(*error.text);
  }
  assert_int_equal(sf_plant_id_check("tp-embed-mask", NULL), SF_OK);
  assert_int_equal(sf_plant_id_check("mutant:pipeline_schedule.send_forward:drop:3", NULL), SF_OK);
  assert_int_equal(sf_plant_id_check("mutant:adam.grad_norm:observe", NULL), SF_OK);
}

static void test_plants_read_list_gives_a_bit_for_each(void **state) {
  (void)state;
  uint64_t faults = 7;
  assert_int_equal(sf_plants_read(&faults, "", NULL), SF_OK);
  assert_int_equal(faults, 0);
  assert_int_equal(sf_plants_read(&faults, "tp-embed-mask,attn-dq-wrong", NULL), SF_OK);
  assert_int_equal(faults, SF_FAULT_BIT(SF_FAULT_TP_EMBED_MASK) | SF_FAULT_BIT(SF_FAULT_ATTN_DQ_WRONG));
  static const char *const bad[] = {"tp-embed-mask,", ",tp-embed-mask", "tp-embed-mask,no-such-plant", "tp-embed-mask, attn-dq-wrong"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    if (sf_plants_read(&faults, bad[i], NULL) != SF_EINPUT) fail_msg("\"%s\" passed", bad[i]);
    if (sf_plant_id_check(bad[i], NULL) != SF_EINPUT) fail_msg("\"%s\" passed", bad[i]);
  }
  assert_int_equal(sf_plant_id_check("tp-embed-mask,attn-dq-wrong", NULL), SF_OK);
}

/* --- searches -------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *id;
  enum sf_mutant_fate fate;
} searched[] = {
    {"mutant:row_parallel_linear.fwd.all_reduce:drop", SF_MUTANT_SILENT},
    {"mutant:grad_buckets.all_reduce:missing-scale", SF_MUTANT_SILENT},
    {"mutant:pipeline_schedule.send_forward:stale", SF_MUTANT_SILENT},
    {"mutant:vocab_parallel_embedding.fwd.reduce_scatter:drop", SF_MUTANT_LOUD}, /* what was never received is NaN */
    {"mutant:vocab_parallel_cross_entropy.fwd.max:duplicate", SF_MUTANT_EQUIVALENT},
    {"mutant:vocab_parallel_cross_entropy.fwd.max:op-sum", SF_MUTANT_LOUD}, /* large logits: exponentials overflow or vanish */
    {"mutant:vocab_parallel_cross_entropy.fwd.max:op-avg", SF_MUTANT_LOUD},
    {"mutant:vocab_parallel_cross_entropy.fwd.max:missing-scale", SF_MUTANT_LOUD},
    {"mutant:vocab_parallel_cross_entropy.fwd.max:extra-scale", SF_MUTANT_LOUD},
    {"mutant:vocab_parallel_cross_entropy.fwd.max:stale", SF_MUTANT_LOUD},
    {"mutant:grad_buckets.all_reduce:drop:1000000", SF_MUTANT_NOT_REACHED},
};
enum { SEARCHED = sizeof searched / sizeof searched[0] };

static void test_mutant_power_run_fates_same_with_one_and_three_workers(void **state) {
  (void)state;
  static struct sf_space space;
  struct sf_mutant_power_result results[2];
  const char *ids[SEARCHED];
  for (int i = 0; i < SEARCHED; i++) ids[i] = searched[i].id;
  space_make(&space);
  for (int i = SF_FIRST_RUN; i < 2; i++) {
    struct sf_mutant_power_options *o = test_calloc(1, sizeof *o);
    struct sf_error error = {SF_OK, ""};
    *o = (struct sf_mutant_power_options){.ids = ids, .id_count = SEARCHED, .cases = 60};
    o->campaign.space = space;
    o->campaign.layouts = 4;
    o->campaign.seed = 5;
    o->campaign.pool = (struct sf_pool_options){.processes = i == 0 ? 1 : 3, .gemm = sf_cpu_gemm_default()};
    if (sf_mutant_power_run(o, &results[i], &error) != SF_OK) fail_msg("%s", error.text);
    assert_int_equal(results[i].count, SEARCHED);
    test_free(o);
  }
  for (int i = 0; i < SEARCHED; i++) {
    const struct sf_mutant_search *a = &results[SF_FIRST_RUN].searches[i], *b = &results[1].searches[i];
    if (a->fate != searched[i].fate) fail_msg("%s: %s (%s)", a->id, sf_mutant_fate_name(a->fate), a->outcome.signature);
    assert_int_equal(a->fate, b->fate);
    assert_int_equal(a->found_at, b->found_at);
    assert_int_equal(a->fired, b->fired);
    assert_string_equal(a->outcome.signature, b->outcome.signature);
    assert_int_equal(a->equal_outputs + a->unread_outputs, a->fate == SF_MUTANT_EQUIVALENT ? a->fired : 0);
    assert_int_equal(a->equal_outputs, b->equal_outputs);
  }
  for (int i = SF_FIRST_RUN; i < 2; i++) sf_mutant_power_destroy(&results[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_labels_drawn_cases_call_each_row_and_nothing_else),
      cmocka_unit_test(test_labels_names_stand_once_and_messages_have_both_ends),
      cmocka_unit_test(test_mutant_list_every_name_is_found),
      cmocka_unit_test(test_plant_id_check_unknown_refused),
      cmocka_unit_test(test_plants_read_list_gives_a_bit_for_each),
      cmocka_unit_test(test_mutant_power_run_fates_same_with_one_and_three_workers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
