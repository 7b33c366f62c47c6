/* The list of known findings: a JSON array of {"signature": text, "note": text, "case": case} (the last two may be missing). */
#ifndef SF_RUN_KNOWN_H
#define SF_RUN_KNOWN_H

#include "harness/spec/case.h"

struct sf_known_entry {
  char signature[SF_SIGNATURE_TEXT];
  bool has_case;
  struct sf_case c; /* the shrunk case: what triggers it */
};
struct sf_known {
  int32_t count;
  struct sf_known_entry *entries;
};

/* SF_EINPUT names file and line or entry; SF_ENOTFOUND, SF_ENOMEM. *out is written only on success. */
enum sf_status sf_known_read(struct sf_known *out, const char *path, struct sf_error *error) SF_MUST_USE;
void sf_known_destroy(struct sf_known *known); /* takes what is zeroed */
/* Whether an entry covers the signature (sf_signature_covers). */
bool sf_known_has(const struct sf_known *known, const char *signature);
/* Whether an entry covers what the finding of this key may be shrunk to: its key is the same, and c has its axes. For a finding that there
 * was no time to shrink. */
bool sf_known_may_cover(const struct sf_known *known, const char *shrink_key, const struct sf_case *c);
/* Whether c contains the trigger of an entry with a case: c has every field that the shrunk case needs above its smallest value, numbers
 * at least as large, choices equal. Cases of operations contain none: they cost so little that known ones hide nothing. */
bool sf_known_triggered(const struct sf_known *known, const struct sf_case *c);

#endif
