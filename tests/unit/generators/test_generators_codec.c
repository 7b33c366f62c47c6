#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/codec_internal.h"
#include "generators/presets.h"
#include "tests/rounds.h"

#include <stdlib.h>
#include <string.h>

static struct sf_space default_space(void) {
  struct sf_space space;
  sf_space_init(&space);
  return space;
}

static void must_set(struct sf_space *space, const char *assignment) {
  struct sf_error error = {0};
  if (sf_space_set(space, assignment, &error) != SF_OK) fail_msg("%s: %s", assignment, error.text);
}

static void must_decode(struct sf_case *c, struct sf_draw *draw, const struct sf_space *space) {
  struct sf_error error = {0};
  if (sf_codec_decode(c, draw, space, &error) != SF_OK) fail_msg("%s", error.text);
  if (sf_case_validate(c, &error) != SF_OK) fail_msg("decoded, but not valid: %s", error.text);
}

static void assert_case_equal(const struct sf_case *a, const struct sf_case *b) {
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT)
      assert_string_equal((const char *)a + field->offset, (const char *)b + field->offset);
    else if (sf_case_field_get(a, field) != sf_case_field_get(b, field))
      fail_msg("%s differs", field->path);
  }
}

/* The case is the one that lies in the space once every field is fixed to what it has, however it is drawn; undrawn: fields that the
 * generator does not draw so. */
static int32_t check_is_in_space(const struct sf_case *c, const struct sf_space *space, const char *undrawn[SF_SPACE_FIELDS_MAX]) {
  static const unsigned char bytes[] = {7, 200, 31, 4, 99};
  struct sf_space fixed = *space;
  struct sf_draw draw;
  struct sf_case back;
  for (int field = 0; field < SF_CASE_DRAWN; field++) sf_space_fix(&fixed, sf_case_fields[field].path, c);
  if (sf_case_ranks(c) > fixed.max_ranks) fixed.max_ranks = sf_case_ranks(c);
  memcpy(fixed.target, c->target, sizeof fixed.target);
  sf_draw_from_bytes(&draw, bytes, sizeof bytes);
  must_decode(&back, &draw, &fixed);
  assert_case_equal(&back, c);
  return sf_codec_undrawn(undrawn, c, space);
}

static void test_decode_no_bytes_give_the_smallest_case(void **state) {
  (void)state;
  const struct sf_space space = default_space();
  struct sf_draw draw;
  struct sf_case c, smallest;
  sf_case_init(&smallest);
  sf_draw_from_bytes(&draw, NULL, 0);
  must_decode(&c, &draw, &space);
  assert_case_equal(&c, &smallest);
}

static void test_decode_any_bytes_give_a_valid_case(void **state) {
  (void)state;
  struct sf_space space = default_space();
  struct sf_pcg pcg = sf_pcg_create(7, 7);
  unsigned char bytes[128];
  for (int round = 0; round < SF_ROUNDS(8000); round++) {
    const size_t byte_count = sf_pcg_below(&pcg, sizeof bytes + 1);
    for (size_t i = 0; i < byte_count; i++) bytes[i] = (unsigned char)sf_pcg_next(&pcg);
    space.max_ranks = 1 + (int64_t)sf_pcg_below(&pcg, 16);
    struct sf_draw draw;
    struct sf_case c;
    sf_draw_from_bytes(&draw, bytes, byte_count);
    must_decode(&c, &draw, &space);
    assert_true(sf_case_ranks(&c) <= space.max_ranks);
  }
}

static void test_space_drawn_cases_are_in_it(void **state) {
  (void)state;
  const struct sf_space space = default_space();
  for (uint64_t i = 0; i < SF_ROUNDS(5000); i++) {
    struct sf_draw draw;
    struct sf_case c;
    const char *undrawn[SF_SPACE_FIELDS_MAX];
    sf_draw_from_pcg(&draw, 5, i);
    must_decode(&c, &draw, &space);
    if (check_is_in_space(&c, &space, undrawn) != 0) fail_msg("case %d: %s is not drawn", (int)i, undrawn[0]);
  }
}

/* Cases that no generator made: fields of a drawn case set at random, kept when the result is valid. */
static void test_space_any_valid_case_is_in_a_wider_one(void **state) {
  (void)state;
  const struct sf_space space = default_space();
  struct sf_pcg pcg = sf_pcg_create(1, 2);
  int valid = 0, outside = 0;
  for (uint64_t i = 0; i < SF_ROUNDS(8000); i++) {
    struct sf_draw draw;
    struct sf_case c;
    const char *undrawn[SF_SPACE_FIELDS_MAX];
    sf_draw_from_pcg(&draw, 6, i);
    must_decode(&c, &draw, &space);
    for (uint64_t k = 1 + sf_pcg_below(&pcg, 4); k > 0; k--) {
      const struct sf_field *field = &sf_case_fields[sf_pcg_below(&pcg, (uint64_t)sf_case_field_count)];
      if (field->type == SF_FIELD_TEXT) continue;
      const int64_t most = field->max < 200 ? field->max : 200;
      sf_case_field_put(&c, field, field->min + (int64_t)sf_pcg_below(&pcg, (uint64_t)(most - field->min) + 1));
    }
    if (sf_case_validate(&c, NULL) != SF_OK) continue;
    outside += check_is_in_space(&c, &space, undrawn) > 0;
    valid++;
  }
  assert_true(valid > SF_ROUNDS(1200));
  assert_true(outside > SF_ROUNDS(400));
}

/* Two layouts of one logical function and of as many ranks make a case that reloads, whatever they are. */
static void test_space_any_two_layouts_are_in_it(void **state) {
  (void)state;
  struct sf_space space = default_space();
  int valid = 0, differ = 0;
  for (uint64_t i = 0; i < SF_ROUNDS(400); i++) {
    struct sf_draw draw;
    struct sf_case first, second;
    sf_draw_from_pcg(&draw, 8, i);
    must_decode(&first, &draw, &space);
    if (first.train.steps < 2) continue;
    struct sf_space fixed = space;
    for (int field = 0; field < SF_CASE_TP; field++) sf_space_fix(&fixed, sf_case_fields[field].path, &first);
    for (uint64_t k = 0; k < 60; k++) {
      const char *undrawn[SF_SPACE_FIELDS_MAX];
      sf_draw_from_pcg(&draw, 1000 + i, k);
      must_decode(&second, &draw, &fixed);
      if (sf_case_ranks(&second) != sf_case_ranks(&first)) continue;
      struct sf_case c = first;
      c.reload.after_step = 1 + (int64_t)k % (c.train.steps > 2 ? 2 : 1);
      c.reload.layout = second.layout;
      assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
      if (check_is_in_space(&c, &space, undrawn) != 0) fail_msg("case %d: %s is not drawn", (int)i, undrawn[0]);
      valid++;
      differ += second.layout.tp != first.layout.tp || second.layout.pp != first.layout.pp;
    }
  }
  print_message("%d cases that reload, %d with other sizes of tp or pp\n", valid, differ);
  assert_true(valid > SF_ROUNDS(1000) && differ > SF_ROUNDS(300));
}

static void test_codec_undrawn_names_fields_outside_the_space(void **state) {
  (void)state;
  const struct sf_space space = default_space();
  struct sf_case c;
  const char *undrawn[SF_SPACE_FIELDS_MAX];
  sf_case_init(&c);
  c.model.hidden = 768;
  c.layout.tp = 16;
  c.model.heads = 32;
  c.model.ffn = 48;
  c.model.vocab_padded = 64;
  strcpy(c.target, "plugin:x.so");
  assert_int_equal(check_is_in_space(&c, &space, undrawn), 3);
  assert_string_equal(undrawn[0], "max_ranks");
  assert_string_equal(undrawn[1], "model.heads");
  assert_string_equal(undrawn[2], "model.hidden");
}

static void test_space_every_activation_is_drawn(void **state) {
  (void)state;
  const struct sf_space space = default_space();
  struct sf_case c;
  const char *undrawn[SF_SPACE_FIELDS_MAX];
  sf_case_init(&c);
  for (c.model.activation = 0; c.model.activation < SF_ACT_COUNT; c.model.activation++)
    assert_int_equal(check_is_in_space(&c, &space, undrawn), 0);
}

static void test_space_case_with_nothing_to_train_is_in_it(void **state) {
  (void)state;
  const struct sf_space space = default_space();
  struct sf_case c;
  const char *undrawn[SF_SPACE_FIELDS_MAX];
  sf_case_init(&c);
  c.model.tied = true;
  c.train.frozen = SF_FROZEN_ALL;
  assert_int_equal(check_is_in_space(&c, &space, undrawn), 0);
}

static void test_space_set_values_hold_in_every_case(void **state) {
  (void)state;
  static const struct {
    const char *sets[6];
    int64_t max_ranks;
  } table[] = {
      {{"layout.tp=2"}, 8},
      {{"layout.tp=3", "layout.sp=on"}, 8},
      {{"layout.tp=7", "model.kv_heads=1"}, 8},
      {{"layout.tp=2..4", "layout.dp=2", "model.heads=1..6"}, 8},
      {{"layout.tp=16", "layout.dp=5", "layout.pp=3"}, 240},
      {{"layout.pp=4", "model.layers=2..5", "layout.pp_first_layers=2"}, 8},
      {{"layout.pp=5", "layout.pp_last_layers=1..3"}, 8},
      {{"layout.dp=8", "train.microbatches=8..64"}, 8},
      {{"model.hidden=32..300", "model.seq=100", "train.steps=3"}, 8},
      {{"model.head_dim=5", "model.vocab=1000", "layout.tp=4..8"}, 8},
      {{"train.frozen=embedding+qkv+proj+fc1+fc2+norms", "model.tied=on"}, 8},
      {{"train.recompute_layers=6", "layout.pp=2"}, 8},
      {{"layout.order=dp-pp-ep-cp-tp", "seed=5..9", "schedule=0"}, 8},
      {{"layout.vpp=2", "layout.dp=2"}, 8},
      {{"layout.zero=1..2"}, 8},
      {{"layout.zero=2", "layout.vpp=2", "layout.pp=2"}, 8},
      {{"model.kv_lora_rank=5", "layout.tp=3"}, 8},
      {{"model.qk_rope_dim=3..7", "model.head_dim=4..6"}, 8},
      {{"model.q_lora_rank=9", "layout.cp=2", "layout.cp_comm=a2a"}, 8},
      {{"layout.vpp=2..4", "train.recompute_layers=5", "layout.pp=2..3"}, 8},
      {{"layout.vpp=3", "train.microbatches=6..14"}, 8},
      {{"reload.after_step=1..2"}, 8},
      {{"reload.after_step=2", "layout.tp=2", "reload.cp=2"}, 4},
      {{"reload.tp=3", "layout.dp=3"}, 8},
      {{"reload.tp=2..4", "layout.tp=1", "model.kv_heads=1"}, 8},
      {{"reload.pp=4", "reload.vpp=2", "layout.pp=1"}, 8},
      {{"reload.zero=2", "layout.zero=0", "layout.tp=2"}, 8},
      {{"reload.ep=2", "layout.ep=1", "layout.etp=2"}, 8},
      {{"reload.cp=2", "reload.cp_comm=a2a", "model.kv_lora_rank=4", "layout.tp=3"}, 8},
      {{"reload.pp_last_layers=1..3", "layout.vpp=2"}, 8},
      {{"reload.recompute_sharded=on", "layout.tp_overlap=on", "layout.pp=2"}, 8},
      {{"reload.overlap=on", "reload.order=dp-pp-ep-cp-tp"}, 8},
      {{"reload.dp=4", "layout.tp=2", "layout.cp=2", "precision.compute=fp8"}, 4},
      {{"reload.tp=2", "reload.sp=on", "layout.ep=2"}, 8},
      {{"precision.compute=bf16", "mode=e2e", "data.mask=sparse", "plant.id=tp-wrong", "target.name=plugin:x.so"}, 8},
  };
  for (size_t row = 0; row < sizeof table / sizeof table[0]; row++) {
    struct sf_space space = default_space();
    space.max_ranks = table[row].max_ranks;
    for (int k = 0; k < 6 && table[row].sets[k] != NULL; k++) must_set(&space, table[row].sets[k]);
    for (uint64_t i = 0; i < 200; i++) {
      struct sf_draw draw;
      struct sf_case c;
      sf_draw_from_pcg(&draw, row, i);
      must_decode(&c, &draw, &space);
      assert_true(sf_case_ranks(&c) <= space.max_ranks);
      for (int field = 0; field < SF_CASE_DRAWN; field++) {
        const int64_t value = sf_drawn_get(&c, (enum sf_case_field)field);
        if (space.is_set[field] && (value < space.set[field].lo || value > space.set[field].hi))
          fail_msg("row %zu: %s = %lld", row, sf_case_fields[field].path, (long long)value);
      }
      assert_true(c.train.frozen != SF_FROZEN_ALL || c.model.adapter || !c.model.tied);
      assert_string_equal(c.plant, space.plant);
      assert_string_equal(c.target, space.target);
    }
  }
}

static void test_decode_range_reaches_its_upper_part(void **state) {
  (void)state;
  struct sf_space space = default_space();
  int64_t most = 0;
  must_set(&space, "model.hidden=32..300");
  for (uint64_t i = 0; i < 300; i++) {
    struct sf_draw draw;
    struct sf_case c;
    sf_draw_from_pcg(&draw, 1, i);
    must_decode(&c, &draw, &space);
    most = c.model.hidden > most ? c.model.hidden : most;
  }
  assert_true(most > 250);
}

/* The step after an overflow shows what became of the scale. */
static void test_decode_scale_that_overflows_mostly_has_another_step(void **state) {
  (void)state;
  static const int total = 400;
  struct sf_space space = default_space();
  int lived = 0;
  must_set(&space, "mode=e2e");
  must_set(&space, "precision.compute=fp16");
  must_set(&space, "precision.loss_scale_log2=16");
  for (int i = 0; i < total; i++) {
    struct sf_draw draw;
    struct sf_case c;
    sf_draw_from_pcg(&draw, 1, (uint64_t)i);
    must_decode(&c, &draw, &space);
    lived += c.precision.loss_scale_window > 0 && c.train.steps > 1;
  }
  assert_true(lived > total * 6 / 10);
  assert_true(lived < total * 95 / 100);
}

/* A ring of scales shows what it loses after as many steps as it holds, a window's third growth after three windows. */
static void test_decode_reaches_runs_that_use_every_history_twice(void **state) {
  (void)state;
  enum { CASES = SF_ROUNDS(10000) };
  const struct sf_space space = default_space();
  int32_t many = 0, twice[SF_FP8_HISTORY_MAX + 1] = {0}, growths[3] = {0};
  for (uint64_t i = 0; i < CASES; i++) {
    struct sf_draw draw;
    struct sf_case c;
    sf_draw_from_pcg(&draw, 31, i);
    must_decode(&c, &draw, &space);
    const int64_t history = c.precision.fp8_history, window = c.precision.loss_scale_window;
    twice[history] += c.precision.fp8_recipe == SF_FP8_DELAYED && c.train.steps >= 2 * (history + 1);
    growths[window] += c.train.steps > 3 * window;
    if (c.train.steps <= 3) continue;
    many++;
    assert_true(c.model.mtp_depth == 0 && c.train.steps * c.model.layers * c.model.hidden * c.model.seq <= 10240);
  }
  for (int history = 1; SF_STRIDE == 1 && history <= SF_FP8_HISTORY_MAX; history++) assert_true(twice[history] > 0);
  assert_true(growths[1] > 0 && growths[2] > 0);
  assert_true(many < CASES / 30); /* they cost several cases each */
}

static void test_decode_contradicting_settings_are_explained(void **state) {
  (void)state;
  static const struct {
    const char *sets[4];
    const char *names[2];
  } table[] = {
      {{"layout.tp=3", "model.heads=4"}, {"layout.tp", "model.heads"}},
      {{"layout.tp=4", "layout.dp=4"}, {"layout.tp=4, layout.dp=4", "--max-ranks 8"}},
      {{"model.heads=4", "layout.tp=3", "layout.dp=2", "layout.pp=2"}, {": model.heads=4, layout.tp=3;", ""}},
      {{"layout.cp=2..4", "model.seq=5"}, {"model.seq=5, layout.cp=2..4;", ""}},
      {{"layout.tp=3", "model.heads=4", "layout.pp=3", "model.layers=2"}, {": model.heads=4, layout.tp=3;", ""}},
      {{"layout.pp=3", "model.layers=2"}, {"layout.pp", "model.layers"}},
      {{"layout.sp=on", "layout.tp=1"}, {"layout.sp", "layout.tp"}},
      {{"layout.tp_overlap=on", "layout.tp=1"}, {"layout.tp_overlap", "layout.tp"}},
      {{"layout.tp_overlap=on", "layout.sp=off"}, {"layout.tp_overlap", "layout.sp"}},
      {{"layout.recompute_sharded=on", "layout.tp=1"}, {"layout.recompute_sharded", "layout.tp"}},
      {{"layout.recompute_sharded=on", "layout.sp=on"}, {"layout.recompute_sharded", "layout.sp"}},
      {{"layout.recompute_sharded=on", "layout.tp_overlap=on"}, {"layout.recompute_sharded", "layout.tp_overlap"}},
      {{"layout.recompute_sharded=on", "train.recompute_layers=0"}, {"layout.recompute_sharded", "train.recompute_layers"}},
      {{"layout.tp=2", "layout.sp=on", "model.seq=5"}, {"model.seq", "layout.sp"}},
      {{"model.positions=rotary", "model.head_dim=3"}, {"model.positions", "model.head_dim"}},
      {{"model.vocab=20", "model.vocab_padded=16"}, {"model.vocab", "model.vocab_padded"}},
      {{"layout.dp=3", "train.microbatches=4"}, {"layout.dp", "train.microbatches"}},
      {{"train.recompute_layers=3", "model.layers=2"}, {"train.recompute_layers", "model.layers"}},
      {{"layout.zero=1", "layout.dp=1", "layout.cp=1"}, {"layout.zero", "layout.dp"}},
      {{"layout.zero=2", "train.microbatches=1", "layout.cp=1"}, {"layout.zero", "train.microbatches"}},
      {{"layout.vpp=2", "layout.pp=1"}, {"layout.vpp", "layout.pp"}},
      {{"layout.vpp=2", "layout.pp=2", "model.layers=3"}, {"layout.vpp", "model.layers"}},
      {{"layout.vpp=2", "layout.dp=2", "train.microbatches=2"}, {"layout.dp", "train.microbatches"}},
      {{"layout.vpp=2", "layout.pp_last_layers=1"}, {"layout.vpp", "layout.pp_last_layers"}},
      {{"layout.cp=2", "model.seq=6"}, {"layout.cp", "model.seq"}},
      {{"layout.cp=2", "layout.tp=2", "layout.sp=on", "model.seq=12"}, {"layout.cp", "layout.sp"}},
      {{"layout.cp_comm=a2a", "layout.cp=1"}, {"layout.cp_comm", "layout.cp"}},
      {{"layout.cp_comm=a2a", "layout.cp=2", "model.kv_heads=3"}, {"layout.cp_comm", "model.kv_heads"}},
      {{"layout.cp=2", "layout.tp=2", "layout.cp_comm=a2a", "model.kv_heads=2"}, {"layout.tp", "model.kv_heads"}},
      {{"layout.cp=8", "layout.dp=2"}, {"layout.cp=8", "--max-ranks 8"}},
      {{"reload.after_step=1", "train.steps=1"}, {"reload.after_step", "train.steps"}},
      {{"reload.tp=3", "model.heads=4"}, {"reload.tp", "model.heads"}},
      {{"reload.tp=2", "reload.after_step=0"}, {"reload.tp", "reload.after_step"}},
      {{"reload.sp=on", "reload.tp=1"}, {"reload.sp", "reload.tp"}},
      {{"reload.dp=3", "train.microbatches=4"}, {"reload.dp", "train.microbatches"}},
      {{"reload.tp=2", "reload.sp=off", "layout.ep=2"}, {"layout.ep", "reload.sp"}},
      {{"reload.zero=1", "reload.dp=1", "reload.cp=1"}, {"reload.zero", "reload.dp"}},
      {{"model.kv_lora_rank=4", "model.positions=learned"}, {"model.kv_lora_rank", "model.positions"}},
      {{"model.kv_lora_rank=4", "model.qk_norm=on"}, {"model.kv_lora_rank", "model.qk_norm"}},
      {{"model.kv_lora_rank=4", "model.heads=4", "model.kv_heads=2"}, {"model.kv_lora_rank", "model.kv_heads"}},
      {{"model.q_lora_rank=4", "model.kv_lora_rank=0"}, {"model.q_lora_rank", "model.kv_lora_rank"}},
      {{"model.qk_rope_dim=4", "model.head_dim=5"}, {"model.qk_rope_dim", "model.head_dim"}},
      {{"model.qk_rope_dim=5"}, {"model.qk_rope_dim", ""}},
  };
  for (size_t row = 0; row < sizeof table / sizeof table[0]; row++) {
    struct sf_space space = default_space();
    struct sf_draw draw;
    struct sf_case c = {.seed = -1};
    struct sf_error error = {0};
    for (int k = 0; k < 4 && table[row].sets[k] != NULL; k++) must_set(&space, table[row].sets[k]);
    sf_draw_from_pcg(&draw, 1, 1);
    if (sf_codec_decode(&c, &draw, &space, &error) != SF_EINPUT) fail_msg("row %zu was drawn", row);
    for (int k = 0; k < 2; k++)
      if (strstr(error.text, table[row].names[k]) == NULL) fail_msg("row %zu: %s", row, error.text);
    assert_int_equal(c.seed, -1);
  }
}

/* fp16 lies between formats that are drawn. */
static void test_space_left_out_format_is_not_drawn(void **state) {
  (void)state;
  struct sf_space space = default_space();
  struct sf_error error = {0};
  int drawn[SF_COMPUTE_COUNT] = {0};
  assert_int_equal(sf_space_leave_out(&space, 1u << SF_COMPUTE_FP16, &error), SF_OK);
  for (uint64_t i = 0; i < 400; i++) {
    struct sf_draw draw;
    struct sf_case c;
    const char *undrawn[SF_SPACE_FIELDS_MAX];
    sf_draw_from_pcg(&draw, 21, i);
    must_decode(&c, &draw, &space);
    drawn[c.precision.compute]++;
    assert_int_equal(check_is_in_space(&c, &space, undrawn), 0);
  }
  assert_int_equal(drawn[SF_COMPUTE_FP16], 0);
  for (int i = 0; i < SF_COMPUTE_COUNT; i++) assert_true(drawn[i] > 0 || i == SF_COMPUTE_FP16);

  /* A case that has it is outside the space by that alone. */
  struct sf_case c;
  const char *undrawn[SF_SPACE_FIELDS_MAX];
  sf_case_init(&c);
  c.precision.compute = SF_COMPUTE_FP16;
  assert_int_equal(check_is_in_space(&c, &space, undrawn), 1);
  assert_string_equal(undrawn[0], "precision.compute");

  /* What other fields want is not there. */
  struct sf_draw draw;
  struct sf_space narrow = default_space();
  must_set(&narrow, "precision.stochastic=on");
  assert_int_equal(sf_space_leave_out(&narrow, 1u << SF_COMPUTE_BF16, &error), SF_OK);
  sf_draw_from_pcg(&draw, 1, 1);
  assert_int_equal(sf_codec_decode(&c, &draw, &narrow, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "precision.compute"));

  /* Nothing is left; a format that is set again is drawn. */
  must_set(&space, "precision.compute=fp16");
  sf_draw_from_pcg(&draw, 1, 1);
  must_decode(&c, &draw, &space);
  assert_int_equal(c.precision.compute, SF_COMPUTE_FP16);
  assert_int_equal(sf_space_leave_out(&space, 1u << SF_COMPUTE_FP16, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "none of the values that are set"));
}

static void test_space_set_bad_assignments_are_refused(void **state) {
  (void)state;
  static const char *const table[] = {"",
                                      "=2",
                                      "layout.tp",
                                      "layout.xx=2",
                                      "layout.tp=",
                                      "layout.tp=x",
                                      "layout.tp=0",
                                      "layout.tp=4..2",
                                      "layout.tp=2..",
                                      "layout.tp=..2",
                                      "layout.tp=2..x",
                                      "mode=isolated..e2e",
                                      "model.bias=maybe",
                                      "layout.order=tp-dp",
                                      "layout.order=tp-tp-ep-dp-pp",
                                      "train.frozen=all",
                                      "plant.id=a b",
                                      "seed=9223372036854775808"};
  struct sf_space space = default_space(), before;
  memcpy(&before, &space, sizeof space);
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    struct sf_error error = {0};
    if (sf_space_set(&space, table[i], &error) != SF_EINPUT || error.text[0] == '\0') fail_msg("\"%s\" was taken", table[i]);
    assert_memory_equal(&space, &before, sizeof space);
  }
}

static void test_order_text_numbers_are_a_bijection(void **state) {
  (void)state;
  char text[SF_ORDER_TEXT];
  sf_order_text(text, 0);
  assert_string_equal(text, "tp-cp-ep-dp-pp");
  sf_order_text(text, SF_ORDER_COUNT - 1);
  assert_string_equal(text, "pp-dp-ep-cp-tp");
  for (int64_t i = 0; i < SF_ORDER_COUNT; i++) {
    sf_order_text(text, i);
    assert_int_equal(sf_order_number(text), i);
  }
  assert_int_equal(sf_order_number("tp-dp"), -1);
}

static void test_preset_each_draws_valid_cases_of_its_model(void **state) {
  (void)state;
  assert_int_equal(sf_preset_count, 8);
  for (int p = 0; p < sf_preset_count; p++) {
    struct sf_space space = default_space();
    int64_t ranks = 0;
    if (strcmp(sf_presets[p].name, "hlat-7b") == 0) space.max_ranks = 16; /* as its summary says: tp 8, and ZeRO shards over two at least */
    assert_int_equal(sf_space_preset(&space, sf_presets[p].name, NULL), SF_OK);
    for (uint64_t i = 0; i < 100; i++) {
      struct sf_draw draw;
      struct sf_case c;
      sf_draw_from_pcg(&draw, 1, i);
      must_decode(&c, &draw, &space);
      ranks = sf_case_ranks(&c) > ranks ? sf_case_ranks(&c) : ranks;
      const struct sf_model *m = &c.model;
      assert_true(c.moe.experts == 0 && m->mtp_depth == 0 && m->memory_seq == 0 && m->kv_lora_rank == 0 && m->window == 0);
      assert_false(m->qk_norm || m->sinks || m->adapter || m->parallel_residual || m->post_norm);
    }
    assert_true(ranks >= 4);
  }
}

static void test_preset_later_settings_override_it(void **state) {
  (void)state;
  struct sf_space space = default_space();
  struct sf_draw draw;
  struct sf_case c;
  assert_int_equal(sf_space_preset(&space, "llama-3-8b", NULL), SF_OK);
  must_set(&space, "model.layers=2");
  must_set(&space, "precision.compute=fp32");
  sf_draw_from_pcg(&draw, 1, 1);
  must_decode(&c, &draw, &space);
  assert_int_equal(c.model.layers, 2);
  assert_int_equal(c.model.kv_heads, 8);
  assert_int_equal(c.model.ffn, 14336);
  assert_int_equal(c.precision.compute, SF_F32);
  assert_int_equal(sf_space_preset(&space, "llama-9", NULL), SF_EINPUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode_no_bytes_give_the_smallest_case),
      cmocka_unit_test(test_decode_any_bytes_give_a_valid_case),
      cmocka_unit_test(test_space_drawn_cases_are_in_it),
      cmocka_unit_test(test_space_any_valid_case_is_in_a_wider_one),
      cmocka_unit_test(test_space_any_two_layouts_are_in_it),
      cmocka_unit_test(test_codec_undrawn_names_fields_outside_the_space),
      cmocka_unit_test(test_space_every_activation_is_drawn),
      cmocka_unit_test(test_space_case_with_nothing_to_train_is_in_it),
      cmocka_unit_test(test_space_set_values_hold_in_every_case),
      cmocka_unit_test(test_decode_range_reaches_its_upper_part),
      cmocka_unit_test(test_decode_scale_that_overflows_mostly_has_another_step),
      cmocka_unit_test(test_decode_reaches_runs_that_use_every_history_twice),
      cmocka_unit_test(test_decode_contradicting_settings_are_explained),
      cmocka_unit_test(test_space_left_out_format_is_not_drawn),
      cmocka_unit_test(test_space_set_bad_assignments_are_refused),
      cmocka_unit_test(test_order_text_numbers_are_a_bijection),
      cmocka_unit_test(test_preset_each_draws_valid_cases_of_its_model),
      cmocka_unit_test(test_preset_later_settings_override_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
