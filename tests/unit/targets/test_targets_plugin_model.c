#include "targets/plugin/plugin_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A place and its calls are labels, by which failures are told apart. */
static void test_plugin_model_place_long_names_that_differ_at_their_end_are_places_of_their_own(void **state) {
  static struct sf_plugin_model model;
  char name[2 * SF_PLUGIN_LABEL_TEXT];
  struct sf_plugin_place *places[2];
  (void)state;
  for (int i = 0; i < 2; i++) {
    memset(name, 'a', sizeof name);
    snprintf(name + sizeof name - 8, 8, "%d.fwd", i);
    places[i] = sf_plugin_model_place(&model, name);
    assert_ptr_equal(sf_plugin_model_place(&model, name), places[i]);
  }
  assert_int_equal(model.place_count, 2);
  for (int op = 0; op < SF_COMM_OP_COUNT; op++) {
    const char *call = strrchr(places[0]->calls[op], '.');
    assert_string_equal(call + 1, sf_comm_op_name((enum sf_comm_op)op));
    assert_string_not_equal(places[0]->calls[op], places[1]->calls[op]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plugin_model_place_long_names_that_differ_at_their_end_are_places_of_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
