/* `shardfuzz check` against `cmp` on the same bytes from the page cache, one thread each, taken in turns: a reference and a candidate of
 * --mib MiB each (the pair is twice that), tensors of 2048 x 4096. cmp reads the reference and a copy of it, since it stops where files
 * differ. The candidate is whole on one rank in fp32 and in bf16, and in fp32 with its columns on two ranks. Noise levels come from the
 * candidate itself as the only draw. */
#include "tests/bench/bench_common.h"

#include "harness/base/alloc.h"
#include "harness/base/pcg.h"
#include "harness/tensor/safetensors.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 2048, COLS = 4096, TENSORS_MAX = 4096, RUNS_MAX = 64 };

struct args {
  int64_t mib, repeat;
  const char *shardfuzz, *dir;
};

/* What one run of a program took. */
struct usage {
  double seconds, cpu_seconds, rss_mib;
};

static double clock_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct usage run(char *const *argv, int expected) {
  struct rusage usage;
  int status;
  const double begin = clock_seconds();
  const pid_t child = fork();
  if (child < 0) sf_bench_die("fork failed");
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    execvp(argv[0], argv);
    _exit(127);
  }
  if (wait4(child, &status, 0, &usage) < 0) sf_bench_die("wait failed");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) sf_bench_die("%s %s ended with %d", argv[0], argv[1], status);
  const double cpu =
      (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  return (struct usage){clock_seconds() - begin, cpu, (double)usage.ru_maxrss / 1024};
}

/* --- files --------------------------------------------------------------------------------------------------------- */

/* The header of a rank that holds columns [first, first + cols) of each tensor. */
static struct sf_bytes header_make(int64_t tensors, enum sf_dtype dtype, int rank, int ranks, int64_t *data_bytes) {
  struct sf_st_writer *writer = NULL;
  struct sf_text meta = {0};
  struct sf_bytes header = {0};
  struct sf_error error = {SF_OK, ""};
  const int64_t cols = COLS / ranks, dims[2] = {ROWS, cols};
  enum sf_status status = sf_st_writer_create(&writer);
  sf_text_append(&meta, "{\"format\": 1, \"rank\": %d, \"ranks\": %d, \"mode\": \"e2e\", \"tensors\": {", rank, ranks);
  for (int64_t i = 0; status == SF_OK && i < tensors; i++) {
    char name[64];
    snprintf(name, sizeof name, "s0/mb0/fwd/act/layers.%04lld/0", (long long)i);
    sf_text_append(&meta, "%s\"%s\": {\"shape\": [%d, %d], \"index\": [[[0, %d]], [[%lld, %lld]]]}", i > 0 ? ", " : "", name, ROWS, COLS,
                   ROWS, (long long)(rank * cols), (long long)cols);
    status = sf_st_writer_declare(writer, name, dtype, dims, 2);
  }
  sf_text_append(&meta, "}}");
  if (status == SF_OK) status = sf_st_writer_meta(writer, "shardfuzz", meta.data);
  if (status == SF_OK) status = sf_st_writer_header(writer, &header, data_bytes, "bench", &error);
  if (status != SF_OK) sf_bench_die("header: %s %s", sf_status_text(status), error.text);
  sf_text_destroy(&meta);
  sf_st_writer_destroy(writer);
  return header;
}

/* One row: values between -2 and 2; off: by one in 2^18 of themselves at most. The reference's row is the same with and without. */
static void fill_row(float *out, struct sf_pcg *pcg, bool off) {
  for (int c = 0; c < COLS; c += 2) {
    const uint64_t bits = sf_pcg_next(pcg);
    for (int k = 0; k < 2; k++) {
      const uint32_t half = (uint32_t)(bits >> (32 * k));
      const float value = (float)(int32_t)(half | 1u) * 0x1p-30f;
      out[c + k] = off ? value * (1 + (float)(half & 3u) * 0x1p-20f) : value;
    }
  }
}

static void write_all(int file, const void *data, size_t size_bytes) {
  for (size_t done = 0; done < size_bytes;) {
    const ssize_t put = write(file, (const char *)data + done, size_bytes - done);
    if (put <= 0) sf_bench_die("a file could not be written");
    done += (size_t)put;
  }
}

/* Writes a trace of `ranks` ranks, each with its columns. */
static void trace_write(const char *dir, const char *name, int64_t tensors, enum sf_dtype dtype, int ranks, bool off) {
  static float row[COLS];
  static uint16_t packed[COLS];
  for (int rank = 0; rank < ranks; rank++) {
    char path[512];
    int64_t data_bytes;
    struct sf_pcg pcg = sf_pcg_create(1, 2);
    struct sf_bytes header = header_make(tensors, dtype, rank, ranks, &data_bytes);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/rank-%05d.safetensors", dir, name, rank);
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), cols = COLS / ranks;
    if (file < 0) sf_bench_die("%s could not be made", path);
    write_all(file, header.data, header.size_bytes);
    for (int64_t r = 0; r < tensors * ROWS; r++) {
      fill_row(row, &pcg, off);
      if (dtype == SF_BF16) sf_round_array(row, COLS, SF_BF16), sf_pack(packed, row, COLS, SF_BF16);
      const char *values = dtype == SF_BF16 ? (const char *)packed : (const char *)row;
      const size_t width = sf_dtype_wire_bytes(dtype);
      write_all(file, values + (size_t)(rank * cols) * width, (size_t)cols * width);
    }
    close(file);
    sf_bytes_destroy(&header);
  }
}

static void remove_trace(const char *dir, const char *name) {
  char path[512];
  for (int rank = 0; rank < 2; rank++) {
    snprintf(path, sizeof path, "%s/%s/rank-%05d.safetensors", dir, name, rank);
    unlink(path);
  }
  snprintf(path, sizeof path, "%s/%s/noise.safetensors", dir, name);
  unlink(path);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  rmdir(path);
}

/* --- one layout ---------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, compare_doubles);
  return values[count / 2];
}

/* Figures of one kind of candidate as a member of json; returns the ratio of CPU times. */
static double measure(struct sf_json_out *json, const char *key, const struct args *args, const char *dir, enum sf_dtype dtype, int ranks) {
  static double check_s[RUNS_MAX], cmp_s[RUNS_MAX], check_cpu[RUNS_MAX], cmp_cpu[RUNS_MAX];
  char ref[400], cand[400], ref_file[450], copy_file[450];
  double rss = 0;
  const int64_t tensors = args->mib * (1 << 20) / (int64_t)sf_dtype_wire_bytes(dtype) / (ROWS * COLS);
  snprintf(ref, sizeof ref, "%s/ref", dir);
  snprintf(cand, sizeof cand, "%s/cand", dir);
  snprintf(ref_file, sizeof ref_file, "%s/ref/rank-00000.safetensors", dir);
  snprintf(copy_file, sizeof copy_file, "%s/copy/rank-00000.safetensors", dir);
  trace_write(dir, "ref", tensors, dtype, 1, false);
  trace_write(dir, "copy", tensors, dtype, 1, false);
  trace_write(dir, "cand", tensors, dtype, ranks, true);
  char *const noise[] = {(char *)args->shardfuzz, "noise", ref, cand, NULL}, *const check[] = {(char *)args->shardfuzz, "check", ref, cand,
                                                                                               NULL};
  char *const cmp[] = {"cmp", ref_file, copy_file, NULL};
  const struct usage of_noise = run(noise, 0);
  run(cmp, 0);
  for (int64_t i = 0; i < args->repeat; i++) {
    const struct usage a = run(cmp, 0), b = run(check, 0);
    cmp_s[i] = a.seconds, cmp_cpu[i] = a.cpu_seconds, check_s[i] = b.seconds, check_cpu[i] = b.cpu_seconds;
    rss = fmax(rss, b.rss_mib);
  }
  const double gib = 2 * (double)(tensors * ROWS * COLS) * (double)sf_dtype_wire_bytes(dtype) / (1 << 30);
  const double ratio = median(cmp_cpu, args->repeat) / median(check_cpu, args->repeat);
  sf_json_out_object(json, key);
  sf_json_out_real(json, "pair_gib", gib);
  sf_json_out_real(json, "check_gib_per_cpu_s", gib / median(check_cpu, args->repeat));
  sf_json_out_real(json, "cmp_gib_per_cpu_s", gib / median(cmp_cpu, args->repeat));
  sf_json_out_real(json, "ratio_cpu", ratio);
  sf_json_out_real(json, "check_gib_per_s", gib / median(check_s, args->repeat));
  sf_json_out_real(json, "cmp_gib_per_s", gib / median(cmp_s, args->repeat));
  sf_json_out_real(json, "ratio_wall", median(cmp_s, args->repeat) / median(check_s, args->repeat));
  sf_json_out_real(json, "peak_rss_mib", rss);
  sf_json_out_real(json, "noise_cpu_s", of_noise.cpu_seconds);
  sf_json_out_real(json, "noise_peak_rss_mib", of_noise.rss_mib);
  sf_json_out_end(json);
  remove_trace(dir, "ref");
  remove_trace(dir, "copy");
  remove_trace(dir, "cand");
  return ratio;
}

static const struct sf_option options[] = {
    SF_BENCH_NUMBER_AT(struct args, mib, 64, 65536, "Size of the reference, and of the candidate, in MiB."),
    SF_BENCH_NUMBER_AT(struct args, repeat, 1, RUNS_MAX, "Runs of each program, in turns; medians count."),
    {.name = "shardfuzz", .type = SF_OPTION_TEXT, .offset = offsetof(struct args, shardfuzz), .value = "FILE", .help = "The program."},
    {.name = "dir",
     .type = SF_OPTION_TEXT,
     .offset = offsetof(struct args, dir),
     .value = "DIR",
     .help = "Where files go: three times --mib."},
};
static const struct sf_command command = {.name = "bench_check",
                                          .help = "Speed of shardfuzz check against cmp.",
                                          .options = options,
                                          .option_count = sizeof options / sizeof options[0]};

int main(int argc, char **argv) {
  struct args args = {.mib = 2048, .repeat = 5, .shardfuzz = "shardfuzz", .dir = getenv("TMPDIR")};
  char dir[300];
  const int ended = sf_bench_begin(&command, &args, argc, argv);
  if (ended >= 0) return ended;
  snprintf(dir, sizeof dir, "%s/sf_bench_check_XXXXXX", args.dir ? args.dir : P_tmpdir);
  if (!mkdtemp(dir)) sf_bench_die("%s could not be made", dir);
  struct sf_json_out *json = sf_bench_report("bench_check", argc, argv);
  double least = measure(json, "fp32", &args, dir, SF_F32, 1);
  least = fmin(least, measure(json, "fp32_two_ranks", &args, dir, SF_F32, 2));
  least = fmin(least, measure(json, "bf16", &args, dir, SF_BF16, 1));
  sf_json_out_real(json, "ratio_cpu_least", least);
  rmdir(dir);
  return sf_bench_end(json, false);
}
