/* Asserts stay on in release builds: a failed one is a bug of ours, prints both values and aborts. */
#ifndef SF_BASE_ASSERT_H
#define SF_BASE_ASSERT_H

#include <stdint.h>

/* Print to stderr and abort; the second also prints the two values that were compared. For the macros below, in C and in C++. */
__attribute__((noreturn)) void sf_assert_fail(const char *file, int line, const char *expression);
__attribute__((noreturn)) void sf_assert_fail_int(const char *file, int line, const char *expression, int64_t left, int64_t right);

#define SF_ASSERT(expression) ((expression) ? (void)0 : sf_assert_fail(__FILE__, __LINE__, #expression))

#define SF_ASSERT_CMP_(a, op, b)                                                          \
  do {                                                                                    \
    const int64_t sf_left_ = (int64_t)(a), sf_right_ = (int64_t)(b);                      \
    if (!(sf_left_ op sf_right_))                                                         \
      sf_assert_fail_int(__FILE__, __LINE__, #a " " #op " " #b, sf_left_, sf_right_);     \
  } while (0)
#define SF_ASSERT_EQ(a, b) SF_ASSERT_CMP_(a, ==, b)
#define SF_ASSERT_LE(a, b) SF_ASSERT_CMP_(a, <=, b)
#define SF_ASSERT_LT(a, b) SF_ASSERT_CMP_(a, <, b)

/* For a table that an enum indexes: unless it has an entry for each of the enum's `count` numbers, it does not compile. Such a table is
 * written without its size and without indices, so that a missing entry makes it shorter. */
#define SF_ASSERT_ENTRIES(table, count) _Static_assert(sizeof(table) / sizeof *(table) == (count), #table ": one entry for each of " #count)

#endif
