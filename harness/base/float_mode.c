#include "harness/base/float_mode.h"

#include <fenv.h>
#include <stdio.h>
#include <string.h>

/* One bit, or one value of some bits, of the control register and what it does. */
struct meaning {
  uint64_t mask, value;
  const char *text;
};

#if defined(__x86_64__)
enum { MXCSR_DEFAULT = 0x1f80, MXCSR_FLAGS = 0x3f, X87_DEFAULT = 0x037f, X87_CONTROL = 0x0f3f };

static const struct meaning meanings[] = {{0x8000, 0x8000, "flush-to-zero"},
                                          {0x0040, 0x0040, "denormals-are-zero"},
                                          {0x6000, 0x2000, "rounding down"},
                                          {0x6000, 0x4000, "rounding up"},
                                          {0x6000, 0x6000, "rounding toward zero"}};
static const uint64_t traps = 0x1f80, traps_off = 0x1f80;

static struct sf_float_mode get(void) {
  uint32_t mxcsr;
  uint16_t x87;
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return (struct sf_float_mode){mxcsr & ~(uint32_t)MXCSR_FLAGS, x87 & X87_CONTROL};
}

static struct sf_float_mode by_default(void) { return (struct sf_float_mode){MXCSR_DEFAULT, X87_DEFAULT & X87_CONTROL}; }

void sf_float_mode_set(struct sf_float_mode mode) {
  const uint32_t mxcsr = (uint32_t)mode.control;
  const uint16_t x87 = (uint16_t)((mode.x87 & X87_CONTROL) | (X87_DEFAULT & ~X87_CONTROL));
  __asm__ volatile("fnclex"); /* a flag whose trap is on would trap */
  __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
  __asm__ volatile("fldcw %0" : : "m"(x87));
}
#elif defined(__aarch64__)
static const struct meaning meanings[] = {{1u << 24, 1u << 24, "flush-to-zero"}, {1u << 19, 1u << 19, "flush-to-zero of fp16"},
                                          {1u << 25, 1u << 25, "default NaNs"},  {3u << 22, 1u << 22, "rounding up"},
                                          {3u << 22, 2u << 22, "rounding down"}, {3u << 22, 3u << 22, "rounding toward zero"}};
static const uint64_t traps = 0x9f00, traps_off = 0;

static struct sf_float_mode get(void) {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return (struct sf_float_mode){control, 0};
}

static struct sf_float_mode by_default(void) { return (struct sf_float_mode){0, 0}; }

void sf_float_mode_set(struct sf_float_mode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode.control)); }
#else
static const struct meaning meanings[] = {{~UINT64_C(0), FE_DOWNWARD, "rounding down"},
                                          {~UINT64_C(0), FE_UPWARD, "rounding up"},
                                          {~UINT64_C(0), FE_TOWARDZERO, "rounding toward zero"}};
static const uint64_t traps = 0, traps_off = 0;

static struct sf_float_mode get(void) { return (struct sf_float_mode){(uint64_t)fegetround(), 0}; }
static struct sf_float_mode by_default(void) { return (struct sf_float_mode){FE_TONEAREST, 0}; }
void sf_float_mode_set(struct sf_float_mode mode) { fesetround((int)mode.control); }
#endif

bool sf_float_mode_is_default(struct sf_float_mode mode) { return mode.control == by_default().control && mode.x87 == by_default().x87; }

struct sf_float_mode sf_float_mode_restore(void) {
  const struct sf_float_mode was = get();
  if (!sf_float_mode_is_default(was)) sf_float_mode_set(by_default());
  return was;
}

static void add(char *out, size_t size, const char *text) {
  const size_t length = strlen(out);
  snprintf(out + length, size - length, "%s%s", length > 0 ? ", " : "", text);
}

void sf_float_mode_text(char *out, size_t size, struct sf_float_mode mode) {
  *out = '\0';
  for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
    if ((mode.control & meanings[i].mask) == meanings[i].value) add(out, size, meanings[i].text);
  if ((mode.control & traps) != traps_off) add(out, size, "traps of exceptions");
  if (*out == '\0' && !sf_float_mode_is_default(mode)) add(out, size, "another mode of long double");
}
