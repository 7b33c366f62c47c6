#include "tests/unit/check/trace_fixture.h"

#define NAME "s0/mb0/fwd/act/m/0"

static const float values[4] = {0, 1, 2, 3};
static const struct part one = {NAME, SF_F32, 2, {2, 2}, values, NULL};

static void assert_refused(const char *dir, const char *folder, const char *reason) {
  char path[400];
  struct sf_trace_set set = {.ranks = -7};
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/%s", dir, folder);
  assert_int_equal(sf_trace_set_open(&set, path, &error), SF_EINPUT);
  if (strstr(error.text, reason) == NULL || strchr(error.text, '\n') != NULL) fail_msg("expected '%s', saw: %s", reason, error.text);
  assert_int_equal(set.ranks, -7);
}

static void test_trace_set_open_wrong_sets_of_ranks_are_refused(void **state) {
  char path[300];
  mkdir((snprintf(path, sizeof path, "%s/empty", (char *)*state), path), 0777);
  assert_refused(*state, "empty", "one file per rank");
  assert_refused(*state, "none", "no such file");
  rank_write(*state, "missing", 0, 2, "e2e", &one, 1);
  assert_refused(*state, "missing", "rank-00001.safetensors: missing");
  rank_write(*state, "more", 0, 1, "e2e", &one, 1);
  rank_write(*state, "more", 1, 1, "e2e", &one, 1);
  assert_refused(*state, "more", "rank 0 says that there are 1 ranks");
  rank_write(*state, "numbers", 0, 2, "e2e", &one, 1);
  rank_write(*state, "numbers", 1, 3, "e2e", &one, 1);
  assert_refused(*state, "numbers", "says that there are 3");
  rank_write(*state, "modes", 0, 2, "e2e", &one, 1);
  rank_write(*state, "modes", 1, 2, "isolated", &one, 1);
  assert_refused(*state, "modes", "unlike rank 0's");
}

static void test_trace_set_open_keeps_order_shapes_and_lowest_ranks_type(void **state) {
  const struct part zero[2] = {{"s0/mb0/fwd/act/z/0", SF_F32, 2, {2, 2}, values, NULL},
                               {"s0/mb0/fwd/act/a/0", SF_BF16, 0, {0}, values, NULL}};
  const struct part second[2] = {{"s0/mb0/bwd/act_grad/a/0#2", SF_F32, 1, {4}, values, NULL},
                                 {"s0/mb0/fwd/act/z/0", SF_F32, 1, {4}, values, NULL}};
  rank_write(*state, "t", 0, 2, "isolated", zero, 2);
  rank_write(*state, "t", 1, 2, "isolated", second, 2);
  struct sf_trace_set set = set_open(*state, "t");
  assert_int_equal(set.count, 3);
  assert_true(set.isolated);
  assert_string_equal(set.tensors[0].text, "s0/mb0/fwd/act/z/0");
  assert_string_equal(set.tensors[1].text, "s0/mb0/fwd/act/a/0");
  assert_string_equal(set.tensors[2].text, "s0/mb0/bwd/act_grad/a/0#2");
  assert_int_equal(set.tensors[0].rows, 2);
  assert_int_equal(set.tensors[0].odd_shape_rank, 1);
  assert_int_equal(set.tensors[1].count, 1);
  assert_int_equal(set.tensors[1].dtype, SF_BF16);
  assert_int_equal(set.tensors[2].rows, 1);
  assert_int_equal(set.tensors[2].name.kind, SF_KIND_ACT_GRAD);
  assert_ptr_equal(sf_trace_set_find(&set, "s0/mb0/fwd/act/a/0"), &set.tensors[1]);
  assert_null(sf_trace_set_find(&set, "s0/mb0/fwd/act/a/1"));
  sf_trace_set_close(&set);
}

static void test_trace_set_open_any_failing_allocation_gives_no_memory(void **state) {
  char path[300];
  rank_write(*state, "t", 0, 2, "e2e", &one, 1);
  rank_write(*state, "t", 1, 2, "e2e", &one, 1);
  snprintf(path, sizeof path, "%s/t", (char *)*state);
  for (int64_t k = 1;; k++) {
    struct sf_trace_set set = {0};
    struct sf_error error = {SF_OK, ""};
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_trace_set_open(&set, path, &error);
    const bool failed = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    if (!failed) {
      assert_int_equal(status, SF_OK);
      sf_trace_set_close(&set);
      assert_true(k > 10);
      return;
    }
    assert_int_equal(status, SF_ENOMEM);
  }
}

static void test_trace_name_module_is_the_same_in_all_layers(void **state) {
  static const char *const rows[][2] = {
      {"decoder.layers.3.mlp.experts.1.weight", "mlp.experts.weight"},
      {"mtp.layers.0.transformer_layer.mlp.experts.1.weight", "mlp.experts.weight"},
      {"mtp.layers.0.eh_proj.weight", "eh_proj.weight"},
      {"transformer_layer.norm", "transformer_layer.norm"},
      {"decoder.layers.0.mlp.transformer_layer.norm", "mlp.transformer_layer.norm"},
      {"model", "model"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char text[128], module[128];
    struct sf_trace_name name;
    snprintf(text, sizeof text, "s0/mb0/fwd/act/%s/0", rows[i][0]);
    assert_true(sf_trace_name_parse(&name, text));
    assert_int_equal(sf_trace_name_module(module, sizeof module, &name), SF_OK);
    assert_string_equal(module, rows[i][1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(test_trace_set_open_wrong_sets_of_ranks_are_refused),
      FOLDER_TEST(test_trace_set_open_keeps_order_shapes_and_lowest_ranks_type),
      FOLDER_TEST(test_trace_set_open_any_failing_allocation_gives_no_memory),
      cmocka_unit_test(test_trace_name_module_is_the_same_in_all_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
