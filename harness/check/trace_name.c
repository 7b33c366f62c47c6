#include "harness/check/trace_name.h"

#include "harness/base/bytes.h"
#include "harness/base/names.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 18 };

/* One or more digits at *at, which is moved behind them. */
static bool take_number(int64_t *out, const char **at) {
  const char *begin = *at;
  *out = 0;
  while (**at >= '0' && **at <= '9' && *at - begin < DIGITS_MAX) *out = 10 * *out + (*(*at)++ - '0');
  return *at > begin;
}

static bool take_text(const char **at, const char *text) {
  const size_t length = strlen(text);
  if (strncmp(*at, text, length) != 0) return false;
  *at += length;
  return true;
}

static bool take_pass(enum sf_pass *out, const char **at) {
  for (int i = SF_PASS_FWD; i <= SF_PASS_STEP; i++) {
    *out = (enum sf_pass)i;
    if (take_text(at, sf_pass_name(*out))) return true;
  }
  return false;
}

/* Compares up to the next slash, because "act_grad" begins with "act". */
static bool take_kind(enum sf_kind *out, const char **at) {
  const size_t length = strcspn(*at, "/");
  for (int i = 0; i < SF_KIND_COUNT; i++) {
    *out = (enum sf_kind)i;
    const char *text = sf_kind_name(*out);
    if (strlen(text) != length || strncmp(*at, text, length) != 0) continue;
    *at += length;
    return true;
  }
  return false;
}

static bool is_call(const char *text) {
  int64_t call, repeat;
  if (!take_number(&call, &text)) return false;
  return *text == '\0' || (take_text(&text, "#") && take_number(&repeat, &text) && *text == '\0');
}

bool sf_trace_name_parse(struct sf_trace_name *out, const char *text) {
  const char *at = text;
  struct sf_trace_name name;
  if (!take_text(&at, "s") || !take_number(&name.step, &at) || !take_text(&at, "/mb") || !take_number(&name.microbatch, &at)) return false;
  if (!take_text(&at, "/") || !take_pass(&name.pass, &at) || !take_text(&at, "/") || !take_kind(&name.kind, &at) || !take_text(&at, "/"))
    return false;
  const char *last = strrchr(at, '/');
  if (last == NULL || last == at || !is_call(last + 1)) return false;
  name.subject = at;
  name.subject_length = (int32_t)(last - at);
  *out = name;
  return true;
}

bool sf_trace_name_is_subject(const struct sf_trace_name *name, const char *subject) {
  return strlen(subject) == (size_t)name->subject_length && strncmp(name->subject, subject, strlen(subject)) == 0;
}

/* A part of a subject, between dots. */
struct part {
  const char *text;
  int length;
  bool is_number;
};

/* The next part behind `last`, from {NULL} on; false at the end. */
static bool next_part(struct part *out, const struct sf_trace_name *name) {
  const char *const end = name->subject + name->subject_length, *const at = out->text ? out->text + out->length + 1 : name->subject;
  if (at >= end) return false;
  const char *dot = memchr(at, '.', (size_t)(end - at));
  const int length = (int)((dot ? dot : end) - at);
  *out = (struct part){at, length, length > 0 && strspn(at, "0123456789") >= (size_t)length};
  return true;
}

static bool part_is(const struct part *part, const char *text) {
  return strlen(text) == (size_t)part->length && memcmp(part->text, text, strlen(text)) == 0;
}

enum sf_status sf_trace_name_module(char *out, size_t size, const struct sf_trace_name *name) {
  struct sf_text text = {0};
  struct part part = {NULL};
  bool behind_layers = false, begins_layer = false;
  sf_text_append(&text, "%s", "");
  while (!text.failed && next_part(&part, name)) {
    if (part.is_number && behind_layers) text.length = 0, *text.data = '\0'; /* the part before it says where the layer stands */
    const bool wraps =
        begins_layer && part_is(&part, "transformer_layer"); /* Megatron's layer of multi-token prediction around a usual one */
    if (!part.is_number && !wraps) sf_text_append(&text, "%s%.*s", text.length > 0 ? "." : "", part.length, part.text);
    begins_layer = part.is_number && behind_layers;
    behind_layers = part_is(&part, "layers");
  }
  const enum sf_status status = text.failed ? SF_ENOMEM : SF_OK;
  if (status == SF_OK)
    sf_name_fit(out, size, text.data, text.length);
  else
    *out = '\0';
  sf_text_destroy(&text);
  return status;
}

int32_t sf_trace_name_layer(const struct sf_trace_name *name) {
  struct part part = {NULL};
  bool behind_experts = false;
  while (next_part(&part, name)) {
    if (part.is_number && !behind_experts && part.length < 10) return (int32_t)strtol(part.text, NULL, 10);
    behind_experts = part_is(&part, "experts") || part_is(&part, "local_experts");
  }
  return -1;
}
