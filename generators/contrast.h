/* Contrast: why a smallest case fails. Its neighbours are tried within a budget: cases that differ from it in some fields. What fails among
 * them and what passes says which fields matter, and on which condition. Everything is a function of the case and of the answers alone. */
#ifndef SF_GENERATORS_CONTRAST_H
#define SF_GENERATORS_CONTRAST_H

#include "generators/table.h"

/* Trials at most of one finding, and values at most that are kept of one field. */
enum { SF_CONTRAST_BUDGET = 60, SF_CONTRAST_VALUES = 24 };

/* --- deduction ---------------------------------------------------------------------------------------------------- */

/* A value of a field, and whether the case with it failed in the same way. number: the value as people read it. */
struct sf_contrast_try {
  int64_t value, number;
  bool fails;
};
/* What was tried of one field; the first one is the smallest case's own value, which fails. */
struct sf_contrast_tries {
  bool is_number; /* its values have an order; else they are choices */
  int32_t count;
  struct sf_contrast_try at[SF_CONTRAST_VALUES];
};

enum sf_condition_kind {
  SF_CONDITION_NONE,         /* no value passed: the field does not matter, as far as it was tried */
  SF_CONDITION_AT_LEAST,     /* fails from `number` on */
  SF_CONDITION_AT_MOST,      /* fails up to `number` */
  SF_CONDITION_MULTIPLE,     /* fails for multiples of `number` */
  SF_CONDITION_NOT_MULTIPLE, /* fails for all other numbers */
  SF_CONDITION_EQUAL,        /* fails with one value of those tried */
  SF_CONDITION_NOT,          /* passes with one value of those tried */
  SF_CONDITION_ONE_OF        /* nothing simpler holds: the values that failed */
};
struct sf_condition {
  enum sf_condition_kind kind;
  int64_t number; /* of a number; of EQUAL and NOT the value */
  bool has_least; /* of MULTIPLE and NOT_MULTIPLE: only from `least` on */
  int64_t least;
};
/* The condition that all tries agree with and that no other one of its kind does; ONE_OF where they decide none. A threshold is told where
 * the values next to it were tried or cannot be: `is_closed` says so of the values between the last that passed and the first that failed.
 */
struct sf_condition sf_condition_of(const struct sf_contrast_tries *tries, bool is_closed);
/* The neighbouring values of a number between which it changes from passing to failing, if it does so once. *at_least: the larger ones
 * fail. */
bool sf_contrast_gap(int64_t *below, int64_t *above, bool *at_least, const struct sf_contrast_tries *tries);

/* --- trials ------------------------------------------------------------------------------------------------------- */

enum sf_contrast_answer {
  SF_CONTRAST_FAILS,  /* in the same way */
  SF_CONTRAST_PASSES, /* and all was judged */
  SF_CONTRAST_UNCLEAR /* it failed in another way, was skipped or could not be judged: says nothing */
};
struct sf_contrast_asker {
  /* Runs a case. False: there is to be no further trial. */
  bool (*ask)(void *ctx, enum sf_contrast_answer *answer, const struct sf_case *c);
  /* Whether a case is cheap enough to be run. NULL: all are. */
  bool (*allows)(void *ctx, const struct sf_case *c);
  void *ctx;
};

enum sf_contrast_state {
  SF_CONTRAST_FIXED,     /* it has no other value beside the rest of the case, or none that the table draws */
  SF_CONTRAST_NOT_TRIED, /* the trials were used up before */
  SF_CONTRAST_UNDECIDED, /* it changes something together with other fields alone, or the case then failed in another way */
  SF_CONTRAST_FREE,      /* it does not matter, as far as it was tried */
  SF_CONTRAST_TIED,      /* one that matters binds it to its value */
  SF_CONTRAST_SMALLEST,  /* it matters in the smallest case, but the case that was found fails without it */
  SF_CONTRAST_MATTERS
};
struct sf_contrast_field {
  enum sf_contrast_state state;
  struct sf_condition condition;
  struct sf_contrast_tries tries;
};
struct sf_contrast {
  int32_t trials, budget; /* run, and allowed */
  bool cut_short;         /* the asker ended it */
  int32_t count;          /* of the table's fields */
  struct sf_contrast_field at[SF_SPACE_FIELDS_MAX];
};
/* min: a smallest case of the table that fails. found: the case that it was made of, which fails in the same way. Tries at most `budget`
 * neighbours of both. SF_EINPUT: the smallest case has no row in the table. */
enum sf_status sf_contrast_run(struct sf_contrast *out, const struct sf_case *min, const struct sf_case *found,
                               const struct sf_table *table, const struct sf_contrast_asker *asker, int32_t budget) SF_MUST_USE;

#endif
