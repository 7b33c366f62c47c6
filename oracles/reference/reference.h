/* The single-device reference: the arithmetic of harness/docs/model.md, written plainly and apart from the targets. */
#ifndef SF_ORACLES_REFERENCE_H
#define SF_ORACLES_REFERENCE_H

#include "harness/tensor/consistent.h"
#include "harness/tensor/product.h"

/* Matrix products, given by whoever runs the reference. */
struct sf_gemm_table {
  /* NULL, or asked before `multiply` and before a chain in order is computed in place: true if it has computed the product, else c is as it
   * was. */
  bool (*faster)(void *ctx, const struct sf_product *product);
  void *ctx;
  void (*multiply)(const struct sf_product *product); /* in_order is never set */
};

/* How a rerun differs from the plain run (harness/docs/tolerance.md): E3 perturbs every stored tensor before it is rounded and every fp32
 * number inside a module that may cancel (by at least half an ulp), E5 takes each sum in random order: products over K, weight gradients
 * over tokens. Products stored in bf16 are summed in 2, 4 or 8 parts, each rounded. Of sums in fp32 most stay whole, with their large terms
 * first, last or at both ends: beside a large term a chain of additions loses about sqrt(K / 12) ulp, which parts hide. SIZES is no rerun
 * but a bound: each product adds up the absolute values of its terms, and a given sum of parts is that of its parts' absolute values. No
 * part of a product, of which a layout may make a tensor of its own, is larger. */
enum sf_perturb { SF_PERTURB_NONE, SF_PERTURB_STORED, SF_PERTURB_SPLIT, SF_PERTURB_SIZES };

/* Tensors that the caller gives the modules. */
struct sf_given {
  /* What a finished tensor, or the weight of a later step (by the id of its PARAM), is overwritten with, borrowed during the call. NULL: it
   * stays as it was computed. A weight that is given next is not computed: its PARAM_DELTA is emitted as zeros. */
  const float *(*tensor)(void *ctx, struct sf_trace_id id);
  /* Of a given tensor that is a sum of parts of the case's storage format, each of which a rank goes on with by itself: the sums of their
   * elements' absolute values, borrowed during the call. Reruns move the sum by a rounding of these. NULL: it is no such sum. */
  const float *(*part_sizes)(void *ctx, struct sf_trace_id id);
  void *ctx;
};

struct sf_reference_options {
  bool fp64; /* all arithmetic in double and no rounding, whatever the case's precision; emits doubles */
  enum sf_perturb perturb;
  uint64_t draw; /* seed of the perturbation; odd: equal numbers of a tensor are perturbed alike */
  const struct sf_gemm_table *gemm;
  struct sf_arena *arena;       /* empty, for the run's tensors; NULL: of the run's own, which costs fresh pages */
  const struct sf_given *given; /* NULL, or in isolated mode: what takes the place of consistent tensors */
};

/* Receives every tensor of the run in execution order (the order defines "first"): whole logical matrix, floats, or doubles with fp64.
 * In isolated mode what is emitted is what the module computed, before it is overwritten. Borrowed during the call. */
struct sf_reference_sink {
  void *ctx;
  void (*emit)(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape);
};

/* Runs all steps of the catalogue's case. Emits PARAM (every step and after the last), ACT, ACT_GRAD, WGRAD, MAIN_GRAD, PARAM_DELTA and
 * SCALARs with pass FWD, BWD or STEP and the calls of harness/docs/model.md except call 1 of ACT and ACT_GRAD. SF_ENOMEM is the only
 * failure. */
enum sf_status sf_reference_run(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                const struct sf_reference_sink *sink) SF_MUST_USE;

#endif
