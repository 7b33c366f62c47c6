/* What the files of a case share among themselves. */
#ifndef SF_SPEC_CASE_INTERNAL_H
#define SF_SPEC_CASE_INTERNAL_H

#include "harness/base/bytes.h"
#include "harness/spec/case.h"

/* Whether value lies in the field's range; the error text is "field: reason". */
enum sf_status sf_case_field_check(const struct sf_field *field, int64_t value, struct sf_error *error) SF_MUST_USE;
/* Place of a name of an ENUM or FLAGS field (length bytes, not NUL-terminated). */
enum sf_status sf_field_name_read(int64_t *index, const struct sf_field *field, const char *name, size_t length,
                                  struct sf_error *error) SF_MUST_USE;
/* Sets a TEXT field after checking length and characters. */
enum sf_status sf_case_field_put_text(struct sf_case *c, const struct sf_field *field, const char *value,
                                      struct sf_error *error) SF_MUST_USE;
/* Both take cases with sf_case_is_framework alone. The first is sf_case_validate of one; the second appends its object as a file holds it,
 * indented as a member of the document, and sets out->failed on no memory. */
enum sf_status sf_case_validate_framework(const struct sf_case *c, struct sf_error *error) SF_MUST_USE;
void sf_case_framework_append(struct sf_text *out, const struct sf_case *c);
/* True when text has only characters that a TEXT field may hold. */
bool sf_case_text_ok(const char *text);

#endif
