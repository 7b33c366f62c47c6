#include "harness/run/commands/report_json.h"

#include "harness/base/alloc.h"
#include "harness/base/json.h"
#include "harness/base/sinks.h"
#include "harness/run/support/json.h"
#include "harness/run/trial/features.h"
#include "harness/run/trial/mutants.h"
#include "oracles/ops/op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *sf_json_of_case(const struct sf_case *c) {
  char *text = NULL;
  if (sf_case_to_json(&text, c) != SF_OK) return NULL;
  json_t *object = sf_json_of(text);
  sf_free(text);
  return object;
}

json_t *sf_json_diagnosis(const struct sf_diagnosis *d) {
  if (!*d->text && !*d->operation) return json_null();
  return json_pack("{s:s, s:o, s:o, s:o, s:o}", "class", sf_diagnosis_class_name(d->cls), "cause", sf_json_text(d->cause), "text",
                   sf_json_text(d->text), "left", sf_json_real(d->left), "operation", sf_json_text(d->operation));
}

static json_t *share_of(const struct sf_wrong_share *share) {
  return json_pack("{s:I, s:I}", "wrong", (json_int_t)share->wrong, "all", (json_int_t)share->all);
}

/* null: not known. */
static json_t *numbers_of(const struct sf_numbers *n) {
  const bool has_place = n->worst_rank >= 0;
  if (n->elements.all == 0) return json_null();
  json_t *worst = json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "row", (json_int_t)n->worst.row, "col", (json_int_t)n->worst.col,
                            "rank", sf_json_count(n->worst_rank), "local_row", sf_json_count(has_place ? n->worst_local.row : -1),
                            "local_col", sf_json_count(has_place ? n->worst_local.col : -1), "wanted", sf_json_real(n->wanted), "got",
                            sf_json_real(n->got), "allowed", sf_json_real(n->allowed));
  json_t *object = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "worst", worst, "elements", share_of(&n->elements), "rows",
                             share_of(&n->rows), "cols", share_of(&n->cols), "norm", sf_json_real(n->norm), "error", sf_json_real(n->error),
                             "mean", sf_json_real(n->mean), "mean_got", sf_json_real(n->mean_got));
  json_t *parts = *n->part_name ? share_of(&n->parts) : json_null();
  if (*n->part_name) json_object_set_new(parts, "name", json_string(n->part_name));
  json_object_set_new(object, "parts", parts);
  return object;
}

/* The other culprits of the case. */
static json_t *further_of(const struct sf_outcome *o) {
  json_t *array = json_array();
  for (int32_t i = 0; i < o->further_count; i++) {
    const struct sf_culprit *culprit = &o->further[i];
    json_array_append_new(array,
                          json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "class", sf_finding_class_name(culprit->cls),
                                    "signature", sf_json_text(culprit->signature), "id", sf_json_text(culprit->first_id), "module",
                                    sf_json_text(culprit->module), "rank", sf_json_count(culprit->rank), "row", sf_json_count(culprit->row),
                                    "error", sf_json_real(culprit->error), "noise", sf_json_real(culprit->noise), "ratio",
                                    sf_json_real(culprit->ratio), "text", sf_json_text(culprit->text)));
  }
  return array;
}

/* Members that only operations have: the shape, and the error of the worst output. */
static void add_operation(json_t *object, const struct sf_case *c, const struct sf_outcome *o) {
  const struct sf_op *op = sf_op_find(c->operation);
  const struct sf_op_error *error = &o->operation.error;
  json_t *fields = sf_json_of(c->fields), *shape = json_object();
  for (int32_t i = 0; i < op->dim_count; i++) json_object_set(shape, op->dims[i], json_object_get(fields, op->dims[i]));
  json_decref(fields);
  json_object_set_new(object, "shape", shape);
  json_object_set_new(object, "relative", sf_json_real(error->relative));
  json_object_set_new(object, "row_relative", sf_json_real(error->row_relative));
  json_object_set_new(object, "worst_row", sf_json_count(error->row));
  json_object_set_new(object, "ulps", sf_json_real(error->ulps));
}

json_t *sf_json_of_outcome(const struct sf_outcome *o, const struct sf_case *c) {
  const bool finding = o->verdict == SF_VERDICT_FINDING;
  json_t *first = finding && !sf_case_is_operation(c)
                      ? json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", sf_json_text(o->first_id), "kind",
                                  o->kind >= 0 ? sf_kind_name((enum sf_kind)o->kind) : "comm", "module", sf_json_text(o->module), "label",
                                  sf_json_text(o->label), "rank", sf_json_count(o->rank), "row", sf_json_count(o->row), "error",
                                  sf_json_real(o->error), "noise", sf_json_real(o->noise), "ratio", sf_json_real(o->ratio))
                      : json_null();
  json_t *object = json_pack("{s:s, s:s, s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:i, s:o}", "verdict",
                             sf_verdict_name(o->verdict), "class", finding ? sf_finding_class_name(o->cls) : "", "manner",
                             sf_manner_name(o->manner), "signature", sf_json_text(finding ? o->signature : ""), "as_expected",
                             sf_outcome_as_expected(o, &c->expect), "first", first, "diagnosis", sf_json_diagnosis(&o->diagnosis),
                             "numbers", numbers_of(&o->diagnosis.numbers), "pattern", sf_json_text(o->pattern), "further", further_of(o),
                             "text", sf_json_text(o->text), "findings", finding ? o->finding_count : 0, "ranks", o->ranks, "checked",
                             o->checked, "unchecked", o->unchecked, "seconds", sf_json_real(o->seconds));
  if (object && sf_case_is_operation(c)) add_operation(object, c, o);
  return object;
}

static json_t *space_of(const struct sf_store_summary *s) {
  json_t *space = json_object();
  for (int i = 0; i < sf_feature_count; i++) json_object_set_new(space, sf_features[i].name, json_integer((json_int_t)s->by_feature[i]));
  return space;
}

static json_t *cover_of(const struct sf_cover_shares *cover) {
  return json_pack("{s:I, s:I, s:I, s:o}", "pairs", (json_int_t)cover->pairs, "pairs_run", (json_int_t)cover->pairs_run, "triples",
                   (json_int_t)cover->triples, "triples_share",
                   sf_json_real(cover->triples > 0 ? (double)cover->triples_run / (double)cover->triples : 0));
}

/* null: not shrunk. */
static json_t *shrunk_of(const struct sf_signature *s) {
  return s->trials_max > 0 ? json_pack("{s:i, s:i, s:b}", "trials", s->trials, "budget", s->trials_max, "minimal", s->minimal)
                           : json_null();
}

/* null: it was not looked for. */
static json_t *contrast_of(const char *contrast) {
  json_t *object = contrast && *contrast ? sf_json_of(contrast) : NULL;
  return object ? object : json_null();
}

static json_t *signatures_of(const struct sf_signatures *signatures) {
  json_t *array = json_array();
  for (int32_t i = 0; i < signatures->count; i++) {
    const struct sf_signature *s = &signatures->at[i];
    json_array_append_new(array,
                          json_pack("{s:o, s:o, s:I, s:I, s:b, s:o, s:o, s:o, s:o}", "signature", sf_json_text(s->signature), "cause",
                                    sf_json_text(signatures->at[s->cause].signature), "count", (json_int_t)s->count, "first_index",
                                    (json_int_t)s->first_index, "known", s->known, "diagnosis", sf_json_diagnosis(&s->diagnosis), "min",
                                    sf_json_text(s->min_path), "shrunk", shrunk_of(s), "contrast", contrast_of(s->contrast)));
  }
  return array;
}

json_t *sf_json_of_campaign(const struct sf_campaign_result *r, const struct sf_signatures *signatures) {
  const struct sf_store_summary *s = &r->summary;
  const double tensors = (double)(s->checked + s->unchecked);
  char nothing[480];
  sf_campaign_nothing_text(nothing, sizeof nothing, r);
  json_t *object = json_pack(
      "{s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o*, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o*}", "seed",
      (json_int_t)r->seed, "interrupted", r->interrupted, "cases", (json_int_t)s->cases, "passed",
      (json_int_t)s->by_verdict[SF_VERDICT_PASS], "findings", (json_int_t)s->by_verdict[SF_VERDICT_FINDING], "inconclusive",
      (json_int_t)s->by_verdict[SF_VERDICT_INCONCLUSIVE], "skipped", (json_int_t)s->by_verdict[SF_VERDICT_SKIP], "crashed",
      (json_int_t)r->crashed, "hung", (json_int_t)r->hung, "flaky", (json_int_t)s->flaky, "signatures", (json_int_t)s->signatures,
      "new_signatures", (json_int_t)r->new_signatures, "by_signature", signatures ? signatures_of(signatures) : NULL, "waiting",
      (json_int_t)r->waiting, "checked", (json_int_t)s->checked, "unchecked", (json_int_t)s->unchecked, "unchecked_share",
      sf_json_real(tensors > 0 ? (double)s->unchecked / tensors : 0), "space", space_of(s), "cover", cover_of(&r->cover), "seconds",
      sf_json_real(r->seconds), "seconds_all_runs", isfinite(r->seconds_all) ? sf_json_real(r->seconds_all) : json_null(), "cases_per_s",
      sf_json_real(r->seconds > 0 ? (double)r->cases_run / r->seconds : 0), "reason",
      sf_campaign_judged_nothing(r) ? sf_json_text(nothing) : NULL);
  if (object && signatures) {
    json_object_set_new(object, "causes", json_integer(signatures->cause_count));
    json_object_set_new(object, "new_causes", json_integer(signatures->new_cause_count));
  }
  return object;
}

/* The number of cases up to an index; null for -1. */
static json_t *place_of(int64_t index) { return sf_json_count(index >= 0 ? index + 1 : index); }

static json_t *search_of(const struct sf_power_search *s) {
  const bool found = s->found_at >= 0;
  return json_pack("{s:I, s:o, s:b, s:o, s:I, s:b, s:b, s:o, s:o, s:i, s:s, s:s, s:o, s:{s:I, s:I}}", "seed", (json_int_t)s->seed,
                   "cases_to_detect", place_of(s->found_at), "flat_asked", s->flat_asked, "flat_cases_to_detect", place_of(s->flat_at),
                   "triggered", (json_int_t)s->triggered, "localised", s->localised, "minimal", s->minimal, "diagnosed",
                   s->plant->diagnosis && *s->plant->diagnosis ? json_boolean(s->diagnosed) : json_null(), "diagnosis",
                   sf_json_diagnosis(&s->min_outcome.diagnosis), "evaluations", s->evaluations, "first", s->outcome.shrink_key, "min",
                   s->min_outcome.signature, "case", found ? sf_json_of_case(&s->min) : json_null(), "shrunk", "ranks",
                   (json_int_t)(found ? sf_case_ranks(&s->min) : 0), "layers", (json_int_t)s->min.model.layers);
}

/* One plant over all its seeds: the worst search, and each search. */
static json_t *plant_of(const struct sf_power_search *searches, int32_t seeds) {
  int detected = 0, flat_detected = 0, localised = 0, minimal = 0;
  int64_t found_at = 0, flat_at = 0, ranks = 0, layers = 0;
  json_t *runs = json_array();
  for (int32_t i = 0; i < seeds; i++) {
    const struct sf_power_search *s = &searches[i];
    json_array_append_new(runs, search_of(s));
    localised += s->localised;
    minimal += s->minimal;
    flat_detected += s->flat_at >= 0;
    if (s->flat_at > flat_at) flat_at = s->flat_at;
    if (s->found_at < 0) continue;
    detected++;
    if (s->found_at > found_at) found_at = s->found_at;
    if (sf_case_ranks(&s->min) > ranks) ranks = sf_case_ranks(&s->min);
    if (s->min.model.layers > layers) layers = s->min.model.layers;
  }
  return json_pack("{s:s, s:b, s:o, s:b, s:o, s:b, s:b, s:i, s:{s:I, s:I}, s:o}", "id", searches->plant->id, "detected", detected == seeds,
                   "cases_to_detect", place_of(detected == seeds ? found_at : -1), "flat_detected", flat_detected == seeds,
                   "flat_cases_to_detect", place_of(flat_detected == seeds ? flat_at : -1), "localised", localised == seeds, "minimal",
                   minimal == seeds, "seeds", seeds, "shrunk", "ranks", (json_int_t)ranks, "layers", (json_int_t)layers, "searches", runs);
}

json_t *sf_json_of_shrink(const struct sf_job_result *result, const struct sf_case *min, const char *min_path) {
  return json_pack("{s:s, s:o, s:o, s:i, s:i, s:b, s:o, s:o}", "verdict", sf_verdict_name(SF_VERDICT_FINDING), "signature",
                   sf_json_text(result->min_outcome.signature), "min", sf_json_text(min_path), "evaluations", result->evaluations, "budget",
                   result->budget, "minimal", result->minimal, "case", sf_json_of_case(min), "contrast", contrast_of(result->contrast));
}

json_t *sf_json_of_no_shrink(const char *verdict, int32_t evaluations) {
  return json_pack("{s:s, s:s, s:n, s:i, s:b, s:n}", "verdict", verdict, "signature", "", "min", "evaluations", evaluations, "minimal", 0,
                   "case");
}

static json_t *clean_of(const struct sf_power_clean *c) {
  return json_pack("{s:I, s:I, s:I, s:I, s:I}", "cases", (json_int_t)c->cases, "false_alarms", (json_int_t)c->false_alarms, "inconclusive",
                   (json_int_t)c->inconclusive, "flat_cases", (json_int_t)c->flat_cases, "flat_alarms", (json_int_t)c->flat_alarms);
}

json_t *sf_json_of_power(const struct sf_power_options *options, const struct sf_power_result *r) {
  json_t *plants = json_array(), *clean = json_object();
  struct sf_power_clean all = {0};
  for (int32_t i = 0; i < r->search_count; i += options->seeds) json_array_append_new(plants, plant_of(&r->searches[i], options->seeds));
  for (int i = 0; i < SF_POWER_PRECISIONS; i++) {
    const struct sf_power_clean *of = &r->clean[i];
    json_object_set_new(clean, sf_compute_name(i), clean_of(of));
    all.cases += of->cases;
    all.false_alarms += of->false_alarms;
    all.inconclusive += of->inconclusive;
    all.flat_cases += of->flat_cases;
    all.flat_alarms += of->flat_alarms;
  }
  json_t *sums = clean_of(&all);
  json_object_update(clean, sums);
  json_decref(sums);
  return json_pack("{s:o, s:o}", "plants", plants, "clean", clean);
}

static json_t *mutant_of(const struct sf_mutant_search *s) {
  return json_pack("{s:s, s:s, s:I, s:o, s:s, s:s, s:I, s:I, s:o}", "id", s->id, "fate", sf_mutant_fate_name(s->fate), "fired",
                   (json_int_t)s->fired, "cases_to_detect", place_of(s->found_at), "first", s->outcome.shrink_key, "first_id",
                   s->outcome.first_id, "equal_outputs", (json_int_t)s->equal_outputs, "unread_outputs", (json_int_t)s->unread_outputs,
                   "survived_at", sf_json_count(s->survived_at));
}

static json_t *fates_of(const int64_t counts[SF_MUTANT_FATES]) {
  json_t *object = json_object();
  int64_t all = 0;
  for (int i = 0; i < SF_MUTANT_FATES; i++) {
    json_object_set_new(object, sf_mutant_fate_name((enum sf_mutant_fate)i), json_integer((json_int_t)counts[i]));
    all += counts[i];
  }
  json_object_set_new(object, "all", json_integer((json_int_t)all));
  return object;
}

json_t *sf_json_of_mutants(const struct sf_mutant_power_result *r) {
  int64_t counts[SF_MUTATION_KINDS + 1][SF_MUTANT_FATES] = {{0}};
  json_t *mutants = json_array(), *kinds = json_object();
  for (int32_t i = 0; i < r->count; i++) {
    struct sf_mutation mutation;
    json_array_append_new(mutants, mutant_of(&r->searches[i]));
    if (sf_mutant_find(&mutation, r->searches[i].id, NULL) == SF_OK) counts[mutation.kind][r->searches[i].fate]++;
    counts[SF_MUTATION_KINDS][r->searches[i].fate]++;
  }
  for (int i = 0; i < SF_MUTATION_KINDS; i++) {
    bool any = false;
    for (int k = 0; k < SF_MUTANT_FATES; k++) any |= counts[i][k] > 0;
    if (any) json_object_set_new(kinds, sf_mutation_kind_name((enum sf_mutation_kind)i), fates_of(counts[i]));
  }
  return json_pack("{s:o, s:o, s:o}", "searches", mutants, "by_kind", kinds, "all", fates_of(counts[SF_MUTATION_KINDS]));
}

json_t *sf_json_of_gate(const struct sf_gate_result *r) {
  json_t *items = json_array();
  for (int32_t i = 0; i < r->item_count; i++) {
    const struct sf_gate_item *item = &r->items[i];
    if (i < r->corpus_count && item->state == SF_GATE_OK) continue;
    json_array_append_new(items, json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "name", sf_json_text(item->name), "state",
                                           sf_gate_state_text(item->state), "cause", *item->cause ? sf_json_text(item->cause) : json_null(),
                                           "text", sf_json_text(item->text), "diagnosis", sf_json_diagnosis(&item->diagnosis), "min",
                                           sf_json_text(item->min_path)));
  }
  return json_pack("{s:b, s:i, s:i, s:i, s:{s:i, s:i}, s:o, s:o, s:o*}", "passed", r->passed, "corpus", r->corpus_count, "corpus_failed",
                   r->corpus_failed, "corpus_not_replayed", r->corpus_not_run, "known", "entries", r->known_count, "seen", r->known_seen,
                   "items", items, "campaign", sf_json_of_campaign(&r->campaign, NULL), "reason",
                   *r->nothing ? sf_json_text(r->nothing) : NULL);
}
