#include "harness/spec/case_rules.h"

#include "harness/base/assert.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A rule of the layout holds of both layouts of a case that reloads: where a row says "layout.", it stands for a second one that says
 * "reload.". */
static const struct {
  const char *text, *why;
} rows[] = {
    /* saving and loading */
    {"reload.* needs reload.after_step > 0", NULL},
    {"reload.after_step < train.steps", NULL},
    /* the model */
    {"model.kv_heads divides model.heads", NULL},
    {"model.heads * model.head_dim <= 65536", NULL},
    {"2 divides model.head_dim if model.positions = rotary", "a rotation turns pairs of columns"},
    {"model.vocab <= model.vocab_padded", NULL},
    {"model.seq * train.microbatch_size <= 1048576", NULL},
    {"model.memory_seq * train.microbatch_size <= 1048576", NULL},
    {"model.memory_seq excludes model.parallel_residual", "it has no place for cross-attention"},
    {"train.recompute_layers <= model.layers", NULL},
    {"data.exact needs mode = isolated", NULL},
    {"data.overflow needs mode = isolated", NULL},
    {"data.overflow needs precision.loss_scale_log2 > 0", NULL},
    {"data.overflow excludes data.exact", "exact numbers are integers"},
    /* precision */
    {"precision.loss_scale_window needs precision.loss_scale_log2 > 0", NULL},
    {"precision.stochastic needs precision.compute = bf16", NULL},
    {"precision.fp8_recipe needs precision.compute = fp8", NULL},
    {"precision.fp8_history needs precision.fp8_recipe = delayed", NULL},
    {"precision.fp8_bf16_first needs precision.compute = fp8", NULL},
    {"precision.fp8_bf16_last needs precision.compute = fp8", NULL},
    {"precision.fp8_bf16_first + precision.fp8_bf16_last < model.layers", "some layer computes in fp8"},
    {"data.exact excludes precision.compute = fp8", "a cast scales its numbers, so that no integers are left"},
    {"data.overflow excludes precision.compute = fp8", "a cast scales by the largest number, which must be finite"},
    {"layout.tp <= model.kv_heads if precision.compute = fp8",
     "ranks that share a key and value head hold summands of its gradient, and nobody could cast the gradient itself"},
    /* multi-latent attention: every head has keys and values of its own, of which it rotates a part */
    {"model.q_lora_rank needs model.kv_lora_rank > 0", NULL},
    {"model.qk_rope_dim needs model.kv_lora_rank > 0", NULL},
    {"model.kv_lora_rank needs model.positions = rotary", NULL},
    {"model.kv_lora_rank needs model.qk_rope_dim > 0", NULL},
    {"model.kv_heads = model.heads if model.kv_lora_rank > 0", NULL},
    {"model.qk_norm excludes model.kv_lora_rank > 0", "latents have norms of their own"},
    {"2 divides model.qk_rope_dim", "a rotation turns pairs of columns"},
    {"model.qk_rope_dim < model.head_dim", NULL},
    /* tensor parallelism */
    {"layout.tp divides model.heads", NULL},
    {"layout.tp divides model.kv_heads or model.kv_heads divides layout.tp", NULL},
    {"layout.tp divides model.ffn", NULL},
    {"layout.tp divides model.vocab_padded", NULL},
    {"layout.tp divides model.hidden if model.mtp_depth > 0", NULL},
    {"layout.sp needs layout.tp > 1", NULL},
    {"layout.tp divides model.seq if layout.sp = on", NULL},
    {"layout.tp divides model.memory_seq if layout.sp = on", NULL},
    {"layout.tp_overlap needs layout.sp = on", NULL},
    {"layout.recompute_sharded needs layout.tp > 1", NULL},
    {"layout.recompute_sharded excludes layout.sp = on", "it cuts what is saved already"},
    {"layout.recompute_sharded needs train.recompute_layers > 0", NULL},
    /* context parallelism */
    {"layout.cp_comm needs layout.cp > 1", NULL},
    {"2 * layout.cp divides model.seq if layout.cp > 1", "each rank has a chunk of either end"},
    {"2 * layout.cp * layout.tp divides model.seq if layout.cp > 1 and layout.sp = on", "each rank has a chunk of either end"},
    {"layout.tp * layout.cp divides model.kv_heads if layout.cp_comm = a2a", NULL},
    {"model.memory_seq excludes layout.cp > 1", "not supported yet"},
    /* pipeline parallelism: what the first and the last stage leave is shared by the others; chunks are even (Megatron's rules) */
    {"layout.pp_first_layers needs layout.pp > 1", NULL},
    {"layout.pp_last_layers needs layout.pp > 1", NULL},
    {"layout.vpp needs layout.pp > 1", NULL},
    {"layout.vpp excludes layout.pp_first_layers > 0", NULL},
    {"layout.vpp excludes layout.pp_last_layers > 0", NULL},
    {"layout.pp - has(layout.pp_first_layers) - has(layout.pp_last_layers) <= model.layers - layout.pp_first_layers - "
     "layout.pp_last_layers",
     "every stage needs a layer"},
    {"layout.pp - has(layout.pp_first_layers) - has(layout.pp_last_layers) divides model.layers - layout.pp_first_layers - "
     "layout.pp_last_layers",
     "the other stages share the layers evenly"},
    {"layout.pp * layout.vpp divides model.layers if layout.vpp > 1", NULL},
    {"layout.dp * layout.pp divides train.microbatches if layout.vpp > 1", "interleaved microbatches go in groups of layout.pp"},
    /* the world */
    {"layout.tp * layout.cp * layout.dp * layout.pp <= max_ranks", NULL},
    {"layout.dp divides train.microbatches", NULL},
    {"layout.zero needs layout.dp > 1 or layout.cp > 1", NULL},
    /* experts */
    {"moe.* needs moe.experts > 0", NULL},
    {"layout.ep needs moe.experts > 0", NULL},
    {"layout.etp needs moe.experts > 0", NULL},
    {"moe.experts != 1", "one expert leaves nothing to route"},
    {"moe.topk <= moe.experts if moe.experts > 0", NULL},
    {"layout.sp = on if moe.experts > 0 and layout.tp > 1", NULL},
    {"layout.ep divides moe.experts", NULL},
    {"layout.etp divides moe.ffn", NULL},
    {"layout.tp divides moe.shared_ffn", NULL},
    {"moe.experts <= 8 * layout.ep if layout.etp > 1", "more than 8 experts on a rank are not cut"},
    {"layout.ep * layout.etp divides layout.tp * layout.cp * layout.dp", NULL},
    /* what a campaign leaves out */
    {"limit.fp32 > 0 if precision.compute = fp32", NULL},
    {"limit.bf16 > 0 if precision.compute = bf16", NULL},
    {"limit.fp16 > 0 if precision.compute = fp16", NULL},
    {"limit.fp8 > 0 if precision.compute = fp8", NULL},
    {"train.frozen < 63 or model.tied = off or model.adapter = on or limit.untrained > 0", "something is left to train"},
    {"reload.tp * reload.cp * reload.dp * reload.pp = layout.tp * layout.cp * layout.dp * layout.pp if reload.after_step > 0", NULL},
};

static struct sf_space_field fields[SF_SPACE_FIELDS_MAX];
static struct sf_rules rules;

/* "layout." becomes "reload."; both names are as long. False: the row has none, or names both. */
static bool second_layout(char *out, const char *text) {
  bool any = false;
  if (strstr(text, "reload.") != NULL) return false;
  for (char *at = strcpy(out, text); (at = strstr(at, "layout.")) != NULL; at += 7) {
    memcpy(at, "reload.", 7);
    any = true;
  }
  return any;
}

static const struct sf_space_field limits[] = {
    {"max_ranks", SF_CASE_RANKS_MAX, NULL},
    {"limit.fp32", 1, NULL},
    {"limit.bf16", 1, NULL},
    {"limit.fp16", 1, NULL},
    {"limit.fp8", 1, NULL},
    {"limit.untrained", 1, NULL},
};
SF_ASSERT_ENTRIES(limits, SF_LIMIT_COUNT);
_Static_assert(SF_FROZEN_ALL == 63, "the rule of what is left to train");

static void make_rules(void) {
  static const char *const switches[] = {"off", "on", NULL};
  SF_ASSERT_LE(sf_case_field_count + SF_LIMIT_COUNT, SF_SPACE_FIELDS_MAX);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    fields[i] = (struct sf_space_field){field->path, field->smallest,
                                        field->type == SF_FIELD_BOOL   ? switches
                                        : field->type == SF_FIELD_ENUM ? field->names
                                                                       : NULL};
  }
  memcpy(fields + sf_case_field_count, limits, sizeof limits);
  sf_rules_init(&rules, fields, sf_case_field_count + SF_LIMIT_COUNT);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char second[sizeof rules.rule[0].text];
    sf_rules_add(&rules, rows[i].text, rows[i].why);
    if (second_layout(second, rows[i].text)) sf_rules_add(&rules, second, rows[i].why);
  }
}

const struct sf_rules *sf_case_rules(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const int failed = pthread_once(&once, make_rules);
  SF_ASSERT_EQ(failed, 0);
  return &rules;
}

void sf_case_row(int64_t *row, const struct sf_case *c) {
  for (int i = 0; i < sf_case_field_count; i++)
    row[i] = sf_case_fields[i].type == SF_FIELD_TEXT ? 0 : sf_case_field_get(c, &sf_case_fields[i]);
  for (int i = 0; i < SF_LIMIT_COUNT; i++) row[sf_case_field_count + i] = limits[i].plain;
}
