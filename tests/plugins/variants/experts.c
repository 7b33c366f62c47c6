/* The experts of a rank, mlp.experts, with BUG. */
#include "tests/plugins/layer_parts.h"

struct experts {
  layer_call call;
  int64_t h, wide, width, kind;
  const float *x, *fc1, *fc2; /* fc2 [h x experts width] */
};

static struct experts experts_of(layer_call call) {
  const tensor fc1 = &parameter(call, "linear_fc1.weight")->value, fc2 = &parameter(call, "linear_fc2.weight")->value;
  return (struct experts){.call = call,
                          .h = cols_of(call->input),
                          .wide = rows_of(fc1) / call->expert_count,
                          .width = cols_of(fc2) / call->expert_count,
                          .kind = layer_attribute(call, "activation"),
                          .x = read_floats(call, call->input),
                          .fc1 = read_floats(call, fc1),
                          .fc2 = read_floats(call, fc2)};
}

/* The first row of an expert. */
static int64_t first_row(layer_call call, int32_t expert) {
  int64_t first = 0;
  const int32_t behind = BUG == NEIGHBOURS_ROWS && expert > 1 && call->expert_rows[expert - 1] == 0 ? expert - 2 : expert;
  for (int32_t i = 0; i < behind; i++) first += call->expert_rows[i];
  return first;
}

/* One expert's linear_fc1 of a row, as [gate; up] with SwiGLU, then the activation. */
static void fc1_row(const struct experts *x, int32_t expert, const float *row, float *z) {
  const int swapped = BUG == GATE_UP_SWAPPED && x->kind == SWIGLU && x->call->comm->groups[SHARDFUZZ_GROUP_ETP].size > 1;
  for (int64_t j = 0; j < x->wide; j++) {
    const int64_t weight = expert * x->wide + (swapped ? (j + x->width) % x->wide : j);
    multiply(&z[j], row, x->fc1 + weight * x->h, 1, x->h, 1);
    z[j] = stored(x->call, z[j]);
  }
}
static void fc2_input_row(const struct experts *x, const float *z, float *a) {
  for (int64_t j = 0; j < x->width; j++) a[j] = stored(x->call, activate(x->kind, z, x->width, j));
}

static int experts_forward(layer_call call) {
  const struct experts x = experts_of(call);
  const int64_t ld = call->expert_count * x.width;
  float *z = floats(call, x.wide), *a = floats(call, x.width);
  for (int32_t e = 0; e < call->expert_count; e++)
    for (int64_t i = 0; i < call->expert_rows[e]; i++) {
      int64_t row = i;
      for (int32_t before = 0; before < e; before++) row += call->expert_rows[before];
      fc1_row(&x, e, x.x + (first_row(call, e) + i) * x.h, z);
      fc2_input_row(&x, z, a);
      for (int64_t j = 0; j < x.h; j++) {
        float sum = 0;
        for (int64_t k = 0; k < x.width; k++) sum += a[k] * x.fc2[j * ld + e * x.width + k];
        put(call->output, row, j, sum);
      }
    }
  return SHARDFUZZ_OK;
}

/* --- backward --- */

struct expert_grads {
  float *fc1, *fc2; /* NULL: frozen */
  float *z, *a, *da, *dz;
};

static void backward_row(const struct experts *x, const struct expert_grads *grads, int32_t expert, int64_t row) {
  const int64_t ld = x->call->expert_count * x->width;
  fc1_row(x, expert, x->x + row * x->h, grads->z);
  fc2_input_row(x, grads->z, grads->a);
  for (int64_t k = 0; k < x->width; k++) {
    const int64_t column = expert * x->width + k;
    grads->da[k] = 0;
    for (int64_t j = 0; j < x->h; j++) {
      const float g = get(x->call->output_grad, row, j);
      grads->da[k] += g * x->fc2[j * ld + column];
      if (grads->fc2) grads->fc2[j * ld + column] += g * grads->a[k];
    }
    grads->da[k] = stored(x->call, grads->da[k]);
  }
  for (int64_t k = 0; k < x->width; k++) activate_back(x->kind, grads->dz, grads->da[k], grads->z, x->width, k);
  for (int64_t k = 0; k < x->wide; k++) grads->dz[k] = stored(x->call, grads->dz[k]);
  for (int64_t j = 0; j < x->h; j++) {
    float sum = 0;
    for (int64_t k = 0; k < x->wide; k++) {
      const int64_t at = (expert * x->wide + k) * x->h + j;
      sum += grads->dz[k] * x->fc1[at];
      if (grads->fc1) grads->fc1[at] += grads->dz[k] * x->x[row * x->h + j];
    }
    put(x->call->input_grad, row, j, sum);
  }
}

/* An expert's part of both gradients becomes zero. */
static void clear(const struct experts *x, const struct expert_grads *grads, int32_t expert) {
  const int64_t ld = x->call->expert_count * x->width;
  for (int64_t i = 0; grads->fc1 && i < x->wide * x->h; i++) grads->fc1[expert * x->wide * x->h + i] = 0;
  for (int64_t i = 0; grads->fc2 && i < x->h * x->width; i++) grads->fc2[i / x->width * ld + expert * x->width + i % x->width] = 0;
}

static int experts_backward(layer_call call) {
  const struct experts x = experts_of(call);
  const struct expert_grads grads = {parameter(call, "linear_fc1.weight")->grad.data,
                                     parameter(call, "linear_fc2.weight")->grad.data,
                                     floats(call, x.wide),
                                     floats(call, x.width),
                                     floats(call, x.width),
                                     floats(call, x.wide)};
  int64_t row = 0;
  for (int32_t e = 0; e < call->expert_count; e++) {
    if (BUG != EMPTY_UNWRITTEN || call->expert_rows[e] > 0) clear(&x, &grads, e);
    for (int64_t i = 0; i < call->expert_rows[e]; i++) backward_row(&x, &grads, e, row++);
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_layer layers[] = {LAYER("mlp.experts", experts)};
LAYERS(layers)
