/* Other tensors of the reference that an explanation may need: the same tensor of another step, microbatch or layer, and the terms that the
 * module adds. */
#include "harness/check/check_window.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { RELATED_MAX = 64 };

struct relating {
  struct sf_window *window;
  struct sf_diagnosis_related *at;
  enum sf_status status;
};

/* Adds a tensor of the reference, or of another run. */
static struct sf_diagnosis_related *add_of(struct relating *to, enum sf_relation relation, const struct sf_trace_set *set,
                                           const struct sf_trace_tensor *tensor) {
  struct sf_window *window = to->window;
  struct sf_tensor_view *view = &window->view;
  if (to->status != SF_OK || view->related_count == RELATED_MAX) return NULL;
  float *x = sf_window_alloc(window, window->end - window->begin, sizeof *x);
  to->status = x == NULL ? SF_ENOMEM : sf_window_load(x, window, set, tensor);
  if (to->status != SF_OK) return NULL;
  struct sf_diagnosis_related *r = &to->at[view->related_count++];
  *r = (struct sf_diagnosis_related){.relation = relation, .cls = SF_DIAGNOSIS_STALE, .shape = view->shape, .x = x, .rank = -1};
  return r;
}

static struct sf_diagnosis_related *add(struct relating *to, enum sf_relation relation, const struct sf_trace_tensor *tensor) {
  return add_of(to, relation, to->window->checking->reference, tensor);
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static bool same_subject(const struct sf_trace_name *a, const struct sf_trace_name *b) {
  return a->subject_length == b->subject_length && memcmp(a->subject, b->subject, (size_t)a->subject_length) == 0;
}

static const char *call_of(const struct sf_trace_name *name) { return name->subject + name->subject_length; }

static const char *skip_digits(const char *at, const char *end) {
  while (at < end && isdigit((unsigned char)*at)) at++;
  return at;
}

/* Whether the subjects differ in one number alone, as those of two layers do. */
static bool differ_in_number(const struct sf_trace_name *a, const struct sf_trace_name *b) {
  const char *p = a->subject, *q = b->subject, *p_end = p + a->subject_length, *q_end = q + b->subject_length;
  while (p < p_end && q < q_end && *p == *q) p++, q++;
  while (p > a->subject && isdigit((unsigned char)p[-1])) p--, q--;
  const char *p_rest = skip_digits(p, p_end), *q_rest = skip_digits(q, q_end);
  return p_rest > p && q_rest > q && p_end - p_rest == q_end - q_rest && memcmp(p_rest, q_rest, (size_t)(p_end - p_rest)) == 0;
}

/* --- what may stand in its place ----------------------------------------------------------------------------------- */

static void relate_stale(struct relating *to, const struct sf_trace_tensor *other) {
  const struct sf_trace_name *own = &to->window->reference->name, *name = &other->name;
  const bool same = same_subject(own, name), same_step = own->step == name->step, same_microbatch = own->microbatch == name->microbatch;
  if (own->kind != name->kind || own->pass != name->pass || strcmp(call_of(own), call_of(name)) != 0) return;
  if (!sf_tensor_same_shape(other, to->window->reference)) return;
  if (same ? same_step == same_microbatch : !same_step || !same_microbatch || !differ_in_number(own, name)) return;
  struct sf_diagnosis_related *r = add(to, SF_RELATED_STALE, other);
  if (r == NULL) return;
  if (!same) r->cls = SF_DIAGNOSIS_SHIFTED;
  r->cause = !same ? "another layer" : !same_step ? "another step" : "another microbatch";
  if (!same)
    snprintf(r->name, sizeof r->name, "%.*s", name->subject_length, name->subject);
  else if (!same_step)
    snprintf(r->name, sizeof r->name, "step %" PRId64, name->step);
  else
    snprintf(r->name, sizeof r->name, "microbatch %" PRId64, name->microbatch);
}

/* --- what it adds -------------------------------------------------------------------------------------------- */

/* Adds the bias, one vector for all rows; in isolated traces also the module's input. */
static void relate_term(struct relating *to, const struct sf_trace_tensor *other) {
  struct sf_window *window = to->window;
  const struct sf_trace_name *own = &window->reference->name, *name = &other->name;
  const char *behind = name->subject + own->subject_length;
  const int32_t more = name->subject_length - own->subject_length;
  if (own->kind != SF_KIND_ACT || own->step != name->step || more <= 0) return;
  if (memcmp(own->subject, name->subject, (size_t)own->subject_length) != 0) return;
  const bool is_bias = name->kind == SF_KIND_PARAM && more == 5 && memcmp(behind, ".bias", 5) == 0;
  const bool is_input = name->kind == SF_KIND_ACT && own->microbatch == name->microbatch && more == 6 && memcmp(behind, ".input", 6) == 0;
  struct sf_diagnosis_related *r = NULL;
  if (is_input && sf_tensor_same_shape(other, window->reference)) r = add(to, SF_RELATED_TERM, other);
  if (is_bias && other->count == window->view.shape.cols) {
    struct sf_window row = *window; /* the whole vector */
    row.begin = 0;
    row.end = other->count;
    to->window = &row;
    r = add(to, SF_RELATED_TERM, other);
    to->window = window;
    window->view.related_count = row.view.related_count;
    if (r != NULL) r->shape.rows = 1;
  }
  if (r != NULL) snprintf(r->name, sizeof r->name, is_bias ? "the bias" : "the module's input");
}

/* --- suppositions -------------------------------------------------------------------------------------------------- */

/* Adds what another run of the reference made of the tensor. */
static void relate_supposed(struct relating *to, const struct sf_supposed_run *run) {
  const struct sf_trace_tensor *tensor = sf_trace_set_find(&run->set, to->window->reference->text);
  if (tensor == NULL || !sf_tensor_same_shape(tensor, to->window->reference)) return;
  struct sf_diagnosis_related *r = add_of(to, SF_RELATED_SUPPOSED, &run->set, tensor);
  if (r == NULL) return;
  r->cls = SF_DIAGNOSIS_OTHER_SETTING;
  r->cause = run->without;
  memcpy(r->name, run->name, sizeof run->name);
  memcpy(r->without, run->without, sizeof run->without);
}

enum sf_status sf_window_relate(struct sf_window *window) {
  struct relating to = {.window = window, .at = sf_window_alloc(window, RELATED_MAX, sizeof *to.at)};
  if (to.at == NULL) return SF_ENOMEM;
  window->view.related = to.at;
  for (int32_t i = 0; i < window->checking->reference->count && to.status == SF_OK; i++) {
    relate_term(&to, &window->checking->reference->tensors[i]);
    relate_stale(&to, &window->checking->reference->tensors[i]);
  }
  const struct sf_suppositions *supposed = window->checking->supposed;
  for (int32_t i = 0; supposed != NULL && i < supposed->count && to.status == SF_OK; i++) relate_supposed(&to, &supposed->runs[i]);
  return to.status;
}
