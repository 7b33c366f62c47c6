/* Diagnosis of the built-in layers: views of their tensors, made from the collector, the case and the catalogue. */
#ifndef SF_ORACLES_DIAGNOSE_H
#define SF_ORACLES_DIAGNOSE_H

#include "harness/spec/mesh.h"
#include "oracles/diagnose/picture.h"
#include "oracles/judge/judge.h"

/* Axes that a tensor's ranks are spread over: tp, cp, dp; etp, ep, edp; pp, for what several pipeline stages hold or sum. */
enum { SF_MESH_DENSE = 1, SF_MESH_EXPERTS = 2, SF_MESH_STAGES = 4 };

/* What one rank handed over. data: as the map says; borrowed. */
struct sf_diagnosis_shard {
  int32_t rank; /* -1: merged from several */
  struct sf_shard_map map;
  const float *data;
};

/* Everything here is borrowed. */
struct sf_diagnosis_problem {
  const struct sf_case *c;
  struct sf_trace_id id;
  struct sf_trace_spec spec;
  const struct sf_diagnosis_shard *shards; /* maps fit the shape, nothing in them is partial */
  int32_t shard_count;
  unsigned meshes;                       /* SF_MESH_*: those of the module, for naming factors */
  bool of_attention;                     /* one of an attention's modules */
  bool of_scores;                        /* the one of them that multiplies with the root of the head size */
  double kept;                           /* tokens that the microbatch's mask keeps; 0: not known */
  const struct sf_view_size *more_sizes; /* that only the tensors of the case tell */
  int32_t more_size_count;
  struct sf_picture *picture; /* NULL, or a picture to be filled with the view */
  struct sf_tensor_view view; /* x, noise levels, is_norm and what is related; the rest follows from the above */
};

/* sf_diagnose of the problem's view. SF_ENOMEM. */
enum sf_status sf_diagnose_problem(struct sf_diagnosis *out, const struct sf_diagnosis_problem *problem) SF_MUST_USE;

/* Diagnoses a finding of the collector's last judgement from the shards of its tensor as they arrived (with their maps as declared;
 * partial ones are merged first). out->text stays empty without shards, and for a tensor that the reference lacks. picture: NULL, or where
 * the tensor is drawn; it stays without values where there are none to compare with. SF_ENOMEM. */
enum sf_status sf_diagnose_finding(struct sf_diagnosis *out, struct sf_picture *picture, const struct sf_collector *collector,
                                   const struct sf_finding *finding, const struct sf_diagnosis_shard *shards,
                                   int32_t shard_count) SF_MUST_USE;

#endif
