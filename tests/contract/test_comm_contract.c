/* The contract of a communicator on each backend: on the simulated world at many sizes and schedules; under mpirun, on MPI, or with the
 * argument "nccl" on NCCL. */
#include "harness/base/alloc.h"
#include "harness/comm/nccl.h"
#include "harness/comm/sim.h"
#include "tests/contract/comm_cases.h"
#include "tests/rounds.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

struct tally {
  int32_t passed, skipped, failed;
};

struct suite {
  struct sf_sim *sim;
  struct sf_mpi *mpi;
  bool nccl;
  struct tally tally;
};
static struct suite all;

static void rank_main(struct sf_comm *comm, void *arg) {
  struct case_rank *rank = arg;
  rank->body(comm, rank);
}

static void count_outcome(struct suite *suite, const struct comm_case *comm_case, int32_t variant, const char *where,
                          const struct sf_comm_report *report, int32_t errors, bool skipped, const char *text) {
  const enum sf_manner manner = comm_case->ends == SF_OK ? SF_MANNER_NONE : comm_case->manners[variant];
  if (report->status != comm_case->ends || report->manner != manner || (comm_case->ends == SF_OK && errors > 0)) {
    suite->tally.failed++;
    print_error("%s on %s: status '%s' in manner '%s' (expected '%s', '%s'), %d errors: %s %s\n", comm_case->name, where,
                sf_status_text(report->status), sf_manner_name(report->manner), sf_status_text(comm_case->ends), sf_manner_name(manner),
                errors, text, report->text);
  } else if (skipped) {
    suite->tally.skipped++;
  } else {
    suite->tally.passed++;
  }
}

/* --- the simulated world ---------------------------------------------------------------------------------------- */

static uint64_t run_once_on_sim(struct suite *suite, const struct comm_case *comm_case, int32_t variant, int32_t world, uint64_t schedule,
                                bool count) {
  struct case_rank ranks[CASE_WORLD_MAX];
  void *args[CASE_WORLD_MAX] = {NULL};
  struct sf_comm_progress progress = {.rank = -1};
  int32_t shared = 0, errors = 0;
  for (int32_t r = 0; r < world; r++) {
    ranks[r] = (struct case_rank){
        .body = comm_case->body, .variant = variant, .seed = schedule + 1, .shared = &shared, .group_order = schedule == 0};
    args[r] = &ranks[r];
  }
  struct sf_comm_report report;
  const struct sf_sim_options options = {.world = world, .schedule = schedule, .progress = &progress};
  assert_int_equal(sf_sim_run(suite->sim, &options, rank_main, args, &report), SF_OK);
  const char *text = "";
  uint64_t results = 0;
  for (int32_t r = 0; r < world; r++) {
    if (errors == 0 && ranks[r].errors > 0) text = ranks[r].text;
    errors += ranks[r].errors;
    results = sf_hash_u64(results, ranks[r].results);
  }
  char where[80];
  snprintf(where, sizeof where, "sim, variant %d, %d ranks, schedule %llu", variant, world, (unsigned long long)schedule);
  if (count) count_outcome(suite, comm_case, variant, where, &report, errors, ranks[0].skipped, text);
  return sf_hash_string(results, report.text);
}

static void run_on_sim(struct suite *suite, const struct comm_case *comm_case, int32_t world, uint64_t schedules) {
  if (world < comm_case->world_min) return;
  for (int32_t variant = 0; variant < comm_case->variants; variant++)
    for (uint64_t schedule = 0; schedule < schedules; schedule++) {
      const uint64_t first = run_once_on_sim(suite, comm_case, variant, world, schedule, true);
      const uint64_t second = run_once_on_sim(suite, comm_case, variant, world, schedule, false);
      if (first != second) {
        suite->tally.failed++;
        print_error("%s, %d ranks, schedule %llu: two runs differ\n", comm_case->name, world, (unsigned long long)schedule);
      }
    }
}

/* --- MPI -------------------------------------------------------------------------------------------------------- */

enum { ALONE_SECONDS = 5 };

static void on_alone(int number) {
  static const char text[] = "a rank failed alone, and the others still wait for it: the job is ended\n";
  (void)number;
  _exit(write(STDERR_FILENO, text, sizeof text - 1) >= 0
            ? 1
            : 2); /* a rank that ends without MPI_Finalize ends the job; MPI is in the middle of a call here */
}

/* What this rank has to say stands on stderr already. Others that do not meet it soon wait inside their run for what it will never do. */
static void give_others_time(bool failed) {
  signal(SIGALRM, on_alone);
  alarm(failed ? ALONE_SECONDS : 0);
}

/* The worst outcome of all ranks: everybody sends its own to rank 0, which tells everybody. */
static int32_t agree_on_worst(struct sf_mpi *mpi, int32_t mine) {
  int32_t worst = mine;
  if (sf_mpi_rank(mpi) != 0) {
    if (sf_mpi_send_bytes(mpi, 0, &mine, sizeof mine) != SF_OK) return -1;
  } else {
    for (int32_t r = 1; r < sf_mpi_world(mpi); r++) {
      void *data;
      size_t size_bytes;
      if (sf_mpi_recv_bytes(mpi, r, &data, &size_bytes) != SF_OK || size_bytes != sizeof mine) return -1;
      if (*(int32_t *)data > worst) worst = *(int32_t *)data;
      sf_free(data);
    }
  }
  void *told = &worst;
  size_t size_bytes = sizeof worst;
  if (sf_mpi_bcast_bytes(mpi, 0, &told, &size_bytes) != SF_OK) return -1;
  if (sf_mpi_rank(mpi) == 0) return worst;
  worst = *(int32_t *)told;
  sf_free(told);
  return worst;
}

static void run_on_mpi(struct suite *suite, const struct comm_case *comm_case, int32_t first, int32_t world) {
  if (world < comm_case->world_min) return;
  /* On NCCL nothing is half made after a mismatch of asynchronous calls either. */
  const int32_t variants = comm_case->variants_in_job != 0 && !suite->nccl ? comm_case->variants_in_job : comm_case->variants;
  for (int32_t variant = 0; variant < variants; variant++)
    for (uint64_t seed = 1; seed <= 3; seed++) {
      struct case_rank rank = {.body = comm_case->body, .variant = variant, .seed = seed};
      struct sf_comm_progress progress = {.rank = -1};
      struct sf_comm_report report;
      const enum sf_status status = sf_mpi_run(suite->mpi, first, world, &progress, rank_main, &rank, &report);
      char where[80];
      snprintf(where, sizeof where, "%s, variant %d, rank %d of %d", suite->nccl ? "nccl" : "mpi", variant, sf_mpi_rank(suite->mpi) - first,
               world);
      const int32_t failed = suite->tally.failed;
      if (status != SF_OK) report.status = status;
      count_outcome(suite, comm_case, variant, where, &report, rank.errors, rank.skipped, rank.text);
      give_others_time(suite->tally.failed > failed);
      const int32_t worst = agree_on_worst(suite->mpi, suite->tally.failed - failed);
      give_others_time(false);
      if (worst != 0) fail_msg("%s failed on some rank", comm_case->name);
    }
}

/* --- the tests -------------------------------------------------------------------------------------------------- */

static void run_cases(void **state, const struct comm_case *cases) {
  struct suite *suite = *state;
  suite->tally = (struct tally){0};
  for (const struct comm_case *comm_case = cases; comm_case->body != NULL; comm_case++) {
    if (suite->mpi != NULL) {
      const int32_t world = sf_mpi_world(suite->mpi), half = world / 2;
      run_on_mpi(suite, comm_case, 0, world);
      /* Two halves side by side. */
      if (half > 0 && world % 2 == 0) run_on_mpi(suite, comm_case, sf_mpi_rank(suite->mpi) < half ? 0 : half, half);
      continue;
    }
    for (int32_t world = 1; world <= 8; world++) run_on_sim(suite, comm_case, world, SF_ROUNDS(12));
    run_on_sim(suite, comm_case, CASE_WORLD_MAX, SF_ROUNDS(4));
  }
  print_message("%s: %d passed, %d skipped, %d failed\n",
                suite->nccl          ? "nccl"
                : suite->mpi != NULL ? "mpi"
                                     : "sim",
                suite->tally.passed, suite->tally.skipped, suite->tally.failed);
  assert_int_equal(suite->tally.failed, 0);
  assert_true(suite->tally.passed > 0);
}

static void test_collectives_any_backend_keep_contract(void **state) { run_cases(state, comm_collective_cases); }
static void test_messages_and_requests_any_backend_keep_contract(void **state) { run_cases(state, comm_async_cases); }
static void test_wrong_programs_any_backend_are_reported(void **state) { run_cases(state, comm_failure_cases); }

static int suite_create(void **state) {
  *state = &all;
  if (!sf_mpi_launched()) return sf_sim_create(&all.sim) == SF_OK ? 0 : -1;
  struct sf_error error;
  if (sf_mpi_create(&all.mpi, &error) != SF_OK) return -1;
  if (all.nccl && sf_mpi_use_nccl(all.mpi, &error) != SF_OK) {
    print_error("%s\n", error.text);
    return -1;
  }
  return sf_mpi_rank(all.mpi) == 0 || freopen("/dev/null", "w", stdout) != NULL ? 0 : -1;
}

static int suite_destroy(void **state) {
  (void)state;
  sf_sim_destroy(all.sim);
  sf_mpi_destroy(all.mpi);
  return 0;
}

int main(int argc, char **argv) {
  all.nccl = argc > 1 && strcmp(argv[1], "nccl") == 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_collectives_any_backend_keep_contract),
      cmocka_unit_test(test_messages_and_requests_any_backend_keep_contract),
      cmocka_unit_test(test_wrong_programs_any_backend_are_reported),
  };
  return cmocka_run_group_tests_name("communicator", tests, suite_create, suite_destroy);
}
