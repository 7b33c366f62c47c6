/* How often a test draws. The sanitizers make each draw several times slower, and show what any draw may show: a quarter of the draws there. */
#ifndef TESTS_ROUNDS_H
#define TESTS_ROUNDS_H

#ifdef SF_SANITIZE
#define SF_ROUNDS(count) ((count) / 4)
#else
#define SF_ROUNDS(count) (count)
#endif

#endif
