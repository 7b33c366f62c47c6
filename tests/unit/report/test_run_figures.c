/* Figures of findings: texts of others stay texts, and the pictures show what the evidence has. */
#include "tests/hostile/texts.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/run/figures/case_report.h"
#include "harness/run/figures/figures.h"
#include "harness/run/support/json.h"

#include <libxml/parser.h>
#include <math.h>

static void add_tensor(struct sf_evidence *evidence, const char *name, double share, bool flagged) {
  struct sf_evidence_tensor *grown = sf_grown(evidence->tensors, evidence->tensor_count, sizeof *grown);
  assert_non_null(grown);
  evidence->tensors = grown;
  struct sf_evidence_tensor *added = &grown[evidence->tensor_count++];
  snprintf(added->name, sizeof added->name, "%s", name);
  added->share = share;
  added->judged = true;
  added->flagged = flagged;
}

/* A wrong tensor of 2 x 4 on two ranks, each of which holds two columns. */
static struct sf_picture picture_make(void) {
  static const float x[] = {1, 2, 3, 4, 5, 6, 7, 8}, left[] = {1, 2, 5, 6}, right[] = {3, 9, 7, 8};
  static const int64_t left_at[] = {0, 1, 4, 5}, right_at[] = {2, 3, 6, 7};
  const struct sf_view_shard shards[] = {{.rank = 0, .count = 4, .at = left_at, .data = left},
                                         {.rank = 1, .count = 4, .at = right_at, .data = right}};
  const struct sf_tensor_view view = {.shape = {2, 4}, .x = x, .noise = 0.01, .shards = shards, .shard_count = 2};
  struct sf_picture picture;
  sf_picture_begin(&picture, view.shape);
  sf_picture_of_view(&picture, &view);
  return picture;
}

static xmlDocPtr parse(const struct sf_text *text) {
  assert_false(text->failed);
  xmlDocPtr document = xmlReadMemory(text->data, (int)text->length, NULL, NULL, XML_PARSE_NONET | XML_PARSE_NOERROR);
  if (!document) fail_msg("not well-formed: %.400s", text->data);
  return document;
}

static int32_t count_of(const char *text, const char *word) {
  int32_t count = 0;
  for (const char *at = text; (at = strstr(at, word)) != NULL; at++) count++;
  return count;
}

/* What is kept of contrast, with this text in all of its places. */
static char *contrast_made(const char *text) {
  json_t *field = json_pack("{s:o, s:s, s:o, s:[o], s:[o]}", "field", sf_json_text(text), "state", SF_CONTRAST_WORD_MATTERS, "condition",
                            sf_json_text(text), "failed", sf_json_text(text), "passed", sf_json_text(text));
  json_t *object = json_pack("{s:o, s:i, s:[o]}", "why", sf_json_text(text), "trials", 2, "fields", field);
  char *made = json_dumps(object, 0);
  json_decref(object);
  assert_non_null(made);
  return made;
}

static void test_contrast_shows_what_failed_and_what_passed(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_figure_contrast(
      &text, "{\"why\":\"w\",\"trials\":3,\"fields\":["
             "{\"field\":\"layout.tp\",\"state\":\"matters\",\"condition\":\" at least 2\",\"failed\":[\"2\",\"4\"],\"passed\":[\"1\"]},"
             "{\"field\":\"model.norm\",\"state\":\"does not matter\",\"condition\":\"\",\"failed\":[\"rms\"],\"passed\":[]}]}");
  assert_non_null(strstr(text.data, "<td>layout.tp at least 2</td><td>matters</td><td data-column=\"failed with\">2, 4</td>"
                                    "<td data-column=\"passed with\">1</td>"));
  assert_true(strstr(text.data, "layout.tp") < strstr(text.data, "Other fields (1)"));
  assert_true(strstr(text.data, "Other fields (1)") < strstr(text.data, "model.norm"));
  sf_text_destroy(&text);
  sf_figure_contrast(&text, "");
  sf_figure_contrast(&text, NULL);
  sf_figure_contrast(&text, "no JSON");
  sf_figure_contrast(&text, "{\"why\":\"not tried: w\",\"fields\":[]}");
  assert_null(text.data);
}

static void test_page_any_text_adds_no_markup(void **state) {
  struct sf_case c = case_make("model.heads=2 model.kv_heads=2 model.hidden=8 model.head_dim=4 layout.tp=2");
  (void)state;
  int32_t elements = 0;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    const char *text = hostile_texts[i];
    struct sf_report report = {.title = "shardfuzz report"};
    struct sf_evidence evidence = {0};
    struct sf_text page = {0}, name = {0};
    struct sf_outcome outcome = {
        .verdict = SF_VERDICT_FINDING, .cls = SF_CLASS_TOLERANCE, .kind = SF_KIND_ACT, .rank = 1, .further_count = 1};
    snprintf(outcome.signature, sizeof outcome.signature, "%s", text);
    sf_text_append(&name, "s0/mb0/fwd/act/%s/0", text);
    snprintf(outcome.first_id, sizeof outcome.first_id, "%s", name.data);
    snprintf(outcome.module, sizeof outcome.module, "%s", text);
    snprintf(outcome.text, sizeof outcome.text, "%s", text);
    snprintf(outcome.label, sizeof outcome.label, "%s", text);
    snprintf(outcome.pattern, sizeof outcome.pattern, "%s", text);
    snprintf(outcome.diagnosis.text, sizeof outcome.diagnosis.text, "%s", text);
    snprintf(outcome.further[0].first_id, sizeof outcome.further[0].first_id, "%s", name.data);
    snprintf(outcome.further[0].text, sizeof outcome.further[0].text, "%s", text);
    add_tensor(&evidence, name.data, 7, true);
    evidence.ranks = 2;
    evidence.group_count = 1;
    snprintf(evidence.groups[0].name, sizeof evidence.groups[0].name, "%.20s", text);
    const struct sf_picture picture = picture_make();
    assert_int_equal(sf_evidence_add_picture(&evidence, name.data, &picture), SF_OK);
    char *contrast = contrast_made(text);
    const struct sf_case_told told = {.name = text, .path = text, .text = text, .evidence = &evidence, .shrunk = {text, contrast}};
    sf_case_report(&report, &c, &outcome, &told);
    free(contrast);
    assert_int_equal(sf_report_append_html(&page, &report), SF_OK);
    xmlFreeDoc(parse(&page));
    /* Whatever the text is: no script, no link to anywhere, and as many elements of each kind as of a plain text. */
    assert_int_equal(count_of(page.data, "<script") + count_of(page.data, "<img") + count_of(page.data, "href=\"http"), 0);
    const int32_t seen = count_of(page.data, "<pre") + count_of(page.data, "<figure>") + count_of(page.data, "<h3>");
    if (i == 0) elements = seen;
    if (i == 0) assert_true(seen > 6);
    if (*text && strcmp(text, " ") != 0) assert_true(seen <= elements);
    sf_text_destroy(&page);
    sf_text_destroy(&name);
    sf_report_destroy(&report);
    sf_evidence_destroy(&evidence);
  }
}

static void test_values_show_borders_and_the_worst(void **state) {
  const struct sf_picture picture = picture_make();
  struct sf_text text = {0};
  (void)state;
  assert_int_equal(picture.worst_cell, 3);
  assert_int_equal(picture.holder_count, 2);
  sf_figure_values(&text, &picture);
  xmlFreeDoc(parse(&text));
  assert_int_equal(count_of(text.data, "<svg"), 3);
  assert_non_null(strstr(text.data, "Lines are borders"));
  assert_null(strstr(text.data, "Hatched"));
  assert_null(strstr(text.data, "are drawn as"));
  sf_text_destroy(&text);
}

static void test_network_orders_modules_by_their_outputs_and_lights_the_guilty(void **state) {
  static const struct sf_culprit culprit = {.first_id = "s0/mb0/step/main_grad/decoder.layers.1.b.weight/0"};
  struct sf_evidence evidence = {0};
  struct sf_text text = {0};
  (void)state;
  add_tensor(&evidence, "s0/mb0/step/param/decoder.layers.1.b.weight/0", 0, false);
  add_tensor(&evidence, "s0/mb0/fwd/act/decoder.layers.0.a/0", 0.5, false);
  add_tensor(&evidence, "s0/mb0/fwd/act/decoder.layers.1.b/0", 2000, true);
  add_tensor(&evidence, "no name of a tensor", 1, false);
  const struct sf_finding_view view = {.culprit = &culprit, .evidence = &evidence};
  sf_figure_network(&text, &view);
  xmlFreeDoc(parse(&text));
  const char *first = strstr(text.data, ">a</text>"), *second = strstr(text.data, ">b</text>");
  assert_true(first && second && first < second);
  assert_int_equal(count_of(text.data, "f-bad bold\">b</text>"), 1);
  assert_int_equal(count_of(text.data, "f-bad bold\">a</text>"), 0);
  assert_non_null(strstr(text.data, ">2e+03</text>"));
  sf_text_destroy(&text);
  sf_evidence_destroy(&evidence);
}

static void test_ranks_stand_in_groups_of_the_signature(void **state) {
  struct sf_case c =
      case_make("model.heads=2 model.kv_heads=2 model.hidden=8 model.head_dim=4 layout.tp=2 layout.dp=2 train.microbatches=2");
  struct sf_evidence evidence = {0};
  struct sf_text text = {0};
  (void)state;
  sf_evidence_of_layout(&evidence, &c);
  assert_int_equal(evidence.ranks, 4);
  assert_int_equal(evidence.group_count, 2);
  sf_figure_ranks(&text, &evidence, "tolerance/act/x@tp", NULL, 3);
  xmlFreeDoc(parse(&text));
  assert_non_null(strstr(text.data, "A frame is a group of tp"));
  assert_int_equal(count_of(text.data, ">rank "), 4);
  assert_int_equal(count_of(text.data, "f-bad bold\">rank 3<"), 1);
  assert_int_equal(count_of(text.data, ">tp 1 dp 1<"), 1);
  sf_text_destroy(&text);
  sf_evidence_destroy(&evidence);
}

static void test_steps_of_shrinking_are_counted(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_figure_steps(&text, "-layout.tp: 4 -> 2\n+model.layers: 2 -> 1\n-seed: 1 -> 0\n");
  assert_non_null(strstr(text.data, "1 of 3 trials"));
  assert_non_null(strstr(text.data, "<td class=\"number\">2</td><td>model.layers: 2 -&gt; 1</td>"));
  assert_non_null(strstr(text.data, "All 3 trials"));
  text.length = 0;
  sf_figure_steps(&text, "");
  sf_figure_steps(&text, NULL);
  assert_int_equal(text.length, 0);
  sf_text_destroy(&text);
}

static void test_pairs_name_the_holes(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_figure_pairs(&text, "- a=1\n. a=2\nxo b=<x>\nxx. b=2\n");
  assert_non_null(strstr(text.data, "3 of 4 pairs"));
  assert_non_null(strstr(text.data, "<td>a=2</td><td>b=&lt;x&gt;</td>"));
  assert_non_null(strstr(text.data, "1 pairs have not"));
  text.length = 0;
  for (int i = 0; i < HOSTILE_COUNT; i++) sf_figure_pairs(&text, hostile_texts[i]);
  sf_figure_pairs(&text, NULL);
  assert_int_equal(text.length, 0);
  sf_text_destroy(&text);
}

static void test_evidence_crosses_a_file_whole_or_not_at_all(void **state) {
  struct sf_evidence evidence = {.ranks = 2}, read = {0};
  FILE *file = tmpfile();
  (void)state;
  assert_non_null(file);
  assert_false(sf_evidence_read(&read, file));
  add_tensor(&evidence, "s0/mb0/fwd/act/a/0", 3, true);
  const struct sf_picture picture = picture_make();
  assert_int_equal(sf_evidence_add_picture(&evidence, "s0/mb0/fwd/act/a/0", &picture), SF_OK);
  sf_evidence_write(file, &evidence);
  assert_true(sf_evidence_read(&read, file));
  assert_int_equal(read.tensor_count, 1);
  assert_string_equal(read.tensors[0].name, "s0/mb0/fwd/act/a/0");
  assert_memory_equal(sf_evidence_find_picture(&read, "s0/mb0/fwd/act/a/0"), &picture, sizeof picture);
  assert_null(sf_evidence_find_picture(&read, "s0/mb0/fwd/act/b/0"));
  sf_evidence_destroy(&read);
  fseek(file, 0, SEEK_END);
  assert_int_equal(ftruncate(fileno(file), ftell(file) - 1), 0);
  assert_false(sf_evidence_read(&read, file));
  assert_int_equal(read.tensor_count, 0);
  sf_evidence_destroy(&evidence);
  fclose(file);
}

static void test_steps_note_says_what_changed(void **state) {
  static char steps[SF_STEPS_TEXT];
  const struct sf_case from = case_make("layout.tp=4 model.heads=4 model.kv_heads=4 model.hidden=16 model.head_dim=4"),
                       to = case_make("layout.tp=2 model.heads=4 model.kv_heads=4 model.hidden=16 model.head_dim=4");
  (void)state;
  *steps = '\0';
  sf_steps_note(steps, &from, &to, false);
  sf_steps_note(steps, &from, &to, true);
  assert_string_equal(steps, "-layout.tp: 4 -> 2\n+layout.tp: 4 -> 2\n");
  for (int i = 0; i < 2000; i++) sf_steps_note(steps, &from, &to, i % 2 == 0);
  assert_true(strlen(steps) < sizeof steps && steps[strlen(steps) - 1] == '\n');
}

static void test_tally_counts_modules_that_were_not_judged(void **state) {
  struct sf_tally tally = {.unjudged = ""};
  (void)state;
  sf_tally_unjudged(&tally, "loss");
  sf_tally_unjudged(&tally, "mlp.router");
  sf_tally_unjudged(&tally, "loss");
  sf_tally_unjudged(&tally, "los");
  sf_tally_unjudged(&tally, "mlp.router");
  assert_string_equal(tally.unjudged, "loss=2 mlp.router=2 los=1");
  for (int i = 0; i < HOSTILE_COUNT; i++) sf_tally_unjudged(&tally, hostile_texts[i]);
  assert_null(strpbrk(tally.unjudged, "\n"));
  assert_true(strlen(tally.unjudged) < sizeof tally.unjudged);
  sf_tally_near(&tally, 0.5);
  sf_tally_near(&tally, NAN);
  sf_tally_near(&tally, 0.25);
  assert_true(fabs(tally.closest - (0.5)) <= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_contrast_shows_what_failed_and_what_passed),
      cmocka_unit_test(test_page_any_text_adds_no_markup),
      cmocka_unit_test(test_values_show_borders_and_the_worst),
      cmocka_unit_test(test_network_orders_modules_by_their_outputs_and_lights_the_guilty),
      cmocka_unit_test(test_ranks_stand_in_groups_of_the_signature),
      cmocka_unit_test(test_steps_of_shrinking_are_counted),
      cmocka_unit_test(test_pairs_name_the_holes),
      cmocka_unit_test(test_evidence_crosses_a_file_whole_or_not_at_all),
      cmocka_unit_test(test_steps_note_says_what_changed),
      cmocka_unit_test(test_tally_counts_modules_that_were_not_judged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
