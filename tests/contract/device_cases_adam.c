/* The device contract: the optimizer step and the rounding of its result. */
#include "tests/contract/device_fixture.h"

#include <math.h>
#include <stdlib.h>

void test_adam_random_within_bound(void **state) {
  struct fixture *f = *state;
  begin(state, "adam");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t count = any_size(f);
    const struct sf_adam o = {1e-3f, 0.9f, 0.95f, 1e-8f, below(f, 2) ? 0.1f : 0.0f, 0.1f, 0.05f, 0.25f + 0.5f * (float)below(f, 2)};
    float *old = filled(f, count, any_values(f)), *m0 = filled(f, count, NORMAL), *v0 = filled(f, count, NORMAL);
    float *grad = filled(f, count, any_values(f));
    for (int64_t j = 0; j < count; j++) v0[j] = below(f, 4) ? fabsf(v0[j]) : 0.0f;
    float *master = copy(old, count), *m = copy(m0, count), *v = copy(v0, count), *delta = buffer(count);
    f->dev->ops->adam(f->dev, master, m, v, delta, grad, count, &o);
    for (int64_t j = 0; j < count; j++) {
      const double g = (double)o.grad_scale * (double)grad[j], b1 = (double)o.beta1, b2 = (double)o.beta2;
      const double m_old = b1 * (double)m0[j], m_new = (1 - b1) * g, v_old = b2 * (double)v0[j], v_new = (1 - b2) * g * g;
      expect(f, m[j], m_old + m_new, 4 * u * (fabs(m_old) + fabs(m_new)), SF_F32);
      expect(f, v[j], v_old + v_new, 6 * u * (v_old + v_new), SF_F32);
      const double step = (double)m[j] / (double)o.bias1 / (sqrt((double)v[j] / (double)o.bias2) + (double)o.epsilon);
      const double decay = (double)o.weight_decay * (double)old[j], update = (double)o.lr * (step + decay), want = (double)old[j] - update;
      expect(f, master[j], want, u * fabs(want) + 9 * u * (double)o.lr * (fabs(step) + fabs(decay)), SF_F32);
      expect(f, delta[j], (double)master[j] - (double)old[j], u * fabs((double)master[j] - (double)old[j]), SF_F32);
    }
    release(old, count), release(m0, count), release(v0, count), release(grad, count);
    release(master, count), release(m, count), release(v, count), release(delta, count);
  }
  end(state);
}

/* Bit for bit sf_bf16_round_stochastic; infinities, NaN and incomplete blocks too. */
void test_round_stochastic_random_is_the_specified_number(void **state) {
  struct fixture *f = *state;
  begin(state, "round_stochastic");
  for (int i = 0; i < SF_ROUNDS(200); i++) {
    const int64_t count = any_size(f);
    float *old = filled(f, count, any_values(f)), *next = filled(f, count, any_values(f)), *delta = buffer(count);
    uint16_t *random = malloc((size_t)count * sizeof *random + 1);
    assert_non_null(random);
    for (int64_t j = 0; j < count; j++) random[j] = (uint16_t)below(f, 65536);
    if (count > 3) next[0] = NAN, next[1] = INFINITY, next[2] = -INFINITY;
    float *w = copy(old, count);
    f->dev->ops->round_stochastic(f->dev, w, delta, next, random, count);
    for (int64_t j = 0; j < count; j++) {
      const float want = sf_bf16_round_stochastic(next[j], random[j]), change = want - old[j];
      assert_memory_equal(&w[j], &want, sizeof want);
      assert_true(isnan(change) ? isnan(delta[j]) : delta[j] == change);
    }
    free(random);
    release(old, count), release(next, count), release(delta, count), release(w, count);
  }
  end(state);
}
