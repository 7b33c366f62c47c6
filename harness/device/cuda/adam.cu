/* Adam with decoupled weight decay, and stochastic rounding of what it gives. */
#include "harness/device/cuda/cuda.cuh"

struct adam_args {
  float *master, *m, *v, *delta;
  const float *grad;
  int64_t count;
  float beta1, beta2, rest1, rest2; /* fp32 of the doubles, and of one minus them */
  struct sf_adam o;
};

__global__ static void adam_kernel(struct adam_args a) {
  SF_CUDA_FOR_EACH(i, a.count) {
    const float g = a.o.grad_scale * a.grad[i], old = a.master[i];
    const float first = a.beta1 * a.m[i] + a.rest1 * g;
    const float second = a.beta2 * a.v[i] + a.rest2 * (g * g);
    const float step = first / a.o.bias1 / (sqrtf(second / a.o.bias2) + a.o.epsilon);
    const float changed = old - a.o.lr * (step + a.o.weight_decay * old);
    a.m[i] = first;
    a.v[i] = second;
    a.master[i] = changed;
    a.delta[i] = changed - old;
  }
}

void sf_cuda_adam(struct sf_device *dev, float *master, float *m, float *v, float *delta, const float *grad, int64_t count,
                  const struct sf_adam *o) {
  struct adam_args a = {};
  struct sf_cuda_call call(dev);
  a.grad = sf_cuda_in(&call, grad, count);
  a.master = sf_cuda_inout(&call, master, count);
  a.m = sf_cuda_inout(&call, m, count);
  a.v = sf_cuda_inout(&call, v, count);
  a.delta = sf_cuda_out(&call, delta, count);
  a.count = count;
  a.beta1 = (float)o->beta1, a.beta2 = (float)o->beta2, a.rest1 = (float)(1.0 - o->beta1), a.rest2 = (float)(1.0 - o->beta2);
  a.o = *o;
  SF_CUDA_EACH(&call, adam_kernel, count, a);
}

__global__ static void round_stochastic_kernel(float *w, float *delta, const float *next, const uint16_t *random, int64_t count) {
  SF_CUDA_FOR_EACH(i, count) {
    const float old = w[i], rounded = sf_bf16_round_stochastic(next[i], random[i]);
    w[i] = rounded;
    delta[i] = rounded - old;
  }
}

void sf_cuda_round_stochastic(struct sf_device *dev, float *w, float *delta, const float *next, const uint16_t *random, int64_t count) {
  struct sf_cuda_call call(dev);
  const float *from = sf_cuda_in(&call, next, count);
  const uint16_t *draws = sf_cuda_in(&call, random, count);
  float *to = sf_cuda_inout(&call, w, count), *change = sf_cuda_out(&call, delta, count);
  SF_CUDA_EACH(&call, round_stochastic_kernel, count, to, change, from, draws, count);
}
