/* Inside the diagnosis: the tensors of a case that explanations of another one refer to. */
#ifndef SF_ORACLES_DIAGNOSE_RELATED_H
#define SF_ORACLES_DIAGNOSE_RELATED_H

#include "oracles/diagnose/diagnose.h"
#include "oracles/judge/collector.h"

enum { SF_RELATED_MAX = 256 };

struct sf_related_list {
  const struct sf_collector *collector;
  const struct sf_collected_layout *of; /* the layout of the tensor's step */
  struct sf_arena *arena;
  enum sf_status status;
  int32_t count;
  struct sf_diagnosis_related at[SF_RELATED_MAX]; /* what does not fit is left out */
};

/* NULL marks the list as out of memory. */
void *sf_related_alloc(struct sf_related_list *list, size_t size_bytes);
/* Adds a tensor that a rank may hold in place of the right one; x lives as long as the list. */
void sf_related_add_stale(struct sf_related_list *list, struct sf_shape shape, const float *x, const char *name);
/* diagnose_adam.c: adds changes that a parameter would make with wrong steps, decay or moments. */
void sf_related_collect_adam(struct sf_related_list *list, const struct sf_slot *slot);
/* diagnose_scalars.c: parameters whose squares a gradient norm may leave out or count several times. */
struct sf_norm_group {
  char name[64];
  const char *clip_cause; /* of a clip factor that such a norm gives; NULL for those that are not coarse */
  double squares;         /* of the reference's gradients */
};
enum { SF_NORM_GROUPS_MAX = 128 };
/* Of a step. is_coarse: a few large groups alone, the first of which is all parameters; else each module and each parameter too. Returns
 * how many. */
int32_t sf_norm_groups(struct sf_norm_group out[SF_NORM_GROUPS_MAX], struct sf_related_list *list, int32_t step, bool is_coarse);
/* Adds what a scalar may be: for norms the groups as terms, other formulas of the clip factor, and loss scales beside the right one. */
void sf_related_collect_scalar(struct sf_related_list *list, const struct sf_expected *own);

/* diagnose_fp8.c: what factors may be, where a product of fp8 casts was multiplied with another tensor's scale. Lives as long as the list;
 * NULL: nothing. */
const struct sf_view_size *sf_amax_ratios(int32_t *count, struct sf_related_list *list, const struct sf_expected *own);
/* diagnose_reload.c: adds what the tensor would hold if a reload had lost master weights. */
void sf_related_collect_reload(struct sf_related_list *list, const struct sf_slot *slot);
/* A new entry, zeroed, with shape and name set; x is borrowed. NULL when the list is full or x is NULL. */
struct sf_diagnosis_related *sf_related_add(struct sf_related_list *list, enum sf_relation relation, struct sf_shape shape, const float *x,
                                            const char *name);
/* Everything related to the slot's tensor. */
void sf_related_collect(struct sf_related_list *list, const struct sf_slot *slot);

/* The reference's tensor of a step: gradients, changes, parameters, scalars; NULL when there is none. */
const struct sf_expected *sf_related_of_step(const struct sf_collector *collector, enum sf_kind kind, int32_t subject, int32_t step);

/* The values that modules read in place of a module's tensor, in the step and microbatch of `like`: in isolated mode the given ones, else
 * the reference's. NULL when there is no such tensor. */
const float *sf_related_value(struct sf_related_list *list, enum sf_kind kind, struct sf_trace_id like, enum sf_module_class cls,
                              int32_t layer);
/* The model's weight in a step; NULL for param -1. */
const float *sf_related_weight(struct sf_related_list *list, int32_t param, int32_t step);

/* A linear's product over one rank's slice of the contraction: rows x width of the tensor's shape. */
struct sf_slice_product {
  const float *left;   /* [rows x contraction] */
  const float *weight; /* [out x in] */
  int64_t contraction;
  bool transposed; /* the contraction runs over the weight's columns */
  enum sf_cut cut;
};
/* The product behind a linear's output (or input gradient) that is a sum over tp; false for other tensors. */
bool sf_related_product(struct sf_slice_product *p, struct sf_related_list *list, const struct sf_expected *own);
/* The summand of a tp rank, as it is stored. */
const float *sf_related_slice(struct sf_related_list *list, const struct sf_slice_product *p, const struct sf_expected *own,
                              int64_t tp_index);

/* diagnose_attention.c: adds, as explanation number `variant`, the gradient of core attention's input after a ring attention whose blocks
 * of keys each took their own softmax sum; of models without windows, sinks, latents, documents and padding. */
void sf_variant_ring_blocks(struct sf_related_list *list, const struct sf_expected *own, int32_t variant);

/* diagnose_supposed.c: adds what the tensor would be, had the case another value of a field, or had the module read other data, weights or
 * tensors. */
void sf_supposed_collect(struct sf_related_list *list, const struct sf_slot *slot);

/* diagnose_variants.c: adds what ranks would hold if they had made a known mistake. */
void sf_variants_collect(struct sf_related_list *list, const struct sf_slot *slot);

#endif
