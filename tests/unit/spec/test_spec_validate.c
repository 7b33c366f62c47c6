#include "harness/spec/case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A valid case with room for layouts: 8 heads in 4 groups, sizes that 8 divides. */
static struct sf_case roomy_case(void) {
  struct sf_case c;
  sf_case_init(&c);
  c.model.layers = 8;
  c.model.hidden = 32;
  c.model.heads = 8, c.model.kv_heads = 4;
  c.model.ffn = 64;
  c.model.vocab = 60, c.model.vocab_padded = 64;
  c.model.seq = 16;
  c.train.microbatches = 4;
  return c;
}

/* Sets "field=value field=value". */
static void set_all(struct sf_case *c, const char *settings) {
  char text[256];
  snprintf(text, sizeof text, "%s", settings);
  for (char *rest = NULL, *setting = strtok_r(text, " ", &rest); setting; setting = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(setting, '=');
    assert_non_null(value);
    *value++ = '\0';
    struct sf_error error = {0};
    if (sf_case_field_parse(c, setting, value, &error) != SF_OK) fail_msg("%s", error.text);
  }
}

static void test_case_validate_of_layouts_that_fit_is_ok(void **state) {
  (void)state;
  static const char *const GOOD[] = {
      "layout.tp=2 layout.sp=on",
      "layout.tp=2 layout.sp=on layout.tp_overlap=on",
      "layout.tp=2 train.recompute_layers=1 layout.recompute_sharded=on",
      "layout.tp=4 layout.dp=4 layout.pp=8",
      "layout.tp=8", /* twice the key/value heads */
      "model.kv_heads=1 layout.tp=8",
      "precision.compute=fp8 layout.tp=4 precision.fp8_bf16_first=3 precision.fp8_bf16_last=4",
      "precision.compute=fp8 precision.fp8_recipe=delayed precision.fp8_history=4",
      "layout.pp=3 layout.pp_first_layers=2",
      "layout.pp=3 layout.pp_last_layers=6",
      "layout.pp=2 layout.pp_first_layers=3 layout.pp_last_layers=5",
      "layout.pp=4 layout.pp_first_layers=1 layout.pp_last_layers=1",
      "layout.pp=2 layout.vpp=4 train.microbatches=12 layout.dp=3",
      "layout.pp=4 layout.vpp=2 train.microbatches=4",
      "layout.zero=2 layout.dp=4",
      "layout.zero=1 layout.cp=2",
      "train.recompute_layers=8",
      "train.steps=2 layout.dp=2 reload.after_step=1 reload.tp=2 reload.sp=on reload.tp_overlap=on reload.order=pp-dp-tp-cp-ep",
      "train.steps=3 layout.dp=4 layout.zero=1 reload.after_step=2 reload.pp=4 reload.vpp=2 reload.bucket_elements=7 reload.overlap=on",
      "train.steps=2 reload.after_step=1",
      "layout.cp=2",
      "layout.cp=4 layout.tp=2 layout.sp=on",
      "layout.cp=4 layout.cp_comm=allgather layout.tp=8",
      "layout.cp=2 layout.cp_comm=a2a layout.tp=2",
      "model.vocab=64",
      "model.positions=learned model.head_dim=3",
      "model.mtp_depth=2 layout.tp=4 layout.pp=2",
      "model.hidden=33 layout.tp=2",
      "layout.order=pp-dp-ep-cp-tp layout.tp=2",
      "train.frozen=embedding+qkv+proj+fc1+fc2+norms",
      "model.positions=rotary model.head_dim=8 model.kv_heads=8 model.kv_lora_rank=5 model.qk_rope_dim=2 model.sinks=on layout.tp=4",
      "model.positions=rotary model.head_dim=8 model.kv_heads=8 model.kv_lora_rank=5 model.q_lora_rank=7 model.qk_rope_dim=6 layout.cp=2",
      "plant.id=tp-embed-mask",
      "moe.experts=4 moe.topk=4 moe.router=sigmoid moe.capacity_milli=1500",
      "moe.experts=4 model.mtp_depth=2",
      "moe.experts=4 moe.shared_ffn=8 precision.compute=fp8",
      "moe.experts=4 layout.zero=2 layout.dp=2 train.microbatches=2 layout.ep=2",
      "moe.experts=4 moe.shared_ffn=12 layout.tp=4 layout.sp=on model.heads=4",
      "moe.experts=4 moe.aux_micro=10000 moe.z_micro=1000",
      "moe.experts=16 layout.tp=2 layout.sp=on layout.dp=4 layout.ep=2 layout.etp=4",
  };
  for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
    struct sf_case c = roomy_case();
    struct sf_error error = {0};
    set_all(&c, GOOD[i]);
    if (sf_case_validate(&c, &error) != SF_OK) fail_msg("%s: %s", GOOD[i], error.text);
  }
}

/* Of each row: words, and how the complaint begins. */
static void check_refused(const char *const rows[][2], size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct sf_case c = roomy_case();
    struct sf_error error = {0};
    set_all(&c, rows[i][0]);
    if (sf_case_validate(&c, &error) != SF_EINPUT) fail_msg("%s was taken", rows[i][0]);
    if (strncmp(error.text, rows[i][1], strlen(rows[i][1])) != 0) fail_msg("%s: \"%s\", not \"%s\"", rows[i][0], error.text, rows[i][1]);
    assert_int_equal(sf_case_validate(&c, NULL), SF_EINPUT);
  }
}

static void test_case_validate_of_fields_that_do_not_fit_names_the_field(void **state) {
  (void)state;
  static const char *const BAD[][2] = {
      {"model.kv_heads=3", "model.kv_heads: 3 does not divide"},
      {"model.mtp_depth=1 model.hidden=33 layout.tp=2", "layout.tp: 2 does not divide model.hidden 33"},
      {"model.heads=64 model.kv_heads=64 model.head_dim=1025", "model.heads * model.head_dim: 65600 is more than 65536"},
      {"model.positions=rotary model.head_dim=3", "model.head_dim: 3 is no multiple of 2"},
      {"model.vocab=65", "model.vocab: 65 is more than model.vocab_padded 64"},
      {"model.seq=65536 train.microbatch_size=17", "model.seq * train.microbatch_size: 1114112 is more than 1048576"},
      {"train.recompute_layers=9", "train.recompute_layers: 9 is more"},
      {"layout.cp_comm=a2a", "layout.cp_comm: needs layout.cp > 1"},
      {"model.seq=18 layout.cp=2", "2 * layout.cp: 4 does not divide model.seq 18"},
      {"model.seq=20 layout.cp=2 layout.tp=2 layout.sp=on", "2 * layout.cp * layout.tp: 8 does not divide model.seq 20"},
      {"layout.cp=2 layout.cp_comm=a2a layout.tp=4",
       "layout.tp * layout.cp: 8 does not divide model.kv_heads 4 (needed where layout.cp_comm = a2a)"},
      {"model.seq=65536 layout.cp=32768 layout.tp=4", "layout.tp * layout.cp * layout.dp * layout.pp: 131072 is more than max_ranks 65536"},
      {"mode=e2e data.exact=true", "data.exact: needs mode = isolated"},
      {"mode=e2e precision.loss_scale_log2=8 data.overflow=on", "data.overflow: needs mode = isolated"},
      {"data.overflow=on", "data.overflow: needs precision.loss_scale_log2 > 0"},
      {"precision.loss_scale_log2=8 data.overflow=on data.exact=on", "data.overflow: not with data.exact"},
      {"precision.compute=fp8 precision.loss_scale_log2=8 data.overflow=on",
       "data.overflow: not with precision.compute = fp8: a cast scales by the largest number, which must be finite"},
      {"precision.stochastic=true", "precision.stochastic: needs precision.compute = bf16"},
      {"precision.stochastic=true precision.compute=fp16", "precision.stochastic: needs precision.compute = bf16"},
      {"layout.tp=3", "layout.tp: 3 does not divide model.heads"},
      {"model.heads=12 model.kv_heads=4 layout.tp=6", "layout.tp: 6 does not divide model.kv_heads 4"},
      {"model.ffn=63 layout.tp=2", "layout.tp: 2 does not divide model.ffn"},
      {"model.vocab_padded=63 layout.tp=2", "layout.tp: 2 does not divide model.vocab_padded"},
      {"precision.loss_scale_window=2", "precision.loss_scale_window: needs precision.loss_scale_log2 > 0"},
      {"precision.fp8_recipe=delayed", "precision.fp8_recipe: needs precision.compute = fp8"},
      {"precision.compute=fp8 precision.fp8_history=2", "precision.fp8_history: needs precision.fp8_recipe = delayed"},
      {"precision.compute=bf16 precision.fp8_bf16_first=1", "precision.fp8_bf16_first: needs precision.compute = fp8"},
      {"precision.fp8_bf16_last=1", "precision.fp8_bf16_last: needs precision.compute = fp8"},
      {"precision.compute=fp8 precision.fp8_bf16_first=8",
       "precision.fp8_bf16_first + precision.fp8_bf16_last: 8 is not below model.layers 8: some layer computes in fp8"},
      {"precision.compute=fp8 precision.fp8_bf16_first=3 precision.fp8_bf16_last=5",
       "precision.fp8_bf16_first + precision.fp8_bf16_last: 8 is not below model.layers 8: some layer computes in fp8"},
      {"precision.compute=fp8 layout.tp=8", "layout.tp: 8 is more than model.kv_heads 4"},
      {"precision.compute=fp8 data.exact=on",
       "data.exact: not with precision.compute = fp8: a cast scales its numbers, so that no integers are left"},
      {"layout.sp=on", "layout.sp: needs"},
      {"layout.tp=2 layout.tp_overlap=on", "layout.tp_overlap: needs layout.sp"},
      {"train.recompute_layers=1 layout.recompute_sharded=on", "layout.recompute_sharded: needs layout.tp"},
      {"train.recompute_layers=1 layout.tp=2 layout.sp=on layout.recompute_sharded=on",
       "layout.recompute_sharded: not with layout.sp = on: it cuts what is saved already"},
      {"layout.tp=2 layout.recompute_sharded=on", "layout.recompute_sharded: needs train.recompute_layers"},
      {"model.seq=15 layout.tp=2 layout.sp=on", "layout.tp: 2 does not divide model.seq 15 (needed where layout.sp = on)"},
      {"layout.dp=3", "layout.dp: 3 does not divide train.microbatches"},
      {"layout.zero=1", "layout.zero: needs layout.dp > 1 or layout.cp > 1"},
      {"layout.order=tp-cp-dp-pp", "layout.order: "},
      {"layout.order=tp-tp-ep-dp-pp", "layout.order: tp is there twice"},
      {"train.microbatches=65535 layout.dp=65535 layout.tp=2",
       "layout.tp * layout.cp * layout.dp * layout.pp: 131070 is more than max_ranks 65536"},
  };
  check_refused(BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_case_validate_of_stages_that_do_not_fit_names_the_field(void **state) {
  (void)state;
  static const char *const BAD[][2] = {
      {"layout.pp=9",
       "layout.pp: every stage needs a layer: layout.pp 9, layout.pp_first_layers 0, layout.pp_last_layers 0, model.layers 8"},
      {"layout.pp=3",
       "layout.pp: the other stages share the layers evenly: layout.pp 3, layout.pp_first_layers 0, layout.pp_last_layers 0, model.layers "
       "8"},
      {"layout.pp_first_layers=1", "layout.pp_first_layers: needs"},
      {"layout.pp_last_layers=8", "layout.pp_last_layers: needs"},
      {"layout.pp=3 layout.pp_first_layers=7",
       "layout.pp: every stage needs a layer: layout.pp 3, layout.pp_first_layers 7, layout.pp_last_layers 0, model.layers 8"},
      {"layout.pp=3 layout.pp_first_layers=3",
       "layout.pp: the other stages share the layers evenly: layout.pp 3, layout.pp_first_layers 3, layout.pp_last_layers 0, model.layers "
       "8"},
      {"layout.pp=2 layout.pp_last_layers=8",
       "layout.pp: every stage needs a layer: layout.pp 2, layout.pp_first_layers 0, layout.pp_last_layers 8, model.layers 8"},
      {"layout.pp=2 layout.pp_first_layers=9 layout.pp_last_layers=3",
       "layout.pp: every stage needs a layer: layout.pp 2, layout.pp_first_layers 9, layout.pp_last_layers 3, model.layers 8"},
      {"layout.pp=2 layout.pp_first_layers=3 layout.pp_last_layers=4",
       "layout.pp: the other stages share the layers evenly: layout.pp 2, layout.pp_first_layers 3, layout.pp_last_layers 4, model.layers "
       "8"},
      {"layout.pp=3 layout.pp_first_layers=4 layout.pp_last_layers=4",
       "layout.pp: every stage needs a layer: layout.pp 3, layout.pp_first_layers 4, layout.pp_last_layers 4, model.layers 8"},
      {"layout.vpp=2", "layout.vpp: needs layout.pp > 1"},
      {"layout.pp=2 layout.vpp=2 layout.pp_first_layers=4", "layout.vpp: not with layout.pp_first_layers > 0"},
      {"layout.pp=2 layout.vpp=2 layout.pp_last_layers=4", "layout.vpp: not with layout.pp_last_layers > 0"},
      {"layout.pp=2 layout.vpp=3", "layout.pp * layout.vpp: 6 does not divide model.layers 8 (needed where layout.vpp > 1)"},
      {"layout.pp=2 layout.vpp=2 train.microbatches=6 layout.dp=2", "layout.dp * layout.pp: 4 does not divide train.microbatches 6"},
  };
  check_refused(BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_case_validate_of_a_second_layout_that_does_not_fit_names_the_field(void **state) {
  (void)state;
  static const char *const BAD[][2] = {
      {"reload.tp=2", "reload.tp: needs reload.after_step > 0"},
      {"reload.zero=1", "reload.zero: needs reload.after_step > 0"},
      {"reload.order=pp-dp-tp-cp-ep", "reload.order: needs reload.after_step > 0"},
      {"reload.after_step=1", "reload.after_step: 1 is not below train.steps 1"},
      {"train.steps=2 reload.after_step=2", "reload.after_step: 2 is not below train.steps 2"},
      {"train.steps=2 reload.after_step=1 layout.dp=2",
       "reload.tp * reload.cp * reload.dp * reload.pp: 1 is not layout.tp * layout.cp * layout.dp * layout.pp 2"},
      {"train.steps=2 reload.after_step=1 reload.tp=2",
       "reload.tp * reload.cp * reload.dp * reload.pp: 2 is not layout.tp * layout.cp * layout.dp * layout.pp 1"},
      {"train.steps=2 reload.after_step=1 layout.dp=2 reload.tp=3", "reload.tp: 3 does not divide model.heads 8"},
      {"train.steps=2 reload.after_step=1 reload.sp=on", "reload.sp: needs reload.tp > 1"},
      {"train.steps=2 reload.after_step=1 reload.zero=2", "reload.zero: needs reload.dp > 1 or reload.cp > 1"},
      {"train.steps=2 reload.after_step=1 reload.vpp=2", "reload.vpp: needs reload.pp > 1"},
      {"train.steps=2 reload.after_step=1 reload.pp_last_layers=2", "reload.pp_last_layers: needs reload.pp > 1"},
      {"train.steps=2 reload.after_step=1 reload.ep=2", "reload.ep: needs moe.experts"},
      {"train.steps=2 reload.after_step=1 reload.order=tp-tp-ep-dp-pp", "reload.order: tp is there twice"},
      {"train.steps=2 reload.after_step=1 layout.tp=3", "layout.tp: 3 does not divide model.heads 8"},
  };
  check_refused(BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_case_validate_of_experts_that_do_not_fit_names_the_field(void **state) {
  (void)state;
  static const char *const BAD[][2] = {
      {"layout.ep=2", "layout.ep: needs moe.experts"},
      {"layout.etp=2", "layout.etp: needs moe.experts"},
      {"moe.topk=2", "moe.topk: needs moe.experts"},
      {"moe.router=sigmoid", "moe.router: needs moe.experts"},
      {"moe.experts=1", "moe.experts: may not be 1: one expert leaves nothing to route"},
      {"moe.experts=4 moe.topk=5", "moe.topk: 5 is more than moe.experts 4"},
      {"moe.experts=4 layout.tp=2", "layout.sp: must be on (needed where moe.experts > 0 and layout.tp > 1)"},
      {"moe.experts=6 layout.ep=4 layout.dp=4", "layout.ep: 4 does not divide moe.experts 6"},
      {"moe.experts=4 moe.ffn=9 layout.etp=2 layout.dp=2", "layout.etp: 2 does not divide moe.ffn 9"},
      {"moe.experts=18 layout.etp=2 layout.ep=2 layout.dp=4", "moe.experts: 18 is more than 8 * layout.ep 16"},
      {"moe.experts=4 layout.ep=2 layout.etp=2 layout.dp=2",
       "layout.ep * layout.etp: 4 does not divide layout.tp * layout.cp * layout.dp 2"},
      {"moe.shared_ffn=8", "moe.shared_ffn: needs moe.experts"},
      {"moe.experts=4 moe.shared_ffn=9 layout.tp=2 layout.sp=on", "layout.tp: 2 does not divide moe.shared_ffn 9"},
      {"moe.aux_micro=8", "moe.aux_micro: needs moe.experts"},
      {"moe.z_micro=8", "moe.z_micro: needs moe.experts"},
  };
  check_refused(BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_case_validate_of_a_memory_that_does_not_fit_names_the_field(void **state) {
  (void)state;
  static const char *const BAD[][2] = {
      {"model.memory_seq=4 model.parallel_residual=on", "model.memory_seq: not with model.parallel_residual"},
      {"model.memory_seq=4 layout.cp=2", "model.memory_seq: not with layout.cp > 1: not supported yet"},
      {"model.memory_seq=3 layout.tp=2 layout.sp=on", "layout.tp: 2 does not divide model.memory_seq 3 (needed where layout.sp = on)"},
      {"model.memory_seq=65536 model.seq=1 train.microbatch_size=32",
       "model.memory_seq * train.microbatch_size: 2097152 is more than 1048576"},
  };
  check_refused(BAD, sizeof BAD / sizeof BAD[0]);
}

#define LATENT "model.positions=rotary model.head_dim=8 model.kv_heads=8 model.kv_lora_rank=5 model.qk_rope_dim=2 "

static void test_case_validate_of_latents_that_do_not_fit_names_the_field(void **state) {
  (void)state;
  static const char *const BAD[][2] = {
      {"model.q_lora_rank=4", "model.q_lora_rank: needs model.kv_lora_rank > 0"},
      {"model.qk_rope_dim=2", "model.qk_rope_dim: needs model.kv_lora_rank > 0"},
      {LATENT "model.positions=learned", "model.kv_lora_rank: needs model.positions = rotary"},
      {LATENT "model.kv_heads=4", "model.kv_heads: 4 is not model.heads 8 (needed where model.kv_lora_rank > 0)"},
      {LATENT "model.qk_norm=on", "model.qk_norm: not with model.kv_lora_rank > 0: latents have norms of their own"},
      {LATENT "model.qk_rope_dim=0", "model.kv_lora_rank: needs model.qk_rope_dim > 0"},
      {LATENT "model.qk_rope_dim=3", "model.qk_rope_dim: 3 is no multiple of 2: a rotation turns pairs of columns"},
      {LATENT "model.qk_rope_dim=8", "model.qk_rope_dim: 8 is not below model.head_dim 8"},
  };
  check_refused(BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_case_validate_of_a_number_outside_its_range_names_the_field(void **state) {
  (void)state;
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT || field->type == SF_FIELD_BOOL) continue;
    for (int side = 0; side < 2; side++) {
      struct sf_case c;
      struct sf_error error = {0};
      if (side == 1 && field->max == INT64_MAX) continue;
      sf_case_init(&c);
      sf_case_field_put(&c, field, side == 0 ? field->min - 1 : field->max + 1);
      assert_int_equal(sf_case_validate(&c, &error), SF_EINPUT);
      assert_memory_equal(error.text, field->path, strlen(field->path));
    }
  }
}

static void test_case_validate_of_a_text_that_is_no_text_names_the_field(void **state) {
  (void)state;
  struct sf_case c = roomy_case();
  struct sf_error error;
  memset(c.plant, 'x', sizeof c.plant);
  assert_int_equal(sf_case_validate(&c, &error), SF_EINPUT);
  assert_string_equal(error.text, "plant.id: longer than 95 characters");
  strcpy(c.plant, "a;b");
  assert_int_equal(sf_case_validate(&c, &error), SF_EINPUT);
  assert_memory_equal(error.text, "plant.id: characters", 20);
  c = roomy_case();
  c.target[0] = '\0';
  assert_int_equal(sf_case_validate(&c, &error), SF_EINPUT);
  assert_string_equal(error.text, "target.name: empty");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_case_validate_of_layouts_that_fit_is_ok),
      cmocka_unit_test(test_case_validate_of_fields_that_do_not_fit_names_the_field),
      cmocka_unit_test(test_case_validate_of_stages_that_do_not_fit_names_the_field),
      cmocka_unit_test(test_case_validate_of_a_second_layout_that_does_not_fit_names_the_field),
      cmocka_unit_test(test_case_validate_of_experts_that_do_not_fit_names_the_field),
      cmocka_unit_test(test_case_validate_of_a_memory_that_does_not_fit_names_the_field),
      cmocka_unit_test(test_case_validate_of_latents_that_do_not_fit_names_the_field),
      cmocka_unit_test(test_case_validate_of_a_number_outside_its_range_names_the_field),
      cmocka_unit_test(test_case_validate_of_a_text_that_is_no_text_names_the_field),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
