/* How often a test draws. The sanitizers make each draw several times slower, and show what any draw may show: a quarter of the draws
 * there, every fourth of a product of many small cases, and of two runs that must be alike (the first, 0, and the second, 1) the second
 * alone. */
#ifndef TESTS_ROUNDS_H
#define TESTS_ROUNDS_H

#ifdef SF_SANITIZE
#define SF_ROUNDS(count) ((count) / 4)
#define SF_STRIDE 4
#define SF_FIRST_RUN 1
#else
#define SF_ROUNDS(count) (count)
#define SF_STRIDE 1
#define SF_FIRST_RUN 0
#endif

#endif
