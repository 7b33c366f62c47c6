/* Features of a case, for counting how often the space's corners were visited. */
#ifndef SF_RUN_FEATURES_H
#define SF_RUN_FEATURES_H

#include "harness/spec/case.h"

struct sf_feature {
  const char *name;
  bool (*present)(const struct sf_case *c);
};
enum { SF_FEATURES_MAX = 128 };
extern const struct sf_feature sf_features[]; /* at most SF_FEATURES_MAX; the place is the bit in a mask */
extern const int sf_feature_count;

/* Bit i is bit i % 64 of words[i / 64]. */
struct sf_feature_mask {
  uint64_t words[SF_FEATURES_MAX / 64];
};
/* feature: index into sf_features. */
static inline bool sf_feature_mask_has(const struct sf_feature_mask *mask, int feature) {
  return (mask->words[feature / 64] >> (feature % 64)) & 1;
}

/* The features that the case has. */
struct sf_feature_mask sf_features_of(const struct sf_case *c);

#endif
