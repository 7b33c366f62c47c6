/* Inside the reference: what its float and double builds share, and a hook for the finite-difference test. */
#ifndef SF_ORACLES_REFERENCE_INTERNAL_H
#define SF_ORACLES_REFERENCE_INTERNAL_H

#include "oracles/reference/reference.h"

/* Moves the initial value (step 0) of one parameter: master += amount * direction. direction has the parameter's shape; borrowed. */
struct sf_reference_nudge {
  int32_t param;
  double amount;
  const double *direction;
};

/* sf_reference_run with a nudge, which may be NULL. */
enum sf_status sf_reference_run_nudged(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                       const struct sf_reference_sink *sink, const struct sf_reference_nudge *nudge) SF_MUST_USE;

/* The two builds of reference_impl.h; options->fp64 is not looked at. */
enum sf_status sf_reference_run_f32(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                    const struct sf_reference_sink *sink, const struct sf_reference_nudge *nudge) SF_MUST_USE;
enum sf_status sf_reference_run_f64(const struct sf_catalog *catalog, const struct sf_reference_options *options,
                                    const struct sf_reference_sink *sink, const struct sf_reference_nudge *nudge) SF_MUST_USE;

/* Stream of the perturbation of one stored tensor; part tells apart what belongs to one trace point (0 = the traced tensor). Odd as the
 * draw is. */
uint64_t sf_noise_key(uint64_t draw, struct sf_trace_id id, uint64_t part);

enum { SF_SPLIT_PARTS_MAX = 8 };
enum sf_large { SF_LARGE_FRONT, SF_LARGE_BACK, SF_LARGE_EITHER };
/* How a sum over some indices is taken: part p sums order[cut[p]] .. order[cut[p + 1] - 1]. No part is empty. */
struct sf_split {
  int32_t count;
  int64_t cut[SF_SPLIT_PARTS_MAX + 1];
  const int32_t *order; /* NULL: the indices as they stand */
  enum sf_large
      large;     /* whole and shuffled: where large terms go; to the front in three sums of eight, to the back in one, else to either end */
  bool in_order; /* products: term by term. A library's kernel keeps several sums of every other term or so, and loses less beside a large
                    one */
  uint64_t key;  /* shuffled: of further tosses */
};
struct sf_split sf_split_whole(int64_t size); /* one part */
/* E5: the indices in random order, a function of (draw, sequence number of the sum). Parts: 2, 4 or 8 equal ones, fewer when size is small.
 * order: room for `size` entries, borrowed by the result. Contiguous parts would need no copies but
 * are not equivalent: in fp32 they move a product by 0.68 to 0.96 times as much (mean over 60 draws; K 16 to 4096; five distributions),
 * since most of the order stays. */
struct sf_split sf_split_shuffled(int32_t *order, enum sf_summing sums, uint64_t draw, uint64_t number, int64_t size);

#endif
