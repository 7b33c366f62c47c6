/* Case files: documents that no case may be, a sound one cut and changed anywhere, every field with every wrong value. */
#include "tests/hostile/hostile.h"
#include "tests/hostile/program.h"
#include "tests/rounds.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/run/opfuzz/op_target.h"

/* Beginnings of what stands behind the file's name. */
static const char *const documents[][2] = {
    /* not JSON */
    {"", "line 1"},
    {" ", "line 1"},
    {"{", "line 1"},
    {"{\"schema\": 1", "line 1"},
    {"{\"schema\": 1}}", "line 1"},
    {"{\"schema\": 1} {}", "line 1"},
    {"{\"schema\": 1,}", "line 1"},
    {"{'schema': 1}", "line 1"},
    {"{\"schema\": 01}", "line 1"},
    {"{\"schema\": 1, \"seed\": +1}", "line 1"},
    {"{\"schema\": 1, \"seed\": NaN}", "line 1"},
    {"{\"schema\": 1, \"seed\": 99999999999999999999}", "line 1"},
    {"{\"schema\": 1, \"mode\": \"\\u0000\"}", "line 1"},
    {"{\"schema\": 1, \"mode\": \"\xff\"}", "line 1"},
    {"{\"schema\": 1, \"mode\": \"isolated}", "line 1"},
    {"{\"schema\": 1 /* one */}", "line 1"},
    /* repeated keys */
    {"{\"schema\": 1, \"schema\": 1}", "line 1"},
    {"{\"schema\": 1, \"model\": {\"bias\": true, \"bias\": true}}", "line 1"},
    {"{\"schema\": 1, \"model\": {}, \"model\": {}}", "line 1"},
    /* not a document of this schema */
    {"[]", "document: expected an object, found an array"},
    {"1", "document: expected an object, found an integer"},
    {"null", "document: expected an object, found null"},
    {"{}", "schema: missing"},
    {"{\"seed\": 1}", "schema: missing"},
    {"{\"schema\": 2}", "schema: 2 is not 1"},
    {"{\"schema\": -1}", "schema: -1 is not 1"},
    {"{\"schema\": \"1\"}", "schema: expected an integer, found a string"},
    {"{\"schema\": 1.0}", "schema: expected an integer, found a number with"},
    /* unknown keys */
    {"{\"schema\": 1, \"sead\": 1}", "sead: no such field; did you mean seed?"},
    {"{\"schema\": 1, \"layot\": {}}", "layot: no such field; did you mean layout?"},
    {"{\"schema\": 1, \"expct\": {}}", "expct: no such field; did you mean expect?"},
    {"{\"schema\": 1, \"model\": {\"hiden\": 8}}", "model.hiden: no such field; did you mean model.hidden?"},
    {"{\"schema\": 1, \"expect\": {\"verdct\": \"PASS\"}}", "expect.verdct: no such field; did you mean verdict?"},
    {"{\"schema\": 1, \"\": 1}", ": no such field"},
    {"{\"schema\": 1, \"model.bias\": true}", "model.bias: no such field"},
    {"{\"schema\": 1, \"model\": {\"Bias\": true}}", "model.Bias: no such field"},
    {"{\"schema\": 1, \"mo\": {\"bias\": true}}", "mo: no such field"},
    {"{\"schema\": 1, \"model\": {\"\": 1}}", "model.: no such field"},
    {"{\"schema\": 1, \"target\": {\"names\": \"\"}}", "target.names: no such field"},
    {"{\"schema\": 1, \"expect\": {\"verdict\": \"PASS\", \"why\": \"\"}}", "expect.why: no such field"},
    {"{\"schema\": 1, \"a\\nb\": 1}", "a\\nb: no such field"},
    /* wrong types */
    {"{\"schema\": 1, \"seed\": \"1\"}", "seed: expected an integer, found a string"},
    {"{\"schema\": 1, \"seed\": 1.5}", "seed: expected an integer, found a number with"},
    {"{\"schema\": 1, \"seed\": 1e3}", "seed: expected an integer, found a number with"},
    {"{\"schema\": 1, \"seed\": null}", "seed: expected an integer, found null"},
    {"{\"schema\": 1, \"model\": []}", "model: expected an object, found an array"},
    {"{\"schema\": 1, \"model\": 1}", "model: expected an object, found an integer"},
    {"{\"schema\": 1, \"model\": {\"bias\": 1}}", "model.bias: expected true or false, found an integer"},
    {"{\"schema\": 1, \"model\": {\"layers\": true}}", "model.layers: expected an integer, found true or false"},
    {"{\"schema\": 1, \"model\": {\"norm\": 0}}", "model.norm: expected a name, found an integer"},
    {"{\"schema\": 1, \"train\": {\"frozen\": \"qkv\"}}", "train.frozen: expected an array of names, found a string"},
    {"{\"schema\": 1, \"train\": {\"frozen\": [1]}}", "train.frozen: expected a name, found an integer"},
    {"{\"schema\": 1, \"target\": \"builtin\"}", "target: expected an object, found a string"},
    {"{\"schema\": 1, \"target\": {\"name\": 1}}", "target.name: expected a string, found an integer"},
    {"{\"schema\": 1, \"expect\": \"PASS\"}", "expect: expected an object, found a string"},
    {"{\"schema\": 1, \"expect\": {\"verdict\": 1}}", "expect.verdict: expected a string, found an integer"},
    /* values out of range */
    {"{\"schema\": 1, \"seed\": -1}", "seed: -1 is not in 0..9223372036854775807"},
    {"{\"schema\": 1, \"model\": {\"layers\": 0}}", "model.layers: 0 is not in 1..128"},
    {"{\"schema\": 1, \"model\": {\"layers\": 129}}", "model.layers: 129 is not in 1..128"},
    {"{\"schema\": 1, \"mode\": \"Isolated\"}", "mode: \"Isolated\" is not one of its names; did you mean isolated?"},
    {"{\"schema\": 1, \"mode\": \"\"}", "mode: \"\" is not one of its names"},
    {"{\"schema\": 1, \"precision\": {\"compute\": \"fp64\"}}", "precision.compute: \"fp64\" is not one"},
    {"{\"schema\": 1, \"train\": {\"frozen\": [\"qkv\", \"all\"]}}", "train.frozen: \"all\" is not one"},
    {"{\"schema\": 1, \"train\": {\"frozen\": [\"qkv\", \"qkv\"]}}", "train.frozen: \"qkv\" is there twice"},
    {"{\"schema\": 1, \"plant\": {\"id\": \"a b\"}}", "plant.id: characters other than"},
    {"{\"schema\": 1, \"plant\": {\"id\": \"\xc3\xa9\"}}", "plant.id: characters other than"},
    {"{\"schema\": 1, \"target\": {\"name\": \"\"}}", "target.name: empty"},
    {"{\"schema\": 1, \"plant\": {\"id\": "
     "\"012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345\"}}",
     "plant.id: longer than 95 characters"},
    {"{\"schema\": 1, \"layout\": {\"order\": \"tp-cp-ep-dp-pp-tp-cp-ep-dp\"}}", "layout.order: longer than 23 characters"},
    {"{\"schema\": 1, \"expect\": {}}", "expect.verdict: \"\" is none of PASS"},
    {"{\"schema\": 1, \"expect\": {\"signature\": \"x\"}}", "expect.verdict: \"\" is none of PASS"},
    {"{\"schema\": 1, \"expect\": {\"verdict\": \"pass\"}}", "expect.verdict: \"pass\" is none of PASS"},
    {"{\"schema\": 1, \"expect\": {\"verdict\": \"A VERDICT TOO LONG\"}}", "expect.verdict: longer than 15"},
    {"{\"schema\": 1, \"expect\": {\"verdict\": \"PASS\", \"signature\": \"a\\tb\"}}", "expect.signature: characters other than"},
    /* fields that do not fit together */
    {"{\"schema\": 1, \"layout\": {\"tp\": 2}}", "layout.tp: 2 does not divide model.heads 1"},
    {"{\"schema\": 1, \"layout\": {\"order\": \"tp\"}}", "layout.order: "},
    {"{\"schema\": 1, \"model\": {\"seq\": 6}, \"layout\": {\"cp\": 2}}", "2 * layout.cp: 4 does not divide model.seq 6"},
    {"{\"schema\": 1, \"model\": {\"heads\": 4, \"kv_heads\": 3}}", "model.kv_heads: 3 does not divide"},
    {"{\"schema\": 1, \"model\": {\"head_dim\": 3, \"positions\": \"rotary\"}}", "model.head_dim: 3 is no multiple of 2"},
    {"{\"schema\": 1, \"model\": {\"vocab\": 16}}", "model.vocab: 16 is more than model.vocab_padded 8"},
    {"{\"schema\": 1, \"train\": {\"recompute_layers\": 2}}", "train.recompute_layers: 2 is more than"},
    {"{\"schema\": 1, \"layout\": {\"sp\": true}}", "layout.sp: needs layout.tp"},
    {"{\"schema\": 1, \"layout\": {\"pp\": 2}}", "layout.pp: every stage needs a layer: layout.pp 2"},
    {"{\"schema\": 1, \"layout\": {\"dp\": 2}}", "layout.dp: 2 does not divide train.microbatches 1"},
    {"{\"schema\": 1, \"train\": {\"microbatches\": 65535}, \"layout\": {\"dp\": 65535, \"tp\": 8}, "
     "\"model\": {\"heads\": 8, \"kv_heads\": 8}}",
     "layout.tp * layout.cp * layout.dp * layout.pp: 524280 is more than max_ranks 65536"},
    {"{\"schema\": 1, \"layout\": {\"order\": \"tp-tp-ep-dp-pp\"}}", "layout.order: "},
    {"\x01\x02", "line 1"},
    {"\xef\xbb\xbf{\"schema\": 1}", "line 1"},
    /* cases of frameworks */
    {"{\"schema\": 1, \"framework\": {}}", "framework: the target \"builtin\" is none"},
    {"{\"schema\": 1, \"target\": {\"name\": \"m\"}, \"framework\": []}", "framework: expected an object, found an array"},
    {"{\"schema\": 1, \"target\": {\"name\": \"m\"}, \"framework\": {}, \"model\": {\"layers\": 2}}",
     "model.layers: a framework's case has its fields in \"framework\""},
    {"{\"schema\": 1, \"target\": {\"name\": \"m\"}, \"framework\": {\"layout\": {\"tp\": 0}}}",
     "framework.tp: expected a number from 1 to 65536"},
    {"{\"schema\": 1, \"target\": {\"name\": \"m\"}, \"framework\": {\"layout\": {\"dp\": \"2\"}}}",
     "framework.dp: expected a number from 1 to 65536"},
    {"{\"schema\": 1, \"target\": {\"name\": \"m\"}, \"framework\": {}, \"layout\": {\"tp\": 2}}",
     "layout.tp: a framework's case has its fields in \"framework\""},
};

static char folder[96];

/* A case that was taken is a sound one: it is written and read back as the same. */
static void check_taken(const struct sf_case *c) {
  struct sf_case again;
  char *json = NULL, *json_again = NULL;
  assert_int_equal(sf_case_validate(c, NULL), SF_OK);
  assert_int_equal(sf_case_to_json(&json, c), SF_OK);
  assert_int_equal(sf_case_from_json(&again, json, strlen(json), "f.json", NULL), SF_OK);
  assert_int_equal(sf_case_to_json(&json_again, &again), SF_OK);
  assert_string_equal(json, json_again);
  sf_free(json);
  sf_free(json_again);
}

static void check_program(const char *json, size_t size_bytes) {
  char path[128], trace[128];
  snprintf(path, sizeof path, "%s/case.json", folder);
  snprintf(trace, sizeof trace, "%s/trace", folder);
  hostile_write(path, json, size_bytes);
  program_refuses(folder, path, (const char *const[]){"replay", path, "--trace", trace, "--json", NULL});
  unlink(path);
}

/* reason: the beginning of what stands behind the file's name; NULL: whatever it is, and the document may be a case after all. */
static void try_document(const char *json, size_t size_bytes, const char *reason) {
  static struct sf_case c, before;
  struct sf_error error = {SF_OK, ""};
  memset(&c, 0x5a, sizeof c);
  before = c;
  const enum sf_status status = sf_case_from_json(&c, json, size_bytes, "f.json", &error);
  if (status == SF_OK && reason == NULL) {
    check_taken(&c);
    return;
  }
  if (status == SF_OK) fail_msg("not refused: %.*s", (int)size_bytes, json);
  law_refusal(status, &error, "f.json: ");
  if (reason != NULL && strncmp(error.text + 8, reason, strlen(reason)) != 0) fail_msg("%s: '%s', not '%s'", json, error.text, reason);
  assert_memory_equal(&c, &before, sizeof c);
  assert_int_equal(sf_case_from_json(&c, json, size_bytes, "f.json", NULL), status);
  if (hostile_try(HOSTILE_CASE)) check_program(json, size_bytes);
}

static void try_text(const struct sf_text *text, const char *reason) { try_document(text->data, text->length, reason); }

static void test_case_documents_that_are_none_are_refused_with_their_place(void **state) {
  (void)state;
  static const char inside[] = "{\"schema\": 1,\0 \"seed\": 1}", after[] = "{\"schema\": 1}";
  static char deep[100000];
  for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++)
    try_document(documents[i][0], strlen(documents[i][0]), documents[i][1]);
  try_document(inside, sizeof inside - 1, "line 1");
  try_document(after, sizeof after, "line 1"); /* its NUL too */
  memset(deep, '[', sizeof deep);
  try_document(deep, sizeof deep, "line 1");
}

static void read_seed(struct sf_bytes *out, const char *name) {
  char path[96];
  snprintf(path, sizeof path, "corpus/seeds/fuzz_case_json/%s", name);
  assert_int_equal(sf_bytes_read_file(out, path, 1 << 16, NULL), SF_OK);
}

static void test_case_cut_anywhere_is_refused(void **state) {
  struct sf_bytes sound = {0};
  (void)state;
  read_seed(&sound, "full.json");
  size_t end = sound.size_bytes;
  while (end > 0 && sound.data[end - 1] != '}') end--;
  for (size_t length = 0; length < end; length++) try_document((const char *)sound.data, length, "line ");
  sf_bytes_destroy(&sound);
}

static void test_case_with_any_byte_changed_is_refused_or_another_case(void **state) {
  static const char bytes[] = {'\0', '"', '{', '9', '-', '\x1b', '\xff'};
  struct sf_bytes sound = {0};
  (void)state;
  read_seed(&sound, "hand.json");
  for (size_t at = 0; at < sound.size_bytes; at += SF_STRIDE) {
    const unsigned char kept = sound.data[at];
    for (size_t i = 0; i < sizeof bytes; i++) {
      sound.data[at] = (unsigned char)bytes[i];
      try_document((const char *)sound.data, sound.size_bytes, NULL);
    }
    sound.data[at] = kept;
  }
  sf_bytes_destroy(&sound);
}

/* {"schema": 1, SECTION: {KEY: VALUE}}; a path without a dot is a field of the document. */
static void append_document(struct sf_text *out, const char *path, const char *value) {
  const size_t section = sf_case_section_length(path);
  sf_text_append(out, "{\"schema\": 1, ");
  if (section > 0) sf_text_append(out, "\"%.*s\": {", (int)section, path);
  sf_text_append(out, "\"%s\": %s%s}", path + section + (section > 0), value, section > 0 ? "}" : "");
}

static void test_case_fields_with_values_that_they_may_not_have_are_refused(void **state) {
  (void)state;
  for (int f = 0; f < sf_case_field_count; f++) {
    for (int i = f % SF_STRIDE; i < HOSTILE_VALUE_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      append_document(&text, sf_case_fields[f].path, hostile_values[i]);
      try_text(&text, NULL);
      sf_text_destroy(&text);
    }
  }
}

static void test_case_names_of_others_are_refused_or_kept(void **state) {
  static const char *const forms[] = {"{\"schema\": 1, %s: 1}",
                                      "{\"schema\": 1, \"model\": {%s: 1}}",
                                      "{\"schema\": 1, \"mode\": %s}",
                                      "{\"schema\": 1, \"train\": {\"frozen\": [%s]}}",
                                      "{\"schema\": 1, \"layout\": {\"order\": %s}}",
                                      "{\"schema\": 1, \"target\": {\"name\": %s}}",
                                      "{\"schema\": 1, \"plant\": {\"id\": %s}}",
                                      "{\"schema\": 1, \"expect\": {\"verdict\": %s}}",
                                      "{\"schema\": 1, \"expect\": {\"verdict\": \"FINDING\", \"signature\": %s}}",
                                      "{\"schema\": 1, \"target\": {\"name\": \"m\"}, \"framework\": {%s: {\"x\": []}}}",
                                      "{\"schema\": 1, \"operation\": %s}",
                                      "{\"schema\": 1, \"target\": \"op:add\", \"operation\": \"add\", \"case\": {%s: 1}}"};
  (void)state;
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (int i = (int)f % SF_STRIDE; i < HOSTILE_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      hostile_fill_json(&text, forms[f], HOSTILE_VALUE_COUNT + i);
      try_text(&text, NULL);
      sf_text_destroy(&text);
    }
  }
}

/* --- cases of operations ------------------------------------------------------------------------------------------ */

/* The document, and then the row that its operation makes of it. */
static void try_operation(const char *json, const char *reason) {
  static struct sf_op_target target;
  static struct sf_case c;
  struct sf_op_case row;
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_case_from_json(&c, json, strlen(json), "f.json", &error);
  const bool is_read = status == SF_OK;
  if (is_read) {
    sf_op_target_reference(&target, c.target, SF_OP_ELEMENTS_MOST);
    status = sf_op_case_of(&row, &c, &target, &error);
  }
  if (status == SF_OK && reason != NULL) fail_msg("not refused: %s", json);
  if (status == SF_OK) return;
  law_refusal(status, &error, is_read ? NULL : "f.json: ");
  if (reason != NULL && strstr(error.text, reason) == NULL) fail_msg("%s: '%s' has no '%s'", json, error.text, reason);
  if (hostile_try(HOSTILE_CASE)) check_program(json, strlen(json));
}

/* A sound case of an operation as JSON, with the value of one of its members replaced. */
static void append_operation(struct sf_text *out, const char *section, const char *key, const char *value) {
  static struct sf_op_target target;
  static struct sf_case c;
  struct sf_op_case row;
  char *json = NULL;
  assert_int_equal(sf_op_target_make(&target, "op:norm_fwd", 1000, NULL), SF_OK);
  sf_op_case_draw(&row, &target, 1, 0);
  sf_op_case_put(&c, &target, &row);
  c.expect.present = true;
  snprintf(c.expect.verdict, sizeof c.expect.verdict, "FINDING");
  snprintf(c.expect.signature, sizeof c.expect.signature, "tolerance/norm_fwd/y");
  assert_int_equal(sf_case_to_json(&json, &c), SF_OK);
  json_t *root = json_loads(json, 0, NULL), *inside = *section ? json_object_get(root, section) : root;
  char *rest = NULL;
  assert_true(json_is_object(inside));
  json_object_set_new(inside, key, json_string("@"));
  char *text = json_dumps(root, JSON_COMPACT), *at = strstr(text, "\"@\"");
  assert_non_null(at);
  rest = at + 3;
  sf_text_append(out, "%.*s%s%s", (int)(at - text), text, value, rest);
  free(text);
  json_decref(root);
  sf_free(json);
}

static void test_operation_cases_that_are_none_are_refused(void **state) {
  static const char *const rows[][4] = {{"case", "width", "3", "case.width: no such field"},
                                        {"case", "sed", "3", "case.sed: no such field; did you mean seed?"},
                                        {"case", "rows", "\"three\"", "case.rows: not a value"},
                                        {"case", "rows", "-1", "rows: -1 is not within"},
                                        {"case", "rows", "1048577", "rows: 1048577 is not within"},
                                        {"case", "store", "\"int4\"", "case.store: not a value"},
                                        {"", "expct", "{}", "expct: no such field; did you mean expect?"},
                                        {"", "schema", "9", "schema"},
                                        {"", "extra", "1", "extra: no such field"},
                                        {"", "operation", "\"gemm\"", "case."},
                                        {"", "operation", "\"conv3d\"", "operation: op:norm_fwd has no 'conv3d'"},
                                        {"", "case", "[]", "case: an object"},
                                        {"expect", "verdict", "\"HANG\"", "is none of PASS, FINDING, INCONCLUSIVE, SKIP"},
                                        {"expect", "verdict", "\"PASS\"", "expect.signature: of a finding"},
                                        {"expect", "note", "\"x\"", "expect.note: no such field"}};
  static const char *const keys[][2] = {
      {"case", "seed"},     {"case", "store"},    {"case", "inputs"}, {"case", "special"}, {"case", "rows"},        {"case", "cols"},
      {"case", "in_place"}, {"case", "values.x"}, {"case", "pad.x"},  {"case", "start.x"}, {"expect", "signature"}, {"expect", "verdict"},
      {"", "target"},       {"", "operation"},    {"", "case"},       {"", "schema"},      {"", "expect"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct sf_text text = {0};
    append_operation(&text, rows[i][0], rows[i][1], rows[i][2]);
    try_operation(text.data, rows[i][3]);
    sf_text_destroy(&text);
  }
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
    for (int i = (int)k % SF_STRIDE; i < HOSTILE_VALUE_COUNT; i += SF_STRIDE) {
      struct sf_text text = {0};
      append_operation(&text, keys[k][0], keys[k][1], hostile_values[i]);
      try_operation(text.data, NULL);
      sf_text_destroy(&text);
    }
  }
}

static int setup(void **state) {
  const int failed = folder_create(state);
  if (failed == 0) snprintf(folder, sizeof folder, "%s", (char *)*state);
  return failed;
}

int hostile_run_cases(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_case_documents_that_are_none_are_refused_with_their_place),
      cmocka_unit_test(test_case_cut_anywhere_is_refused),
      cmocka_unit_test(test_case_with_any_byte_changed_is_refused_or_another_case),
      cmocka_unit_test(test_case_fields_with_values_that_they_may_not_have_are_refused),
      cmocka_unit_test(test_case_names_of_others_are_refused_or_kept),
      cmocka_unit_test(test_operation_cases_that_are_none_are_refused),
  };
  return cmocka_run_group_tests_name("hostile/cases", tests, setup, folder_destroy);
}
