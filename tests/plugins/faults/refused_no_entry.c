/* A library that is no plugin. */
int shardfuzz_sample_answer(void);
int shardfuzz_sample_answer(void) { return 42; }
