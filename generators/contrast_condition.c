/* From the values that failed and those that passed to a condition. */
#include "generators/contrast.h"

/* How many tries with this result there are; *least and *most: their numbers. */
static int32_t extent(int64_t *least, int64_t *most, const struct sf_contrast_tries *tries, bool fails) {
  int32_t count = 0;
  for (int32_t i = 0; i < tries->count; i++) {
    const int64_t number = tries->at[i].number;
    if (tries->at[i].fails != fails) continue;
    if (count == 0 || number < *least) *least = number;
    if (count++ == 0 || number > *most) *most = number;
  }
  return count;
}

bool sf_contrast_gap(int64_t *below, int64_t *above, bool *at_least, const struct sf_contrast_tries *tries) {
  int64_t fail_least = 0, fail_most = 0, pass_least = 0, pass_most = 0;
  if (extent(&fail_least, &fail_most, tries, true) == 0 || extent(&pass_least, &pass_most, tries, false) == 0) return false;
  if (pass_most >= fail_least && fail_most >= pass_least) return false;
  *at_least = pass_most < fail_least;
  *below = *at_least ? pass_most : fail_most;
  *above = *at_least ? fail_least : pass_least;
  return true;
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* The one number above 1 of which all tries with this result are multiples, and no other try is; 0: there is none, or several. Both
 * have to lie among each other, or a threshold would say as much. */
static int64_t divisor_of(const struct sf_contrast_tries *tries, bool fails) {
  enum { DIVISOR_MAX = 4096 };
  int64_t least = 0, most = 0, other_least = 0, other_most = 0, all = 0, found = 0;
  const int32_t count = extent(&least, &most, tries, fails), others = extent(&other_least, &other_most, tries, !fails);
  if (count < 2 || others < 2 || least > other_most || most < other_least) return 0;
  for (int32_t i = 0; i < tries->count; i++)
    if (tries->at[i].fails == fails) all = common_divisor(all, tries->at[i].number);
  for (int64_t divisor = 2; divisor <= all && divisor <= DIVISOR_MAX; divisor++) {
    bool fits = all % divisor == 0;
    for (int32_t i = 0; fits && i < tries->count; i++) fits = tries->at[i].fails == fails || tries->at[i].number % divisor != 0;
    if (fits && found > 0) return 0;
    if (fits) found = divisor;
  }
  return found;
}

static struct sf_condition condition_of_divisor(const struct sf_contrast_tries *tries) {
  const int64_t multiple = divisor_of(tries, true), not_multiple = multiple > 0 ? 0 : divisor_of(tries, false);
  if (multiple > 0) return (struct sf_condition){.kind = SF_CONDITION_MULTIPLE, .number = multiple};
  if (not_multiple > 0) return (struct sf_condition){.kind = SF_CONDITION_NOT_MULTIPLE, .number = not_multiple};
  return (struct sf_condition){.kind = SF_CONDITION_ONE_OF};
}

/* Leaves out what passed below everything that failed. False: nothing did, or the number next to the least one that failed was not tried.
 */
static bool leave_out_below(struct sf_contrast_tries *out, const struct sf_contrast_tries *tries) {
  int64_t least = 0, most = 0;
  bool is_next = false;
  (void)extent(&least, &most, tries, true);
  *out = (struct sf_contrast_tries){.is_number = true};
  for (int32_t i = 0; i < tries->count; i++) {
    is_next |= tries->at[i].number == least - 1;
    if (tries->at[i].number >= least) out->at[out->count++] = tries->at[i];
  }
  return is_next;
}

/* A threshold takes two values beyond it that fail. */
static struct sf_condition condition_of_number(const struct sf_contrast_tries *tries, bool is_closed) {
  int64_t below, above, least = 0, most = 0;
  bool at_least;
  const bool several = extent(&least, &most, tries, true) > 1;
  if (several && is_closed && sf_contrast_gap(&below, &above, &at_least, tries))
    return (struct sf_condition){.kind = at_least ? SF_CONDITION_AT_LEAST : SF_CONDITION_AT_MOST, .number = at_least ? above : below};
  struct sf_contrast_tries above_least;
  const struct sf_condition all = condition_of_divisor(tries);
  if (all.kind != SF_CONDITION_ONE_OF || !leave_out_below(&above_least, tries)) return all;
  struct sf_condition rest = condition_of_divisor(&above_least);
  rest.has_least = rest.kind != SF_CONDITION_ONE_OF;
  if (rest.has_least) (void)extent(&rest.least, &most, tries, true);
  return rest;
}

struct sf_condition sf_condition_of(const struct sf_contrast_tries *tries, bool is_closed) {
  int32_t failed = 0;
  int64_t passed_value = 0, least = 0, most = 0;
  for (int32_t i = 0; i < tries->count; i++) {
    failed += tries->at[i].fails;
    if (!tries->at[i].fails) passed_value = tries->at[i].value;
  }
  const int32_t passed = tries->count - failed;
  if (passed == 0) return (struct sf_condition){.kind = SF_CONDITION_NONE};
  const struct sf_condition condition =
      tries->is_number ? condition_of_number(tries, is_closed) : (struct sf_condition){.kind = SF_CONDITION_ONE_OF};
  if (condition.kind != SF_CONDITION_ONE_OF) return condition;
  (void)extent(&least, &most, tries, false);
  const bool passes_on = !tries->is_number || (passed > 1 && most > tries->at[0].number);
  if (failed == 1 && passes_on) return (struct sf_condition){.kind = SF_CONDITION_EQUAL, .number = tries->at[0].value};
  if (passed == 1) return (struct sf_condition){.kind = SF_CONDITION_NOT, .number = passed_value};
  return condition;
}
