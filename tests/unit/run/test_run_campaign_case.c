#include "tests/unit/run/run_fixture.h"

#include "harness/base/hash.h"
#include "harness/run/campaign/campaign.h"

enum { CASES = 240 };

static struct sf_campaign_options *options_make(uint64_t seed, int64_t layouts) {
  struct sf_campaign_options *o = test_calloc(1, sizeof *o);
  sf_space_init(&o->space);
  o->seed = seed;
  o->layouts = layouts;
  return o;
}

static struct sf_case draw(const struct sf_campaign_options *o, int64_t index) {
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  if (sf_campaign_case(&c, o, index, &error) != SF_OK) fail_msg("case %d: %s", (int)index, error.text);
  assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
  return c;
}

static uint64_t hash_case(const struct sf_case *c) {
  char *json = NULL;
  assert_int_equal(sf_case_to_json(&json, c), SF_OK);
  const uint64_t hash = sf_hash_string(0, json);
  sf_free(json);
  return hash;
}

static void test_campaign_case_index_alone_decides(void **state) {
  (void)state;
  struct sf_campaign_options *o = options_make(5, 4), *other = options_make(6, 4);
  uint64_t hashes[CASES];
  int same_as_before = 0, same_as_other = 0;
  for (int64_t i = 0; i < CASES; i++) {
    const struct sf_case c = draw(o, i), d = draw(other, i);
    hashes[i] = hash_case(&c);
    same_as_before += i > 0 && hashes[i] == hashes[i - 1];
    same_as_other += hashes[i] == hash_case(&d);
  }
  for (int64_t i = CASES - 1; i >= 0; i--) { /* in another order */
    const struct sf_case c = draw(o, i);
    assert_int_equal(hash_case(&c), hashes[i]);
  }
  assert_true(same_as_before < CASES / 10);
  assert_true(same_as_other < CASES / 20);
  const struct sf_case far = draw(o, INT64_C(1) << 61);
  assert_true(hash_case(&far) != hashes[0]);
  test_free(o);
  test_free(other);
}

/* What `--layouts` is for: cases of a block share the logical function, and differ in who computes it. */
static void test_campaign_case_layouts_share_the_logical_function(void **state) {
  (void)state;
  static const int64_t layouts[] = {1, 4, 16};
  for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
    struct sf_campaign_options *o = options_make(7, layouts[l]);
    int64_t other_layouts = 0, new_functions = 0;
    struct sf_case first = draw(o, 0);
    for (int64_t i = 1; i < CASES; i++) {
      const struct sf_case c = draw(o, i);
      const bool same = sf_case_logical_hash(&c) == sf_case_logical_hash(&first);
      if (i % layouts[l] == 0) {
        new_functions += !same;
        first = c;
      } else {
        assert_true(same);
        other_layouts += hash_case(&c) != hash_case(&first);
      }
    }
    assert_true(new_functions >= (CASES - 1) / layouts[l] * 9 / 10);
    assert_true(other_layouts >= (CASES - CASES / layouts[l]) / 2);
    test_free(o);
  }
}

static void test_campaign_case_plants_take_turns_by_logical_function(void **state) {
  (void)state;
  static const char *const plants[] = {"attn-dq-wrong", "canary-crash", "tp-embed-mask"};
  struct sf_campaign_options *o = options_make(8, 4), *without = options_make(8, 4);
  for (int i = 0; i < 3; i++) o->plants[o->plant_count++] = plants[i];
  for (int64_t i = 0; i < 60; i++) {
    struct sf_case c = draw(o, i);
    const struct sf_case clean = draw(without, i);
    assert_string_equal(c.plant, plants[i / 4 % 3]);
    memset(c.plant, 0, sizeof c.plant);
    assert_int_equal(hash_case(&c), hash_case(&clean)); /* the generator does not see plants */
  }
  test_free(o);
  test_free(without);
}

static void test_campaign_case_fixed_fields_hold_and_worlds_are_small(void **state) {
  (void)state;
  struct sf_campaign_options *o = options_make(9, 3);
  o->space.max_ranks = 4;
  assert_int_equal(sf_space_set(&o->space, "layout.tp=2", NULL), SF_OK);
  assert_int_equal(sf_space_set(&o->space, "model.tied=on", NULL), SF_OK);
  assert_int_equal(sf_space_set(&o->space, "mode=e2e", NULL), SF_OK);
  for (int64_t i = 0; i < CASES; i++) {
    const struct sf_case c = draw(o, i);
    assert_int_equal(c.layout.tp, 2);
    assert_true(c.model.tied);
    assert_int_equal(c.mode, SF_MODE_E2E);
    assert_true(sf_case_ranks(&c) <= 4);
  }
  test_free(o);
}

/* A known finding's trigger is drawn, but rarely, so that others are found. */
static void test_campaign_case_known_trigger_becomes_rare(void **state) {
  (void)state;
  struct sf_campaign_options *o = options_make(10, 4);
  struct sf_known_entry entry = {.signature = "a@tp", .has_case = true, .c = case_make("model.tied=true")};
  int before = 0, after = 0;
  for (int64_t i = 0; i < 4 * CASES; i += 4) before += draw(o, i).model.tied;
  o->known = (struct sf_known){1, &entry};
  for (int64_t i = 0; i < 4 * CASES; i += 4) after += draw(o, i).model.tied;
  assert_true(before > CASES / 4);
  assert_true(after > 0);
  assert_true(after < CASES / 5);
  test_free(o);
}

static char *text_of(const struct sf_campaign_options *o) {
  char *text = NULL;
  assert_int_equal(sf_campaign_text(&text, o), SF_OK);
  return text;
}

static void change(struct sf_campaign_options *o, int what, struct sf_known_entry *entries) {
  switch (what) {
  case 0: o->seed = 2; break;
  case 1: o->layouts = 5; break;
  case 2: o->space.max_ranks = 4; break;
  case 3: o->plants[o->plant_count++] = "attn-dq-wrong"; break;
  case 4: assert_int_equal(sf_space_set(&o->space, "layout.tp=2", NULL), SF_OK); break;
  case 5: assert_int_equal(sf_space_set(&o->space, "layout.tp=1..2", NULL), SF_OK); break;
  case 6: o->pool.launcher = "mpirun -n {n}"; break;
  case 7: o->known = (struct sf_known){1, &entries[0]}; break;
  case 8: o->known = (struct sf_known){1, &entries[1]}; break;
  case 9: o->known = (struct sf_known){1, &entries[2]}; break;
  default: fail();
  }
}

/* --resume refuses a store whose text differs: it must differ whenever the cases may. */
static void test_campaign_text_differs_with_every_option_that_changes_cases(void **state) {
  (void)state;
  enum { CHANGES = 10 };
  char *texts[CHANGES + 1];
  struct sf_known_entry entries[3] = {{.signature = "a"}, {.signature = "a", .has_case = true, .c = case_make("model.tied=true")},
                                      {.signature = "a", .has_case = true, .c = case_make("model.bias=true")}};
  for (int i = 0; i <= CHANGES; i++) {
    struct sf_campaign_options *o = options_make(1, 4);
    if (i < CHANGES) change(o, i, entries);
    texts[i] = text_of(o);
    for (int j = 0; j < i; j++) assert_string_not_equal(texts[j], texts[i]);
    test_free(o);
  }
  struct sf_campaign_options *o = options_make(1, 4);
  o->cases = 77; /* these do not change what stands at an index */
  o->seconds = 5;
  o->shrink_budget = 3;
  o->deadline = 9;
  o->pool.processes = 7;
  char *text = text_of(o);
  assert_string_equal(text, texts[CHANGES]);
  sf_free(text);
  for (int i = 0; i <= CHANGES; i++) sf_free(texts[i]);
  test_free(o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_campaign_case_index_alone_decides),
      cmocka_unit_test(test_campaign_case_layouts_share_the_logical_function),
      cmocka_unit_test(test_campaign_case_plants_take_turns_by_logical_function),
      cmocka_unit_test(test_campaign_case_fixed_fields_hold_and_worlds_are_small),
      cmocka_unit_test(test_campaign_case_known_trigger_becomes_rare),
      cmocka_unit_test(test_campaign_text_differs_with_every_option_that_changes_cases),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
