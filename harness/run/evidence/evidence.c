#include "harness/run/evidence/evidence.h"

#include "harness/base/alloc.h"
#include "harness/base/names.h"
#include "harness/spec/mesh.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAME_TEXT = 480 };

void sf_evidence_destroy(struct sf_evidence *evidence) {
  sf_free(evidence->tensors);
  sf_free(evidence->pictures);
  memset(evidence, 0, sizeof *evidence);
}

const struct sf_picture *sf_evidence_find_picture(const struct sf_evidence *evidence, const char *tensor) {
  char name[SF_EVIDENCE_NAME];
  sf_name_fit(name, sizeof name, tensor, strlen(tensor));
  for (int32_t i = 0; i < evidence->picture_count; i++)
    if (strcmp(evidence->pictures[i].name, name) == 0) return &evidence->pictures[i].picture;
  return NULL;
}

enum sf_status sf_evidence_add_picture(struct sf_evidence *evidence, const char *tensor, const struct sf_picture *picture) {
  struct sf_evidence_picture *grown = sf_grown(evidence->pictures, evidence->picture_count, sizeof *grown);
  if (!grown) return SF_ENOMEM;
  evidence->pictures = grown;
  struct sf_evidence_picture *added = &grown[evidence->picture_count++];
  sf_name_fit(added->name, sizeof added->name, tensor, strlen(tensor));
  added->picture = *picture;
  return SF_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

static struct sf_evidence_group *add_group(struct sf_evidence *evidence, const char *name) {
  struct sf_evidence_group *group = &evidence->groups[evidence->group_count++];
  snprintf(group->name, sizeof group->name, "%s", name);
  return group;
}

/* The groups along one axis of the mesh, or of the experts' mesh; none where the axis has one rank. ranks: room for all of them. */
static void add_axis(struct sf_evidence *evidence, const struct sf_case *c, const char *name, enum sf_axis axis, bool of_experts,
                     int32_t *ranks) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  struct sf_evidence_group *group = add_group(evidence, name);
  int32_t largest = 1;
  for (int32_t rank = 0; rank < evidence->ranks; rank++) {
    int32_t index;
    const int32_t count = of_experts ? sf_mesh_expert_group(&c->layout, rank, SF_AXES(axis), ranks, &index)
                                     : sf_mesh_group(&mesh, rank, SF_AXES(axis), ranks, &index);
    int32_t lowest = ranks[0];
    for (int32_t i = 1; i < count; i++) lowest = ranks[i] < lowest ? ranks[i] : lowest;
    group->of_rank[rank] = lowest;
    largest = count > largest ? count : largest;
  }
  evidence->group_count -= largest == 1;
}

void sf_evidence_of_layout(struct sf_evidence *evidence, const struct sf_case *c) {
  const int64_t world = sf_case_ranks(c);
  evidence->ranks = (int32_t)(world < SF_EVIDENCE_RANKS ? world : SF_EVIDENCE_RANKS);
  int32_t *ranks = sf_case_is_framework(c) || sf_case_is_operation(c) ? NULL : sf_alloc((size_t)world * sizeof *ranks);
  if (!ranks) return;
  add_axis(evidence, c, "tp", SF_AXIS_TP, false, ranks);
  add_axis(evidence, c, "cp", SF_AXIS_CP, false, ranks);
  add_axis(evidence, c, "dp", SF_AXIS_DP, false, ranks);
  add_axis(evidence, c, "pp", SF_AXIS_PP, false, ranks);
  if (c->moe.experts > 0) {
    add_axis(evidence, c, "etp", SF_AXIS_TP, true, ranks);
    add_axis(evidence, c, "ep", SF_AXIS_EP, true, ranks);
    add_axis(evidence, c, "edp", SF_AXIS_DP, true, ranks);
  }
  sf_free(ranks);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static struct sf_evidence_tensor *add_tensor(struct sf_evidence *evidence, const char *name) {
  struct sf_evidence_tensor *grown = sf_grown(evidence->tensors, evidence->tensor_count, sizeof *grown);
  if (!grown) return NULL;
  evidence->tensors = grown;
  struct sf_evidence_tensor *added = &grown[evidence->tensor_count++];
  sf_name_fit(added->name, sizeof added->name, name, strlen(name));
  return added;
}

static void fill_state(struct sf_evidence_tensor *out, double share, bool judged, bool flagged, const char *why_not) {
  out->share = share;
  out->judged = judged;
  out->flagged = flagged;
  if (!judged) snprintf(out->why_not, sizeof out->why_not, "%s", why_not ? why_not : "not judged");
}

enum sf_status sf_evidence_of_judgement(struct sf_evidence *evidence, const struct sf_case *c, const struct sf_catalog *catalog,
                                        const struct sf_judgement *judgement) {
  sf_evidence_of_layout(evidence, c);
  for (int32_t i = 0; i < judgement->result_count && i < SF_EVIDENCE_TENSORS; i++) {
    const struct sf_tensor_result *r = &judgement->results[i];
    char name[NAME_TEXT];
    sf_trace_id_text(name, sizeof name, catalog, r->id);
    struct sf_evidence_tensor *tensor = add_tensor(evidence, name);
    if (!tensor) return SF_ENOMEM;
    fill_state(tensor, sf_tensor_share(r), r->judged, r->flagged, r->why_not);
  }
  return SF_OK;
}

enum sf_status sf_evidence_of_check(struct sf_evidence *evidence, const struct sf_check_report *report,
                                    const struct sf_trace_set *candidate) {
  enum sf_status status = SF_OK;
  evidence->ranks = candidate->ranks < SF_EVIDENCE_RANKS ? candidate->ranks : SF_EVIDENCE_RANKS;
  for (int32_t i = 0; i < candidate->group_count && i < SF_EVIDENCE_GROUPS; i++)
    memcpy(add_group(evidence, candidate->groups[i].name)->of_rank, candidate->groups[i].of_rank,
           (size_t)evidence->ranks * sizeof(int32_t));
  for (int32_t i = 0; i < report->result_count && i < SF_EVIDENCE_TENSORS; i++) {
    const struct sf_check_result *r = &report->results[i];
    struct sf_evidence_tensor *tensor = add_tensor(evidence, r->tensor->text);
    if (!tensor) return SF_ENOMEM;
    fill_state(tensor, sf_check_share(report, r), r->judged, r->flagged, r->why_not);
  }
  for (int32_t i = 0; i < report->culprit_count && status == SF_OK; i++) {
    const struct sf_check_culprit *culprit = &report->culprits[i];
    if (culprit->picture) status = sf_evidence_add_picture(evidence, report->results[culprit->result].tensor->text, culprit->picture);
  }
  return status;
}

/* --- between processes -------------------------------------------------------------------------------------------- */

static const char whole[8] = "evidence"; /* at the end of what was written */

void sf_evidence_write(FILE *to, const struct sf_evidence *evidence) {
  rewind(to);
  if (ftruncate(fileno(to), 0) != 0) return;
  fwrite(evidence, sizeof *evidence, 1, to);
  fwrite(evidence->tensors, sizeof *evidence->tensors, (size_t)evidence->tensor_count, to);
  fwrite(evidence->pictures, sizeof *evidence->pictures, (size_t)evidence->picture_count, to);
  fwrite(whole, sizeof whole, 1, to);
  fflush(to); /* the process leaves by _exit */
}

/* An array that was written; NULL: it is not there. */
static void *read_array(FILE *from, int32_t count, size_t size, int32_t most) {
  void *array = count >= 0 && count <= most ? sf_alloc((size_t)(count + 1) * size) : NULL;
  if (array && fread(array, size, (size_t)count, from) == (size_t)count) return array;
  sf_free(array);
  return NULL;
}

bool sf_evidence_read(struct sf_evidence *evidence, FILE *from) {
  struct sf_evidence read;
  char end[sizeof whole];
  rewind(from);
  if (fread(&read, sizeof read, 1, from) != 1) return false;
  read.tensors = read_array(from, read.tensor_count, sizeof *read.tensors, SF_EVIDENCE_TENSORS);
  read.pictures = read_array(from, read.picture_count, sizeof *read.pictures, SF_CHECK_CULPRITS_MAX);
  if (read.tensors && read.pictures && fread(end, sizeof end, 1, from) == 1 && memcmp(end, whole, sizeof whole) == 0) {
    *evidence = read;
    return true;
  }
  sf_free(read.tensors);
  sf_free(read.pictures);
  return false;
}
