/* Inside the diagnosis: the tensors of a case that explanations of another one refer to. */
#ifndef SF_ORACLES_DIAGNOSE_RELATED_H
#define SF_ORACLES_DIAGNOSE_RELATED_H

#include "oracles/collector.h"
#include "oracles/diagnose.h"

enum { SF_RELATED_MAX = 256 };

struct sf_related_list {
  const struct sf_collector *collector;
  struct sf_arena *arena;
  enum sf_status status;
  int32_t count;
  struct sf_diagnosis_related at[SF_RELATED_MAX]; /* what does not fit is left out */
};

/* NULL marks the list as out of memory. */
void *sf_related_alloc(struct sf_related_list *list, size_t size_bytes);
/* Something that may stand in place of the right value; x lives as long as the list. */
void sf_related_add_stale(struct sf_related_list *list, struct sf_shape shape, const float *x, const char *name);
/* diagnose_reload.c: what stands there when a reload lost masters or moments. */
void sf_related_collect_reload(struct sf_related_list *list, const struct sf_slot *slot);
/* Everything related to the slot's tensor. */
void sf_related_collect(struct sf_related_list *list, const struct sf_slot *slot);

#endif
