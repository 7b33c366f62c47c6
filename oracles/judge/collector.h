/* Inside the oracle: what a collector holds, shared by collecting, structure checks, comparison and the step's recomputation. */
#ifndef SF_ORACLES_COLLECTOR_H
#define SF_ORACLES_COLLECTOR_H

#include "harness/base/alloc.h"
#include "harness/spec/mesh.h"
#include "oracles/judge/judge.h"

/* --- cuts.c: the pieces in which the ranks hold one dimension --------------------------------------------------- */

/* `len` logical indices from start on, at `local` on the rank; tp and cp ranks first..last, and no others, hold all of them. In the cuts of
 * experts tp stands for ep index * etp + etp index. */
struct sf_cut_piece {
  int64_t start, local, len;
  int32_t tp_first, tp_last, cp_first, cp_last;
};
struct sf_cut_rank {
  struct sf_dim_map canonical;
  int64_t length;
  int32_t count;
  struct sf_cut_piece *pieces;
};
struct sf_collected_layout;
struct sf_cut_plan {
  const struct sf_collected_layout *of;
  enum sf_cut cut;
  int64_t size;
  int32_t tp, cp;            /* cp: 1 for a cut that is the same on all cp ranks */
  struct sf_cut_rank *ranks; /* tp * cp, by sf_cut_rank_at */
};
/* The canonical table of a dimension, cut further until every piece is held whole or not at all by each rank. `of` is left to the caller.
 * Memory is the arena's; SF_ENOMEM is the only failure. */
enum sf_status sf_cut_plan_create(struct sf_cut_plan *out, const struct sf_case *c, enum sf_cut cut, int64_t size,
                                  struct sf_arena *arena) SF_MUST_USE;
/* What the ranks at this place of tp and cp hold of the plan's dimension; not of one of experts. */
static inline const struct sf_cut_rank *sf_cut_rank_at(const struct sf_cut_plan *plan, int32_t tp, int32_t cp) {
  return &plan->ranks[plan->cp > 1 ? cp * plan->tp + tp : tp];
}
/* Whether a declared dimension is the canonical one when partial flags are left aside. */
bool sf_cut_rank_matches(const struct sf_cut_rank *cut, const struct sf_dim_map *declared);

/* --- what is collected ------------------------------------------------------------------------------------------ */

/* Each tensor of the reference has three slots. */
enum sf_slot_phase {
  SF_SLOT_FIRST,      /* the tensor itself */
  SF_SLOT_RECEIVED,   /* call 1: as the next (previous) pipeline stage received it */
  SF_SLOT_RECOMPUTED, /* traced again by recomputation; compared as it arrives, not kept */
  SF_SLOT_PHASES
};

/* One rank's part of a tensor of which something is a partial sum: kept until all are there, to be added in rank order. */
struct sf_part {
  struct sf_part *next;
  int32_t rank;
  struct sf_shard_map map;
  float *data;
  int64_t capacity; /* of data, in elements */
};

/* The range that one rank gave of a flat tensor. */
struct sf_flat_part {
  struct sf_flat_part *next;
  int32_t rank;
  int64_t first, count;
};

struct sf_slot {
  const struct sf_expected *expected;
  enum sf_slot_phase phase;
  const struct sf_collected_layout *of; /* the layout of its step */
  /* who must hold it */
  int32_t holders;             /* number of ranks; 0: this layout does not trace it */
  int32_t stage, second_stage; /* pipeline ranks; second -1 = none; stage -1 = every rank */
  int32_t dp;                  /* data-parallel rank, -1 = all */
  int32_t row_plan, col_plan;  /* into the collector's plans */
  bool is_flat;                /* every rank holds a range of its place's elements */
  /* what came */
  int32_t arrived;       /* of the holders */
  uint64_t *ranks;       /* bits: whose parts arrived (sf_slot_rank_bit); NULL: nobody must hold it */
  float *merged;         /* lives as long as the collector: shapes do not depend on the layout */
  struct sf_part *parts; /* in rank order */
  /* NULL, or of a sum of parts: the elements' sums of absolute values (of ACT_GRAD alone), and their norm in each row */
  float *part_sizes;
  double *part_rows;
  bool unusable;                   /* a part of it could not be placed */
  struct sf_flat_part *flat_parts; /* by place, first element, rank */
  int32_t *element_holders;        /* flat: lowest rank that gave each logical element, -1 = none */
  /* lowest rank that offends, -1 = none */
  int32_t map_rank, repeated_rank, stranger_rank, differing_rank;
  int32_t gap_rank, overlap_rank; /* flat: its range leaves elements out before it (or is the last and ends early); begins too early */
  int64_t differing;              /* elements in which differing_rank differs */
  double replica_error;           /* WGRAD, whose replicas need not be bit-equal: largest distance of two, and the rank */
  int32_t replica_rank;
};

struct sf_place_of_rank {
  int32_t tp, cp, dp, pp;
  int32_t expert; /* ep index * etp + etp index */
  int32_t number; /* in rank order, among the ranks at the same dp and pp */
};
/* A layout that does some of the steps. */
struct sf_collected_layout {
  struct sf_case c; /* the collector's case with this layout, and without reloading */
  struct sf_place_of_rank *places;
  int32_t *ranks; /* by dp, pp and number */
};
struct sf_unknown {
  struct sf_trace_id id;
  int32_t rank;
};

struct sf_collector {
  struct sf_case c; /* only for what no layout changes: see the slot's layout */
  struct sf_expectations *expectations;
  bool rounds_alike;     /* sf_collector_rounds_alike */
  bool is_quick;         /* sf_collector_be_quick */
  bool is_anchored;      /* `expectations` are what the reference makes of the candidate's tensors (sf_collector_anchor) */
  struct sf_given given; /* the tensors collected, for the reference */
  struct sf_expectations
      *anchored; /* of the last judgement: what the reference makes of the candidate's tensors; NULL: none was end to end */
  const struct sf_catalog *catalog;
  enum sf_status status;         /* SF_OK, or why nothing can be judged */
  struct sf_arena *kept;         /* slots and merged tensors */
  struct sf_arena *of_layout;    /* what a reset drops */
  struct sf_arena *of_judgement; /* what the next judgement drops */
  int32_t count;                 /* tensors of the reference */
  struct sf_slot *slots;         /* count * SF_SLOT_PHASES */
  /* of the layouts */
  struct sf_collected_layout layouts[2]; /* the second: of the steps after reloading */
  int32_t layout_count;
  int32_t world;
  struct sf_cut_plan *plans;
  int32_t plan_count;
  struct sf_part *spare_parts; /* of tensors that are whole */
  struct sf_unknown *unknown;  /* tensors that the reference lacks or this layout does not trace */
  int32_t unknown_count, unknown_capacity;
};

/* ordinal: of the tensor in the expectations. */
static inline struct sf_slot *sf_slot_at(const struct sf_collector *collector, int32_t ordinal, enum sf_slot_phase phase) {
  return &collector->slots[(int64_t)ordinal * SF_SLOT_PHASES + (int64_t)phase];
}
/* The slot of an id; NULL when the reference has no such tensor. */
struct sf_slot *sf_slot_find(const struct sf_collector *collector, struct sf_trace_id id);
/* Whether all parts arrived and could be placed: then merged is the logical tensor. */
static inline bool sf_slot_is_whole(const struct sf_slot *slot) {
  return slot->holders > 0 && slot->arrived == slot->holders && !slot->unusable && slot->merged != NULL;
}
/* The id under which the slot's tensor was traced. */
struct sf_trace_id sf_slot_id(const struct sf_slot *slot);
/* Most tensors belong to the ranks at one dp and pp. Bits for these alone keep the memory from growing with the square of the world. */
static inline bool sf_slot_is_of_place(const struct sf_slot *slot) { return slot->dp >= 0 && slot->stage >= 0 && slot->second_stage < 0; }
/* Number of bits in slot->ranks; the bit of a rank that must hold a part; the rank of a bit. Bits are in rank order. */
static inline int32_t sf_slot_rank_bits(const struct sf_collector *collector, const struct sf_slot *slot) {
  const struct sf_layout *layout = &slot->of->c.layout;
  return sf_slot_is_of_place(slot) ? (int32_t)(layout->tp * layout->cp) : collector->world;
}
static inline int32_t sf_slot_rank_bit(const struct sf_slot *slot, int32_t rank) {
  return sf_slot_is_of_place(slot) ? slot->of->places[rank].number : rank;
}
static inline int32_t sf_slot_rank_of_bit(const struct sf_slot *slot, int32_t bit) {
  const struct sf_layout *layout = &slot->of->c.layout;
  return sf_slot_is_of_place(slot) ? slot->of->ranks[(slot->dp * layout->pp + slot->stage) * layout->tp * layout->cp + bit] : bit;
}
/* Whether the rank's part arrived. */
bool sf_slot_has_rank(const struct sf_slot *slot, int32_t rank);

/* Notes that replicas differ, in so many elements, on rank and on holder. */
void sf_slot_note_differing(struct sf_slot *slot, int32_t rank, int32_t holder, int64_t differing);

/* --- collect_flat.c: tensors of which each rank holds a range ----------------------------------------------------- */

/* Merges the rank's part, which the map must fit; count may be 0. SF_ENOMEM. */
enum sf_status sf_flat_take(struct sf_collector *collector, struct sf_slot *slot, int32_t rank, const struct sf_shard_map *map,
                            const float *data) SF_MUST_USE;
/* Whether the ranges of two ranks are of the same shard. */
bool sf_flat_same_place(const struct sf_slot *slot, int32_t a, int32_t b);
/* All parts are there: notes gaps and overlaps. */
void sf_flat_check(const struct sf_collector *collector, struct sf_slot *slot);
/* What the rank holds of the plan's dimension. */
static inline const struct sf_cut_rank *sf_cut_of_rank(const struct sf_collector *collector, int32_t plan, int32_t rank) {
  const struct sf_cut_plan *of = &collector->plans[plan];
  const struct sf_place_of_rank *place = &of->of->places[rank];
  return sf_cut_is_expert(of->cut) ? &of->ranks[place->expert] : sf_cut_rank_at(of, place->tp, place->cp);
}

/* --- structure.c: who must hold what ---------------------------------------------------------------------------- */

/* Fills stage, second_stage, dp and holders of every slot for its layout. */
void sf_structure_assign(struct sf_collector *collector);
/* Whether a rank at this place must hold a part of the slot's tensor. */
bool sf_slot_expects(const struct sf_slot *slot, const struct sf_place_of_rank *place);
/* Whether the map is what the rank must hold of the slot's tensor, and rows x cols its size. */
bool sf_structure_map_fits(const struct sf_collector *collector, const struct sf_slot *slot, int32_t rank, const struct sf_shard_map *map,
                           int64_t rows, int64_t cols);
/* Lowest rank that must hold the tensor and did not hand it over; -1 when all did. */
int32_t sf_slot_missing_rank(const struct sf_collector *collector, const struct sf_slot *slot);
/* Lowest rank that holds the logical element. */
int32_t sf_slot_rank_of(const struct sf_collector *collector, const struct sf_slot *slot, int64_t row, int64_t col);

/* --- compare.c: one merged tensor against its expectation ------------------------------------------------------- */

struct sf_comparison {
  double error, noise, fro_ratio;         /* tensor */
  double row_error, row_noise, row_ratio; /* worst row; 0 for vectors */
  int64_t row;                            /* worst row, -1 for vectors */
  bool flagged;                           /* beyond a factor and not ill-conditioned */
  const char *why_not;                    /* why nothing is proven by passing; NULL: judged */
};
/* candidate: the merged tensor. level: of the draws that the noise is made from, which must have been reached. scratch: rows doubles. */
void sf_compare(struct sf_comparison *out, const struct sf_expected *e, const float *candidate, enum sf_level level, double *scratch);
/* e of the recipe: the absolute noise level of the whole tensor. */
double sf_tensor_noise(const struct sf_expected *e, enum sf_level level);
/* e_r: the noise level of each row. */
void sf_row_noise(double *out, const struct sf_expected *e, enum sf_level level);
/* First element that is NaN or infinite where the reference is finite; -1 when there is none. x NULL: the reference is finite. */
int64_t sf_first_nonfinite(const float *candidate, const float *x, int64_t count);
/* Promised in fp32, yet nearly all values lie on the grid of bf16 or fp16, and the reference's do not. */
bool sf_has_bits_of(enum sf_dtype format, const struct sf_expected *e, const float *candidate);

/* --- rounding.c: tensors whose bits should agree ---------------------------------------------------------------------- */

/* How many elements of a tensor differ at all; elements that are small beside their row are left out. */
struct sf_roundings {
  int64_t elements, elements_off;
  int64_t rows, rows_off; /* that are not zero; in which more than sf_factors.rounding_row of the elements are off */
  double share;           /* of the alarm, by the number of rows that are off; at most 1.6 */
  bool flagged;           /* more rows than rare elements at a border of rounding explain */
};
/* candidate: the merged tensor. */
void sf_compare_roundings(struct sf_roundings *out, const struct sf_expected *e, const float *candidate);

/* --- judge.c: results and findings, grown in the judgement's arena ---------------------------------------------- */

struct sf_ranked_finding {
  struct sf_finding finding;
  int32_t priority;
  enum sf_slot_phase phase;
};
struct sf_judging {
  struct sf_collector *collector;
  enum sf_status status; /* SF_ENOMEM once something did not fit */
  struct sf_ranked_finding *findings;
  int32_t finding_count, finding_capacity;
  struct sf_tensor_result *results;
  int32_t result_count;
  double *row_scratch;     /* rows of the tallest tensor */
  int32_t overflow_step;   /* end to end: the first in which rounding decides what is finite; INT32_MAX: none */
  struct sf_finding spare; /* takes what did not fit */
};
/* A new finding about the slot with id, ordinal, module, rank -1 and row -1 filled in; the caller adds figures and text. Never NULL. */
struct sf_finding *sf_judging_add(struct sf_judging *judging, const struct sf_slot *slot, enum sf_finding_class cls);
/* A new result about the slot's tensor, judged and not flagged; the caller fills in the rest. */
struct sf_tensor_result *sf_judging_result(struct sf_judging *judging, const struct sf_slot *slot);
/* Writes a finding's text, as printf does. */
void sf_finding_say(struct sf_finding *finding, const char *format, ...) SF_PRINTF(2, 3);
/* If the merged tensor has a NaN or infinity where e, which it is compared with, has none: adds the finding and returns true. */
bool sf_judging_nonfinite(struct sf_judging *judging, const struct sf_slot *slot, const struct sf_expected *e);
/* End to end: the tensor is not finite where the reference is, and in this step or before rounding decided so. */
bool sf_overflow_explains(const struct sf_judging *judging, const struct sf_slot *slot);

/* --- tolerances.c: tensors that have a noise level ------------------------------------------------------------------ */

/* Adds results and findings about every tensor that has a noise level. Fills in judging->overflow_step. */
enum sf_status sf_judge_tolerances(struct sf_judging *judging) SF_MUST_USE;

/* Adds findings (rounding.c) about tensors among the results whose distance is no finding. expectations: what they were compared with.
 * SF_ENOMEM. */
enum sf_status sf_judge_roundings(struct sf_judging *judging, struct sf_expectations *expectations) SF_MUST_USE;

/* --- anchored.c: end to end, what the reference makes of the candidate's own tensors -------------------------------- */

/* Runs the reference on the candidate's tensors: fills in collector->anchored. A tensor that did not come whole is the reference's own. */
enum sf_status sf_anchored_create(struct sf_collector *collector) SF_MUST_USE;
/* A collector that expects what the reference makes of the candidate's own tensors, for a diagnosis of the last judgement's anchored
 * findings. It borrows from `of`; memory is the arena's. SF_ENOMEM. */
enum sf_status sf_collector_anchor(struct sf_collector *out, const struct sf_collector *of, struct sf_arena *arena) SF_MUST_USE;
/* Whether the candidate's loss was scaled in this step as that of the expectations. */
bool sf_is_scaled_alike(const struct sf_collector *collector, const struct sf_expectations *expectations, int32_t step);

/* --- judge_step.c: parameters, optimizer step and scalars, from the candidate's own tensors --------------------- */

/* Recomputes the step in double from what the candidate had before it, and adds results and findings. No memory: judging->status. */
void sf_judge_steps(struct sf_judging *judging);

#endif
