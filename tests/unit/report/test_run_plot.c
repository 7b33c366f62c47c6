/* Pictures of pages: colours that can be read, texts that fit, markup that nobody can add to. */
#include "tests/hostile/texts.h"

#include "harness/base/sinks.h"
#include "harness/run/plot/chart.h"

#include <libxml/parser.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Well-formed, without an element or an attribute that is not ours. */
static void assert_picture(const struct sf_text *text) {
  static const char *const known[] = {"svg", "path", "text", "title", "g"};
  assert_false(text->failed);
  xmlDocPtr document = xmlReadMemory(text->data, (int)text->length, NULL, NULL, XML_PARSE_NONET | XML_PARSE_NOERROR);
  if (!document) fail_msg("not well-formed: %.200s", text->data);
  for (xmlNodePtr node = xmlDocGetRootElement(document); node;) {
    bool is_known = node->type != XML_ELEMENT_NODE;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) is_known |= strcmp((const char *)node->name, known[i]) == 0;
    assert_true(is_known);
    for (xmlAttrPtr attribute = node->type == XML_ELEMENT_NODE ? node->properties : NULL; attribute; attribute = attribute->next)
      assert_true(strncmp((const char *)attribute->name, "on", 2) != 0 && strcmp((const char *)attribute->name, "href") != 0);
    if (node->children) {
      node = node->children;
      continue;
    }
    while (node && !node->next) node = node->parent && node->parent->type == XML_ELEMENT_NODE ? node->parent : NULL;
    if (node) node = node->next;
  }
  xmlFreeDoc(document);
}

/* --- colours ------------------------------------------------------------------------------------------------------ */

static void test_contrast_of_black_and_white_is_21(void **state) {
  (void)state;
  assert_true(fabs(sf_colour_contrast(0x000000, 0xffffff) - (21)) <= 1e-9);
  assert_true(fabs(sf_colour_contrast(0x777777, 0xffffff) - (4.48)) <= 0.005);
  assert_true(fabs(sf_colour_contrast(0x123456, 0x123456) - (1)) <= 1e-9);
}

static void test_colours_every_pair_of_text_can_be_read(void **state) {
  (void)state;
  for (int is_dark = 0; is_dark < 2; is_dark++) {
#define TEXT(text, background)                                                                                                             \
  if (!(sf_colour_contrast(sf_colour_rgb(SF_COLOUR_##text, is_dark), sf_colour_rgb(SF_COLOUR_##background, is_dark)) >= 4.5))              \
    fail_msg(#text " on " #background " (dark: %d)", is_dark);
#define MARK(mark, background)                                                                                                             \
  if (!(sf_colour_contrast(sf_colour_rgb(SF_COLOUR_##mark, is_dark), sf_colour_rgb(SF_COLOUR_##background, is_dark)) >= 3))                \
    fail_msg(#mark " on " #background " (dark: %d)", is_dark);
    SF_COLOUR_PAIR_MAP(TEXT)
    SF_COLOUR_MARK_MAP(MARK)
  }
}

static double brightness(int colour, int is_dark) { return sf_colour_contrast(sf_colour_rgb((enum sf_colour)colour, is_dark), 0); }

/* Whoever sees no colours sees the order of a scale all the same. */
static void test_colours_lightness_orders_scales(void **state) {
  (void)state;
  for (int is_dark = 0; is_dark < 2; is_dark++) {
    for (int i = SF_COLOUR_V0; i < SF_COLOUR_V8; i++) assert_true(brightness(i, is_dark) < brightness(i + 1, is_dark));
    for (int i = SF_COLOUR_M0; i < SF_COLOUR_M5; i++) assert_true((brightness(i, is_dark) < brightness(i + 1, is_dark)) == (is_dark != 0));
  }
}

static void test_colours_rules_name_each_colour_twice(void **state) {
  struct sf_text text = {0};
  (void)state;
  sf_colours_append(&text);
  const char *first = strstr(text.data, "--paper:#ffffff;");
  assert_non_null(first);
  assert_non_null(strstr(first, "prefers-color-scheme:dark"));
  assert_non_null(strstr(first, ".f-v8{fill:var(--v8)}.s-v8{stroke:var(--v8)}"));
  sf_text_destroy(&text);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void test_text_fit_any_text_is_not_wider(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT * HOSTILE_COUNT; i++) {
    char joined[4096], fitting[512];
    snprintf(joined, sizeof joined, "%s%s", hostile_texts[i % HOSTILE_COUNT], hostile_texts[i / HOSTILE_COUNT]);
    for (int width = 0; width < 200; width += 23) {
      sf_svg_text_fit(fitting, sizeof fitting, joined, width);
      assert_true(sf_svg_text_width(fitting) <= width);
      for (const char *at = fitting; *at; at += sf_utf8_length(at)) assert_true(sf_utf8_length(at) > 0);
    }
  }
}

static void test_text_fit_keeps_both_ends(void **state) {
  char fitting[64];
  (void)state;
  sf_svg_text_fit(fitting, sizeof fitting, "decoder.layers.0.mlp.linear_fc1", 8.2 * 12);
  assert_string_equal(fitting, "decode\xe2\x80\xa6"
                               "ar_fc1");
  sf_svg_text_fit(fitting, sizeof fitting, "short", 100);
  assert_string_equal(fitting, "short");
}

static void test_svg_text_any_text_adds_no_markup(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct sf_text text = {0};
    struct sf_svg svg;
    sf_svg_begin(&svg, &text, 100, 20, hostile_texts[i]);
    sf_svg_text(&svg, (struct sf_svg_label){0, 12, SF_SVG_START, SF_COLOUR_INK, 60, true}, hostile_texts[i]);
    sf_svg_text(&svg, (struct sf_svg_label){0, 12, SF_SVG_END, SF_COLOUR_INK, 2000, false}, hostile_texts[i]);
    sf_svg_end(&svg);
    assert_picture(&text);
    sf_text_destroy(&text);
  }
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

static void test_cells_neighbours_of_a_colour_are_one_rectangle(void **state) {
  static const int colours[] = {SF_COLOUR_V0, SF_COLOUR_V0, SF_COLOUR_V1, -1, SF_COLOUR_V1, SF_COLOUR_V1};
  struct sf_text text = {0};
  struct sf_svg svg;
  (void)state;
  sf_svg_begin(&svg, &text, 30, 20, "cells");
  sf_svg_cells(&svg, (struct sf_svg_box){0, 0, 30, 20}, 2, 3, colours);
  sf_svg_end(&svg);
  assert_picture(&text);
  assert_non_null(strstr(text.data, "class=\"f-v0\" d=\"M0 0h2v1h-2z\""));
  assert_non_null(strstr(text.data, "class=\"f-v1\" d=\"M2 0h1v1h-1zM1 1h2v1h-2z\""));
  sf_text_destroy(&text);
}

static void test_chart_numbers_are_short(void **state) {
  static const struct {
    double value;
    const char *text;
  } table[] = {{0, "0"},     {12300, "12 300"}, {-1234567, "-1.23e+06"}, {0.3125, "0.312"}, {6.91e5, "691 000"},
               {999, "999"}, {-1000, "-1 000"}};
  char text[SF_CHART_NUMBER_TEXT];
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) assert_string_equal(sf_chart_number(text, table[i].value), table[i].text);
  assert_string_equal(sf_chart_count(text, 100000), "100 000");
  assert_string_equal(sf_chart_count(text, INT64_MAX), "9 223 372 036 854 775 807");
}

static void test_chart_classes_of_values_and_sizes(void **state) {
  (void)state;
  assert_int_equal(sf_chart_value_colour(-2, 2), SF_COLOUR_V0);
  assert_int_equal(sf_chart_value_colour(0, 2), SF_COLOUR_V4);
  assert_int_equal(sf_chart_value_colour(2, 2), SF_COLOUR_V8);
  assert_int_equal(sf_chart_value_colour(NAN, 2), -1);
  assert_int_equal(sf_chart_value_colour(INFINITY, 2), -1);
  assert_int_equal(sf_chart_value_colour(0, 0), SF_COLOUR_V4);
  assert_int_equal(sf_chart_size_colour(0, 2), SF_COLOUR_M0);
  assert_int_equal(sf_chart_size_colour(0.01, 2), SF_COLOUR_M1);
  assert_int_equal(sf_chart_size_colour(2, 2), SF_COLOUR_M5);
  assert_int_equal(sf_chart_size_colour(NAN, 2), -1);
}

static void test_charts_any_numbers_and_names_are_pictures(void **state) {
  static const double values[] = {0, 1, 1e-300, 1e300, 7};
  static const int64_t counts[] = {0, 3, INT64_MAX / 2};
  struct sf_chart_bar bars[HOSTILE_COUNT];
  struct sf_chart_point points[5];
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) bars[i] = (struct sf_chart_bar){hostile_texts[i], values[i % 5]};
  for (int i = 0; i < 5; i++) points[i] = (struct sf_chart_point){i * 10.0, i * 1e5};
  for (int32_t count = 0; count <= 5; count += 5) {
    struct sf_text text = {0}, curve_text = {0}, histogram_text = {0};
    sf_chart_bars(&text, "bars", bars, count > 0 ? HOSTILE_COUNT : 0);
    assert_picture(&text);
    const struct sf_chart_curve curve = {points, points, count, count, "x", "y", "mark"};
    sf_chart_curve(&curve_text, "curve", &curve);
    assert_picture(&curve_text);
    const struct sf_chart_histogram histogram = {counts, 3, -1, 0.5, 0, "limit", "axis"};
    sf_chart_histogram(&histogram_text, "histogram", &histogram);
    assert_picture(&histogram_text);
    sf_text_destroy(&text);
    sf_text_destroy(&curve_text);
    sf_text_destroy(&histogram_text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_contrast_of_black_and_white_is_21),
      cmocka_unit_test(test_colours_every_pair_of_text_can_be_read),
      cmocka_unit_test(test_colours_lightness_orders_scales),
      cmocka_unit_test(test_colours_rules_name_each_colour_twice),
      cmocka_unit_test(test_text_fit_any_text_is_not_wider),
      cmocka_unit_test(test_text_fit_keeps_both_ends),
      cmocka_unit_test(test_svg_text_any_text_adds_no_markup),
      cmocka_unit_test(test_cells_neighbours_of_a_colour_are_one_rectangle),
      cmocka_unit_test(test_chart_numbers_are_short),
      cmocka_unit_test(test_chart_classes_of_values_and_sizes),
      cmocka_unit_test(test_charts_any_numbers_and_names_are_pictures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
