/* Adam with decoupled weight decay (Loshchilov, Hutter 2017, arXiv 1711.05101), operation by operation in fp32. */
#include "harness/device/cpu.h"
#include "harness/device/vec.h"

#include <math.h>

SF_VEC_INLINE sf_vec square_root(sf_vec v) {
  for (int i = 0; i < SF_LANES; i++) v[i] = sqrtf(v[i]);
  return v;
}

static void cpu_adam(struct sf_device *dev, float *master, float *m, float *v, float *delta, const float *grad, int64_t count,
                     const struct sf_adam *o) {
  (void)dev;
  const float beta1 = (float)o->beta1, beta2 = (float)o->beta2, rest1 = (float)(1.0 - o->beta1), rest2 = (float)(1.0 - o->beta2);
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const int64_t left = count - i;
    const sf_vec g = o->grad_scale * sf_vec_load(grad + i, left), old = sf_vec_load(master + i, left);
    const sf_vec first = beta1 * sf_vec_load(m + i, left) + rest1 * g;
    const sf_vec second = beta2 * sf_vec_load(v + i, left) + rest2 * (g * g);
    const sf_vec step = first / o->bias1 / (square_root(second / o->bias2) + o->epsilon);
    const sf_vec changed = old - o->lr * (step + o->weight_decay * old);
    sf_vec_store(m + i, left, first);
    sf_vec_store(v + i, left, second);
    sf_vec_store(master + i, left, changed);
    sf_vec_store(delta + i, left, changed - old);
  }
}

static void cpu_round_stochastic(struct sf_device *dev, float *w, float *delta, const float *next, const uint16_t *random, int64_t count) {
  (void)dev;
  for (int64_t i = 0; i < count; i += SF_LANES) {
    const int64_t left = count - i;
    sf_uvec draws = {0};
    for (int64_t k = 0; k < SF_LANES && k < left; k++) draws[k] = random[i + k];
    const sf_vec x = sf_vec_load(next + i, left), old = sf_vec_load(w + i, left);
    const sf_uvec carried = ((sf_uvec)x + draws) & 0xffff0000u, quiet = ((sf_uvec)x | 0x00400000u) & 0xffff0000u;
    const sf_vec rounded = sf_vec_select(x != x, (sf_vec)quiet, (sf_vec)carried);
    sf_vec_store(w + i, left, rounded);
    sf_vec_store(delta + i, left, rounded - old);
  }
}

void sf_cpu_fill_adam(struct sf_device_ops *ops) {
  ops->adam = cpu_adam;
  ops->round_stochastic = cpu_round_stochastic;
}
