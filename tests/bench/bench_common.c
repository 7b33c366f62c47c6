#include "tests/bench/bench_common.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/trial/engine_internal.h"
#include "oracles/judge/collector.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- beginning and end ---------------------------------------------------------------------------------------- */

void sf_bench_die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("bench: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(3);
}

int sf_bench_begin(const struct sf_command *command, void *target, int argc, char **argv) {
  sf_gemm_pick_kernels(argv);
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* as much as glibc takes */
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  struct sf_error error = {SF_OK, ""};
  bool wants_help = false;
  if (sf_command_parse(command, target, &wants_help, argc - 1, argv + 1, &error) != SF_OK) {
    fprintf(stderr, "%s: %s\n", command->name, error.text);
    return 2;
  }
  if (!wants_help) return -1;
  struct sf_text help = {0};
  sf_command_help(&help, command);
  fputs(help.data ? help.data : "", stdout);
  sf_text_destroy(&help);
  return 0;
}

/* First line of what a command prints, or of a file's line that begins with `label` and a colon; "" when there is none. */
static void first_line(char *out, size_t out_size, FILE *from, const char *label) {
  char line[512];
  *out = '\0';
  while (from && fgets(line, sizeof line, from)) {
    if (label && strncmp(line, label, strlen(label)) != 0) continue;
    const char *value = label && strchr(line, ':') ? strchr(line, ':') + 2 : line;
    snprintf(out, out_size, "%.*s", (int)strcspn(value, "\n"), value);
    break;
  }
}

static void machine_out(struct sf_json_out *json) {
  char model[256], commit[64];
  double load[1] = {0};
  FILE *cpuinfo = fopen("/proc/cpuinfo", "r");
  first_line(model, sizeof model, cpuinfo, "model name");
  if (cpuinfo) fclose(cpuinfo);
  const char *known = getenv("SF_BENCH_COMMIT");
  FILE *git = known ? NULL : popen("git rev-parse --short HEAD 2>/dev/null", "r");
  first_line(commit, sizeof commit, git, NULL);
  if (known) snprintf(commit, sizeof commit, "%s", known);
  if (git) pclose(git);
  if (getloadavg(load, 1) != 1) load[0] = 0;
  sf_json_out_object(json, "machine");
  sf_json_out_text(json, "cpu", model);
  sf_json_out_int(json, "cores", sysconf(_SC_NPROCESSORS_ONLN));
  sf_json_out_real(json, "load", load[0]);
  sf_json_out_end(json);
  sf_json_out_text(json, "commit", *commit ? commit : NULL);
}

struct sf_json_out *sf_bench_report(const char *name, int argc, char **argv) {
  struct sf_json_out *json = sf_json_out_create();
  struct sf_text command = {0};
  sf_text_append(&command, "%s", name);
  for (int i = 1; i < argc; i++) sf_text_append(&command, " %s", argv[i]);
  sf_json_out_text(json, "bench", name);
  sf_json_out_text(json, "command", command.data);
  sf_text_destroy(&command);
  machine_out(json);
  return json;
}

int sf_bench_end(struct sf_json_out *json, bool failed) {
  struct sf_text line = {0};
  if (sf_json_out_finish(json, &line) != SF_OK) sf_bench_die("out of memory");
  puts(line.data);
  sf_text_destroy(&line);
  return failed ? 3 : 0;
}

double sf_bench_peak_rss_mib(void) {
  FILE *status = fopen("/proc/self/status", "r");
  char text[64];
  first_line(text, sizeof text, status, "VmHWM");
  if (status) fclose(status);
  return strtod(text, NULL) / 1024;
}

void sf_bench_reset_peak_rss(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (!file) return;
  fputs("5", file);
  fclose(file);
}

double sf_bench_cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* --- cases ---------------------------------------------------------------------------------------------------- */

void sf_bench_set(struct sf_campaign_options *draws, const char *assignment) {
  struct sf_error error = {SF_OK, ""};
  if (sf_space_set(&draws->space, assignment, &error) != SF_OK) sf_bench_die("%s: %s", assignment, error.text);
}

void sf_bench_draws(struct sf_campaign_options *out, uint64_t seed, int64_t layouts, const struct sf_texts *presets,
                    const struct sf_texts *sets) {
  struct sf_error error = {SF_OK, ""};
  memset(out, 0, sizeof *out);
  sf_space_init(&out->space);
  out->seed = seed;
  out->layouts = layouts;
  for (int32_t i = 0; presets && i < presets->count; i++)
    if (sf_space_preset(&out->space, presets->items[i], &error) != SF_OK) sf_bench_die("%s", error.text);
  for (int32_t i = 0; sets && i < sets->count; i++) sf_bench_set(out, sets->items[i]);
}

void sf_bench_case(struct sf_case *out, const struct sf_campaign_options *draws, int64_t index) {
  struct sf_error error = {SF_OK, ""};
  if (sf_campaign_case(out, draws, index, &error) != SF_OK) sf_bench_die("case %" PRId64 ": %s", index, error.text);
}

void sf_bench_case_out(struct sf_json_out *json, const char *key, const struct sf_case *c) {
  char *text = NULL;
  if (c && sf_case_to_json(&text, c) != SF_OK) sf_bench_die("out of memory");
  sf_json_out_text(json, key, text);
  sf_free(text);
}

const char *const sf_bench_condition_names[] = {"fp32_isolated", "fp32_e2e", "bf16_isolated", "bf16_e2e",
                                                "fp16_isolated", "fp16_e2e", "fp8_isolated",  "fp8_e2e"};
SF_ASSERT_ENTRIES(sf_bench_condition_names, SF_BENCH_CONDITIONS);

enum sf_bench_condition sf_bench_condition_of(const struct sf_case *c) {
  static const enum sf_bench_condition isolated[] = {SF_BENCH_FP32_ISOLATED, SF_BENCH_BF16_ISOLATED, SF_BENCH_FP16_ISOLATED,
                                                     SF_BENCH_FP8_ISOLATED};
  return isolated[c->precision.compute] + (c->mode == SF_MODE_E2E ? 1 : 0);
}

struct sf_engine *sf_bench_engine(bool measure, bool hash_trace) {
  return sf_bench_engine_on(SF_DEVICE_CPU, measure, hash_trace);
}

struct sf_engine *sf_bench_engine_on(enum sf_device_kind device, bool measure, bool hash_trace) {
  struct sf_engine *engine = NULL;
  const struct sf_engine_options options = {.device = device, .gemm = sf_cpu_gemm_default(), .measure = measure, .hash_trace = hash_trace};
  const enum sf_status status = sf_engine_create(&engine, &options);
  if (status != SF_OK) sf_bench_die("the device: %s", sf_status_text(status));
  return engine;
}

struct sf_expectations *sf_bench_compared_with(const struct sf_engine *engine) {
  return engine->collector->anchored != NULL ? engine->collector->anchored : engine->expectations;
}

/* --- worker processes ----------------------------------------------------------------------------------------- */

bool sf_bench_next(struct sf_bench_worker *worker, int64_t *first, int64_t *last) {
  *first = __atomic_fetch_add(worker->next, worker->chunk, __ATOMIC_RELAXED);
  *last = *first + worker->chunk < worker->count ? *first + worker->chunk : worker->count;
  return *first < worker->count;
}

static void *shared_memory(size_t size_bytes) {
  void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) sf_bench_die("out of memory");
  return memory;
}

static void wait_for(int64_t jobs, const volatile int64_t *next, int64_t count) {
  double shown = sf_engine_now();
  for (int64_t left = jobs; left > 0;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
      sf_bench_die("worker %d ended with wait status %d", (int)ended, status);
    if (ended > 0) left--;
    if (ended == 0) usleep(20000);
    if (sf_engine_now() - shown < 10) continue;
    shown = sf_engine_now();
    fprintf(stderr, "bench: %" PRId64 " of %" PRId64 " handed out\n", *next < count ? *next : count, count);
  }
}

void *sf_bench_fork(int64_t jobs, size_t result_bytes, int64_t count, int64_t chunk, void (*work)(struct sf_bench_worker *worker),
                    void *ctx) {
  unsigned char *results = shared_memory((size_t)jobs * result_bytes);
  volatile int64_t *next = shared_memory(sizeof *next);
  fflush(NULL);
  for (int64_t i = 0; i < jobs; i++) {
    const pid_t child = fork();
    if (child < 0) sf_bench_die("fork failed");
    if (child > 0) continue;
    struct sf_bench_worker worker = {ctx, results + (size_t)i * result_bytes, next, count, chunk};
    work(&worker);
    _exit(0);
  }
  wait_for(jobs, next, count);
  return results;
}

void sf_bench_fork_merge(void *total, int64_t jobs, size_t result_bytes, int64_t count, int64_t chunk,
                         void (*work)(struct sf_bench_worker *worker), void *ctx, void (*merge)(void *into, const void *from)) {
  const unsigned char *results = sf_bench_fork(jobs, result_bytes, count, chunk, work, ctx);
  for (int64_t job = 0; job < jobs; job++) merge(total, results + (size_t)job * result_bytes);
}

void sf_bench_add_counts(void *into, const void *from, size_t size_bytes) {
  int64_t *to = into;
  const int64_t *add = from;
  for (size_t i = 0; i < size_bytes / sizeof *to; i++) to[i] += add[i];
}

/* --- distributions -------------------------------------------------------------------------------------------- */

static int bin_of(double value) {
  const double place = (log2(value) + SF_BENCH_OCTAVES / 2) * SF_BENCH_BINS_PER_OCTAVE;
  return !(place >= 0) ? 0 : place >= SF_BENCH_BINS ? SF_BENCH_BINS - 1 : (int)place;
}

void sf_bench_count(struct sf_bench_histogram *histogram, double value, int64_t at) {
  const bool largest = histogram->count == 0 || !(value <= histogram->max); /* a NaN is the largest of all, and stays */
  histogram->bins[value != value ? SF_BENCH_BINS - 1 : bin_of(value)]++;
  histogram->count++;
  if (!largest || histogram->max != histogram->max) return;
  histogram->max = value;
  histogram->max_at = at;
}

void sf_bench_merge(struct sf_bench_histogram *into, const struct sf_bench_histogram *from) {
  if (from->count == 0) return;
  const bool larger = into->count == 0 || !(from->max <= into->max) || (from->max == into->max && from->max_at < into->max_at);
  if (larger) into->max = from->max, into->max_at = from->max_at;
  into->count += from->count;
  for (int i = 0; i < SF_BENCH_BINS; i++) into->bins[i] += from->bins[i];
}

double sf_bench_quantile(const struct sf_bench_histogram *histogram, double share) {
  int64_t below = 0;
  for (int i = 0; i < SF_BENCH_BINS && share < 1; i++) {
    below += histogram->bins[i];
    const double edge = exp2((i + 1) / (double)SF_BENCH_BINS_PER_OCTAVE - SF_BENCH_OCTAVES / 2);
    if ((double)below >= share * (double)histogram->count) return edge < histogram->max ? edge : histogram->max;
  }
  return histogram->max;
}

void sf_bench_histogram_out(struct sf_json_out *json, const char *key, const struct sf_bench_histogram *histogram) {
  sf_json_out_object(json, key);
  sf_json_out_int(json, "count", histogram->count);
  if (histogram->count > 0) {
    sf_json_out_real(json, "p50", sf_bench_quantile(histogram, 0.5));
    sf_json_out_real(json, "p99", sf_bench_quantile(histogram, 0.99));
    sf_json_out_real(json, "p999", sf_bench_quantile(histogram, 0.999));
    sf_json_out_real(json, "max", histogram->max);
  }
  sf_json_out_end(json);
}
