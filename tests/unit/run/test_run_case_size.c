#include "tests/unit/run/run_fixture.h"

#include "harness/base/system/system_memory.h"
#include "harness/run/trial/case_size.h"
#include "harness/run/trial/engine.h"

#include <malloc.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LARGE                                                                                                                              \
  "model.hidden=256 model.heads=4 model.kv_heads=4 model.head_dim=64 model.ffn=1024 model.vocab=4000 model.vocab_padded=4000 model.seq=32 "

static struct sf_case_size size_of(const struct sf_case *c) {
  struct sf_catalog *catalog = NULL;
  assert_int_equal(sf_catalog_create(&catalog, c), SF_OK);
  const struct sf_case_size size = sf_case_size(catalog, c);
  sf_catalog_destroy(catalog);
  return size;
}

#ifndef SF_SANITIZE
static double peak_bytes(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return 1024 * (double)usage.ru_maxrss;
}

struct memory {
  double resident;   /* bytes */
  size_t live_bytes; /* that are allocated */
};

static struct memory run_times(struct sf_engine *engine, const struct sf_case *c, int count) {
  struct sf_outcome outcome;
  for (int i = 0; i < count; i++) {
    sf_engine_run(engine, c, NULL, &outcome);
    assert_int_equal(outcome.verdict, SF_VERDICT_PASS);
  }
  return (struct memory){1024 * sf_number_in_file("/proc/self/status", "VmRSS:"), mallinfo2().uordblks};
}

/* A large case between small ones: what it took goes back to the system before long, and nothing of all of them stays. */
static void test_engine_memory_is_flat_over_many_cases(void **state) {
  (void)state;
  enum { MANY = 4200 /* more than the engine runs until it gives memory back */, LEAK_BYTES_MAX = 8 /* a case */ };
  const struct sf_engine_options options = {.gemm = SF_CPU_GEMM_LOOPS};
  const struct sf_case small = case_make(CASE_TP2), large = case_make(LARGE "layout.dp=4 train.microbatches=4");
  struct sf_engine *engine = NULL;
  assert_int_equal(sf_engine_create(&engine, &options), SF_OK);
  run_times(engine, &large, 1); /* what is made once is there */
  const struct memory before = run_times(engine, &small, MANY), meanwhile = run_times(engine, &large, 1),
                      after = run_times(engine, &small, MANY);
  assert_true(meanwhile.resident > 2 * before.resident);
  if (after.resident > 1.02 * before.resident)
    fail_msg("%.2f MB after %d cases, %.2f MB after another %d", before.resident / 1e6, MANY, after.resident / 1e6, MANY);
  /* Small pieces that malloc keeps at hand count as allocated. */
  const size_t live_max = before.live_bytes + LEAK_BYTES_MAX * MANY;
  assert_in_range(after.live_bytes, 0, live_max);
  sf_engine_destroy(engine);
}

/* How much a process of its own grows while it runs the cases, each of which may take max_memory. */
static double measured(const struct sf_case *c, int count, double max_memory) {
  int fds[2];
  double grown = 0;
  assert_int_equal(pipe(fds), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default(), .max_memory = max_memory};
    struct sf_engine *engine = NULL;
    struct sf_outcome outcome;
    const double before = peak_bytes();
    if (sf_engine_create(&engine, &options) != SF_OK) _exit(1);
    for (int i = 0; i < count; i++) {
      sf_engine_run(engine, &c[i], NULL, &outcome);
      if (outcome.status != SF_OK || outcome.verdict == SF_VERDICT_SKIP) _exit(1);
    }
    grown = peak_bytes() - before;
    _exit(write(fds[1], &grown, sizeof grown) == (ssize_t)sizeof grown ? 0 : 1);
  }
  assert_true(pid > 0);
  assert_int_equal(read(fds[0], &grown, sizeof grown), (ssize_t)sizeof grown);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  close(fds[0]);
  close(fds[1]);
  return grown;
}

static void test_case_size_is_near_what_is_measured(void **state) {
  (void)state;
  static const char *const texts[] = {
      LARGE "layout.tp=2",
      LARGE "mode=e2e train.steps=2 layout.tp=2 layout.sp=true layout.dp=2 layout.zero=1 train.microbatches=4",
      LARGE "precision.compute=bf16 layout.cp=2 layout.pp=2 model.layers=2 train.microbatches=2",
      LARGE
      "precision.compute=bf16 train.steps=2 layout.tp=2 layout.dp=2 layout.zero=2 train.microbatches=2 reload.after_step=1 reload.tp=4",
      "model.hidden=128 model.heads=4 model.kv_heads=4 model.head_dim=32 model.ffn=256 model.vocab=64 model.vocab_padded=64 model.seq=512 "
      "layout.tp=2",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    const struct sf_case c = case_make(texts[i]);
    const double expected = sf_case_size_total(size_of(&c)), seen = measured(&c, 1, 0);
    if (expected < 0.7 * seen || expected > 1.3 * seen)
      fail_msg("%s: expected %.0f MB, measured %.0f MB", texts[i], expected / 1e6, seen / 1e6);
  }
}

static void test_engine_large_cases_of_many_sizes_take_no_more_than_the_largest(void **state) {
  (void)state;
  const struct sf_case cases[] = {case_make(LARGE "layout.dp=4 train.microbatches=4"),
                                  case_make(LARGE "layout.tp=4 layout.dp=4 train.microbatches=4")};
  const double largest = fmax(measured(&cases[0], 1, 0), measured(&cases[1], 1, 0)),
               seen = measured(cases, 2, 1.5 * sf_case_size_total(size_of(&cases[1])));
  if (seen > 1.1 * largest) fail_msg("the largest takes %.0f MB, both of them one after the other %.0f MB", largest / 1e6, seen / 1e6);
}
#endif

static void test_case_size_grows_with_what_is_kept(void **state) {
  (void)state;
  const struct sf_case one = case_make(LARGE), tp = case_make(LARGE "layout.tp=4"),
                       dp = case_make(LARGE "layout.dp=4 train.microbatches=4"),
                       zero = case_make(LARGE "layout.dp=4 layout.zero=1 train.microbatches=4"), steps = case_make(LARGE "train.steps=3"),
                       layers = case_make(LARGE "model.layers=3");
  assert_true(size_of(&tp).ranks < 1.2 * size_of(&one).ranks); /* tp cuts weights, */
  assert_true(size_of(&dp).ranks > 3 * size_of(&one).ranks);   /* dp copies them, */
  assert_true(size_of(&zero).ranks < 0.7 * size_of(&dp).ranks); /* and ZeRO cuts the optimizer */
  assert_true(size_of(&steps).trace > 2.5 * size_of(&one).trace);
  assert_true(size_of(&layers).reference > size_of(&one).reference);
}

static void test_engine_skips_what_is_too_large(void **state) {
  (void)state;
  const struct sf_case small = case_make(CASE_TP2), large = case_make(LARGE "layout.tp=2");
  const struct sf_engine_options options = {.gemm = sf_cpu_gemm_default(), .max_memory = 2 * sf_case_size_total(size_of(&small))};
  struct sf_engine *engine = NULL;
  struct sf_outcome outcome;
  assert_int_equal(sf_engine_create(&engine, &options), SF_OK);
  for (int round = 0; round < 2; round++) {
    sf_engine_run(engine, &large, NULL, &outcome);
    assert_int_equal(outcome.status, SF_OK);
    assert_int_equal(outcome.verdict, SF_VERDICT_SKIP);
    assert_non_null(strstr(outcome.text, "GiB of memory"));
    assert_int_equal(sf_engine_costs(engine)->references, round);
    sf_engine_run(engine, &small, NULL, &outcome);
    assert_int_equal(outcome.verdict, SF_VERDICT_PASS);
  }
  sf_engine_destroy(engine);
}

int main(void) {
#ifndef SF_SANITIZE
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* as the program does */
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  const struct CMUnitTest tests[] = {
#ifndef SF_SANITIZE
      cmocka_unit_test(test_case_size_is_near_what_is_measured),
      cmocka_unit_test(test_engine_memory_is_flat_over_many_cases),
      cmocka_unit_test(test_engine_large_cases_of_many_sizes_take_no_more_than_the_largest),
#endif
      cmocka_unit_test(test_case_size_grows_with_what_is_kept),
      cmocka_unit_test(test_engine_skips_what_is_too_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
