/* Cases of the built-in layers, and of plugins of layers or of a model. */
#include "harness/base/sinks.h"
#include "harness/run/evidence/evidence.h"
#include "harness/run/process/subject.h"
#include "harness/run/trial/engine.h"
#include "harness/run/trial/mutants.h"
#include "harness/run/trial/table.h"
#include "targets/plugin/plugin_target.h"
#include "targets/target.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The first case on a GPU pays for the context, for loading kernels and for setting up communicators. Each small kernel and copy waits for
 * the GPU, which several processes may share. */
enum { GPU_START_SECONDS = 30, GPU_FACTOR = 20 };

/* On a CPU: a generous multiple of the case's arithmetic, and 5 s at least. */
static double seconds(const struct sf_pool_options *options, const struct sf_case *c) {
  const struct sf_model *m = &c->model;
  const double per_layer =
      (double)m->hidden * (double)(m->heads + m->kv_heads) * 2 * (double)m->head_dim + 3.0 * (double)m->hidden * (double)m->ffn;
  const double weights = (double)m->layers * per_layer + 2.0 * (double)m->vocab_padded * (double)m->hidden;
  const double tokens = (double)m->seq * (double)c->train.microbatch_size * (double)c->train.microbatches * (double)c->train.steps;
  /* Weights are also filled, traced and compared many times each, and every rank costs scheduling. */
  const double work = 6.0 * weights * tokens * 10 + 2000.0 * weights * (double)c->train.steps;
  const double on_cpu = 5 + work / 1e8 + 0.02 * (double)sf_case_ranks(c);
  return options->device == SF_DEVICE_CPU && !options->nccl ? on_cpu : GPU_START_SECONDS + GPU_FACTOR * on_cpu;
}

/* A case that is beyond the flat bound without the plant too does not show the plant. */
static void ask_flat_bound(struct sf_engine *engine, const struct sf_case *c, struct sf_outcome *outcome) {
  static struct sf_outcome unplanted;
  sf_engine_flat_bound(engine, outcome);
  if (!*c->plant || outcome->flat.beyond == 0) return;
  struct sf_case clean = *c;
  memset(clean.plant, 0, sizeof clean.plant);
  sf_engine_run(engine, &clean, NULL, &unplanted);
  sf_engine_flat_bound(engine, &unplanted);
  outcome->flat_finds_plant = unplanted.status == SF_OK && unplanted.flat.beyond == 0;
}

/* Without an engine the code under test has not run, so the failure is not a verdict on it. */
static bool make_engine(struct sf_workbench *bench, struct sf_outcome *outcome) {
  const struct sf_pool_options *options = bench->options;
  struct sf_process_page *page = bench->page;
  const struct sf_engine_options engine_options = {.device = options->device,
                                                   .gemm = options->gemm,
                                                   .hash_trace = options->hash_trace,
                                                   .max_memory = options->max_memory,
                                                   .device_memory = options->device_memory,
                                                   .progress = &page->progress,
                                                   .trace_key = &page->trace_key,
                                                   .trace_rank = &page->trace_rank,
                                                   .is_own = &page->is_own};
  outcome->status = bench->engine ? SF_OK : sf_engine_create(&bench->engine, &engine_options);
  if (outcome->status == SF_OK) return true;
  snprintf(outcome->text, sizeof outcome->text, "%s before the case ran", sf_status_text(outcome->status));
  return false;
}

static enum sf_status check(struct sf_case *c, const struct sf_pool_options *options, const char *path, struct sf_error *error) {
  (void)options;
  if (!sf_target_find(c->target)) return sf_error_set(error, SF_EINPUT, "%s: target.name: there is no target '%s'", path, c->target);
  struct sf_error reason = {SF_OK, ""};
  if (*c->plant && sf_plant_id_check(c->plant, &reason) != SF_OK)
    return sf_error_set(error, SF_EINPUT, "%s: plant.id: %s", path, reason.text);
  return SF_OK;
}

/* Fields that do not decide whether a bug shows. */
static bool is_incidental(const struct sf_field *field) {
  return field->type == SF_FIELD_TEXT || strcmp(field->path, "seed") == 0 || strcmp(field->path, "schedule") == 0 ||
         strcmp(field->path, "mode") == 0;
}

/* Every field that the trigger needs above its smallest value: numbers at least as large, choices equal. */
static bool contains(const struct sf_case *c, const struct sf_case *trigger) {
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (is_incidental(field)) continue;
    const int64_t needed = sf_case_field_get(trigger, field), has = sf_case_field_get(c, field);
    if (needed == field->smallest) continue;
    if (field->type == SF_FIELD_INT ? has < needed : field->type == SF_FIELD_FLAGS ? (has & needed) != needed : has != needed) return false;
  }
  return true;
}

/* evidence: NULL, or where it is left. */
static void diagnose(struct sf_engine *engine, const struct sf_job *job, FILE *evidence, struct sf_outcome *outcome) {
  struct sf_evidence seen = {0};
  if (!evidence) {
    sf_engine_diagnose(engine, &job->c, NULL, outcome);
    return;
  }
  sf_engine_show(engine, &job->c, NULL, &seen, outcome);
  sf_evidence_write(evidence, &seen);
  sf_evidence_destroy(&seen);
}

static void run(struct sf_workbench *bench, const struct sf_job *job, struct sf_job_result *result) {
  if (!make_engine(bench, &result->outcome)) return;
  struct sf_engine *engine = bench->engine;
  if (sf_plugin_target_path(job->c.target)) sf_said_begin(bench->said);
  sf_engine_be_quick(engine, job->effort == SF_EFFORT_QUICK);
  sf_engine_run(engine, &job->c, bench->options->record, &result->outcome);
  sf_outcome_excuse_memory(&result->outcome);
  sf_outcome_turn_to_wanted(&result->outcome, job);
  if (job->diagnose) diagnose(engine, job, bench->options->evidence, &result->outcome);
  sf_said_end(bench->said);
  if (bench->options->table) {
    sf_table_print(bench->options->table, sf_engine_catalog(engine), sf_engine_judgement(engine));
    fflush(bench->options->table); /* the process leaves by _exit */
  }
  if (job->flat_bound) ask_flat_bound(engine, &job->c, &result->outcome);
}

static enum sf_status table(struct sf_subject_table *out, const struct sf_case *c, const struct sf_pool_options *options,
                            enum sf_table_purpose purpose) {
  out->space = *options->space;
  if (purpose == SF_TABLE_CONTRAST) {
    for (int i = 0; i < SF_CASE_DRAWN; i++) out->space.is_set[i] &= out->space.is_limited[i];
    if (options->launcher) out->space.max_ranks = sf_case_ranks(c);
  }
  out->table = sf_layers_table(&out->space);
  return SF_OK;
}

/* --- reports --------------------------------------------------------------------------------------------------- */

/* The first line of the text is ours; the ranks' output stands below it, marked as theirs. */
void sf_layers_tell(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome) {
  const size_t length = strcspn(outcome->text, "\n");
  (void)c;
  if (*outcome->first_id) {
    sf_line_append(out, "first        %s\n", outcome->first_id);
    sf_line_append(out, "module       %s\n", outcome->module);
  }
  if (*outcome->label) sf_line_append(out, "label        %s\n", outcome->label);
  if (outcome->rank >= 0) sf_line_append(out, "rank         %d\n", outcome->rank);
  if (outcome->row >= 0) sf_line_append(out, "row          %" PRId64 "\n", outcome->row);
  if (outcome->noise > 0 && outcome->ratio > 0)
    sf_line_append(out, "error        %.3g, %.3g times what rounding explains\n", outcome->error, outcome->ratio);
  sf_line_append(out, "what         %.*s\n", (int)length, outcome->text);
  sf_line_append_all(out, "           | ", outcome->text + length);
  sf_numbers_append(out, &outcome->diagnosis.numbers, outcome->kind);
}

static void tell_case(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome) {
  char axes[SF_AXES_TEXT], reload[64] = "";
  (void)outcome;
  sf_signature_axes(axes, c, NULL);
  if (c->reload.after_step > 0) snprintf(reload, sizeof reload, ", loaded in another layout after step %" PRId64, c->reload.after_step - 1);
  sf_line_append(out, "case         %" PRId64 " rank%s (%s)%s, %" PRId64 " layer%s, %s, %s\n", sf_case_ranks(c),
                 sf_plural(sf_case_ranks(c)), axes, reload, c->model.layers, sf_plural(c->model.layers),
                 sf_compute_name(c->precision.compute), c->mode == SF_MODE_ISOLATED ? "isolated" : "end to end");
}

const struct sf_subject sf_subject_layers = {.noun = "tensors",
                                             .shrink_budget = 300,
                                             .has_ranks = true,
                                             .can_isolate = true,
                                             .judges_quickly = true,
                                             .check = check,
                                             .contains = contains,
                                             .seconds = seconds,
                                             .run = run,
                                             .outcome_of_death = sf_ranks_outcome_of_death,
                                             .table = table,
                                             .tell = sf_layers_tell,
                                             .tell_case = tell_case};
