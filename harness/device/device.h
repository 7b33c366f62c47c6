/* The device: the operations that layers are made of. One table per device; `cpu` in three variants of GEMM, and `cuda`.
 *
 * All matrices are row-major floats with a leading dimension (elements from one row to the next); "storing" rounds to the given format.
 * Internal arithmetic is fp32; sums over a row and exponentials are fp32 with the stated error. No operation allocates or fails; a GPU that
 * fails ends the process with one line. Accumulating operations say "+=". NaN and infinity propagate as IEEE arithmetic has it unless said
 * otherwise; empty matrices are allowed. */
#ifndef SF_DEVICE_DEVICE_H
#define SF_DEVICE_DEVICE_H

#include "harness/base/alloc.h"
#include "harness/base/status.h"
#include "harness/spec/case.h"
#include "harness/tensor/product.h"

struct sf_device_ops;
struct sf_device {
  const struct sf_device_ops *ops;
  void *impl;
  const struct sf_memory *memory; /* where operands are best put: the device reads them there without copying. NULL: anywhere */
  /* NULL, or a product of matrices anywhere on the host, for whoever computes beside the device's tensors: fp32 without reduced formats,
   * sums in fp32, or fp64; error as of a sum in some order. It has ended when the call returns. false: the device has no room or no way,
   * and c is as it was. */
  bool (*product)(struct sf_device *dev, const struct sf_product *product);
  void (*destroy)(struct sf_device *dev);
  size_t memory_bytes_max; /* of a device with memory of its own: most that it gives; what was free when it was made. Whoever shares it with
                              others lowers this */
};

struct sf_gemm {
  bool trans_a, trans_b;
  int64_t m, n, k;
  const float *a; int64_t lda; /* m x k, or k x m when trans_a */
  const float *b; int64_t ldb; /* k x n, or n x k when trans_b */
  float *c; int64_t ldc;       /* m x n */
  float alpha;
  bool accumulate;             /* c += alpha a b, else c = alpha a b */
};

/* An attention sink of one head: a logit that takes probability and no value. */
struct sf_sink {
  float logit;  /* forward only */
  float *probs; /* [n]; written forward, read backward */
  float *grad;  /* backward only; fp32 */
};

/* A block of scores: row i sees columns visible + i - window (with window 0: 0) to visible + i - 1, as far as the block has them, and with
 * `begins` none before begins[i] - column. */
struct sf_block {
  int64_t rows, cols, visible, window;
  const int32_t *begins; /* [rows], or NULL */
  int64_t column;
};

struct sf_adam {
  float lr;
  double beta1, beta2;         /* doubles, so that 1 - beta is right to fp32: 1.0f - 0.999f is off by 1.3e-5 */
  float epsilon, weight_decay; /* weight_decay 0 for vectors */
  float bias1, bias2;          /* 1 - beta^step */
  float grad_scale;            /* clip factor */
};

struct sf_device_ops {
  const char *name; /* "cpu-xsmm", "cpu-blas", "cpu-loops", "cuda" */

  /* c = round(alpha op(a) op(b) [+ c]) to `store`, fp32 accumulation. */
  void (*gemm)(struct sf_device *dev, const struct sf_gemm *g, enum sf_dtype store);

  /* y = round(x + bias[col]). In place allowed. */
  void (*bias_add)(struct sf_device *dev, float *y, const float *x, const float *bias, int64_t rows, int64_t cols, enum sf_dtype store);
  /* out[col] += sum over rows of x[row, col] */
  void (*col_sum)(struct sf_device *dev, float *out, const float *x, int64_t rows, int64_t cols);
  /* out = round(a + b); in place allowed */
  void (*add)(struct sf_device *dev, float *out, const float *a, const float *b, int64_t count, enum sf_dtype store);
  /* Dropout: kept[i] is 1 or 0. drop: y = round(factor x) where kept, else 0. drop_add: out = round(x + factor branch) where kept, else
   * round(x); the product is fp32. In place allowed. */
  void (*drop)(struct sf_device *dev, float *y, const float *x, const float *kept, float factor, int64_t count, enum sf_dtype store);
  void (*drop_add)(struct sf_device *dev, float *out, const float *x, const float *branch, const float *kept, float factor, int64_t count,
                   enum sf_dtype store);
  /* out += factor * x (fp32) */
  void (*axpy)(struct sf_device *dev, float *out, const float *x, float factor, int64_t count);
  void (*scale)(struct sf_device *dev, float *x, float factor, int64_t count);
  void (*round)(struct sf_device *dev, float *out, const float *x, int64_t count, enum sf_dtype store);
  /* fp8: largest absolute value (NaN when there is one, 0 of no elements); out = round(scale x) to E4M3 or E5M2, the product in fp32, with
   * saturation. In place allowed. */
  float (*amax)(struct sf_device *dev, const float *x, int64_t count);
  void (*cast_f8)(struct sf_device *dev, float *out, const float *x, float scale, int64_t count, enum sf_dtype format);
  double (*sum_squares)(struct sf_device *dev, const float *x, int64_t count);

  /* Norms over rows of `cols`. LayerNorm: y = round((x - mean) * rstd * w + b), eps 1e-5; RMSNorm: y = round(x * rstd * w), rstd =
   * 1/sqrt(mean(x^2) + 1e-5). stats: 2 floats per row (mean, rstd), written by fwd, read by bwd. bwd: dx = round(...); dw += , db += fp32
   * (NULL = not wanted). */
  void (*norm_fwd)(struct sf_device *dev, float *y, float *stats, const float *x, const float *w, const float *b, int64_t rows,
                   int64_t cols, enum sf_norm norm, enum sf_dtype store);
  void (*norm_bwd)(struct sf_device *dev, float *dx, float *dw, float *db, const float *dy, const float *x, const float *stats,
                   const float *w, int64_t rows, int64_t cols, enum sf_norm norm, enum sf_dtype store);

  /* One attention head: s (n x n scores, fp32, row i sees columns 0..i, or with a window the last `window` of them) -> p = round(softmax of
   * the row); other entries become 0. In place allowed. sink->logit joins each row's softmax as one more score; sink->probs[i] becomes its
   * probability (fp32, not rounded). sink NULL: none. */
  void (*causal_softmax_fwd)(struct sf_device *dev, float *p, const float *s, int64_t n, int64_t window, const struct sf_sink *sink,
                             enum sf_dtype store);
  /* ds = round(p * (dp - sum_j p dp)); in place on dp allowed. *sink->grad += -sum_i sink->probs[i] sum_j p dp. */
  void (*causal_softmax_bwd)(struct sf_device *dev, float *ds, const float *dp, const float *p, int64_t n, int64_t window,
                             const struct sf_sink *sink, enum sf_dtype store);

  /* The same softmax for keys that come in blocks. stats: max and sum of exp(s - max) over all blocks so far, -inf and 0 before the first,
   * or with a sink its logit and 1; fp32, merged as sum exp(max - new max) + the block's sum. probs: p = round(exp(s - max) / sum) in
   * place, masked entries become 0. sink: sink->probs[i] = exp(logit - max) / sum, fp32. */
  void (*block_softmax_stats)(struct sf_device *dev, float *max, float *sum, const float *s, int64_t lds, const struct sf_block *block);
  void (*block_softmax_probs)(struct sf_device *dev, float *p, int64_t ldp, const float *max, const float *sum,
                              const struct sf_block *block, enum sf_dtype store);
  void (*block_softmax_sink)(struct sf_device *dev, const struct sf_sink *sink, const float *max, const float *sum, int64_t rows);
  /* Backward of whole rows (block->cols wide, dense): ds = round(p * (ds - sum_j p ds)) over what row i sees, 0 elsewhere; sink as in
   * causal_softmax_bwd. */
  void (*block_softmax_bwd)(struct sf_device *dev, float *ds, const float *p, const struct sf_block *block, const struct sf_sink *sink,
                            enum sf_dtype store);

  /* Rotates one head's columns (width head_dim, rotate-half pairing i with i + head_dim/2, angle position * 10000^(-2i/head_dim)) of `rows`
   * rows; position of row r = position_first + r / rows_per_position. inverse: the transposed rotation (backward). cos_sin: table
   * [positions][head_dim] = cos half, sin half. */
  void (*rotate)(struct sf_device *dev, float *y, int64_t ldy, const float *x, int64_t ldx, const float *cos_sin, int64_t rows,
                 int64_t rows_per_position, int64_t position_first, int64_t head_dim, bool inverse, enum sf_dtype store);

  /* By activation (SF_ACTIVATION_MAP): y [rows x cols] = round(f(x)), x [rows x parts*cols], of a gated one [gate | up]; bwd: dx as x =
   * round(dy f'(x)). GELU in erf form: f = x Phi(x). SwiGLU: f = silu(gate) up. Squared ReLU: f = max(x, 0)^2. */
  void (*activation_fwd[SF_ACT_COUNT])(struct sf_device *dev, float *y, const float *x, int64_t rows, int64_t cols, enum sf_dtype store);
  void (*activation_bwd[SF_ACT_COUNT])(struct sf_device *dev, float *dx, const float *dy, const float *x, int64_t rows, int64_t cols,
                                       enum sf_dtype store);

  /* y[row] = w[ids[row] - first] where first <= ids[row] < first + vocab, else zeros. bwd: dw[ids - first] += dy. */
  void (*embedding_fwd)(struct sf_device *dev, float *y, const float *w, const int32_t *ids, int64_t rows, int64_t cols, int64_t first,
                        int64_t vocab);
  void (*embedding_bwd)(struct sf_device *dev, float *dw, const float *dy, const int32_t *ids, int64_t rows, int64_t cols, int64_t first,
                        int64_t vocab);

  /* Cross-entropy pieces on a vocabulary shard [first, first + cols) of the logits: row maxima; sum of exp(x - max) and the target's logit
   minus max
   * (0 when it lies elsewhere); sum of x - max; probabilities' gradient d = round((exp(x - max) / sum - other_share - [col is target]
   label_share) * weight), label_share 1 and other_share 0 without label smoothing. */
  void (*ce_row_max)(struct sf_device *dev, float *max, const float *logits, int64_t rows, int64_t cols);
  void (*ce_sum_exp)(struct sf_device *dev, float *sum, float *target, const float *logits, const float *max, const int32_t *labels,
                     int64_t rows, int64_t cols, int64_t first);
  void (*ce_sum_shifted)(struct sf_device *dev, float *shifted, const float *logits, const float *max, int64_t rows, int64_t cols);
  void (*ce_grad)(struct sf_device *dev, float *dlogits, const float *logits, const float *max, const float *sum, const int32_t *labels,
                  const float *weight, int64_t rows, int64_t cols, int64_t first, float label_share, float other_share,
                  enum sf_dtype store);

  /* One Adam step (fp32): g = grad_scale * grad; m, v updated; update = lr * (m/bias1 / (sqrt(v/bias2) + eps) + weight_decay * master);
   * new master = old - update; delta = new - old. */
  void (*adam)(struct sf_device *dev, float *master, float *m, float *v, float *delta, const float *grad, int64_t count,
               const struct sf_adam *options);
  /* new w = next rounded stochastically to bf16 (sf_bf16_round_stochastic, one draw of 16 bits per element); delta = new - old w (fp32). w
   * and next are apart. */
  void (*round_stochastic)(struct sf_device *dev, float *w, float *delta, const float *next, const uint16_t *random, int64_t count);
};

enum sf_cpu_gemm { SF_CPU_GEMM_XSMM, SF_CPU_GEMM_BLAS, SF_CPU_GEMM_LOOPS };
/* One thread. XSMM leaves rare and large shapes to the loops and agrees with them in every bit (NaN payloads apart). SF_ENOTSUP when the
 * build lacks the library. */
enum sf_status sf_cpu_device_create(struct sf_device **out, enum sf_cpu_gemm gemm) SF_MUST_USE;
enum sf_cpu_gemm sf_cpu_gemm_default(void); /* the fastest in the build; loops under sanitizers */
/* For the start of main. OpenBLAS has kernels for each processor, and the plainest for one that is newer than it is. The order of a
 * reference's sums, and so its noise levels, should not hang on that: where the processor has AVX2 and nobody chose (OPENBLAS_CORETYPE),
 * the program begins again with the kernels for that (Haswell, which Zen's are too), with which the levels were measured. */
void sf_gemm_pick_kernels(char **argv);

/* GEMM by cuBLASLt, kernels for the rest (cuda/). Same bits on each run. Each operation has ended when its call returns, so that the host
 * may look at any tensor at any time. Operands outside of dev->memory are copied to it and back. The process may not fork afterwards and
 * use the device in the child. SF_ENODEVICE: no GPU that will do, no library, or a build without CUDA; the error says which. */
enum sf_status sf_cuda_device_create(struct sf_device **out, struct sf_error *error) SF_MUST_USE;

enum sf_device_kind { SF_DEVICE_CPU, SF_DEVICE_CUDA, SF_DEVICE_COUNT };
/* gemm: of the CPU. SF_ENOMEM, SF_ENOTSUP, SF_ENODEVICE. */
enum sf_status sf_device_create(struct sf_device **out, enum sf_device_kind kind, enum sf_cpu_gemm gemm,
                                struct sf_error *error) SF_MUST_USE;
/* Whether the device could be created. A process of its own finds out, because one that has used a GPU could not fork workers that do.
 * *memory_bytes, where it is not NULL: the device's memory_bytes_max, 0 for the CPU. */
enum sf_status sf_device_probe(size_t *memory_bytes, enum sf_device_kind kind, enum sf_cpu_gemm gemm, struct sf_error *error) SF_MUST_USE;
void sf_device_destroy(struct sf_device *dev); /* takes NULL */

/* cos_sin table for rotate: positions x head_dim floats, computed in double and rounded to fp32. */
void sf_rotary_table(float *cos_sin, int64_t positions, int64_t head_dim);

#endif
