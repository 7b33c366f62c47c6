/* GEMM by OpenBLAS. Its kernels block over k, so the order of a sum depends on the shape, but on nothing else: one thread, packed
 * panels. */
#include "harness/base/assert.h"
#include "harness/device/cpu.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

const bool sf_gemm_blas_built = true;

static void gemm_blas(struct sf_cpu *cpu, const struct sf_gemm *g) {
  (void)cpu;
  SF_ASSERT(g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX);
  SF_ASSERT(g->lda <= INT32_MAX && g->ldb <= INT32_MAX && g->ldc <= INT32_MAX);
  const CBLAS_TRANSPOSE trans_a = g->trans_a ? CblasTrans : CblasNoTrans, trans_b = g->trans_b ? CblasTrans : CblasNoTrans;
  cblas_sgemm(CblasRowMajor, trans_a, trans_b, (int)g->m, (int)g->n, (int)g->k, 1.0f, g->a, (int)g->lda, g->b, (int)g->ldb,
              g->accumulate ? 1.0f : 0.0f, g->c, (int)g->ldc);
}

void sf_gemm_pick_kernels(char **argv) {
#if defined(__x86_64__)
  const char *own = openblas_get_corename();
  if (getenv("OPENBLAS_CORETYPE") != NULL || strcmp(own, "Haswell") == 0 || strcmp(own, "Zen") == 0 || !__builtin_cpu_supports("avx2"))
    return;
  if (setenv("OPENBLAS_CORETYPE", "Haswell", 1) == 0) execv("/proc/self/exe", argv);
#else
  (void)argv;
#endif
}

/* With several threads OpenBLAS takes buffers and stacks while it is loaded, before main; without room for them it never returns. We use
 * only one thread, so under a limit on address space the program starts itself again with one. In .preinit_array: before libraries are
 * initialised. */
#ifndef SF_SANITIZE
static bool is_limited(int resource) {
  struct rlimit limit;
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

static void begin_with_one_thread(int argc, char **argv, char **environment) {
  static const char name[] = "OPENBLAS_NUM_THREADS=";
  size_t count = 0;
  (void)argc;
  if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)) return;
  for (; environment[count]; count++)
    if (strncmp(environment[count], name, sizeof name - 1) == 0) return;
  char *with[count + 2];
  memcpy(with, environment, count * sizeof *with);
  with[count] = "OPENBLAS_NUM_THREADS=1";
  with[count + 1] = NULL;
  execve("/proc/self/exe", argv, with);
}
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(int, char **, char **) = begin_with_one_thread;
#endif

enum sf_status sf_gemm_blas_reserve(struct sf_error *error) {
  static const size_t ROOM = (size_t)144 << 20; /* OpenBLAS 0.3's buffer on machines of 64 bits is 128 MiB; a case needs more */
  float one = 1, product = 0;
  void *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return sf_error_set(error, SF_ENOMEM,
                        "too little address space: OpenBLAS and a case need %zu MiB beside the program; raise ulimit -v or ulimit -d",
                        ROOM >> 20);
  munmap(room, ROOM);
  openblas_set_num_threads(1);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1.0f, &one, 1, &one, 1, 0.0f, &product, 1);
  return SF_OK;
}

enum sf_status sf_gemm_blas_setup(struct sf_cpu *cpu) {
  openblas_set_num_threads(1);
  cpu->core = gemm_blas;
  cpu->ops.name = "cpu-blas";
  return SF_OK;
}
