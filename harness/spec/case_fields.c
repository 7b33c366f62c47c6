/* The table of fields: the one place that knows which fields a case has, their ranges and their texts. */
#include "harness/base/assert.h"
#include "harness/base/nearest.h"
#include "harness/spec/case_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(constant, name) name,
static const char *const MODE_NAMES[] = {SF_MODE_MAP(NAME) NULL};
static const char *const NORM_NAMES[] = {SF_NORM_MAP(NAME) NULL};
static const char *const ACTIVATION_NAMES[] = {SF_ACTIVATION_MAP(NAME) NULL};
static const char *const POSITION_NAMES[] = {SF_POSITIONS_MAP(NAME) NULL};
static const char *const COMPUTE_NAMES[] = {SF_COMPUTE_MAP(NAME) NULL};
static const char *const FP8_RECIPE_NAMES[] = {SF_FP8_RECIPE_MAP(NAME) NULL};
static const char *const ROUTER_NAMES[] = {SF_ROUTER_MAP(NAME) NULL};
static const char *const SCOPE_NAMES[] = {SF_SCOPE_MAP(NAME) NULL};
static const char *const LOSS_NORM_NAMES[] = {SF_LOSS_NORM_MAP(NAME) NULL};
static const char *const CP_COMM_NAMES[] = {SF_CP_COMM_MAP(NAME) NULL};
static const char *const FROZEN_NAMES[] = {"embedding", "qkv", "proj", "fc1", "fc2", "norms", NULL};
static const char *const TOKEN_NAMES[] = {SF_TOKENS_MAP(NAME) NULL};
static const char *const MASK_NAMES[] = {SF_MASK_MAP(NAME) NULL};
static const char *const DIST_NAMES[] = {SF_DIST_MAP(NAME) NULL};
#undef NAME

_Static_assert((int)SF_COMPUTE_FP32 == (int)SF_F32 && (int)SF_COMPUTE_BF16 == (int)SF_BF16 && (int)SF_COMPUTE_FP16 == (int)SF_F16,
               "what is stored as it is computed has one number");
_Static_assert(SF_FROZEN_ALL == (1 << (sizeof FROZEN_NAMES / sizeof FROZEN_NAMES[0] - 1)) - 1, "a name for each frozen bit");

#define MEMBER(member) offsetof(struct sf_case, member), sizeof(((struct sf_case *)NULL)->member)
#define COUNT_OF(names) ((int64_t)(sizeof(names) / sizeof(names)[0]) - 1)
#define INT(path, member, least, most, small) {path, SF_FIELD_INT, MEMBER(member), least, most, small, NULL}
#define BOOL(path, member) {path, SF_FIELD_BOOL, MEMBER(member), 0, 1, 0, NULL}
#define ENUM(path, member, names) {path, SF_FIELD_ENUM, MEMBER(member), 0, COUNT_OF(names) - 1, 0, names}
#define FLAGS(path, member, names) {path, SF_FIELD_FLAGS, MEMBER(member), 0, (INT64_C(1) << COUNT_OF(names)) - 1, 0, names}
#define TEXT(path, member) {path, SF_FIELD_TEXT, MEMBER(member), 0, 0, 0, NULL}

/* The fields of a layout; group: what stands before their names. */
#define LAYOUT(group, member)                                             \
  INT(group ".tp", member.tp, 1, 65536, 1),                               \
  INT(group ".cp", member.cp, 1, 65536, 1),                               \
  ENUM(group ".cp_comm", member.cp_comm, CP_COMM_NAMES),                  \
  INT(group ".ep", member.ep, 1, 65536, 1),                               \
  INT(group ".etp", member.etp, 1, 65536, 1),                             \
  INT(group ".dp", member.dp, 1, 65536, 1),                               \
  INT(group ".pp", member.pp, 1, 128, 1),                                 \
  INT(group ".vpp", member.vpp, 1, 128, 1),                               \
  INT(group ".zero", member.zero, 0, 2, 0),                               \
  TEXT(group ".order", member.order),                                     \
  BOOL(group ".sp", member.sp),                                           \
  INT(group ".pp_first_layers", member.pp_first_layers, 0, 128, 0),       \
  INT(group ".pp_last_layers", member.pp_last_layers, 0, 128, 0),         \
  INT(group ".bucket_elements", member.bucket_elements, 0, INT64_MAX, 0), \
  BOOL(group ".overlap", member.overlap),                                 \
  BOOL(group ".recompute_sharded", member.recompute_sharded),             \
  BOOL(group ".tp_overlap", member.tp_overlap)

const struct sf_field sf_case_fields[] = {
    INT("seed", seed, 0, INT64_MAX, 0),
    ENUM("mode", mode, MODE_NAMES),
    INT("model.layers", model.layers, 1, 128, 1),
    INT("model.hidden", model.hidden, 1, 65536, 8),
    INT("model.heads", model.heads, 1, 65536, 1),
    INT("model.kv_heads", model.kv_heads, 1, 65536, 1),
    INT("model.head_dim", model.head_dim, 1, 65536, 4),
    INT("model.ffn", model.ffn, 1, 65536, 8),
    INT("model.vocab", model.vocab, 2, 1048576, 8),
    INT("model.vocab_padded", model.vocab_padded, 2, 1048576, 8),
    INT("model.seq", model.seq, 1, 65536, 4),
    ENUM("model.norm", model.norm, NORM_NAMES),
    ENUM("model.activation", model.activation, ACTIVATION_NAMES),
    ENUM("model.positions", model.positions, POSITION_NAMES),
    BOOL("model.bias", model.bias),
    BOOL("model.tied", model.tied),
    BOOL("model.adapter", model.adapter),
    BOOL("model.qk_norm", model.qk_norm),
    BOOL("model.sinks", model.sinks),
    INT("model.window", model.window, 0, 65536, 0),
    INT("model.kv_lora_rank", model.kv_lora_rank, 0, 65536, 0),
    INT("model.q_lora_rank", model.q_lora_rank, 0, 65536, 0),
    INT("model.qk_rope_dim", model.qk_rope_dim, 0, 65536, 0),
    BOOL("model.parallel_residual", model.parallel_residual),
    BOOL("model.post_norm", model.post_norm),
    INT("model.memory_seq", model.memory_seq, 0, 65536, 0),
    INT("model.mtp_depth", model.mtp_depth, 0, 2, 0),
    INT("moe.experts", moe.experts, 0, 1024, 0),
    INT("moe.topk", moe.topk, 1, 64, 1),
    INT("moe.ffn", moe.ffn, 1, 65536, 8),
    ENUM("moe.router", moe.router, ROUTER_NAMES),
    ENUM("moe.scope", moe.scope, SCOPE_NAMES),
    INT("moe.capacity_milli", moe.capacity_milli, 0, 1000000, 0),
    INT("moe.shared_ffn", moe.shared_ffn, 0, 65536, 0),
    INT("moe.aux_micro", moe.aux_micro, 0, 1000000000, 0),
    INT("moe.z_micro", moe.z_micro, 0, 1000000000, 0),
    ENUM("precision.compute", precision.compute, COMPUTE_NAMES),
    BOOL("precision.residual_fp32", precision.residual_fp32),
    BOOL("precision.stochastic", precision.stochastic),
    INT("precision.loss_scale_log2", precision.loss_scale_log2, 0, 24, 0),
    INT("precision.loss_scale_window", precision.loss_scale_window, 0, 1000, 0),
    ENUM("precision.fp8_recipe", precision.fp8_recipe, FP8_RECIPE_NAMES),
    INT("precision.fp8_history", precision.fp8_history, 1, SF_FP8_HISTORY_MAX, 1),
    INT("precision.fp8_bf16_first", precision.fp8_bf16_first, 0, 128, 0),
    INT("precision.fp8_bf16_last", precision.fp8_bf16_last, 0, 128, 0),
    INT("train.steps", train.steps, 1, SF_STEPS_MAX, 1),
    INT("train.microbatches", train.microbatches, 1, 65535, 1),
    INT("train.microbatch_size", train.microbatch_size, 1, 65536, 1),
    ENUM("train.loss_norm", train.loss_norm, LOSS_NORM_NAMES),
    INT("train.recompute_layers", train.recompute_layers, 0, 128, 0),
    INT("train.clip_milli", train.clip_milli, 0, 1000000000, 0),
    INT("train.lr_micro", train.lr_micro, 0, 1000000, 1000),
    INT("train.weight_decay_milli", train.weight_decay_milli, 0, 1000000, 0),
    INT("train.beta1_milli", train.beta1_milli, 0, 999, 900),
    INT("train.beta2_milli", train.beta2_milli, 0, 999, 999),
    FLAGS("train.frozen", train.frozen, FROZEN_NAMES),
    INT("train.dropout_milli", train.dropout_milli, 0, 999, 0),
    INT("train.mtp_weight_milli", train.mtp_weight_milli, 1, 10000, 100),
    INT("train.label_smoothing_milli", train.label_smoothing_milli, 0, 999, 0),
    ENUM("data.tokens", data.tokens, TOKEN_NAMES),
    ENUM("data.mask", data.mask, MASK_NAMES),
    ENUM("data.weights", data.weights, DIST_NAMES),
    ENUM("data.acts", data.acts, DIST_NAMES),
    ENUM("data.grads", data.grads, DIST_NAMES),
    BOOL("data.exact", data.exact),
    BOOL("data.overflow", data.overflow),
    INT("data.documents", data.documents, 1, 64, 1),
    INT("data.padding", data.padding, 0, 65536, 0),
    LAYOUT("layout", layout),
    INT("reload.after_step", reload.after_step, 0, 2, 0),
    LAYOUT("reload", reload.layout),
    INT("schedule", schedule, 0, INT64_MAX, 0),
    TEXT("target.name", target),
    TEXT("plant.id", plant),
};
const int sf_case_field_count = (int)(sizeof sf_case_fields / sizeof sf_case_fields[0]);

enum sf_dtype sf_case_storage(const struct sf_case *c) {
  return c->precision.compute == SF_COMPUTE_FP8 ? SF_BF16 : (enum sf_dtype)c->precision.compute;
}

const char *sf_compute_name(int64_t compute) {
  SF_ASSERT(compute >= 0 && compute < SF_COMPUTE_COUNT);
  return COMPUTE_NAMES[compute];
}

const char *sf_verdict_name(enum sf_verdict verdict) {
  static const char *const names[] = {
#define X(name, meaning) #name,
      SF_VERDICT_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)verdict, SF_VERDICT_COUNT);
  return names[verdict];
}

const struct sf_field *sf_case_field_find(const char *path) {
  for (int i = 0; i < sf_case_field_count; i++)
    if (strcmp(sf_case_fields[i].path, path) == 0) return &sf_case_fields[i];
  return NULL;
}

int64_t sf_case_field_get(const struct sf_case *c, const struct sf_field *field) {
  SF_ASSERT(field->type != SF_FIELD_TEXT);
  const char *at = (const char *)c + field->offset;
  return field->type == SF_FIELD_BOOL ? *(const bool *)at : *(const int64_t *)(const void *)at;
}

void sf_case_field_put(struct sf_case *c, const struct sf_field *field, int64_t value) {
  SF_ASSERT(field->type != SF_FIELD_TEXT);
  char *at = (char *)c + field->offset;
  if (field->type == SF_FIELD_BOOL) {
    SF_ASSERT(value == 0 || value == 1);
    *(bool *)at = value != 0;
  } else {
    *(int64_t *)(void *)at = value;
  }
}

const char *sf_case_choice(const struct sf_case *c, const char *path) {
  const struct sf_field *field = sf_case_field_find(path);
  SF_ASSERT(field != NULL && field->type == SF_FIELD_ENUM);
  const int64_t value = sf_case_field_get(c, field);
  SF_ASSERT_LE(0, value);
  SF_ASSERT_LE(value, field->max);
  return field->names[value];
}

bool sf_case_text_ok(const char *text) {
  return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-")] == '\0';
}

enum sf_status sf_case_field_check(const struct sf_field *field, int64_t value, struct sf_error *error) {
  if (value >= field->min && value <= field->max) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: %" PRId64 " is not in %" PRId64 "..%" PRId64, field->path, value, field->min, field->max);
}

enum sf_status sf_field_name_read(int64_t *index, const struct sf_field *field, const char *name, size_t length, struct sf_error *error) {
  char word[SF_NEAREST_LETTERS + 1];
  snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), name);
  struct sf_nearest nearest = sf_nearest_to(word);
  for (int i = 0; field->names[i] != NULL; i++) {
    *index = i;
    if (strlen(field->names[i]) == length && memcmp(field->names[i], name, length) == 0) return SF_OK;
    sf_nearest_offer(&nearest, field->names[i]);
  }
  return sf_error_set(error, SF_EINPUT, "%s: \"%s\" is not one of its names%s", field->path, word, sf_nearest_text(&nearest));
}

enum sf_status sf_case_field_unknown(const char *path, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(path);
  for (int i = 0; i < sf_case_field_count; i++) sf_nearest_offer(&nearest, sf_case_fields[i].path);
  return sf_error_set(error, SF_EINPUT, "%s: no such field%s", path, sf_nearest_text(&nearest));
}

enum sf_status sf_case_field_put_text(struct sf_case *c, const struct sf_field *field, const char *value, struct sf_error *error) {
  const size_t length = strlen(value);
  if (length >= field->size_bytes)
    return sf_error_set(error, SF_EINPUT, "%s: longer than %zu characters", field->path, field->size_bytes - 1);
  if (!sf_case_text_ok(value)) return sf_error_set(error, SF_EINPUT, "%s: characters other than A-Z a-z 0-9 . _ : / -", field->path);
  char *at = (char *)c + field->offset;
  memset(at, 0, field->size_bytes); /* equal cases are equal bytes */
  memcpy(at, value, length);
  return SF_OK;
}

/* --- values as the command line gives them -------------------------------------------------------------------- */

static enum sf_status parse_int(int64_t *out, const struct sf_field *field, const char *value, struct sf_error *error) {
  const size_t digits = strspn(value, "0123456789");
  if (digits == 0 || value[digits] != '\0') return sf_error_set(error, SF_EINPUT, "%s: \"%s\" is not a number", field->path, value);
  errno = 0;
  const long long number = strtoll(value, NULL, 10);
  if (errno != 0) return sf_error_set(error, SF_EINPUT, "%s: %s is too large", field->path, value);
  *out = number;
  return SF_OK;
}

static enum sf_status parse_bool(int64_t *out, const struct sf_field *field, const char *value, struct sf_error *error) {
  static const char *const WORDS[] = {"false", "true", "off", "on"};
  for (int i = 0; i < 4; i++) {
    if (strcmp(value, WORDS[i]) != 0) continue;
    *out = i % 2;
    return SF_OK;
  }
  return sf_error_set(error, SF_EINPUT, "%s: \"%s\" is none of true, false, on, off", field->path, value);
}

static enum sf_status parse_flags(int64_t *out, const struct sf_field *field, const char *value, struct sf_error *error) {
  *out = 0;
  if (strcmp(value, "none") == 0) return SF_OK;
  for (const char *at = value;; at++) {
    const size_t length = strcspn(at, "+");
    int64_t bit = 0;
    const enum sf_status status = sf_field_name_read(&bit, field, at, length, error);
    if (status != SF_OK) return status;
    *out |= INT64_C(1) << bit;
    at += length;
    if (*at == '\0') return SF_OK;
  }
}

enum sf_status sf_case_field_parse(struct sf_case *c, const char *path, const char *value, struct sf_error *error) {
  const struct sf_field *field = sf_case_field_find(path);
  if (field == NULL) return sf_case_field_unknown(path, error);
  if (field->type == SF_FIELD_TEXT) return sf_case_field_put_text(c, field, value, error);
  int64_t number = 0;
  enum sf_status status = SF_OK;
  switch (field->type) {
  case SF_FIELD_INT: status = parse_int(&number, field, value, error); break;
  case SF_FIELD_BOOL: status = parse_bool(&number, field, value, error); break;
  case SF_FIELD_ENUM:
    status = sf_field_name_read(&number, field, value, strlen(value), error);
    break;
  case SF_FIELD_FLAGS: status = parse_flags(&number, field, value, error); break;
  case SF_FIELD_TEXT: break;
  }
  if (status == SF_OK) status = sf_case_field_check(field, number, error);
  if (status == SF_OK) sf_case_field_put(c, field, number);
  return status;
}
