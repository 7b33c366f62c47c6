/* Bytes as a case file. What is read must be valid, and what is written of it must be read back as the same case; whatever is refused gives
 * one line that names the file. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/spec/case.h"
#include "harness/spec/mesh.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct sf_case *c) {
  struct sf_case again;
  struct sf_error error;
  char *json = NULL, *json_again = NULL;
  if (sf_case_to_json(&json, c) != SF_OK) return;
  SF_ASSERT_EQ(sf_case_from_json(&again, json, strlen(json), "written", &error), SF_OK);
  SF_ASSERT_EQ(sf_case_to_json(&json_again, &again), SF_OK);
  SF_ASSERT(strcmp(json, json_again) == 0);
  SF_ASSERT_EQ(sf_case_logical_hash(c), sf_case_logical_hash(&again));
  sf_free(json);
  sf_free(json_again);
}

/* Whatever a valid case says must be safe to compute with. */
static void check_arithmetic(const struct sf_case *c) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  int64_t layers = 0;
  SF_ASSERT_EQ(mesh.world, sf_case_ranks(c));
  for (int64_t stage = 0; stage < c->layout.pp; stage++) {
    int64_t first, count;
    sf_case_stage_layers(c, stage, &first, &count);
    SF_ASSERT_EQ(first, layers);
    SF_ASSERT_LT(0, count);
    layers += count;
  }
  SF_ASSERT_EQ(layers, c->model.layers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  const enum sf_status status = sf_case_from_json(&c, (const char *)data, size, "input.json", &error);
  if (status == SF_OK) {
    SF_ASSERT_EQ(sf_case_validate(&c, &error), SF_OK);
    check_round_trip(&c);
    check_arithmetic(&c);
  } else {
    SF_ASSERT_EQ(status, SF_EINPUT);
    SF_ASSERT(strncmp(error.text, "input.json: ", 12) == 0);
    SF_ASSERT(strchr(error.text, '\n') == NULL);
  }
  return 0;
}
