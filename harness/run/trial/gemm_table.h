/* The matrix products that the reference is given. */
#ifndef SF_RUN_GEMM_TABLE_H
#define SF_RUN_GEMM_TABLE_H

#include "oracles/reference.h"

/* OpenBLAS on one thread; plain loops where the build has no BLAS (gemm_table_absent.c) or runs under sanitizers. */
extern const struct sf_gemm_table sf_run_gemm_table;

#endif
