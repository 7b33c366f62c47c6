/* One step of Adam, and stochastic rounding. */
#include "oracles/ops/op_internal.h"

enum { COUNT }; /* dimensions */

enum { LR, BETA2, STEP, EPSILON, DECAY, GRAD_SCALE };
static const float rates[3] = {0.0009765625f, 0.0001f, 1.0f}, second_betas[2] = {0.95f, 0.999f}, epsilons[2] = {1e-8f, 1e-5f},
                   decays[2] = {0.0f, 0.1f}, scales[3] = {1.0f, 0.5f, 0.013f};
static const float steps[3] = {1.0f, 10.0f, 1000.0f};

struct sf_op_adam sf_op_adam_of(const int64_t *attrs) {
  struct sf_op_adam o = {.lr = rates[attrs[LR]], .beta1 = 0.9, .beta2 = attrs[BETA2] ? 0.999 : 0.95, .epsilon = epsilons[attrs[EPSILON]],
                         .weight_decay = decays[attrs[DECAY]], .grad_scale = scales[attrs[GRAD_SCALE]]};
  o.bias1 = (float)(1 - pow(o.beta1, (double)steps[attrs[STEP]]));
  o.bias2 = (float)(1 - pow(o.beta2, (double)steps[attrs[STEP]]));
  return o;
}

/* A constant that is rounded to fp32. */
static struct sf_num constant(double v) { return (struct sf_num){v, SF_NUM_U * fabs(v)}; }

static void adam(struct sf_op_view *view) {
  const struct sf_op_adam o = sf_op_adam_of(view->attrs);
  const struct sf_num beta1 = constant(o.beta1), beta2 = constant(o.beta2), rest1 = constant(1 - o.beta1), rest2 = constant(1 - o.beta2);
  for (int64_t i = 0; i < view->dims[0]; i++) {
    const struct sf_num g = sf_num_mul(sf_num((double)o.grad_scale), sf_op_in(view, 0, i)), old = sf_op_in(view, 1, i);
    const struct sf_num m = sf_num_add(sf_num_mul(beta1, sf_op_in(view, 2, i)), sf_num_mul(rest1, g));
    const struct sf_num v = sf_num_add(sf_num_mul(beta2, sf_op_in(view, 3, i)), sf_num_mul(rest2, sf_num_mul(g, g)));
    const struct sf_num root = sf_num_add(sf_num_sqrt(sf_num_div(v, sf_num((double)o.bias2))), sf_num((double)o.epsilon));
    const struct sf_num step = sf_num_div(sf_num_div(m, sf_num((double)o.bias1)), root);
    const struct sf_num decay = sf_num_mul(sf_num((double)o.weight_decay), old);
    const struct sf_num changed = sf_num_sub(old, sf_num_mul(sf_num((double)o.lr), sf_num_add(step, decay)));
    view->at[1].want[i] = changed;
    view->at[2].want[i] = m;
    view->at[3].want[i] = v;
    view->at[4].want[i] = sf_num_sub(changed, old);
  }
}

/* Rounds to the bf16 neighbour away from zero if the fraction of their distance that x has covered and random / 2^16 make at least 1
 * together. */
static double stochastic(float x, int32_t random) {
  if (!isfinite(x) || x == 0) return (double)x;
  const double size = fabs((double)x);
  int exponent;
  frexp(size, &exponent);
  const double quantum = ldexp(1, (exponent < -125 ? -125 : exponent) - 8), below = floor(size / quantum) * quantum;
  const double gone = (size - below) / quantum;
  const double rounded = gone + (double)random * 0x1p-16 >= 1 ? below + quantum : below;
  return copysign(rounded > 0x1.fep127 ? INFINITY : rounded, (double)x);
}

static void round_stochastic(struct sf_op_view *view) {
  for (int64_t i = 0; i < view->dims[0]; i++) {
    const double rounded = stochastic(view->at[0].x[i], view->at[1].ints[i]);
    view->at[2].want[i] = sf_num(rounded);
    view->at[3].want[i] = sf_op_once(rounded - (double)view->at[2].x[i]);
  }
}

const struct sf_op sf_ops_update[] = {
    {SF_OP_ALONE("adam"),
     .stores = SF_OP_STORES_F32,
     SF_OP_OPERANDS({"grad", SF_OP_IN, SF_OP_FLOAT},
                    {"master", SF_OP_INOUT, SF_OP_FLOAT},
                    {"m", SF_OP_INOUT, SF_OP_FLOAT},
                    {"v", SF_OP_INOUT, SF_OP_FLOAT, SF_OP_POSITIVE},
                    {"delta", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("count"),
     SF_OP_ATTRS({"lr", 2, rates},
               {"beta2", 1, second_betas},
               {"step", 2, steps},
               {"epsilon", 1, epsilons},
               {"weight_decay", 1, decays},
               {"grad_scale", 2, scales}),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula = "g = grad_scale grad, m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2\n"
                "master = master - lr (m / bias1 / (sqrt(v / bias2) + epsilon) + weight_decay master), delta = new master - old one\n"
                "beta1 is 0.9, bias1 = 1 - beta1^step, bias2 = 1 - beta2^step. epsilon is added to the root; weight decay is AdamW's.\n"
                "1 - beta2 is of 0.95 or 0.999 in double: of the fp32 number that the attribute has it is off by 1.3e-5.",
     .reference = adam},
    {SF_OP_ALONE("round_stochastic"),
     .stores = SF_OP_STORES_F32,
     SF_OP_OPERANDS({"next", SF_OP_IN, SF_OP_FLOAT},
                    {"random", SF_OP_IN, SF_OP_UINT16, SF_OP_BITS},
                    {"w", SF_OP_INOUT, SF_OP_FLOAT, .bits = true},
                    {"delta", SF_OP_OUT, SF_OP_FLOAT}),
     SF_OP_DIMS("count"),
     .sizes = {SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT), SF_OP_VECTOR(COUNT)},
     .formula =
         "w = next rounded to bf16, away from zero where (next's low 16 bits) + random >= 2^16, else towards it; delta = new w - old w\n"
         "NaN and infinity stay.",
     .reference = round_stochastic},
    {0},
};
