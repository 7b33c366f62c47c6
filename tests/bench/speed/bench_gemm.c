/* The CUDA device's gemm against cuBLASLt called alone, on the products of llama-2-7b at tensor-parallel size 8 and sequence 2048 and on
 * small ones. Device and library compute in turns; figures are medians of one product's time on the host's clock, from call to end, with
 * no copy between host and GPU for the library. The device's operands lie in its memory, each in a block of its own: as large as it is
 * ("device_us"; blocks of at most 32 MiB stay with the host), and so large that it moves to the GPU ("moved_us"). ratio: the library's
 * time over the device's, the share of the library's speed that is reached.
 *
 * Operands are small integers, so that no sum rounds: the results must agree but for the rounding to the format, which a library that
 * splits sums may do more than once. fp32's do not fit the narrow formats. Exits 3 if a product is wrong. */
#include "tests/bench/bench_common.h"
#include "tests/bench/speed/gemm_library.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 2048, HIDDEN = 4096, MOVES_FROM_BYTES = 40 << 20, ROUNDS_MAX = 1000 };
static const double large_from = 1 << 30; /* multiply-adds */
static const double roundings_max = 16;   /* of a split sum to the format, each half a unit of the largest number */

struct args {
  int64_t rounds, tokens;
};

static const struct linear {
  const char *name;
  int64_t in, out; /* of a rank */
} linears[] = {{"qkv", HIDDEN, 3 * HIDDEN / 8},
               {"proj", HIDDEN / 8, HIDDEN},
               {"fc1", HIDDEN, 2 * 11008 / 8},
               {"fc2", 11008 / 8, HIDDEN},
               {"head", HIDDEN, 32000 / 8}};
static const char *const passes[] = {"forward", "dgrad", "wgrad"};
static const int64_t squares[] = {64, 128, 256, 512};
enum {
  LINEARS = sizeof linears / sizeof *linears,
  PASSES = sizeof passes / sizeof *passes,
  SQUARES = sizeof squares / sizeof *squares,
  FORMATS = 3,
  PRODUCTS = LINEARS * PASSES + SQUARES
};

enum way { DEVICE, MOVED, WAYS };
static const char *const way_names[WAYS] = {"device", "moved"};

struct product {
  const char *name, *pass;
  struct sf_gemm gemm; /* a, b, c: on the host */
};

struct timing {
  double way_s[WAYS], library_s, library_event_s;
  double way_error[WAYS]; /* largest difference over half a unit of the largest number */
  int64_t differ[WAYS];
};

struct bench {
  struct args args;
  struct sf_device *dev;
  struct gemm_library *library;
  double *samples[WAYS + 2];
};

/* --- products ---------------------------------------------------------------------------------------------------------- */

static struct product product_of(int64_t index, int64_t tokens) {
  struct sf_gemm g = {.alpha = 1.0f};
  struct product p = {"square", "forward", g};
  if (index < LINEARS * PASSES) {
    const struct linear *l = &linears[index / PASSES];
    const int64_t pass = index % PASSES;
    p.name = l->name, p.pass = passes[pass];
    g.m = pass == 2 ? l->out : tokens, g.n = pass == 0 ? l->out : l->in, g.k = pass == 0 ? l->in : pass == 1 ? l->out : tokens;
    g.trans_a = pass == 2, g.trans_b = pass == 0;
  } else {
    g.m = g.n = g.k = squares[index - LINEARS * PASSES];
    g.trans_b = true;
  }
  g.lda = g.trans_a ? g.m : g.k, g.ldb = g.trans_b ? g.k : g.n, g.ldc = g.n;
  p.gemm = g;
  return p;
}

static float *floats(int64_t count) {
  float *memory = sf_alloc((size_t)count * sizeof *memory);
  if (!memory) sf_bench_die("out of memory");
  return memory;
}

/* Odd integers that need 8 bits or fewer, 9 to 11, or 12: the device looks for the narrowest format that holds the operands. fp16's are
 * scaled, so that sums fit it. */
static const struct numbers {
  enum sf_dtype format;
  int32_t offset, step;
  float scale;
} numbers[FORMATS] = {{SF_F32, 2049, 64, 1.0f}, {SF_BF16, 1, 2, 1.0f}, {SF_F16, 257, 64, 1.0f / 256.0f}};

static void fill(float *x, int64_t count, uint32_t state, const struct numbers *n) {
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    const int32_t size = n->offset + (int32_t)(state >> 16 & 3u) * n->step;
    x[i] = n->scale * (float)(state >> 31 ? -size : size);
  }
}

/* --- timing ------------------------------------------------------------------------------------------------------------ */

struct placed { /* in the device's memory */
  void *block[3];
  struct sf_gemm gemm;
};

static float *place(struct bench *b, void **block, const float *from, int64_t count, enum way way) {
  size_t size_bytes = (size_t)count * sizeof(float);
  if (way == MOVED && size_bytes < MOVES_FROM_BYTES) size_bytes = MOVES_FROM_BYTES;
  *block = b->dev->memory->alloc(b->dev->memory->context, size_bytes);
  if (!*block) sf_bench_die("out of memory: %zu bytes of the device's", size_bytes);
  if (from) memcpy(*block, from, (size_t)count * sizeof(float));
  return *block;
}

static void place_operands(struct bench *b, struct placed *out, const struct sf_gemm *g, enum way way) {
  out->gemm = *g;
  out->gemm.a = place(b, &out->block[0], g->a, g->m * g->k, way);
  out->gemm.b = place(b, &out->block[1], g->b, g->k * g->n, way);
  out->gemm.c = place(b, &out->block[2], NULL, g->m * g->n, way);
}

static void release(struct bench *b, struct placed *placed) {
  for (int i = 0; i < 3; i++) b->dev->memory->release(b->dev->memory->context, placed->block[i]);
}

static double device_seconds(struct bench *b, const struct placed *placed, enum sf_dtype format) {
  const double start = sf_engine_now();
  b->dev->ops->gemm(b->dev, &placed->gemm, format);
  return sf_engine_now() - start;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *samples, int64_t count) {
  qsort(samples, (size_t)count, sizeof *samples, ascending);
  return samples[count / 2];
}

static void compare(struct timing *t, enum way way, const float *got, const float *want, int64_t count, enum sf_dtype format) {
  double most = 0, apart = 0;
  for (int64_t i = 0; i < count; i++) {
    const double size = fabs((double)want[i]), distance = fabs((double)got[i] - (double)want[i]);
    if (size > most) most = size;
    if (!(distance <= apart)) apart = isnan(distance) ? INFINITY : distance;
    t->differ[way] += distance == 0 ? 0 : 1;
  }
  t->way_error[way] = apart == 0 ? 0 : apart / (most * sf_dtype_unit_roundoff(format));
}

/* Host operands in g; c holds the library's result afterwards. */
static struct timing measure(struct bench *b, const struct sf_gemm *g, enum sf_dtype format) {
  const int64_t rounds = b->args.rounds, warm = rounds / 4 + 3;
  struct placed placed[WAYS];
  struct timing t = {0};
  for (int way = 0; way < WAYS; way++) place_operands(b, &placed[way], g, (enum way)way);
  gemm_library_prepare(b->library, g, format);
  for (int64_t round = -warm; round < rounds; round++) {
    const int64_t at = round < 0 ? 0 : round;
    for (int way = 0; way < WAYS; way++) b->samples[way][at] = device_seconds(b, &placed[way], format);
    b->samples[WAYS][at] = gemm_library_run_wall(b->library);
    b->samples[WAYS + 1][at] = gemm_library_run_events(b->library);
  }
  gemm_library_fetch(b->library, g->c);
  for (int way = 0; way < WAYS; way++) {
    t.way_s[way] = median(b->samples[way], rounds);
    compare(&t, (enum way)way, placed[way].gemm.c, g->c, g->m * g->n, format);
    release(b, &placed[way]);
  }
  t.library_s = median(b->samples[WAYS], rounds);
  t.library_event_s = median(b->samples[WAYS + 1], rounds);
  return t;
}

/* --- report ------------------------------------------------------------------------------------------------------------ */

static bool wrong(const struct timing *t) {
  for (int way = 0; way < WAYS; way++)
    if (!(t->way_error[way] <= roundings_max)) return true;
  return false;
}

static double microseconds(double seconds) { return round(1e8 * seconds) / 100; }

static void timing_out(struct sf_json_out *json, const struct product *p, enum sf_dtype format, const struct timing *t) {
  const struct sf_gemm *g = &p->gemm;
  sf_json_out_object(json, NULL);
  sf_json_out_text(json, "name", p->name);
  sf_json_out_text(json, "pass", p->pass);
  sf_json_out_text(json, "format", sf_dtype_name(format));
  sf_json_out_int(json, "m", g->m);
  sf_json_out_int(json, "n", g->n);
  sf_json_out_int(json, "k", g->k);
  sf_json_out_real(json, "library_us", microseconds(t->library_s));
  sf_json_out_real(json, "library_event_us", microseconds(t->library_event_s));
  sf_json_out_real(json, "library_tflops", round(2e-10 * (double)g->m * (double)g->n * (double)g->k / t->library_event_s) / 100);
  for (int way = 0; way < WAYS; way++) {
    sf_json_out_object(json, way_names[way]);
    sf_json_out_real(json, "us", microseconds(t->way_s[way]));
    sf_json_out_real(json, "ratio", round(1e3 * t->library_s / t->way_s[way]) / 1e3);
    sf_json_out_int(json, "differ", t->differ[way]);
    sf_json_out_real(json, "roundings", t->way_error[way]);
    sf_json_out_end(json);
  }
  sf_json_out_end(json);
}

struct summary {
  int64_t count;
  double log_sum, least;
};

static void add(struct summary *s, double ratio) {
  if (s->count == 0 || ratio < s->least) s->least = ratio;
  s->count++;
  s->log_sum += log(ratio);
}

static void summaries_out(struct sf_json_out *json, struct summary summaries[FORMATS][WAYS]) {
  sf_json_out_object(json, "large");
  for (int f = 0; f < FORMATS; f++) {
    sf_json_out_object(json, sf_dtype_name(numbers[f].format));
    for (int way = 0; way < WAYS; way++) {
      const struct summary *s = &summaries[f][way];
      sf_json_out_object(json, way_names[way]);
      sf_json_out_real(json, "ratio_geometric_mean", s->count ? round(1e3 * exp(s->log_sum / (double)s->count)) / 1e3 : NAN);
      sf_json_out_real(json, "ratio_least", s->count ? round(1e3 * s->least) / 1e3 : NAN);
      sf_json_out_end(json);
    }
    sf_json_out_end(json);
  }
  sf_json_out_end(json);
}

/* One product in all formats. Returns how many were wrong. */
static int64_t run_product(struct bench *b, struct product *p, struct sf_json_out *json, struct summary summaries[FORMATS][WAYS]) {
  struct sf_gemm *g = &p->gemm;
  float *a = floats(g->m * g->k), *other = floats(g->k * g->n);
  int64_t wrongs = 0;
  g->c = floats(g->m * g->n), g->a = a, g->b = other;
  fill(other, g->k * g->n, 2, &numbers[1]);
  for (int f = 0; f < FORMATS; f++) {
    fill(a, g->m * g->k, 1, &numbers[f]);
    const struct timing t = measure(b, g, numbers[f].format);
    timing_out(json, p, numbers[f].format, &t);
    if ((double)g->m * (double)g->n * (double)g->k >= large_from)
      for (int way = 0; way < WAYS; way++) add(&summaries[f][way], t.library_s / t.way_s[way]);
    if (wrong(&t)) {
      fprintf(stderr, "bench_gemm: %s %s in %s: the device's product is not the library's\n", p->name, p->pass,
              sf_dtype_name(numbers[f].format));
      wrongs++;
    }
  }
  sf_free(a), sf_free(other), sf_free(g->c);
  return wrongs;
}

static const struct sf_option options[] = {
    SF_BENCH_NUMBER_AT(struct args, rounds, 1, ROUNDS_MAX, "Products timed of each kind."),
    SF_BENCH_NUMBER_AT(struct args, tokens, 1, 65536, "Tokens of a microbatch: rows of the large products."),
};
static const struct sf_command command = {.name = "bench_gemm",
                                          .help = "Speed of the CUDA device's matrix products against cuBLASLt called alone.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct bench b = {.args = {.rounds = 30, .tokens = TOKENS}};
  struct summary summaries[FORMATS][WAYS] = {0};
  struct sf_error error = {0};
  int64_t wrongs = 0;
  const int code = sf_bench_begin(&command, &b.args, argc, argv);
  if (code >= 0) return code;
  if (sf_cuda_device_create(&b.dev, &error) != SF_OK) sf_bench_die("--device cuda: %s", error.text);
  b.library = gemm_library_create();
  for (int i = 0; i < WAYS + 2; i++)
    if (!(b.samples[i] = sf_alloc(ROUNDS_MAX * sizeof *b.samples[i]))) sf_bench_die("out of memory");
  struct sf_json_out *json = sf_bench_report(command.name, argc, argv);
  sf_json_out_int(json, "cublaslt", gemm_library_version(b.library));
  sf_json_out_array(json, "products");
  for (int64_t i = 0; i < PRODUCTS; i++) {
    struct product p = product_of(i, b.args.tokens);
    wrongs += run_product(&b, &p, json, summaries);
  }
  sf_json_out_end(json);
  summaries_out(json, summaries);
  sf_json_out_int(json, "wrong", wrongs);
  for (int i = 0; i < WAYS + 2; i++) sf_free(b.samples[i]);
  gemm_library_destroy(b.library);
  sf_device_destroy(b.dev);
  return sf_bench_end(json, wrongs > 0);
}
