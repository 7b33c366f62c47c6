/* The reference's value of every tensor of a logical case, and its noise levels. All layouts share them. */
#ifndef SF_ORACLES_EXPECT_H
#define SF_ORACLES_EXPECT_H

#include "oracles/reference/reference.h"

/* How many draws a noise level comes from: none yet, one of each kind (E3, E5), three, eight, 24; from the second round on E5 is drawn
 * twice. */
enum sf_level { SF_LEVEL_NONE, SF_LEVEL_FIRST, SF_LEVEL_SECOND, SF_LEVEL_FULL, SF_LEVEL_SURE, SF_LEVEL_COUNT };

struct sf_expected {
  struct sf_trace_id id;
  struct sf_trace_spec spec;
  enum sf_level level; /* reached so far */
  bool is_drawn;       /* by the draws in progress */
  bool exact;          /* must be equal: nothing in it is ever rounded (data.exact) */
  int32_t ordinal;     /* place in the reference's execution order */
  float *x;            /* shape.rows x shape.cols */
  double norm;         /* ||x||_F */
  double *row_norm;    /* ||x_r||, rows entries */
  /* Max over the draws of ||x_d - x||_F and of ||x_d,r - x_r||, by level; kept apart, because a judgement goes through the levels from the
   * first, whatever other layouts have raised since. A level that was not reached holds nothing of use; that of no draws is zero, which
   * leaves the floors. Draws are followed for the kinds judged by tolerance. */
  double noise[SF_LEVEL_COUNT], *row_noise[SF_LEVEL_COUNT];
  double rolled;    /* ||roll(x) - x||_F, rows (elements of a vector) rolled by one: below the alarm, comparing x proves nothing */
  float *row_floor; /* NULL, or an additional absolute floor per row (logits' gradient) */
  /* Of what the candidate made from parts (sf_expectations_set_parts): a level below which nothing can be judged. 0, NULL: none. */
  double parts_noise;
  const double *parts_row_noise;
  const float *part_sizes; /* NULL until sf_expectations_bound_parts: no part of the sums that make an element is larger than this */
};

struct sf_expectations;

/* Runs the plain reference. Borrows gemm, which must outlive the object, and copies the parts of the catalogue that it needs. SF_ENOMEM is
 * the only failure. */
enum sf_status sf_expectations_create(struct sf_expectations **out, const struct sf_catalog *catalog,
                                      const struct sf_gemm_table *gemm) SF_MUST_USE;
/* Runs each module of an end-to-end case on the inputs that the candidate's modules gave it: the reference in isolated mode, with the
 * candidate's tensors in place of consistent ones. like: the expectations of the case itself; given: the candidate's tensors. Both are
 * borrowed and must outlive the object. PARAM and PARAM_DELTA have neither values nor norms. SF_ENOMEM. */
enum sf_status sf_expectations_create_given(struct sf_expectations **out, const struct sf_expectations *like,
                                            const struct sf_given *given) SF_MUST_USE;
/* The same once more, of what is given now. Memory is kept; what was found in the object before is gone. After SF_ENOMEM it can only be
 * renewed again or destroyed. */
enum sf_status sf_expectations_renew(struct sf_expectations *expectations) SF_MUST_USE;
void sf_expectations_destroy(struct sf_expectations *expectations); /* takes NULL */
/* The candidate added this tensor up from parts: a row's level is at least row_noise[r], the tensor's at least the norm of these.
 * row_noise: shape.rows entries, borrowed; it must outlive the object. */
void sf_expectations_set_parts(struct sf_expectations *expectations, int32_t ordinal, const double *row_noise);
/* One tensor of another run of the reference, with the same given tensors: of a case that differs in a field, or with a supposed mistake.
 * x: of a case in isolated mode, or created with given tensors. logical: NULL for the case itself. supposed: NULL for none. out: room for
 * the tensor. *is_same_model: false, and nothing is run, where the other case has other modules, parameters or shapes. SF_ENOMEM. */
enum sf_status sf_expectations_suppose(float *out, bool *is_same_model, struct sf_expectations *x, const struct sf_case *logical,
                                       const struct sf_supposed *supposed, struct sf_trace_id id) SF_MUST_USE;
/* Emits these tensors of another run, in which fp32 numbers inside of modules are moved by half a unit of theirs or more; others may come
 * too. Of each draw (0, 1, ..) they are moved otherwise. x: as above. SF_ENOMEM. */
enum sf_status sf_expectations_move_inner(struct sf_expectations *x, uint64_t draw, const struct sf_wanted *wanted,
                                          const struct sf_reference_sink *sink) SF_MUST_USE;
/* Whether a kind is judged by tolerance; the others are exact or recomputed from the candidate's own tensors. */
bool sf_kind_has_noise(enum sf_kind kind);
/* Runs draws until some tensors have reached `level`; never lowers one. Each has the noise that it has when all are raised. ordinals: which
 * tensors, of kinds that have noise; NULL: all of those, whatever count is. Not end to end, where nothing is compared with the reference's
 * own run: there the levels are those of what the reference makes of given tensors. SF_ENOMEM: the noise of the levels reached stays valid.
 */
enum sf_status sf_expectations_raise(struct sf_expectations *expectations, enum sf_level level, const int32_t *ordinals,
                                     int32_t count) SF_MUST_USE;
/* Fills in part_sizes of every tensor that has a noise level, by one more run of the reference. Nothing is done if they are there.
 * SF_ENOMEM: they are not there. */
enum sf_status sf_expectations_bound_parts(struct sf_expectations *expectations) SF_MUST_USE;
/* Runs of the reference so far, the plain one included. */
int64_t sf_expectations_runs(const struct sf_expectations *expectations);
/* NULL when the reference has no such tensor. For RECOMPUTE and call 1 of ACT, ACT_GRAD ask with the id of the first pass. */
const struct sf_expected *sf_expectations_find(const struct sf_expectations *expectations, struct sf_trace_id id);
/* The tensors of the reference, by ordinal, in the order in which it computes them. */
int32_t sf_expectations_count(const struct sf_expectations *expectations);
const struct sf_expected *sf_expectations_at(const struct sf_expectations *expectations, int32_t ordinal);
/* First step in which a gradient's square may leave fp32's range, so that Adam's change depends on the order of its products. INT32_MAX:
 * none. */
int32_t sf_expectations_overflow_step(const struct sf_expectations *expectations);
const struct sf_catalog *sf_expectations_catalog(const struct sf_expectations *expectations); /* of the case; owned */
/* Of memory that they take. */
size_t sf_expectations_bytes(const struct sf_expectations *expectations);

#endif
