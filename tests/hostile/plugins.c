/* Plugins: declarations that are none, by what is wrong in them; libraries cut and changed. */
#include "tests/hostile/hostile.h"
#include "tests/hostile/program.h"
#include "tests/rounds.h"
#include "tests/unit/run/run_fixture.h"

#include "harness/run/opfuzz/op_target.h"
#include "harness/run/plugins/plugin_probe.h"
#include "targets/plugin/plugin_target.h"

#include <dlfcn.h>
#include <signal.h>

static const char *library; /* tests/hostile/plugin/declares.c */
static void (*declare)(const struct shardfuzz_plugin *plugin);

/* --- a sound declaration of each kind ----------------------------------------------------------------------------- */

static int run_operation(const struct shardfuzz_call *call) { return call == NULL; }
static int run_layer(const struct shardfuzz_layer_call *call) { return call == NULL; }
static int run_model(const struct shardfuzz_model_call *call) { return call == NULL; }

enum { F32 = SHARDFUZZ_BIT(SHARDFUZZ_F32), BF16 = SHARDFUZZ_BIT(SHARDFUZZ_BF16), F16 = SHARDFUZZ_BIT(SHARDFUZZ_F16) };

struct declaration {
  struct shardfuzz_plugin plugin;
  struct shardfuzz_attribute fixed[2];
  struct shardfuzz_limit limits[2];
  struct shardfuzz_range ranges[2];
  struct shardfuzz_operation operations[2];
  struct shardfuzz_layer layers[2];
  struct shardfuzz_model models[2];
};

static void declaration_make(struct declaration *d, uint32_t kind) {
  *d = (struct declaration){
      .plugin = {.abi = SHARDFUZZ_PLUGIN_ABI, .size_bytes = sizeof d->plugin, .kind = kind, .entry_count = 1, .name = "hostile"},
      .fixed = {{kind == SHARDFUZZ_KIND_LAYERS ? "model.activation" : "norm", 0, 0}},
      .limits = {{kind == SHARDFUZZ_KIND_LAYERS ? "layout.tp" : "cols", 64, 2}},
      .ranges = {{"layout.tp", 1, 2}, {"layout.cp", 1, 1}},
      .operations = {{.name = "norm_fwd",
                      .dtypes = F32 | BF16,
                      .forward = run_operation,
                      .fixed = d->fixed,
                      .limits = d->limits,
                      .fixed_count = 1,
                      .limit_count = 1},
                     {.name = "add", .dtypes = F32 | F16, .forward = run_operation}},
      .layers = {{.module = "mlp",
                  .dtypes = F32,
                  .forward = run_layer,
                  .backward = run_layer,
                  .fixed = d->fixed,
                  .limits = d->limits,
                  .fixed_count = 1,
                  .limit_count = 1},
                 {.module = "mlp.linear_fc2", .dtypes = F32, .forward = run_layer, .backward = run_layer}},
      .models = {{.name = "hostile", .dtypes = F32, .range_count = 2, .ranges = d->ranges, .run = run_model}}};
  d->plugin.entries = kind == SHARDFUZZ_KIND_OPERATIONS ? (const void *)d->operations
                      : kind == SHARDFUZZ_KIND_LAYERS   ? (const void *)d->layers
                                                        : d->models;
  d->plugin.entry_bytes = kind == SHARDFUZZ_KIND_OPERATIONS ? sizeof d->operations[0]
                          : kind == SHARDFUZZ_KIND_LAYERS   ? sizeof d->layers[0]
                                                            : sizeof d->models[0];
}

/* Operations are asked for in a process of their own, as in a campaign; layers and models in this one. */
static enum sf_status load(uint32_t kind, struct sf_error *error) {
  static struct sf_op_target operations;
  struct sf_plugin_target *target = NULL;
  struct sf_text name = {0};
  if (kind != SHARDFUZZ_KIND_OPERATIONS) {
    const enum sf_status status = sf_plugin_target_create(&target, library, error);
    sf_plugin_target_destroy(target);
    return status;
  }
  sf_text_append(&name, "plugin:%s", library);
  const enum sf_status status = sf_op_target_make(&operations, name.data, 1000, error);
  sf_text_destroy(&name);
  return status;
}

/* reason: NULL, or what the refusal has in it; the declaration may be a sound one without it. kind: the one that it was made as. */
static void try_declaration(const struct declaration *d, uint32_t kind, const char *reason) {
  struct sf_error error = {SF_OK, ""};
  declare(&d->plugin);
  const enum sf_status status = load(kind, &error);
  if (status == SF_OK && reason != NULL) fail_msg("kind %u is not refused: %s", kind, reason);
  if (status == SF_OK) return;
  law_refusal(status, &error, library);
  if (reason != NULL && strstr(error.text, reason) == NULL) fail_msg("'%s' has no '%s'", error.text, reason);
  hostile_try(HOSTILE_PLUGIN);
}

static void test_sound_declarations_are_taken(void **state) {
  (void)state;
  for (uint32_t kind = SHARDFUZZ_KIND_OPERATIONS; kind <= SHARDFUZZ_KIND_MODEL; kind++) {
    struct declaration d;
    struct sf_error error = {SF_OK, ""};
    declaration_make(&d, kind);
    declare(&d.plugin);
    if (load(kind, &error) != SF_OK) fail_msg("%s", error.text);
  }
}

/* --- what is wrong ------------------------------------------------------------------------------------------------ */

static void wrong_heads(uint32_t kind) {
  static const uint32_t numbers[] = {0, 1, 3, 7, 1u << 31, UINT32_MAX};
  static const int32_t counts[] = {-1, 0, 65, 1 << 20, INT32_MAX, INT32_MIN};
  struct declaration d;
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    declaration_make(&d, kind);
    d.plugin.abi = numbers[i];
    try_declaration(&d, kind, "made for plugin ABI");
    declaration_make(&d, kind);
    d.plugin.kind = i < 3 ? 4 + numbers[i] : numbers[i];
    try_declaration(&d, kind, "declares kind");
    declaration_make(&d, kind);
    d.plugin.entry_count = counts[i];
    try_declaration(&d, kind, "are taken");
  }
  for (uint32_t size = 0; size < 8; size++) {
    declaration_make(&d, kind);
    d.plugin.size_bytes = size * 5;
    try_declaration(&d, kind, "is shorter than");
    declaration_make(&d, kind);
    d.plugin.entry_bytes = size * 4;
    try_declaration(&d, kind, "is shorter than");
  }
  declaration_make(&d, kind);
  d.plugin.entries = NULL;
  try_declaration(&d, kind, "are taken");
  declare(NULL);
  struct sf_error error = {SF_OK, ""};
  law_refusal(load(kind, &error), &error, library);
  hostile_try(HOSTILE_PLUGIN);
}

static void test_declarations_with_wrong_heads_are_refused(void **state) {
  (void)state;
  for (uint32_t kind = SHARDFUZZ_KIND_OPERATIONS; kind <= SHARDFUZZ_KIND_MODEL; kind++) wrong_heads(kind);
}

static void test_operations_with_something_missing_are_refused(void **state) {
  static const int32_t counts[] = {-1, 17, INT32_MAX, INT32_MIN};
  struct declaration d;
  (void)state;
#define REFUSED(reason, ...)                                                                                                               \
  declaration_make(&d, SHARDFUZZ_KIND_OPERATIONS);                                                                                         \
  __VA_ARGS__;                                                                                                                             \
  try_declaration(&d, SHARDFUZZ_KIND_OPERATIONS, reason)
  REFUSED("lacks a name", d.operations[0].name = NULL);
  REFUSED("lacks a name", d.operations[0].name = "");
  REFUSED("operation 1 lacks a name", d.plugin.entry_count = 2, d.operations[1].name = NULL);
  REFUSED("lacks a function", d.operations[0].forward = NULL);
  REFUSED("lacks a format", d.operations[0].dtypes = 0);
  REFUSED("'conv3d'", d.operations[0].name = "conv3d");
  REFUSED("there is no dimension 'columns'", d.limits[0].dimension = "columns");
  REFUSED("there is no attribute 'eps'", d.fixed[0].name = "eps");
  REFUSED("has no value", d.fixed[0].integer = -1);
  REFUSED("has no value", d.fixed[0].integer = INT64_MAX);
  REFUSED("has no size within its limits", d.limits[0] = (struct shardfuzz_limit){"cols", 63, 64});
  REFUSED("numbers that are not negative", d.limits[0].max = -1);
  REFUSED("numbers that are not negative", d.limits[0].multiple = INT64_MIN);
  REFUSED("a limit's dimension", d.limits[0].dimension = NULL);
  REFUSED("a fixed attribute's name", d.fixed[0].name = NULL);
  REFUSED("the list of fixed attributes", d.operations[0].fixed = NULL);
  REFUSED("the list of limits", d.operations[0].limits = NULL);
  REFUSED("operation add is declared twice", d.plugin.entry_count = 2, d.operations[0] = d.operations[1]);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    REFUSED("the list of fixed attributes", d.operations[0].fixed_count = counts[i]);
    REFUSED("the list of limits", d.operations[0].limit_count = counts[i]);
  }
#undef REFUSED
}

static void test_layers_with_something_missing_are_refused(void **state) {
  static const int32_t counts[] = {-1, 17, INT32_MAX, INT32_MIN};
  struct declaration d;
  (void)state;
#define REFUSED(reason, ...)                                                                                                               \
  declaration_make(&d, SHARDFUZZ_KIND_LAYERS);                                                                                             \
  __VA_ARGS__;                                                                                                                             \
  try_declaration(&d, SHARDFUZZ_KIND_LAYERS, reason)
  REFUSED("lacks a name", d.layers[0].module = NULL);
  REFUSED("lacks a name", d.layers[0].module = "");
  REFUSED("lacks forward or backward", d.layers[0].forward = NULL);
  REFUSED("lacks forward or backward", d.layers[0].backward = NULL);
  REFUSED("lacks a format", d.layers[0].dtypes = 0);
  REFUSED("'mlp.conv3d' is no module", d.layers[0].module = "mlp.conv3d");
  REFUSED("a case has no number 'layout.width'", d.limits[0].dimension = "layout.width");
  REFUSED("a case has no number 'layout.width'", d.fixed[0].name = "layout.width");
  REFUSED("a case has no number 'target.name'", d.fixed[0].name = "target.name");
  REFUSED("mlp and mlp.linear_fc2 replace the same module", d.plugin.entry_count = 2);
  REFUSED("numbers that are not negative", d.limits[0].max = -1);
  REFUSED("numbers that are not negative", d.limits[0].multiple = INT64_MIN);
  REFUSED("a limit's dimension", d.limits[0].dimension = NULL);
  REFUSED("a fixed attribute's name", d.fixed[0].name = NULL);
  REFUSED("the list of fixed attributes", d.layers[0].fixed = NULL);
  REFUSED("the list of limits", d.layers[0].limits = NULL);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    REFUSED("the list of fixed attributes", d.layers[0].fixed_count = counts[i]);
    REFUSED("the list of limits", d.layers[0].limit_count = counts[i]);
  }
#undef REFUSED
}

static void test_models_with_something_missing_are_refused(void **state) {
  static const int32_t counts[] = {-1, 129, INT32_MAX, INT32_MIN};
  struct declaration d;
  (void)state;
#define REFUSED(reason, ...)                                                                                                               \
  declaration_make(&d, SHARDFUZZ_KIND_MODEL);                                                                                              \
  __VA_ARGS__;                                                                                                                             \
  try_declaration(&d, SHARDFUZZ_KIND_MODEL, reason)
  REFUSED("lacks a name", d.models[0].name = NULL);
  REFUSED("lacks a name", d.models[0].name = "");
  REFUSED("lacks its function", d.models[0].run = NULL);
  REFUSED("lacks a format", d.models[0].dtypes = 0);
  REFUSED("declares 2 models; 1 to 1 are taken", d.plugin.entry_count = 2);
  REFUSED("the list of ranges", d.models[0].ranges = NULL);
  REFUSED("a range its field", d.ranges[1].field = NULL);
  REFUSED("a case has no number 'layout.width'", d.ranges[0].field = "layout.width");
  REFUSED("layout.zero is not for models", d.ranges[0] = (struct shardfuzz_range){"layout.zero", 0, 1});
  REFUSED("layout.tp is never in 1..0", d.ranges[0].max = 0);
  REFUSED("is never in", d.ranges[0].min = INT64_MAX);
  REFUSED("is never in", d.ranges[0].max = INT64_MIN);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    REFUSED("the list of ranges", d.models[0].range_count = counts[i]);
  }
#undef REFUSED
}

static void test_declarations_with_any_text_as_a_name_are_refused_in_one_line(void **state) {
  (void)state;
  for (int i = 0; i < HOSTILE_COUNT; i++) {
    struct declaration d;
    const char *text = hostile_texts[i];
    if (i % (2 * SF_STRIDE) == 0) {
      declaration_make(&d, SHARDFUZZ_KIND_OPERATIONS);
      d.operations[0].name = text;
      try_declaration(&d, SHARDFUZZ_KIND_OPERATIONS, "");
      declaration_make(&d, SHARDFUZZ_KIND_OPERATIONS);
      d.limits[0].dimension = d.fixed[0].name = text;
      try_declaration(&d, SHARDFUZZ_KIND_OPERATIONS, "");
    }
    declaration_make(&d, SHARDFUZZ_KIND_LAYERS);
    d.layers[0].module = text;
    try_declaration(&d, SHARDFUZZ_KIND_LAYERS, "");
    declaration_make(&d, SHARDFUZZ_KIND_LAYERS);
    d.limits[0].dimension = text;
    try_declaration(&d, SHARDFUZZ_KIND_LAYERS, "");
    declaration_make(&d, SHARDFUZZ_KIND_LAYERS);
    d.fixed[0].name = text;
    try_declaration(&d, SHARDFUZZ_KIND_LAYERS, "");
    declaration_make(&d, SHARDFUZZ_KIND_MODEL);
    d.ranges[0].field = text;
    try_declaration(&d, SHARDFUZZ_KIND_MODEL, "");
    declaration_make(&d, SHARDFUZZ_KIND_MODEL);
    d.models[0].name = text;
    d.ranges[0].field = "none";
    try_declaration(&d, SHARDFUZZ_KIND_MODEL, "");
  }
}

/* --- libraries ---------------------------------------------------------------------------------------------------- */

/* The bytes as a library, asked in a process of its own. */
static void try_library(const char *folder, const unsigned char *bytes, size_t size_bytes, bool may_load) {
  char target[160], out[128];
  struct sf_error error = {SF_OK, ""};
  snprintf(target, sizeof target, "plugin:%s/library.so", folder);
  hostile_write(target + 7, bytes, size_bytes);
  const enum sf_status status = sf_plugin_probe_target(target, &error);
  if (status == SF_OK && !may_load) fail_msg("a library of %zu bytes was taken", size_bytes);
  if (status == SF_OK) return;
  law_refusal(status, &error, target + 7);
  if (!hostile_try(HOSTILE_PLUGIN)) return;
  snprintf(out, sizeof out, "%s/out", folder);
  program_refuses(folder, target + 7, (const char *const[]){"fuzz", "--cases", "1", "--out", out, "--target", target, NULL});
}

/* A whole one of this kind declares nothing outside of this process, and is refused too. */
static void test_libraries_cut_or_with_any_bit_of_their_head_changed_are_refused(void **state) {
  enum { CUTS = 40, HEAD_BYTES = 64, BIT_STEP = 5 * SF_STRIDE }; /* each costs a process or two */
  struct sf_bytes whole = {0};
  signal(SIGBUS, SIG_DFL); /* cmocka's handlers would go on with the test in the process that is asked */
  signal(SIGSEGV, SIG_DFL);
  assert_int_equal(sf_bytes_read_file(&whole, library, 1 << 24, NULL), SF_OK);
  for (size_t cut = 0; cut < CUTS; cut += SF_STRIDE) try_library(*state, whole.data, whole.size_bytes * cut * cut / (CUTS * CUTS), false);
  for (size_t bit = 0; bit < 8 * HEAD_BYTES; bit += BIT_STEP) {
    whole.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    try_library(*state, whole.data, whole.size_bytes, true);
    whole.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
  }
  sf_bytes_destroy(&whole);
}

static int setup(void **state) {
  library = getenv("HOSTILE_PLUGIN");
  void *handle = library != NULL ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *symbol = handle != NULL ? dlsym(handle, "hostile_declare") : NULL;
  memcpy(&declare, &symbol, sizeof declare);
  if (symbol == NULL) print_error("HOSTILE_PLUGIN does not name the library of tests/hostile/plugin\n");
  return symbol == NULL ? -1 : folder_create(state);
}

int hostile_run_plugins(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sound_declarations_are_taken),
      cmocka_unit_test(test_declarations_with_wrong_heads_are_refused),
      cmocka_unit_test(test_operations_with_something_missing_are_refused),
      cmocka_unit_test(test_layers_with_something_missing_are_refused),
      cmocka_unit_test(test_models_with_something_missing_are_refused),
      cmocka_unit_test(test_declarations_with_any_text_as_a_name_are_refused_in_one_line),
      cmocka_unit_test(test_libraries_cut_or_with_any_bit_of_their_head_changed_are_refused),
  };
  return cmocka_run_group_tests_name("hostile/plugins", tests, setup, folder_destroy);
}
