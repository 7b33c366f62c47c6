/* Features, describe, the table, trace files: what is shown of a case. */
#include "tests/unit/run/run_fixture.h"

#include "harness/run/commands/describe.h"
#include "harness/run/trial/engine.h"
#include "harness/run/trial/features.h"
#include "harness/run/trial/table.h"
#include "harness/run/trial/trace_dump.h"
#include "harness/tensor/safetensors.h"
#include "tests/st_values.h"

#include <inttypes.h>

/* --- features ---------------------------------------------------------------------------------------------------- */

static int feature_of(const char *name) {
  for (int i = 0; i < sf_feature_count; i++) {
    if (strcmp(sf_features[i].name, name) == 0) return i;
  }
  fail_msg("no feature %s", name);
  return 0;
}

static void test_features_of_names_what_a_case_has(void **state) {
  (void)state;
  static const struct {
    const char *assignments, *has, *has_not;
  } rows[] = {
      {"", "isolated", "tp sp dp pp two_axes bf16 layernorm swiglu steps mqa gqa frozen padded_vocab"},
      {CASE_TP2 " layout.sp=true", "tp sp bias", "isolated two_axes dp kv_below_tp"},
      {"model.heads=4 model.kv_heads=1 layout.tp=2 layout.dp=2 train.microbatches=2", "tp dp two_axes mqa kv_below_tp microbatches",
       "gqa pp"},
      {"model.heads=4 model.kv_heads=2", "gqa", "mqa kv_below_tp"},
      {"model.layers=3 layout.pp=2 layout.pp_last_layers=1", "pp uneven_stages", "two_axes"},
      {"moe.experts=2 moe.z_micro=5", "moe router_losses", "ep etp"},
      {"layout.order=pp-dp-ep-cp-tp", "other_order", "tp"},
      {"model.vocab=7 model.norm=layer model.activation=swiglu model.positions=rotary", "padded_vocab layernorm swiglu rotary", "relu2"},
      {"model.layers=2 train.recompute_layers=2 train.clip_milli=5 train.frozen=qkv", "recompute clipping frozen", "documents"},
      {"train.steps=2 reload.after_step=1", "steps reload", "dp late_reload"},
      {"train.steps=3 reload.after_step=2", "late_reload", "scales_overwritten loss_scale_grows"},
      {"precision.compute=fp8 precision.fp8_recipe=delayed precision.fp8_history=2 train.steps=4", "scales_overwritten", "late_reload"},
      {"precision.compute=fp8 precision.fp8_recipe=delayed precision.fp8_history=2 train.steps=3", "fp8", "scales_overwritten"},
      {"precision.loss_scale_log2=4 precision.loss_scale_window=2 train.steps=3", "loss_scale_grows", "fp16"},
      {"precision.loss_scale_log2=4 precision.loss_scale_window=2 train.steps=2", "dynamic_loss_scale", "loss_scale_grows"},
      {"model.ffn=257 model.vocab=257 model.vocab_padded=257 model.seq=100 train.microbatch_size=3", "wide_ffn wide_vocab many_tokens",
       "pp"},
      {"model.ffn=256 model.vocab=256 model.vocab_padded=256 model.seq=128 train.microbatch_size=2", "isolated",
       "wide_ffn wide_vocab many_tokens"},
      {"model.layers=2 layout.pp=2 train.microbatches=3 model.tied=true model.vocab=7",
       "tied_padded_over_stages more_microbatches_than_stages", "interleaved"},
      {"model.layers=2 layout.pp=2 train.microbatches=2 model.tied=true", "tied_over_stages",
       "tied_padded_over_stages more_microbatches_than_stages"},
      {"data.mask=sparse data.tokens=edge data.grads=heavy", "sparse_mask edge_tokens other_values", "uneven_mask other_weights"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case c = case_make(rows[i].assignments);
    const struct sf_feature_mask mask = sf_features_of(&c);
    for (int which = 0; which < 2; which++) {
      char words[256], *rest = NULL;
      snprintf(words, sizeof words, "%s", which ? rows[i].has_not : rows[i].has);
      for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (sf_feature_mask_has(&mask, feature_of(word)) != (which == 0)) fail_msg("%s: %s", rows[i].assignments, word);
      }
    }
  }
}

static void test_features_names_differ(void **state) {
  (void)state;
  for (int i = 0; i < sf_feature_count; i++) {
    for (int j = 0; j < i; j++) assert_string_not_equal(sf_features[i].name, sf_features[j].name);
  }
}

/* --- describe ---------------------------------------------------------------------------------------------------- */

static void test_describe_case_shows_mesh_groups_and_shapes(void **state) {
  (void)state;
  struct sf_text text = {0};
  const struct sf_case c = case_make(
      "model.layers=2 model.heads=2 model.kv_heads=2 layout.tp=2 layout.dp=2 layout.pp=2 layout.order=dp-cp-ep-tp-pp train.microbatches=2");
  assert_int_equal(sf_describe_case(&text, &c, NULL), SF_OK);
  static const char *const parts[] = {
      "8 ranks: tp 2, dp 2, pp 2, order dp-cp-ep-tp-pp",
      "tp groups  4 of 2 ranks each: {0, 2} {1, 3} {4, 6} {5, 7}\n",
      "dp groups  4 of 2 ranks each: {0, 1} {2, 3} {4, 5} {6, 7}\n",
      "pp groups  4 of 2 ranks each: {0, 4} {1, 5} {2, 6} {3, 7}\n",
      "rank 0     tp 0 dp 0 pp 0  layers 0..0",
      "rank 7     tp 1 dp 1 pp 1  layers 1..1",
      "decoder.layers.0.self_attention.linear_qkv.weight            24 x 8          12 x 8     \n",
      "decoder.layers.0.self_attention.linear_proj.weight            8 x 8           8 x 4     \n",
  };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (!strstr(text.data, parts[i])) fail_msg("no '%s' in:\n%s", parts[i], text.data);
  }
  sf_text_destroy(&text);
}

/* Names of enum values come from one list, so a choice that is added to it shows: a table of its own inside describe once ended before the
 * last. */
static void test_describe_case_names_every_choice_of_every_enum_field(void **state) {
  (void)state;
  static const struct {
    const char *path, *others, *before; /* before: what stands before the name */
  } shown[] = {
      {"mode", "", ", mode "},
      {"model.norm", "", ", norm "},
      {"model.activation", "", ", activation "},
      {"model.positions", "", ", positions "},
      {"moe.router", "moe.experts=2", ", router "},
      {"moe.scope", "moe.experts=2", ", scope "},
      {"precision.compute", "", ", "},
      {"precision.fp8_recipe", "precision.compute=fp8", ", fp8 with scaling "},
      {"train.loss_norm", "", ", loss "},
      {"data.tokens", "", "data       tokens "},
      {"data.mask", "", ", mask "},
      {"data.weights", "", ", weights "},
      {"data.acts", "", ", activations "},
      {"data.grads", "", ", gradients "},
      {"layout.cp_comm", "layout.cp=2 model.heads=2 model.kv_heads=2", ", cp 2 ("},
      {"reload.cp_comm", "train.steps=2 layout.dp=2 train.microbatches=2 reload.after_step=1 reload.cp=2 model.heads=2 model.kv_heads=2",
       ", cp 2 ("},
  };
  size_t fields = 0;
  for (int f = 0; f < sf_case_field_count; f++) fields += sf_case_fields[f].type == SF_FIELD_ENUM;
  assert_int_equal(fields, sizeof shown / sizeof shown[0]);
  for (size_t i = 0; i < fields; i++) {
    const struct sf_field *field = sf_case_field_find(shown[i].path);
    for (int64_t value = 0; value <= field->max; value++) {
      struct sf_text text = {0};
      struct sf_error error = {SF_OK, ""};
      char part[64];
      struct sf_case c = case_make(shown[i].others);
      sf_case_field_put(&c, field, value);
      if (sf_describe_case(&text, &c, &error) != SF_OK) fail_msg("%s=%s: %s", field->path, field->names[value], error.text);
      snprintf(part, sizeof part, "%s%s", shown[i].before, field->names[value]);
      if (!strstr(text.data, part)) fail_msg("no '%s' in:\n%s", part, text.data);
      sf_text_destroy(&text);
    }
  }
}

/* tp cuts the shared expert, ep and etp the experts: here ranks of tp are ranks of ep. */
static void test_describe_case_of_experts_shows_what_their_mesh_cuts(void **state) {
  (void)state;
  struct sf_text text = {0};
  const struct sf_case c = case_make(
      "model.heads=2 model.kv_heads=2 layout.tp=2 layout.sp=on layout.dp=2 train.microbatches=2 moe.experts=4 moe.shared_ffn=12 "
      "layout.ep=4");
  assert_int_equal(sf_describe_case(&text, &c, NULL), SF_OK);
  static const char *const parts[] = {
      "4 ranks: tp 2, dp 2, pp 1, ep 4, etp 1, order",
      "ep groups  1 of 4 ranks each: {0-3}\n",
      "decoder.layers.0.mlp.experts.linear_fc1.weight               32 x 8           8 x 8     \n",
      "decoder.layers.0.mlp.shared_experts.linear_fc2.weight         8 x 12          8 x 6     \n",
  };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (!strstr(text.data, parts[i])) fail_msg("no '%s' in:\n%s", parts[i], text.data);
  }
  sf_text_destroy(&text);
}

static void test_describe_case_shows_the_groups_of_the_experts(void **state) {
  (void)state;
  struct sf_text text = {0};
  const struct sf_case c = case_make(
      "model.heads=2 model.kv_heads=2 moe.experts=4 layout.sp=on layout.tp=2 layout.dp=4 layout.etp=2 layout.ep=2 train.microbatches=4");
  assert_int_equal(sf_describe_case(&text, &c, NULL), SF_OK);
  static const char groups[] = "tp groups  4 of 2 ranks each: {0, 1} {2, 3} {4, 5} {6, 7}\n"
                               "dp groups  2 of 4 ranks each: {0, 2, 4, 6} {1, 3, 5, 7}\n"
                               "etp groups  4 of 2 ranks each: {0, 1} {2, 3} {4, 5} {6, 7}\n"
                               "ep groups  4 of 2 ranks each: {0, 2} {1, 3} {4, 6} {5, 7}\n"
                               "edp groups  4 of 2 ranks each: {0, 4} {1, 5} {2, 6} {3, 7}\n";
  if (!strstr(text.data, groups)) fail_msg("no '%s' in:\n%s", groups, text.data);
  sf_text_destroy(&text);
}

static void test_describe_case_shows_the_layout_that_loads(void **state) {
  (void)state;
  struct sf_text text = {0};
  const struct sf_case c = case_make(
      "model.layers=2 train.microbatches=2 train.steps=3 layout.dp=2 reload.after_step=2 reload.pp=2 reload.order=pp-dp-ep-cp-tp");
  assert_int_equal(sf_describe_case(&text, &c, NULL), SF_OK);
  static const char *const parts[] = {
      "layout     2 ranks: tp 1, dp 2, pp 1, order tp-cp-ep-dp-pp\ndp groups  1 of 2 ranks each: {0, 1}\n",
      "saved after 2 of 3 steps and loaded with another layout\n",
      "loaded     2 ranks: tp 1, dp 1, pp 2, order pp-dp-ep-cp-tp\npp groups  1 of 2 ranks each: {0, 1}\n",
      "rank 1     tp 0 dp 0 pp 1  layers 1..1",
  };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (!strstr(text.data, parts[i])) fail_msg("no '%s' in:\n%s", parts[i], text.data);
  }
  sf_text_destroy(&text);
}

/* A few KB for any world: sets are ranges and strides, lists of groups are cut. The last case has one group of all ranks. */
static void test_describe_case_of_many_ranks_is_short(void **state) {
  (void)state;
  static const struct {
    const char *assignments, *parts[4];
  } rows[] = {
      {"model.layers=8 model.heads=8 model.kv_heads=8 layout.tp=8 layout.pp=8 layout.dp=256 train.microbatches=256",
       {"tp groups  2048 of 8 ranks each: {0-7} {8-15} ", " {56-63} ... {16376-16383}\n",
        "dp groups  64 of 256 ranks each: {0, 8, ... 2040} {1, 9, ... 2041}", "pp groups  2048 of 8 ranks each: {0, 2048, ... 14336}"}},
      {"model.heads=8 model.kv_heads=8 layout.tp=4 layout.dp=4 train.microbatches=4",
       {"tp groups  4 of 4 ranks each: {0-3} {4-7} {8-11} {12-15}\n",
        "dp groups  4 of 4 ranks each: {0, 4, 8, 12} {1, 5, 9, 13} {2, 6, 10, 14} {3, 7, 11, 15}\n", "rank 15 ", ""}},
      {"layout.dp=32768 train.microbatches=32768", {"dp groups  1 of 32768 ranks each: {0-32767}\n", "and 32752 more ranks", "", ""}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct sf_text text = {0};
    const struct sf_case c = case_make(rows[i].assignments);
    assert_int_equal(sf_describe_case(&text, &c, NULL), SF_OK);
    for (size_t k = 0; k < 4; k++) {
      if (!strstr(text.data, rows[i].parts[k])) fail_msg("no '%s' in:\n%.2000s", rows[i].parts[k], text.data);
    }
    assert_true(text.length < 6000);
    sf_text_destroy(&text);
  }
}

static void test_describe_case_wrong_case_is_refused_and_memory_failures_are_told(void **state) {
  (void)state;
  struct sf_text text = {0};
  struct sf_error error = {SF_OK, ""};
  struct sf_case c = case_make("model.layers=2 layout.pp=2");
  c.layout.pp = 3;
  assert_int_equal(sf_describe_case(&text, &c, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "layout.pp"));
  sf_text_destroy(&text);
  c.layout.pp = 2;
  bool ended = false;
  for (int64_t k = 1; !ended; k++) {
    struct sf_text out = {0};
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_describe_case(&out, &c, &error);
    ended = !sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(status, ended ? SF_OK : SF_ENOMEM);
    sf_text_destroy(&out);
  }
}

/* --- table and trace files ----------------------------------------------------------------------------------------- */

struct traced {
  struct sf_engine *engine;
  struct sf_chunk_log log;
  struct sf_outcome outcome;
};

static void trace(struct traced *t, const struct sf_case *c) {
  const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default()};
  memset(t, 0, sizeof *t);
  assert_int_equal(sf_engine_create(&t->engine, &options), SF_OK);
  sf_engine_run(t->engine, c, &t->log, &t->outcome);
  assert_int_equal(t->outcome.status, SF_OK);
}

static void traced_destroy(struct traced *t) {
  sf_chunk_log_destroy(&t->log);
  sf_engine_destroy(t->engine);
}

static void test_table_print_has_a_line_for_each_tensor(void **state) {
  (void)state;
  struct traced t;
  struct sf_case c = case_make(CASE_TP2);
  snprintf(c.plant, sizeof c.plant, "rowparallel-bias-xtp");
  trace(&t, &c);
  char *text = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&text, &size);
  sf_table_print(to, sf_engine_catalog(t.engine), sf_engine_judgement(t.engine));
  fclose(to);
  int32_t lines = 0;
  for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) lines++;
  assert_int_equal(lines, sf_engine_judgement(t.engine)->result_count + 1);
  const char *line = strstr(text, "s0/mb0/fwd/act/decoder.layers.0.self_attention.linear_proj/0");
  assert_non_null(line);
  assert_non_null(strstr(line, "4x8"));
  const char *flagged = strstr(line, "FLAGGED"), *end = strchr(line, '\n');
  assert_true(flagged && flagged < end);
  free(text);
  traced_destroy(&t);
}

static struct sf_st_file read_rank(const char *folder, int rank) {
  char path[256];
  struct sf_st_file file;
  struct sf_error error = {SF_OK, ""};
  snprintf(path, sizeof path, "%s/rank-%05d.safetensors", folder, rank);
  if (sf_st_read(&file, path, &error) != SF_OK) fail_msg("%s", error.text);
  return file;
}

static void test_trace_dump_log_files_hold_tensors_and_maps_of_each_rank(void **state) {
  struct traced t;
  char folder[256];
  const struct sf_case c = case_make(CASE_TP2 " precision.compute=bf16");
  trace(&t, &c);
  snprintf(folder, sizeof folder, "%s/new/folder", (char *)*state);
  assert_int_equal(sf_trace_dump_log(&t.log, &c, folder, NULL), SF_OK);
  for (int rank = 0; rank < 2; rank++) {
    struct sf_st_file file = read_rank(folder, rank);
    assert_true(file.entry_count > 20);
    const struct sf_st_entry *weight = sf_st_find(&file, "s0/mb0/step/param/decoder.layers.0.mlp.linear_fc1.weight/0");
    assert_non_null(weight);
    assert_int_equal(weight->dtype, SF_BF16);
    assert_int_equal(weight->dims[0], 4);
    assert_int_equal(weight->dims[1], 8);
    const char *maps = sf_st_meta(&file, "shardfuzz");
    char expected[160];
    snprintf(expected, sizeof expected,
             "\"s0/mb0/step/param/decoder.layers.0.mlp.linear_fc1.weight/0\":{\"shape\":[8,8],\"index\":[[[%d,4]],[[0,8]]]}", 4 * rank);
    assert_non_null(maps);
    assert_non_null(strstr(maps, expected));
    sf_st_destroy(&file);
  }
  traced_destroy(&t);
}

static void test_trace_dump_log_fewer_ranks_than_before_leave_no_old_files(void **state) {
  struct traced t;
  char path[256];
  const struct sf_case two = case_make(CASE_TP2), one = case_make("mode=e2e");
  trace(&t, &two);
  assert_int_equal(sf_trace_dump_log(&t.log, &two, *state, NULL), SF_OK);
  traced_destroy(&t);
  trace(&t, &one);
  assert_int_equal(sf_trace_dump_log(&t.log, &one, *state, NULL), SF_OK);
  traced_destroy(&t);
  snprintf(path, sizeof path, "%s/rank-00000.safetensors", (char *)*state);
  assert_int_equal(access(path, F_OK), 0);
  snprintf(path, sizeof path, "%s/rank-00001.safetensors", (char *)*state);
  assert_int_not_equal(access(path, F_OK), 0);
}

static void test_trace_dump_add_tensor_traced_twice_is_kept_twice(void **state) {
  struct sf_catalog *catalog = NULL;
  struct sf_chunk_log log = {0};
  const struct sf_case c = case_make("");
  const struct sf_trace_id id = {.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = SF_SCALAR_LOSS};
  const struct sf_shard_map map = sf_shard_map_whole((struct sf_shape){1, 1});
  assert_int_equal(sf_catalog_create(&catalog, &c), SF_OK);
  for (int i = 0; i < 3; i++) {
    const float value = (float)i;
    sf_chunk_log_add(&log, 0, id, &map, &value, 1, 1);
  }
  assert_int_equal(sf_trace_dump_log(&log, &c, *state, NULL), SF_OK);
  struct sf_st_file file = read_rank(*state, 0);
  char name[200];
  assert_int_equal(file.entry_count, 3);
  for (int i = 0; i < 3; i++) {
    double value = -1;
    sf_trace_id_text(name, sizeof name, catalog, id);
    if (i) snprintf(name + strlen(name), sizeof name - strlen(name), "#%d", i + 1);
    const struct sf_st_entry *entry = sf_st_find(&file, name);
    assert_non_null(entry);
    st_load_f64(&value, entry);
    assert_true(value == (double)i);
  }
  sf_st_destroy(&file);
  sf_chunk_log_destroy(&log);
  sf_catalog_destroy(catalog);
}

static void test_trace_dump_log_each_allocation_fails_once_is_told(void **state) {
  struct traced t;
  const struct sf_case c = case_make("mode=e2e model.seq=1");
  trace(&t, &c);
  bool ended = false;
  int refused = 0;
  for (int64_t k = 1; !ended; k += 3) { /* every third: there are many */
    sf_alloc_fail_at(k);
    const enum sf_status status = sf_trace_dump_log(&t.log, &c, *state, NULL);
    ended = !sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    assert_int_equal(status, ended ? SF_OK : SF_ENOMEM);
    refused += !ended;
  }
  assert_true(refused > 10);
  traced_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_features_of_names_what_a_case_has),
      cmocka_unit_test(test_features_names_differ),
      cmocka_unit_test(test_describe_case_shows_mesh_groups_and_shapes),
      cmocka_unit_test(test_describe_case_names_every_choice_of_every_enum_field),
      cmocka_unit_test(test_describe_case_of_experts_shows_what_their_mesh_cuts),
      cmocka_unit_test(test_describe_case_shows_the_groups_of_the_experts),
      cmocka_unit_test(test_describe_case_shows_the_layout_that_loads),
      cmocka_unit_test(test_describe_case_of_many_ranks_is_short),
      cmocka_unit_test(test_describe_case_wrong_case_is_refused_and_memory_failures_are_told),
      cmocka_unit_test(test_table_print_has_a_line_for_each_tensor),
      FOLDER_TEST(test_trace_dump_log_files_hold_tensors_and_maps_of_each_rank),
      FOLDER_TEST(test_trace_dump_log_fewer_ranks_than_before_leave_no_old_files),
      FOLDER_TEST(test_trace_dump_add_tensor_traced_twice_is_kept_twice),
      FOLDER_TEST(test_trace_dump_log_each_allocation_fails_once_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
