#include "harness/base/alloc.h"
#include "harness/base/pcg.h"
#include "harness/spec/case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool same_case(const struct sf_case *a, const struct sf_case *b) {
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT) {
      if (strcmp((const char *)a + field->offset, (const char *)b + field->offset) != 0) return false;
    } else if (sf_case_field_get(a, field) != sf_case_field_get(b, field)) {
      return false;
    }
  }
  if (strcmp(a->operation, b->operation) != 0 || strcmp(a->fields, b->fields) != 0) return false;
  return a->expect.present == b->expect.present && strcmp(a->expect.verdict, b->expect.verdict) == 0 &&
         strcmp(a->expect.signature, b->expect.signature) == 0;
}

static void expect_round_trip(const struct sf_case *c) {
  char *json = NULL, *again = NULL;
  struct sf_case back;
  struct sf_error error = {0};
  assert_int_equal(sf_case_to_json(&json, c), SF_OK);
  if (sf_case_from_json(&back, json, strlen(json), "case", &error) != SF_OK) fail_msg("%s\n%s", error.text, json);
  assert_true(same_case(c, &back));
  assert_int_equal(sf_case_to_json(&again, &back), SF_OK);
  assert_string_equal(json, again);
  sf_free(json);
  sf_free(again);
}

static struct sf_case full_case(void) {
  struct sf_case c;
  sf_case_init(&c);
  c.seed = INT64_MAX;
  c.mode = SF_MODE_E2E;
  c.model = (struct sf_model){.layers = 4, .hidden = 24, .heads = 6, .kv_heads = 2, .head_dim = 6, .ffn = 20, .vocab = 30,
                              .vocab_padded = 32, .seq = 10, .norm = SF_NORM_LAYER, .activation = SF_ACT_SWIGLU,
                              .positions = SF_POS_ROTARY, .bias = true, .tied = true, .adapter = true};
  c.precision.compute = SF_BF16;
  c.train = (struct sf_train){.steps = 3, .microbatches = 6, .microbatch_size = 2, .loss_norm = SF_LOSS_PER_MICROBATCH,
                              .recompute_layers = 2, .clip_milli = 1, .lr_micro = 5, .weight_decay_milli = 10, .beta1_milli = 1,
                              .beta2_milli = 2, .frozen = 63, .mtp_weight_milli = 7};
  c.data = (struct sf_data){.tokens = SF_TOKENS_FEW, .mask = SF_MASK_SPARSE, .documents = 7, .padding = 3, .weights = SF_DIST_SPARSE,
                            .acts = SF_DIST_HEAVY, .grads = SF_DIST_OFFSET};
  c.layout = (struct sf_layout){.tp = 2, .cp = 1, .ep = 1, .etp = 1, .dp = 3, .pp = 3, .vpp = 1, .order = "dp-tp-cp-ep-pp", .sp = true,
                                .pp_first_layers = 2, .bucket_elements = 999, .overlap = true, .tp_overlap = true};
  c.schedule = 12345;
  strcpy(c.target, "plugin:./lib_x.so");
  strcpy(c.plant, "tp-embed-mask");
  c.expect.present = true;
  strcpy(c.expect.verdict, "FINDING");
  strcpy(c.expect.signature, "tolerance/act \"q\\uote\" {x}");
  return c;
}

static void test_case_json_round_trip_of_the_smallest_and_a_full_case(void **state) {
  (void)state;
  struct sf_case c;
  sf_case_init(&c);
  expect_round_trip(&c);
  c = full_case();
  expect_round_trip(&c);
}

static void test_case_json_round_trip_of_a_frameworks_case(void **state) {
  (void)state;
  struct sf_case c;
  sf_case_init(&c);
  c.seed = 77;
  strcpy(c.target, "megatron-core");
  assert_int_equal(sf_case_set_framework(
                       &c, "{\"layout\": {\"tp\": 2, \"pp\": 2, \"sp\": true}, \"model\": {\"a\": null, \"b\": [1, 2.5, \"x\\n\"]}}", NULL),
                   SF_OK);
  assert_int_equal(sf_case_ranks(&c), 4);
  assert_true(c.layout.sp);
  expect_round_trip(&c);
  assert_int_equal(sf_case_set_framework(&c, "{}", NULL), SF_OK); /* the plain case */
  assert_int_equal(sf_case_ranks(&c), 1);
  expect_round_trip(&c);
  assert_int_equal(sf_case_set_framework(&c, "{\"ranks\": 8, \"layout\": {\"tp\": 2}}", NULL), SF_OK);
  assert_int_equal(sf_case_ranks(&c), 8);
  char *json = NULL;
  assert_int_equal(sf_case_to_json(&json, &c), SF_OK);
  assert_string_equal(
      json,
      "{\n  \"schema\": 1,\n  \"seed\": 77,\n  \"target\": {\n    \"name\": \"megatron-core\"\n  },\n  \"framework\": {\n    \"ranks\": "
      "8,\n    \"layout\": "
      "{\n      \"tp\": 2\n    }\n  }\n}\n");
  sf_free(json);
}

static void test_case_set_framework_of_a_long_text_is_refused(void **state) {
  (void)state;
  static char text[3 * SF_CASE_FIELDS_TEXT];
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  sf_case_init(&c);
  snprintf(text, sizeof text, "{\"a\": \"%0*d\"}", SF_CASE_FIELDS_TEXT, 0);
  assert_int_equal(sf_case_set_framework(&c, text, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "more than the limit"));
  assert_false(sf_case_is_framework(&c));
}

static void test_case_json_round_trip_of_drawn_cases(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(11, 0);
  int valid = 0;
  for (int draw = 0; draw < 4000; draw++) {
    /* A few fields of a case that fits most values, so that many draws are valid. */
    struct sf_case c = full_case();
    for (int change = 0; change < 3; change++) {
      const struct sf_field *field = &sf_case_fields[sf_pcg_below(&pcg, (uint64_t)sf_case_field_count)];
      if (field->type == SF_FIELD_TEXT) continue;
      const uint64_t span = (uint64_t)(field->max - field->min);
      const uint64_t reach = sf_pcg_below(&pcg, 2) == 0 && span > 8 ? 8 : span;
      sf_case_field_put(&c, field, field->min + (int64_t)sf_pcg_below(&pcg, reach + 1));
    }
    if (sf_case_validate(&c, NULL) != SF_OK) continue;
    valid++;
    expect_round_trip(&c);
  }
  assert_in_range(valid, 400, 4000);
}

static void test_case_to_json_writes_fields_in_fixed_order_and_look(void **state) {
  (void)state;
  struct sf_case c;
  char *json = NULL;
  sf_case_init(&c);
  c.train.frozen = SF_FROZEN_QKV | SF_FROZEN_FC2;
  c.expect.present = true;
  strcpy(c.expect.verdict, "PASS");
  assert_int_equal(sf_case_to_json(&json, &c), SF_OK);
  static const char HEAD[] = "{\n  \"schema\": 1,\n  \"target\": {\n    \"name\": \"builtin\"\n  },\n  \"plant\": {\n    \"id\": \"\"\n  "
                             "},\n"
                             "  \"mode\": \"isolated\",\n  \"precision\": {\n    \"compute\": \"fp32\",\n";
  static const char TAIL[] = "  \"schedule\": 0,\n  \"seed\": 0,\n"
                             "  \"expect\": {\n    \"verdict\": \"PASS\",\n    \"signature\": \"\"\n  }\n}\n";
  assert_memory_equal(json, HEAD, strlen(HEAD));
  assert_string_equal(json + strlen(json) - strlen(TAIL), TAIL);
  assert_non_null(strstr(
      json,
      "\n    \"frozen\": [\"qkv\", \"fc2\"],\n    \"steps\": 1,\n"));
  sf_free(json);
}

static void test_case_from_json_of_omitted_fields_gives_the_smallest(void **state) {
  (void)state;
  static const char JSON[] = "{\"schema\": 1, \"model\": {\"bias\": true}, \"data\": {}, \"train\": {\"frozen\": []}}";
  struct sf_case c, expected;
  sf_case_init(&expected);
  expected.model.bias = true;
  assert_int_equal(sf_case_from_json(&c, JSON, strlen(JSON), "x", NULL), SF_OK);
  assert_true(same_case(&c, &expected));
}

static void test_case_from_json_beyond_the_size_limit_is_refused(void **state) {
  (void)state;
  const size_t limit = 1 << 20;
  static const char DOCUMENT[] = "{\"schema\": 1}";
  char *json = malloc(limit + 1);
  struct sf_case c;
  assert_non_null(json);
  memset(json, ' ', limit + 1);
  memcpy(json, DOCUMENT, strlen(DOCUMENT));
  assert_int_equal(sf_case_from_json(&c, json, limit, "f.json", NULL), SF_OK);
  struct sf_error error = {SF_OK, ""};
  assert_int_equal(sf_case_from_json(&c, json, limit + 1, "f.json", &error), SF_EINPUT);
  assert_string_equal(error.text, "f.json: 1048577 bytes, more than the limit of 1048576");
  free(json);
}

/* Fails each allocation in turn, Jansson's own too, until one run needs no more. */
static void test_case_from_json_without_memory_says_so_and_writes_nothing(void **state) {
  (void)state;
  const struct sf_case c = full_case();
  struct sf_case untouched;
  char *json = NULL;
  int64_t k = 0;
  memset(&untouched, 0x5a, sizeof untouched);
  assert_int_equal(sf_case_to_json(&json, &c), SF_OK);
  for (bool failed = true; failed;) {
    struct sf_case back = untouched;
    struct sf_error error = {0};
    sf_alloc_fail_at(++k);
    const enum sf_status status = sf_case_from_json(&back, json, strlen(json), "f.json", &error);
    failed = sf_alloc_did_fail();
    if (status != (failed ? SF_ENOMEM : SF_OK)) fail_msg("allocation %d: %d %s", (int)k, status, error.text);
    if (failed) assert_string_equal(error.text, "f.json: out of memory");
    if (failed) assert_memory_equal(&back, &untouched, sizeof back);
    else assert_true(same_case(&back, &c));
  }
  sf_alloc_fail_at(0);
  sf_free(json);
  assert_in_range(k, 100, 10000);
}

static void test_case_to_json_without_memory_says_so(void **state) {
  (void)state;
  const struct sf_case c = full_case();
  int64_t k = 0;
  for (bool failed = true; failed;) {
    char *json = NULL;
    sf_alloc_fail_at(++k);
    const enum sf_status status = sf_case_to_json(&json, &c);
    failed = sf_alloc_did_fail();
    assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
    assert_int_equal(json == NULL, failed);
    sf_free(json);
  }
  sf_alloc_fail_at(0);
  assert_in_range(k, 3, 100);
}

static void test_case_write_then_read_gives_the_same_case(void **state) {
  (void)state;
  char path[300];
  const char *base = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/sf_case_XXXXXX", base != NULL ? base : P_tmpdir);
  const int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  const struct sf_case c = full_case();
  struct sf_case back;
  struct sf_error error = {0};
  assert_int_equal(sf_case_read(&back, path, &error), SF_EINPUT); /* still empty */
  assert_memory_equal(error.text, path, strlen(path));
  assert_int_equal(sf_case_write(&c, path, NULL), SF_OK);
  assert_int_equal(sf_case_read(&back, path, NULL), SF_OK);
  assert_true(same_case(&c, &back));
  unlink(path);
  assert_int_equal(sf_case_read(&back, path, &error), SF_ENOTFOUND);
  assert_memory_equal(error.text, path, strlen(path));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_case_json_round_trip_of_the_smallest_and_a_full_case),
      cmocka_unit_test(test_case_json_round_trip_of_a_frameworks_case),
      cmocka_unit_test(test_case_set_framework_of_a_long_text_is_refused),
      cmocka_unit_test(test_case_json_round_trip_of_drawn_cases),
      cmocka_unit_test(test_case_to_json_writes_fields_in_fixed_order_and_look),
      cmocka_unit_test(test_case_from_json_of_omitted_fields_gives_the_smallest),
      cmocka_unit_test(test_case_from_json_beyond_the_size_limit_is_refused),
      cmocka_unit_test(test_case_from_json_without_memory_says_so_and_writes_nothing),
      cmocka_unit_test(test_case_to_json_without_memory_says_so),
      cmocka_unit_test(test_case_write_then_read_gives_the_same_case),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
