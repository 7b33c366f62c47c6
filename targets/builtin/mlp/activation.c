#include "targets/builtin/mlp/activation.h"

void sf_activate(struct sf_rank_run *run, float *y, const float *x, int64_t rows, int64_t width) {
  struct sf_device *dev = run->env->device;
  switch ((enum sf_activation)run->c->model.activation) {
  case SF_ACT_GELU: dev->ops->gelu_fwd(dev, y, x, rows * width, run->dtype); break;
  case SF_ACT_SWIGLU: dev->ops->swiglu_fwd(dev, y, x, rows, width, run->dtype); break;
  case SF_ACT_RELU2: dev->ops->relu2_fwd(dev, y, x, rows * width, run->dtype); break;
  }
}

void sf_activate_backward(struct sf_rank_run *run, float *dx, const float *dy, const float *x, int64_t rows, int64_t width) {
  struct sf_device *dev = run->env->device;
  switch ((enum sf_activation)run->c->model.activation) {
  case SF_ACT_GELU: dev->ops->gelu_bwd(dev, dx, dy, x, rows * width, run->dtype); break;
  case SF_ACT_SWIGLU: dev->ops->swiglu_bwd(dev, dx, dy, x, rows, width, run->dtype); break;
  case SF_ACT_RELU2: dev->ops->relu2_bwd(dev, dx, dy, x, rows * width, run->dtype); break;
  }
}
