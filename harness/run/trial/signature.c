#include "harness/run/trial/signature.h"

#include <stdio.h>
#include <string.h>

#define AXIS_MAP(X)                                                                                                                        \
  X(TP, "tp") X(SP, "sp") X(CP, "cp") X(EP, "ep") X(ETP, "etp") X(EDP, "edp") X(DP, "dp") X(PP, "pp") X(VPP, "vpp") X(ISOLATED, "isolated")
enum {
#define X(NAME, text) NAME,
  AXIS_MAP(X)
#undef X
      AXIS_COUNT
};
static const char *const axis_names[] = {
#define X(NAME, text) text,
    AXIS_MAP(X)
#undef X
};
#define BIT(axis) (1u << (axis))
static const unsigned SEATS = BIT(TP) | BIT(SP) | BIT(CP) | BIT(DP), /* the axes that the experts' ranks come from */
    NEWER = BIT(ETP) | BIT(EDP),                                     /* signatures of the older form lack these */
    OF_DATA = BIT(DP) | BIT(CP) | BIT(EDP) | BIT(EP) | BIT(ETP);

/* --- axes -------------------------------------------------------------------------------------------------------- */

static unsigned axes_of_layout(const struct sf_layout *l) {
  const int64_t ranks = l->tp * l->cp * l->dp; /* of a pipeline stage */
  return (l->tp > 1) * BIT(TP) | l->sp * BIT(SP) | (l->cp > 1) * BIT(CP) | (l->ep > 1) * BIT(EP) | (l->etp > 1) * BIT(ETP) |
         (ranks > l->etp * l->ep) * BIT(EDP) | (l->dp > 1) * BIT(DP) | (l->pp > 1) * BIT(PP) | (l->vpp > 1) * BIT(VPP);
}

/* In a key the class and the kind come first, then the module or the label of a communication call. */
static bool is_of_experts(const char *key) {
  const char *module = key ? strchr(key, '/') : NULL;
  module = module ? strchr(module + 1, '/') : NULL;
  return module && (strncmp(module, "/mlp.experts.", 13) == 0 || strncmp(module, "/token_dispatcher.", 18) == 0);
}

static unsigned axes_of(const struct sf_case *c, const char *key) {
  const unsigned axes = axes_of_layout(&c->layout) | axes_of_layout(&c->reload.layout) /* all ones without reloading */
                        | (sf_case_is_framework(c) && c->mode == SF_MODE_ISOLATED) * BIT(ISOLATED);
  return axes & ~(is_of_experts(key) ? SEATS : BIT(EDP));
}

void sf_signature_axes(char out[SF_AXES_TEXT], const struct sf_case *c, const char *key) {
  const unsigned axes = axes_of(c, key);
  size_t length = 0;
  snprintf(out, SF_AXES_TEXT, "none");
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    if (axes & BIT(axis)) length += (size_t)snprintf(out + length, SF_AXES_TEXT - length, "%s%s", length ? "+" : "", axis_names[axis]);
}

void sf_signature_make(char out[SF_SIGNATURE_TEXT], const char *key, const struct sf_case *c) {
  char axes[SF_AXES_TEXT];
  sf_signature_axes(axes, c, key);
  snprintf(out, SF_SIGNATURE_TEXT, "%s@%s", key, axes);
}

/* Reads the axes after the @. False when one of the words is not an axis, or there is no @. */
static bool axes_read(unsigned *out, const char *signature) {
  const char *at = strrchr(signature, '@');
  *out = 0;
  if (at == NULL) return false;
  if (strcmp(at, "@none") == 0) return true;
  while (*at != '\0') {
    const size_t length = strcspn(++at, "+");
    int axis = 0;
    while (axis < AXIS_COUNT && !(strlen(axis_names[axis]) == length && strncmp(axis_names[axis], at, length) == 0)) axis++;
    if (axis == AXIS_COUNT) return false;
    *out |= BIT(axis);
    at += length;
  }
  return true;
}

void sf_signature_split(struct sf_signature_parts *out, const char *signature) {
  static const char flaky[] = "flaky/";
  const bool is_flaky = strncmp(signature, flaky, sizeof flaky - 1) == 0;
  *out = (struct sf_signature_parts){.kind = "", .module = ""};
  snprintf(out->cls, sizeof out->cls, "%s", signature + (is_flaky ? sizeof flaky - 1 : 0));
  char *axes = strrchr(out->cls, '@'), *kind = strchr(out->cls, '/'), *module = kind != NULL ? strchr(kind + 1, '/') : NULL;
  out->has_axes = axes_read(&out->axes, out->cls);
  out->other_axes = out->axes & ~OF_DATA;
  out->model_axes = out->other_axes & ~BIT(SP);
  if (axes != NULL) *axes = '\0';
  if (module != NULL) *module = '\0', out->module = module + 1;
  if (kind != NULL) *kind = '\0', out->kind = kind + 1;
}

bool sf_signature_within(const char *signature, const struct sf_case *c) {
  unsigned wanted;
  if (strrchr(signature, '@') == NULL) return true; /* an operation has no axes */
  return axes_read(&wanted, signature) && (wanted & ~axes_of(c, signature)) == 0;
}

/* --- older forms ------------------------------------------------------------------------------------------------- */

/* Keys end at the @. */
static bool key_covers(const char *written, const char *seen) {
  static const char mark[] = "/comm-";
  const char *written_end = strrchr(written, '@'), *seen_end = strrchr(seen, '@');
  if (written_end == NULL || seen_end == NULL) return false;
  const size_t written_length = (size_t)(written_end - written), seen_length = (size_t)(seen_end - seen);
  if (written_length == seen_length && strncmp(written, seen, seen_length) == 0) return true;
  const char *manner = strstr(seen, mark), *rest = manner ? strchr(manner + sizeof mark - 1, '/') : NULL;
  if (rest == NULL || rest > seen_end) return false;
  const size_t head = (size_t)(manner - seen) + sizeof mark - 2, tail = (size_t)(seen_end - rest); /* "crash/comm", "/LABEL" */
  return written_length == head + tail && strncmp(written, seen, head) == 0 && strncmp(written + head, rest, tail) == 0;
}

static bool axes_cover(const char *written, const char *seen) {
  unsigned had, has;
  if (strcmp(strrchr(written, '@'), strrchr(seen, '@')) == 0) return true;
  if (!axes_read(&had, written) || !axes_read(&has, seen)) return false;
  if (is_of_experts(seen)) return (had & SEATS) != 0 && (had & ~SEATS) == (has & ~NEWER);
  return had == (has & ~NEWER);
}

bool sf_signature_covers(const char *written, const char *seen) {
  return strcmp(written, seen) == 0 || (key_covers(written, seen) && axes_cover(written, seen));
}
