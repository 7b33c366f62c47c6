/* What this program is and what it can use: the answer of --version. */
#include "harness/base/sinks.h"
#include "harness/comm/mpi.h"
#include "harness/comm/nccl.h"
#include "harness/device/device.h"
#include "harness/device/vec.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/support/version.h"

#include <stdio.h>

/* "cpu", or why it cannot be used: "no cuda (this build has no CUDA)". */
static void print_backend(FILE *to, const char *before, const char *name, enum sf_status status, const char *why) {
  if (status == SF_OK)
    sf_print(to, "%s%s", before, name);
  else
    sf_print(to, "%sno %s (%.200s)", before, name, why && *why ? why : sf_status_text(status));
}

static void print_ranks(FILE *to) {
  struct sf_error why = {SF_OK, ""};
  sf_print(to, "ranks      sim");
  print_backend(to, ", ", "mpi", sf_mpi_available() ? SF_OK : SF_ENOTSUP, "this build has no MPI");
  const enum sf_status status = sf_nccl_probe(&why);
  print_backend(to, ", ", "nccl", status, why.text);
  sf_print(to, "\n");
}

static void print_devices(FILE *to) {
  struct sf_error why = {SF_OK, ""};
  const enum sf_status status = sf_device_probe(NULL, SF_DEVICE_CUDA, sf_cpu_gemm_default(), &why);
  sf_print(to, "devices    cpu");
  print_backend(to, ", ", "cuda", status, why.text);
  sf_print(to, "\n");
}

static void print_kernels(FILE *to) {
  static const enum sf_cpu_gemm gemms[] = {SF_CPU_GEMM_XSMM, SF_CPU_GEMM_BLAS, SF_CPU_GEMM_LOOPS};
  const char *before = "";
  sf_print(to, "kernels    vectors of %d floats; matrix products: ", SF_LANES);
  for (size_t i = 0; i < sizeof gemms / sizeof gemms[0]; i++) {
    struct sf_error why = {SF_OK, ""};
    const enum sf_status status = sf_device_probe(NULL, SF_DEVICE_CPU, gemms[i], &why);
    print_backend(to, before, sf_gemm_names[i + 1], status, status == SF_ENOTSUP ? "not in this build" : why.text);
    before = ", ";
  }
  sf_print(to, "\n");
}

void sf_print_version(FILE *to) {
  sf_print(to, "shardfuzz %s\n", sf_version);
  sf_print(to, "commit     %s\n", *sf_version_commit ? sf_version_commit : "not known: built outside of git");
  print_ranks(to);
  print_devices(to);
  print_kernels(to);
}
