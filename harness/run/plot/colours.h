/* The colours of pages and plots: one table, with a light and a dark value each. Nothing is told by colour alone. */
#ifndef SF_RUN_COLOURS_H
#define SF_RUN_COLOURS_H

#include "harness/base/bytes.h"

/* X(constant, name in CSS, on a light page, on a dark one). V0 to V8 are values from the lowest to the highest, M0 to M5 sizes from nothing
 * to the largest: their lightness alone orders them. */
#define SF_COLOUR_MAP(X)                                                                                                                   \
  X(PAPER, "paper", 0xffffff, 0x15181c)                                                                                                    \
  X(PANEL, "panel", 0xf3f5f7, 0x1e2328)                                                                                                    \
  X(LINE, "line", 0xd3d8de, 0x3a424b)                                                                                                      \
  X(MARK, "mark", 0x6b7682, 0x8d98a4)                                                                                                      \
  X(SOFT, "soft", 0x515c68, 0xa9b3be)                                                                                                      \
  X(INK, "ink", 0x1a1e23, 0xe6e9ec)                                                                                                        \
  X(CALM, "calm", 0x2f6f9f, 0x6fb1e0)                                                                                                      \
  X(BAD, "bad", 0xb3261e, 0xff8f80)                                                                                                        \
  X(GOOD, "good", 0x1a6b3c, 0x6cc992)                                                                                                      \
  X(GLOW, "glow", 0xfdf0ee, 0x33211f)                                                                                                      \
  X(V0, "v0", 0x00224e, 0x00224e)                                                                                                          \
  X(V1, "v1", 0x123570, 0x123570)                                                                                                          \
  X(V2, "v2", 0x3b496c, 0x3b496c)                                                                                                          \
  X(V3, "v3", 0x575d6d, 0x575d6d)                                                                                                          \
  X(V4, "v4", 0x707173, 0x707173)                                                                                                          \
  X(V5, "v5", 0x8a8678, 0x8a8678)                                                                                                          \
  X(V6, "v6", 0xa59c74, 0xa59c74)                                                                                                          \
  X(V7, "v7", 0xc9b96a, 0xc9b96a)                                                                                                          \
  X(V8, "v8", 0xfee838, 0xfee838)                                                                                                          \
  X(M0, "m0", 0xf3f5f7, 0x1e2328)                                                                                                          \
  X(M1, "m1", 0xfbd9c9, 0x4a2a24)                                                                                                          \
  X(M2, "m2", 0xf5a98c, 0x7d3a2e)                                                                                                          \
  X(M3, "m3", 0xe06f51, 0xb8523f)                                                                                                          \
  X(M4, "m4", 0xb3361f, 0xe8836a)                                                                                                          \
  X(M5, "m5", 0x6e1408, 0xffd2c2)
enum sf_colour {
#define X(constant, name, light, dark) SF_COLOUR_##constant,
  SF_COLOUR_MAP(X)
#undef X
      SF_COLOUR_COUNT
};
enum { SF_COLOUR_VALUES = SF_COLOUR_V8 - SF_COLOUR_V0 + 1, SF_COLOUR_SIZES = SF_COLOUR_M5 - SF_COLOUR_M0 + 1 };

/* Which colour text has on which: all pairs that pages use. Their contrast is at least 4.5 (WCAG 2.2, 1.4.3). X(text, background) */
#define SF_COLOUR_PAIR_MAP(X)                                                                                                              \
  X(INK, PAPER)                                                                                                                            \
  X(INK, PANEL)                                                                                                                            \
  X(INK, GLOW)                                                                                                                             \
  X(SOFT, PAPER)                                                                                                                           \
  X(SOFT, PANEL)                                                                                                                           \
  X(SOFT, GLOW) X(BAD, PAPER) X(BAD, PANEL) X(BAD, GLOW) X(GOOD, PAPER) X(GOOD, PANEL) X(CALM, PAPER) X(CALM, PANEL) X(PAPER, BAD)         \
      X(PAPER, GOOD)
/* The same of lines and marks that have to be seen: at least 3 (1.4.11). */
#define SF_COLOUR_MARK_MAP(X) X(MARK, PAPER) X(MARK, PANEL) X(CALM, PAPER) X(CALM, PANEL) X(BAD, PAPER) X(BAD, PANEL) X(BAD, GLOW)

/* As CSS knows it: "paper". */
const char *sf_colour_name(enum sf_colour colour);
/* 0xrrggbb on a light or a dark page. */
unsigned sf_colour_rgb(enum sf_colour colour, int is_dark);
/* Contrast ratio of two colours, 1 to 21 (WCAG's definition). */
double sf_colour_contrast(unsigned a, unsigned b);
/* Appends style rules: the colours as custom properties, for light and dark pages and for paper; classes f-NAME and s-NAME that fill and
 * stroke with them. */
void sf_colours_append(struct sf_text *out);

#endif
