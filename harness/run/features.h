/* Features of a case, for counting how often the space's corners were visited. */
#ifndef SF_RUN_FEATURES_H
#define SF_RUN_FEATURES_H

#include "harness/spec/case.h"

struct sf_feature {
  const char *name;
  bool (*present)(const struct sf_case *c);
};
extern const struct sf_feature sf_features[]; /* at most 64; the place is the bit in a feature mask */
extern const int sf_feature_count;

uint64_t sf_features_of(const struct sf_case *c);

#endif
