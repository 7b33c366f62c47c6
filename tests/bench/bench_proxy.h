/* A device that times each of its operations and hands it on, put in front of an engine's device; the products of the engine's reference
 * are timed too. */
#ifndef SF_TESTS_BENCH_PROXY_H
#define SF_TESTS_BENCH_PROXY_H

#include "harness/run/trial/engine.h"

struct sf_bench_proxy;
/* Puts the proxy in; sf_bench_proxy_destroy takes it out again, before the engine is destroyed. Leaves with a message on no memory. */
struct sf_bench_proxy *sf_bench_proxy_create(struct sf_engine *engine);
void sf_bench_proxy_destroy(struct sf_bench_proxy *proxy);
void sf_bench_proxy_reset(struct sf_bench_proxy *proxy); /* counts from zero */
double sf_bench_proxy_gemm_seconds(const struct sf_bench_proxy *proxy);
double sf_bench_proxy_reference_gemm_seconds(const struct sf_bench_proxy *proxy); /* of draws too; without sums in order on the CPU */
double sf_bench_proxy_other_seconds(const struct sf_bench_proxy *proxy); /* all other operations */
double sf_bench_proxy_gemm_flops(const struct sf_bench_proxy *proxy);
int64_t sf_bench_proxy_calls(const struct sf_bench_proxy *proxy);

#endif
