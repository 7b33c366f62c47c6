#include "harness/run/trial/case_size.h"

#include "harness/spec/mesh.h"

enum { ROW_DOUBLES = 6 }; /* a norm and five noise levels */

static double larger(double a, double b) { return a > b ? a : b; }

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* The number of parts into which this cut divides a dimension over the ranks of one pipeline stage and data-parallel index. */
static double parts(const struct sf_case *c, enum sf_cut cut) {
  const struct sf_layout *l = &c->layout;
  switch (cut) {
    case SF_CUT_NONE: return 1;
    case SF_CUT_EVEN:
    case SF_CUT_QKV:
    case SF_CUT_GATE_UP: return (double)l->tp;
    case SF_CUT_TOKENS: return (double)l->cp;
    case SF_CUT_SEQUENCE: return (double)(l->cp * (l->sp ? l->tp : 1));
    case SF_CUT_EXPERTS:
    case SF_CUT_EXPERTS_GATE_UP: return (double)(l->ep * l->etp);
  }
  return 1;
}

struct sizes {
  double trace;                    /* bytes of the reference's trace */
  double acts,
      acts_of_ranks; /* elements that the modules put out for one microbatch; on the ranks of one stage and data-parallel index together */
  double largest_act, largest_param;
  double params;                   /* elements */
  double weights_of_ranks, optimizer_of_ranks; /* bytes */
};

/* One tensor, traced `times` times. */
static void add_traced(struct sizes *sizes, const struct sf_trace_spec *spec, double times) {
  sizes->trace += times * ((double)spec->shape.rows * (double)spec->shape.cols * sizeof(float) +
                           (double)spec->shape.rows * ROW_DOUBLES * sizeof(double));
}

static void add_module(struct sizes *sizes, const struct sf_catalog *catalog, const struct sf_case *c, int32_t module) {
  const double microbatches = (double)c->train.steps * (double)c->train.microbatches;
  const struct sf_trace_id act = {.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = module},
                           grad = {.pass = SF_PASS_BWD, .kind = SF_KIND_ACT_GRAD, .subject = module};
  struct sf_trace_spec spec;
  if (sf_trace_spec(&spec, catalog, grad)) add_traced(sizes, &spec, microbatches);
  if (!sf_trace_spec(&spec, catalog, act)) return;
  add_traced(sizes, &spec, microbatches);
  const double elements = (double)spec.shape.rows * (double)spec.shape.cols, cut = parts(c, spec.row_cut) * parts(c, spec.col_cut);
  sizes->acts += elements;
  sizes->acts_of_ranks += elements * larger(1, (double)(c->layout.tp * c->layout.cp) / cut);
  sizes->largest_act = larger(sizes->largest_act, elements);
}

/* On the ranks: the weight and its gradient; the master and Adam's moments, cut over data-parallel ranks with ZeRO. */
static void add_param(struct sizes *sizes, const struct sf_catalog *catalog, const struct sf_case *c, int32_t param) {
  const struct sf_param *info = &catalog->params[param];
  const double steps = (double)c->train.steps, elements = (double)info->shape.rows * (double)info->shape.cols;
  static const struct {
    enum sf_kind kind;
    enum sf_pass pass;
  } of_step[] = {{SF_KIND_MAIN_GRAD, SF_PASS_STEP}, {SF_KIND_PARAM_DELTA, SF_PASS_STEP}};
  struct sf_trace_spec spec;
  if (sf_trace_spec(&spec, catalog, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_PARAM, .subject = param}))
    add_traced(sizes, &spec, steps + 1);
  for (int i = 0; i < 2; i++)
    if (sf_trace_spec(&spec, catalog,
                      (struct sf_trace_id){.pass = (uint8_t)of_step[i].pass, .kind = (uint8_t)of_step[i].kind, .subject = param}))
      add_traced(sizes, &spec, steps);
  for (int call = 0; call < SF_CALL_MTP_EMBEDDING + SF_CALLS_PER_DEPTH * (int)c->model.mtp_depth; call++) {
    const struct sf_trace_id id = {.pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .call = (uint8_t)call, .subject = param};
    if (sf_trace_spec(&spec, catalog, id)) add_traced(sizes, &spec, steps * (double)c->train.microbatches);
  }
  const double ranks = (double)sf_case_ranks(c) / (double)c->layout.pp;
  const double copies = larger(1, ranks / (parts(c, info->row_cut) * parts(c, info->col_cut)));
  const double shards = c->layout.zero > 0 ? (double)c->layout.dp : 1;
  const double states = info->frozen ? 1 : 3;
  sizes->weights_of_ranks += elements * copies * sizeof(float) * (info->frozen ? 1 : 2);
  sizes->optimizer_of_ranks += elements * copies * sizeof(float) * states / shards;
  sizes->params += elements;
  sizes->largest_param = larger(sizes->largest_param, elements);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* Elements of attention probabilities for one microbatch. */
static double probs(const struct sf_case *c) {
  const struct sf_model *m = &c->model;
  const double keys = (double)(m->seq + m->memory_seq), layers = (double)(m->layers + m->mtp_depth);
  return layers * (double)c->train.microbatch_size * (double)m->heads * (double)m->seq * keys;
}

/* Parameters in up to six copies, the largest gradient, activations, and room for the parts of a split product. */
static double of_reference(const struct sizes *sizes, const struct sf_case *c) {
  const double group = (double)(c->model.heads / c->model.kv_heads) * (double)c->model.seq * (double)c->model.seq;
  const double copies = 2 + (sf_dtype_is_packed(sf_case_storage(c)) ? 1 : 0) + (c->train.steps > 1 ? 2 : 0);
  const double factor = larger(larger(sizes->largest_param, sizes->largest_act), group);
  return sizeof(float) *
         (copies * sizes->params + sizes->largest_param + sizes->acts + probs(c) + group + 2 * sizes->largest_act + 3 * factor);
}

/* A stage keeps the activations of the microbatches that are under way: one for the last stage, as many as there are stages for the
 * first. */
static double of_ranks(const struct sizes *sizes, const struct sf_case *c) {
  const struct sf_layout *l = &c->layout;
  const double own = (double)c->train.microbatches / (double)l->dp, most = ((double)l->pp + 1) / 2;
  const double on_their_way = (double)l->dp * (own < most ? own : most);
  const double scratch = sizeof(float) * sizes->largest_param * (double)sf_case_ranks(c) / (double)(l->tp * l->pp);
  return sizes->weights_of_ranks + sizes->optimizer_of_ranks + scratch +
         on_their_way * sizeof(float) * (sizes->acts_of_ranks + probs(c) + 2 * sizes->largest_act);
}

static struct sizes sizes_of(const struct sf_catalog *catalog, const struct sf_case *c) {
  struct sizes sizes = {0};
  for (int32_t i = 0; i < catalog->module_count; i++) add_module(&sizes, catalog, c, i);
  for (int32_t i = 0; i < catalog->param_count; i++) add_param(&sizes, catalog, c, i);
  return sizes;
}

/* After a reload the first ranks' memory is still there. The second ranks need the same for themselves, the saved state, and a buffer each
 * for the largest rank's part of that. */
static double of_reload(const struct sf_catalog *catalog, const struct sf_case *c, double params) {
  const struct sf_case second = sf_case_after_reload(c);
  const struct sizes sizes = sizes_of(catalog, &second);
  const struct sf_layout *l = &c->layout;
  const double saved = 3 * sizeof(float) * params, savers = (double)(l->tp * l->pp * (l->zero > 0 ? l->dp : 1));
  return of_ranks(&sizes, &second) + saved + saved / savers * (double)sf_case_ranks(&second);
}

struct sf_case_size sf_case_size(const struct sf_catalog *catalog, const struct sf_case *c) {
  const struct sizes sizes = sizes_of(catalog, c);
  /* The reference's tensors and the ranks'; end to end also what the reference makes of the ranks'. */
  const double copies = c->mode == SF_MODE_E2E ? 3 : 2;
  struct sf_case_size size = {.trace = copies * sizes.trace, .reference = of_reference(&sizes, c), .ranks = of_ranks(&sizes, c)};
  if (c->reload.after_step > 0) size.ranks += of_reload(catalog, c, sizes.params);
  return size;
}
