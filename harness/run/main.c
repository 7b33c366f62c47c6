#include "harness/base/nearest.h"
#include "harness/base/sinks.h"
#include "harness/device/device.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/support/version.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* What was printed must have arrived: a full disk or a closed pipe is a failure of ours. */
static int finish(int code) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  if (code == 3) return code;
  sf_print(stderr, "shardfuzz: standard output could not be written%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
  return 3;
}

static int end(int code) {
  sf_common_framework_end();
  return finish(code);
}

/* A limit on processor time that is soft and hard at once ends a process without a word: SIGXCPU, a second earlier, says which limit it
 * was. False: there is no second. */
static bool leaves_time_to_tell(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur != limit.rlim_max) return true;
  if (limit.rlim_cur < 2) return false;
  limit.rlim_cur--;
  return setrlimit(RLIMIT_CPU, &limit) == 0;
}

static void print_usage(FILE *to) {
  sf_print(to, "usage: shardfuzz COMMAND [OPTION...]   (shardfuzz COMMAND --help shows its options)\n\n");
  for (int32_t i = 0; i < sf_command_count; i++) sf_print(to, "  %-9s %s\n", sf_commands[i]->name, sf_commands[i]->summary);
  sf_print(to, "\n  help COMMAND, --version\n"
               "\nexit codes:\n");
  for (int32_t i = 0; i < sf_exit_code_count; i++) sf_print(to, "  %-9s %s\n", sf_exit_codes[i].code, sf_exit_codes[i].meaning);
}

static int refuse(const char *name) {
  struct sf_error error;
  struct sf_nearest nearest = sf_nearest_to(name);
  for (int32_t i = 0; i < sf_command_count; i++) sf_nearest_offer(&nearest, sf_commands[i]->name);
  const char *text = sf_nearest_text(&nearest);
  return sf_exit_failure(
      sf_error_set(&error, SF_EUSAGE, "there is no command '%.100s'%s", name, *text ? text : "; shardfuzz --help lists them"), &error);
}

/* A case on a stack that is too small would look like a crash of what it runs. */
static bool has_stack(void) {
  static const rlim_t WANTED = 8 << 20, NEEDED = 1 << 20;
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= NEEDED) return true;
  limit.rlim_cur = limit.rlim_max < WANTED ? limit.rlim_max : WANTED;
  return limit.rlim_cur >= NEEDED && setrlimit(RLIMIT_STACK, &limit) == 0;
}

static int run(const char *name, int argc, char **argv) {
  if (!has_stack()) {
    sf_print(stderr, "shardfuzz: too small a stack: it needs 1 MiB; raise ulimit -s\n");
    return 3;
  }
  if (!leaves_time_to_tell()) {
    sf_print(stderr, "shardfuzz: too little processor time: it needs 2 seconds; raise ulimit -t\n");
    return 3;
  }
  if (strcmp(name, sf_command_manual.name) == 0) return end(sf_command_main(&sf_command_manual, argc, argv));
  if (strcmp(name, "mpi-worker") == 0) return finish(sf_command_mpi_worker(argc, argv));
  for (int32_t i = 0; i < sf_command_count; i++)
    if (strcmp(name, sf_commands[i]->name) == 0) return end(sf_command_main(sf_commands[i], argc, argv));
  return refuse(name);
}

/* "help", "help COMMAND". */
static int help(int argc, char **argv) {
  static char option[] = "--help";
  char *wanted[] = {option};
  if (argc > 0) return run(argv[0], 1, wanted);
  print_usage(stdout);
  return finish(0);
}

static bool is_one_of(const char *word, const char *a, const char *b) { return strcmp(word, a) == 0 || strcmp(word, b) == 0; }

int main(int argc, char **argv) {
  sf_gemm_pick_kernels(argv);
  /* Trials come and go by megabytes: memory given back to the system would be faulted in again for each. */
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* as much as glibc takes */
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  /* A limit on the size of files is an error of the write, to be told like a full disk. */
  signal(SIGXFSZ, SIG_IGN);
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  if (strcmp(argv[1], "help") == 0) return help(argc - 2, argv + 2);
  if (is_one_of(argv[1], "--help", "-h")) return help(0, NULL);
  if (is_one_of(argv[1], "--version", "-V")) {
    sf_print_version(stdout);
    return finish(0);
  }
  return run(argv[1], argc - 2, argv + 2);
}
