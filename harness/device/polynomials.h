/* The minimax polynomials behind exp and the normal distribution, by Horner's rule: of a number in CUDA kernels, of a vector on the CPU
 * (vec_math.h says what they approximate and how well). One text, so that both give the same bits. */
#ifndef SF_DEVICE_POLYNOMIALS_H
#define SF_DEVICE_POLYNOMIALS_H

/* Degree 4 and 9; arguments are evaluated more than once. */
#define SF_EXP_POLYNOMIAL(r) (SF_HORNER_4(r, 0.001378062f, 0.008385219f, 0.041670356f, 0.16666353f, 0.4999998f))
#define SF_NORMAL_POLYNOMIAL(t)                                                                                                            \
  (SF_HORNER_4(t, SF_HORNER_5(t, -0.00013419632f, 0.00017465929f, 0.0015684083f, -0.003510211f, -0.007524004f, 0.06040349f), -0.18652366f, \
               0.3871369f, -0.60789657f, 0.75528514f))

#define SF_HORNER_4(x, a, b, c, d, e) (((((a) * (x) + (b)) * (x) + (c)) * (x) + (d)) * (x) + (e))
#define SF_HORNER_5(x, a, b, c, d, e, f) (SF_HORNER_4(x, a, b, c, d, e) * (x) + (f))

#endif
