/* Whether the fields of a case fit together. Each check is one row of a function's list; the first that fails is told. */
#include "harness/spec/case_internal.h"
#include "harness/spec/mesh.h"

#include <inttypes.h>
#include <string.h>

#define REFUSE(...) return sf_error_set(error, SF_EINPUT, __VA_ARGS__)

static enum sf_status check_ranges(const struct sf_case *c, struct sf_error *error) {
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT) {
      const char *text = (const char *)c + field->offset;
      if (memchr(text, '\0', field->size_bytes) == NULL) REFUSE("%s: longer than %zu characters", field->path, field->size_bytes - 1);
      if (!sf_case_text_ok(text)) REFUSE("%s: characters other than A-Z a-z 0-9 . _ : / -", field->path);
      continue;
    }
    const enum sf_status status = sf_case_field_check(field, sf_case_field_get(c, field), error);
    if (status != SF_OK) return status;
  }
  if (c->target[0] == '\0') REFUSE("target.name: empty");
  return SF_OK;
}

static enum sf_status check_model(const struct sf_case *c, struct sf_error *error) {
  const struct sf_model *m = &c->model;
  if (m->heads % m->kv_heads != 0) REFUSE("model.kv_heads: %" PRId64 " does not divide model.heads %" PRId64, m->kv_heads, m->heads);
  if (m->heads * m->head_dim > 65536) REFUSE("model.head_dim: heads * head_dim is %" PRId64 ", more than 65536", m->heads * m->head_dim);
  if (m->positions == SF_POS_ROTARY && m->head_dim % 2 != 0) REFUSE("model.head_dim: %" PRId64 " is odd, rotary needs pairs", m->head_dim);
  if (m->vocab_padded < m->vocab) REFUSE("model.vocab_padded: %" PRId64 " is below model.vocab %" PRId64, m->vocab_padded, m->vocab);
  if (c->data.exact && c->mode != SF_MODE_ISOLATED) REFUSE("data.exact: needs mode isolated");
  if (c->data.overflow && c->mode != SF_MODE_ISOLATED) REFUSE("data.overflow: needs mode isolated");
  if (c->data.overflow && c->precision.loss_scale_log2 == 0) REFUSE("data.overflow: needs precision.loss_scale_log2 above 0");
  if (c->data.overflow && c->data.exact) REFUSE("data.overflow: not with data.exact, whose numbers are integers");
  const int64_t tokens = m->seq * c->train.microbatch_size;
  if (tokens > 1048576) REFUSE("train.microbatch_size: seq * microbatch_size is %" PRId64 ", more than 1048576", tokens);
  const int64_t memory = m->memory_seq * c->train.microbatch_size;
  if (memory > 1048576) REFUSE("train.microbatch_size: memory_seq * microbatch_size is %" PRId64 ", more than 1048576", memory);
  if (m->memory_seq > 0 && m->parallel_residual) REFUSE("model.memory_seq: not with model.parallel_residual, which has no place for it");
  if (c->train.recompute_layers > m->layers)
    REFUSE("train.recompute_layers: %" PRId64 " is more than model.layers %" PRId64, c->train.recompute_layers, m->layers);
  if (c->precision.loss_scale_window > 0 && c->precision.loss_scale_log2 == 0)
    REFUSE("precision.loss_scale_window: needs precision.loss_scale_log2 above 0");
  if (c->precision.stochastic && c->precision.compute != SF_BF16) REFUSE("precision.stochastic: needs precision.compute bf16");
  return SF_OK;
}

static enum sf_status check_fp8(const struct sf_case *c, struct sf_error *error) {
  const struct sf_precision *p = &c->precision;
  const int64_t exempt = p->fp8_bf16_first + p->fp8_bf16_last;
  const bool delayed = p->fp8_recipe == SF_FP8_DELAYED;
  if (p->fp8_history > 1 && !delayed) REFUSE("precision.fp8_history: needs precision.fp8_recipe delayed");
  if (p->compute != SF_COMPUTE_FP8) {
    if (delayed) REFUSE("precision.fp8_recipe: needs precision.compute fp8");
    if (p->fp8_bf16_first > 0) REFUSE("precision.fp8_bf16_first: needs precision.compute fp8");
    if (p->fp8_bf16_last > 0) REFUSE("precision.fp8_bf16_last: needs precision.compute fp8");
    return SF_OK;
  }
  if (exempt >= c->model.layers)
    REFUSE("precision.fp8_bf16_%s: leaves none of %" PRId64 " layers in fp8", p->fp8_bf16_last > 0 ? "last" : "first", c->model.layers);
  if (c->data.exact) REFUSE("data.exact: precision.compute fp8 scales what it multiplies, so that no integers are left");
  if (c->data.overflow) REFUSE("data.overflow: precision.compute fp8 scales by the largest number, which must be finite");
  /* Ranks that share a key and value head hold summands of its gradient: nobody could cast the gradient itself. */
  if (c->layout.tp > c->model.kv_heads)
    REFUSE("layout.tp: %" PRId64 " is more than model.kv_heads %" PRId64 ", which precision.compute fp8 cannot have", c->layout.tp,
           c->model.kv_heads);
  return SF_OK;
}

/* Multi-latent attention: every head has keys and values of its own, of which it rotates a part. */
static enum sf_status check_latent_attention(const struct sf_case *c, struct sf_error *error) {
  const struct sf_model *m = &c->model;
  const int64_t rope = m->qk_rope_dim;
  if (m->kv_lora_rank == 0) {
    if (m->q_lora_rank != 0) REFUSE("model.q_lora_rank: needs model.kv_lora_rank above 0");
    if (rope != 0) REFUSE("model.qk_rope_dim: needs model.kv_lora_rank above 0");
    return SF_OK;
  }
  if (m->positions != SF_POS_ROTARY) REFUSE("model.kv_lora_rank: needs rotary model.positions");
  if (m->kv_heads != m->heads) REFUSE("model.kv_lora_rank: model.kv_heads %" PRId64 " is not model.heads %" PRId64, m->kv_heads, m->heads);
  if (m->qk_norm) REFUSE("model.qk_norm: needs model.kv_lora_rank 0, whose latents have norms");
  if (rope == 0 || rope % 2 != 0) REFUSE("model.qk_rope_dim: %" PRId64 " columns are no pairs", rope);
  if (rope >= m->head_dim) REFUSE("model.qk_rope_dim: %" PRId64 " is not below model.head_dim %" PRId64, rope, m->head_dim);
  return SF_OK;
}

static enum sf_status check_moe(const struct sf_case *c, struct sf_error *error) {
  const struct sf_moe *m = &c->moe;
  const struct sf_layout *l = &c->layout;
  if (m->experts == 0) {
    if (l->ep != 1) REFUSE("layout.ep: needs moe.experts");
    if (l->etp != 1) REFUSE("layout.etp: needs moe.experts");
    for (int i = 0; i < sf_case_field_count; i++)
      if (strncmp(sf_case_fields[i].path, "moe.", 4) == 0 && sf_case_field_get(c, &sf_case_fields[i]) != sf_case_fields[i].smallest)
        REFUSE("%s: needs moe.experts", sf_case_fields[i].path);
    return SF_OK;
  }
  if (m->experts == 1) REFUSE("moe.experts: 1 leaves nothing to route");
  if (m->topk > m->experts) REFUSE("moe.topk: %" PRId64 " is more than moe.experts %" PRId64, m->topk, m->experts);
  if (l->tp > 1 && !l->sp) REFUSE("layout.sp: moe.experts needs it with layout.tp above 1");
  if (m->experts % l->ep != 0) REFUSE("layout.ep: %" PRId64 " does not divide moe.experts %" PRId64, l->ep, m->experts);
  if (m->shared_ffn % l->tp != 0) REFUSE("layout.tp: %" PRId64 " does not divide moe.shared_ffn %" PRId64, l->tp, m->shared_ffn);
  if (m->ffn % l->etp != 0) REFUSE("layout.etp: %" PRId64 " does not divide moe.ffn %" PRId64, l->etp, m->ffn);
  if (l->etp > 1 && m->experts / l->ep > 8)
    REFUSE("layout.etp: %" PRId64 " experts on a rank, more than 8 are not cut", m->experts / l->ep);
  if (l->tp * l->cp * l->dp % (l->ep * l->etp) != 0)
    REFUSE("layout.ep: ep * etp %" PRId64 " does not divide tp * cp * dp %" PRId64, l->ep * l->etp, l->tp * l->cp * l->dp);
  return SF_OK;
}

static enum sf_status check_tensor_parallel(const struct sf_case *c, struct sf_error *error) {
  const struct sf_model *m = &c->model;
  const int64_t tp = c->layout.tp;
  if (m->heads % tp != 0) REFUSE("layout.tp: %" PRId64 " does not divide model.heads %" PRId64, tp, m->heads);
  if (m->kv_heads % tp != 0 && tp % m->kv_heads != 0)
    REFUSE("layout.tp: %" PRId64 " neither divides model.kv_heads %" PRId64 " nor is a multiple of it", tp, m->kv_heads);
  if (m->ffn % tp != 0) REFUSE("layout.tp: %" PRId64 " does not divide model.ffn %" PRId64, tp, m->ffn);
  if (m->vocab_padded % tp != 0) REFUSE("layout.tp: %" PRId64 " does not divide model.vocab_padded %" PRId64, tp, m->vocab_padded);
  if (m->mtp_depth > 0 && m->hidden % tp != 0)
    REFUSE("layout.tp: %" PRId64 " does not divide model.hidden %" PRId64 ", as multi-token prediction needs it", tp, m->hidden);
  if (c->layout.sp && tp == 1) REFUSE("layout.sp: needs layout.tp above 1");
  if (c->layout.sp && m->seq % tp != 0) REFUSE("layout.sp: layout.tp %" PRId64 " does not divide model.seq %" PRId64, tp, m->seq);
  if (c->layout.sp && m->memory_seq % tp != 0)
    REFUSE("layout.sp: layout.tp %" PRId64 " does not divide model.memory_seq %" PRId64, tp, m->memory_seq);
  return SF_OK;
}

/* What tp may do besides cutting layers. */
static enum sf_status check_tensor_parallel_options(const struct sf_case *c, struct sf_error *error) {
  if (c->layout.tp_overlap && !c->layout.sp) REFUSE("layout.tp_overlap: needs layout.sp");
  if (!c->layout.recompute_sharded) return SF_OK;
  if (c->layout.tp == 1) REFUSE("layout.recompute_sharded: needs layout.tp above 1");
  if (c->layout.sp) REFUSE("layout.recompute_sharded: needs layout.sp off, which cuts what is saved already");
  if (c->train.recompute_layers == 0) REFUSE("layout.recompute_sharded: needs train.recompute_layers above 0");
  return SF_OK;
}

static enum sf_status check_context_parallel(const struct sf_case *c, struct sf_error *error) {
  const struct sf_model *m = &c->model;
  const int64_t cp = c->layout.cp, tp = c->layout.tp, parts = 2 * cp * (c->layout.sp ? tp : 1);
  if (cp == 1) {
    if (c->layout.cp_comm != SF_CP_RING) REFUSE("layout.cp_comm: needs layout.cp above 1");
    return SF_OK;
  }
  if (m->seq % parts != 0) REFUSE("layout.cp: %" PRId64 " parts do not divide model.seq %" PRId64, parts, m->seq);
  if (c->layout.cp_comm == SF_CP_A2A && m->kv_heads % (tp * cp) != 0)
    REFUSE("layout.cp_comm: a2a, and tp * cp %" PRId64 " does not divide model.kv_heads %" PRId64, tp * cp, m->kv_heads);
  if (m->memory_seq != 0) REFUSE("model.memory_seq: not supported yet with layout.cp above 1");
  return SF_OK;
}

static enum sf_status check_stages(const struct sf_case *c, struct sf_error *error) {
  const struct sf_layout *l = &c->layout;
  const int64_t layers = c->model.layers, first = l->pp_first_layers, last = l->pp_last_layers;
  if (l->pp > layers) REFUSE("layout.pp: %" PRId64 " stages for %" PRId64 " layers", l->pp, layers);
  if (l->pp == 1 && first != 0) REFUSE("layout.pp_first_layers: needs layout.pp above 1");
  if (l->pp == 1 && last != 0) REFUSE("layout.pp_last_layers: needs layout.pp above 1");
  const int64_t sharing = l->pp - (first > 0) - (last > 0), left = layers - first - last;
  const char *field = first > 0 ? "layout.pp_first_layers" : last > 0 ? "layout.pp_last_layers" : "layout.pp";
  if (left < sharing || (sharing == 0 && left != 0))
    REFUSE("%s: leaves %" PRId64 " layers for %" PRId64 " stages", field, left, sharing);
  if (sharing > 0 && left % sharing != 0) REFUSE("%s: %" PRId64 " layers do not divide over %" PRId64 " stages", field, left, sharing);
  return SF_OK;
}

/* Interleaved stages: layers in equal parts, microbatches in groups of pp (Megatron's rules). */
static enum sf_status check_chunks(const struct sf_case *c, struct sf_error *error) {
  const struct sf_layout *l = &c->layout;
  if (l->vpp == 1) return SF_OK;
  if (l->pp == 1) REFUSE("layout.vpp: needs layout.pp above 1");
  if (l->pp_first_layers != 0) REFUSE("layout.pp_first_layers: needs layout.vpp 1");
  if (l->pp_last_layers != 0) REFUSE("layout.pp_last_layers: needs layout.vpp 1");
  if (c->model.layers % (l->pp * l->vpp) != 0)
    REFUSE("layout.vpp: %" PRId64 " layers do not divide over pp * vpp = %" PRId64 " stages", c->model.layers, l->pp * l->vpp);
  if (c->train.microbatches / l->dp % l->pp != 0)
    REFUSE("layout.vpp: layout.pp %" PRId64 " does not divide the %" PRId64 " microbatches of a data-parallel rank", l->pp,
           c->train.microbatches / l->dp);
  return SF_OK;
}

static enum sf_status check_layout(const struct sf_case *c, struct sf_error *error) {
  const struct sf_layout *l = &c->layout;
  enum sf_axis order[SF_AXIS_COUNT];
  struct sf_error reason = {0};
  if (sf_mesh_parse_order(order, l->order, &reason) != SF_OK) REFUSE("layout.order: %s", reason.text);
  /* In steps, because the whole product may not fit. */
  const int64_t wide = l->tp * l->cp;
  if (wide > 65536 || wide * l->dp > 65536 || wide * l->dp * l->pp > 65536) REFUSE("layout.dp: more than 65536 ranks");
  if (c->train.microbatches % l->dp != 0)
    REFUSE("layout.dp: %" PRId64 " does not divide train.microbatches %" PRId64, l->dp, c->train.microbatches);
  if (l->zero > 0 && l->dp == 1 && l->cp == 1) REFUSE("layout.zero: needs layout.dp or layout.cp above 1");
  return SF_OK;
}

static enum sf_status check_fields(const struct sf_case *c, struct sf_error *error) {
  enum sf_status status = check_ranges(c, error);
  if (status == SF_OK) status = check_model(c, error);
  if (status == SF_OK) status = check_latent_attention(c, error);
  if (status == SF_OK) status = check_tensor_parallel(c, error);
  if (status == SF_OK) status = check_tensor_parallel_options(c, error);
  if (status == SF_OK) status = check_context_parallel(c, error);
  if (status == SF_OK) status = check_fp8(c, error);
  if (status == SF_OK) status = check_stages(c, error);
  if (status == SF_OK) status = check_layout(c, error);
  if (status == SF_OK) status = check_chunks(c, error);
  if (status == SF_OK) status = check_moe(c, error);
  return status;
}

static enum sf_status check_without_reload(const struct sf_case *c, struct sf_error *error) {
  struct sf_case smallest;
  sf_case_init(&smallest);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    const char *at = (const char *)c + field->offset, *least = (const char *)&smallest + field->offset;
    if (strncmp(field->path, "reload.", 7) != 0) continue;
    const bool is_same = field->type == SF_FIELD_TEXT ? strcmp(at, least) == 0 : memcmp(at, least, field->size_bytes) == 0;
    if (!is_same) REFUSE("%s: needs reload.after_step above 0", field->path);
  }
  return SF_OK;
}

/* Every rule of the layout holds for the second one, and is told with its names. */
static enum sf_status check_second_layout(const struct sf_case *c, struct sf_error *error) {
  const struct sf_case second = sf_case_after_reload(c);
  struct sf_error reason = {0};
  if (check_fields(&second, &reason) == SF_OK) return SF_OK;
  for (char *at = reason.text; (at = strstr(at, "layout.")) != NULL; at += 7) memcpy(at, "reload.", 7);
  REFUSE("%s", reason.text);
}

static enum sf_status check_reload(const struct sf_case *c, struct sf_error *error) {
  if (c->reload.after_step == 0) return check_without_reload(c, error);
  if (c->reload.after_step >= c->train.steps)
    REFUSE("reload.after_step: %" PRId64 " is not below train.steps %" PRId64, c->reload.after_step, c->train.steps);
  const enum sf_status status = check_second_layout(c, error);
  if (status != SF_OK) return status;
  const struct sf_case second = sf_case_after_reload(c);
  if (sf_case_ranks(&second) != sf_case_ranks(c))
    REFUSE("reload.dp: %" PRId64 " ranks, and the first layout has %" PRId64, sf_case_ranks(&second), sf_case_ranks(c));
  return SF_OK;
}

enum sf_status sf_case_validate(const struct sf_case *c, struct sf_error *error) {
  if (sf_case_is_framework(c)) return sf_case_validate_framework(c, error);
  const enum sf_status status = check_fields(c, error);
  return status == SF_OK ? check_reload(c, error) : status;
}
