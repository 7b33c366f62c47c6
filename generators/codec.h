/* Cases of the built-in layers: the space that they are drawn from, and its table. */
#ifndef SF_GENERATORS_CODEC_H
#define SF_GENERATORS_CODEC_H

#include "generators/table.h"
#include "harness/spec/case.h"

/* The space that cases are drawn from: the generator's own ranges, narrowed by presets and --set. Plain data: copy by assignment. */
struct sf_space {
  int64_t max_ranks;              /* of the drawn world; 8 */
  bool is_set[SF_CASE_DRAWN];     /* by enum sf_case_field: whether `set` holds */
  bool is_limited[SF_CASE_DRAWN]; /* it narrows the generator's own values, and asks for no others (sf_space_limit) */
  struct sf_range set[SF_CASE_DRAWN];
  uint32_t formats_left_out; /* bits of enum sf_compute: not drawn though they lie within the range (sf_space_leave_out) */
  char target[SF_TARGET_TEXT], plant[SF_NAME_TEXT]; /* copied into every case */
};

/* Everything the generator draws by itself, on at most 8 ranks of the target "builtin". */
void sf_space_init(struct sf_space *space);
/* "KEY=VALUE" or, for a number, "KEY=LO..HI". A later one replaces an earlier one of the same key. A value outside the
 * generator's own range is allowed as long as a case can have it. SF_EINPUT names key and reason. */
enum sf_status sf_space_set(struct sf_space *space, const char *assignment, struct sf_error *error) SF_MUST_USE;
/* Narrows a number's range to lo..hi, in the field's own numbers, whatever was set before. SF_EINPUT: there is no such field, or nothing is
 * left. */
enum sf_status sf_space_limit(struct sf_space *space, const char *path, int64_t lo, int64_t hi, struct sf_error *error) SF_MUST_USE;
/* Formats, bits of enum sf_compute, that are not drawn; setting precision.compute takes that back. SF_EINPUT: nothing is left of what is
 * set. */
enum sf_status sf_space_leave_out(struct sf_space *space, uint32_t formats, struct sf_error *error) SF_MUST_USE;
enum sf_status sf_space_preset(struct sf_space *space, const char *name, struct sf_error *error) SF_MUST_USE; /* presets.h */
/* Fixes one field to the value it has in c. Asserts that the path exists. */
void sf_space_fix(struct sf_space *space, const char *path, const struct sf_case *c);

/* Its table, which borrows the space. */
struct sf_table sf_layers_table(const struct sf_space *space);

/* Draws a case. Whatever the draws are, the case is valid and lies in the space. SF_EINPUT when no case does: the text names the
 * fields that contradict each other. */
enum sf_status sf_codec_decode(struct sf_case *out, struct sf_draw *draw, const struct sf_space *space, struct sf_error *error) SF_MUST_USE;

/* Fields of a valid case whose values the space forbids, or the generator does not draw by itself; "max_ranks" stands for a world that is
 * too large. Returns how many. paths: static texts. */
int32_t sf_codec_undrawn(const char *paths[SF_SPACE_FIELDS_MAX], const struct sf_case *c, const struct sf_space *space);

#endif
