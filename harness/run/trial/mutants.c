#include "harness/run/trial/mutants.h"

#include "harness/base/assert.h"
#include "harness/base/nearest.h"
#include "targets/builtin/parallel/labels.h"

#include <stdio.h>
#include <string.h>

static bool applies(enum sf_mutation_kind kind, const struct sf_comm_label *label) {
  return sf_mutation_applies(kind, label->op, label->reduce) && !(kind == SF_MUTATION_WRONG_GROUP && label->of_world);
}

/* The list leaves out the kinds that only show whether a mutant is equivalent: they are not bugs. */
static bool is_listed(enum sf_mutation_kind kind, const struct sf_comm_label *label) {
  return kind != SF_MUTATION_OBSERVE && kind != SF_MUTATION_POISON && applies(kind, label);
}

/* The index-th of the list; all of them are counted when there is none. */
static int32_t walk_list(int32_t index, const struct sf_comm_label **label, enum sf_mutation_kind *kind) {
  int32_t count = 0;
  for (int i = 0; i < sf_comm_label_count; i++)
    for (int k = 0; k < SF_MUTATION_KINDS; k++) {
      if (!is_listed((enum sf_mutation_kind)k, &sf_comm_labels[i])) continue;
      if (count++ != index) continue;
      *label = &sf_comm_labels[i];
      *kind = (enum sf_mutation_kind)k;
      return count;
    }
  return count;
}

int32_t sf_mutant_count(void) { return walk_list(-1, NULL, NULL); }

void sf_mutant_name(char out[SF_NAME_TEXT], int32_t index) {
  const struct sf_comm_label *label = NULL;
  enum sf_mutation_kind kind = SF_MUTATION_KINDS;
  (void)walk_list(index, &label, &kind);
  SF_ASSERT(label != NULL);
  const int length = snprintf(out, SF_NAME_TEXT, "mutant:%s:%s", label->name, sf_mutation_kind_name(kind));
  SF_ASSERT_LT(length, SF_NAME_TEXT - 11); /* room for ":OCCURRENCE" */
}

enum sf_status sf_mutant_find(struct sf_mutation *out, const char *name, struct sf_error *error) {
  struct sf_mutation mutation;
  const enum sf_status status = sf_mutation_parse(&mutation, name, error);
  if (status != SF_OK) return status;
  const struct sf_comm_label *label = sf_comm_label_find(mutation.label);
  if (label == NULL) return sf_error_set(error, SF_EINPUT, "there is no label '%s'; shardfuzz list mutants", mutation.label);
  if (!applies(mutation.kind, label))
    return sf_error_set(error, SF_EINPUT, "'%s' means nothing at %s (%s); shardfuzz list mutants", sf_mutation_kind_name(mutation.kind),
                        label->name, sf_comm_op_name(label->op));
  mutation.receive_label = label->receive_name;
  *out = mutation;
  return SF_OK;
}

static enum sf_status refuse_plant(const char *id, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(id);
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) sf_nearest_offer(&nearest, sf_plant_of((enum sf_fault)fault)->id);
  return sf_error_set(error, SF_EINPUT, "there is no plant '%s' (shardfuzz list plants)%s", id, sf_nearest_text(&nearest));
}

enum sf_status sf_plants_read(uint64_t *faults, const char *ids, struct sf_error *error) {
  uint64_t read = 0;
  for (const char *at = *ids != '\0' ? ids : NULL; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    char id[SF_NAME_TEXT];
    snprintf(id, sizeof id, "%.*s", (int)strcspn(at, ","), at);
    const struct sf_plant *plant = sf_plant_find(id);
    if (plant == NULL) return refuse_plant(id, error);
    read |= SF_FAULT_BIT(plant->fault);
  }
  *faults = read;
  return SF_OK;
}

enum sf_status sf_plant_id_check(const char *id, struct sf_error *error) {
  struct sf_mutation mutation;
  uint64_t faults = 0;
  if (sf_mutation_is_named(id)) return sf_mutant_find(&mutation, id, error);
  return *id != '\0' ? sf_plants_read(&faults, id, error) : refuse_plant(id, error);
}
