#include "harness/run/commands/doctor_checks.h"

#include "harness/base/system/system_memory.h"
#include "harness/comm/nccl.h"
#include "harness/run/commands/command_common.h"
#include "harness/run/support/version.h"
#include "harness/run/trial/case_size.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const double MIB = 1 << 20;

/* The checks made so far. */
struct health {
  struct sf_health_check *checks;
  int32_t count;
};

const char *sf_health_name(enum sf_health health) {
#define NAME(constant, text, meaning) text,
  static const char *const names[] = {SF_HEALTH_MAP(NAME)};
#undef NAME
  return names[health];
}

/* Adds a check: what is there. advice "": all is well. */
static void SF_PRINTF(5, 6) add(struct health *health, const char *name, enum sf_health state, const char *advice, const char *found, ...) {
  struct sf_health_check *check = &health->checks[health->count];
  if (health->count == SF_HEALTH_CHECKS_MAX) return;
  va_list arguments;
  va_start(arguments, found);
  vsnprintf(check->found, sizeof check->found, found, arguments);
  va_end(arguments);
  check->name = name;
  check->health = state;
  snprintf(check->advice, sizeof check->advice, "%s", state == SF_HEALTH_OK ? "" : advice);
  health->count++;
}

static enum sf_health health_of(bool good, enum sf_health otherwise) { return good ? SF_HEALTH_OK : otherwise; }

/* --- memory ------------------------------------------------------------------------------------------------------------- */

/* Bytes of the largest of the first cases of a campaign with default options; NaN: it could not be found out. */
static double largest_case(int64_t cases) {
  static struct sf_campaign_options draws;
  struct sf_common_flags flags = {0};
  struct sf_error error;
  double largest = 0;
  sf_common_defaults(&flags);
  enum sf_status status = sf_common_campaign(&draws, &flags, &error);
  if (status != SF_OK) return NAN;
  draws.cases = cases;
  status = sf_campaign_cover(&draws, &error);
  for (int64_t i = 0; i < cases && status == SF_OK; i++) {
    struct sf_catalog *catalog = NULL;
    struct sf_case c;
    status = sf_campaign_case(&c, &draws, i, &error);
    if (status == SF_OK) status = sf_catalog_create(&catalog, &c);
    if (status == SF_OK) largest = fmax(largest, sf_case_size_total(sf_case_size(catalog, &c)));
    sf_catalog_destroy(catalog);
  }
  sf_campaign_options_clear(&draws);
  return status == SF_OK ? largest : NAN;
}

static void check_memory(struct health *health) {
  enum { CASES = 64, PROCESS_MIB = 128 }; /* what a process takes besides its case */
  const int32_t jobs = sf_process_count(0, SF_DEVICE_CPU);
  const double all = sf_memory_available(), each = all / jobs, needed = largest_case(CASES) + PROCESS_MIB * MIB;
  add(health, "cores", SF_HEALTH_OK, "", "%d; so many cases run at a time (--jobs)", jobs);
  if (!isfinite(all))
    add(health, "memory", SF_HEALTH_OK, "", "the system does not say how much is free");
  else
    add(health, "memory", health_of(!(each < needed), SF_HEALTH_PROBLEM), "use fewer --jobs, or skip large cases with --max-memory MIB",
        "%.0f MiB free, %.0f for each job; the largest of the first %d cases takes %.0f", all / MIB, each / MIB, CASES, needed / MIB);
}

/* --- limits of the process ---------------------------------------------------------------------------------------------- */

static void check_limits(struct health *health) {
  static const struct {
    const char *name, *option, *what;
    int resource;
    rlim_t needed, unit;
  } limits[] = {{"stack", "-s", "KiB", RLIMIT_STACK, 1 << 20, 1 << 10},
                {"open files", "-n", "files", RLIMIT_NOFILE, 256, 1},
                {"processes", "-u", "processes", RLIMIT_NPROC, 256, 1},
                {"address space", "-v", "KiB", RLIMIT_AS, (rlim_t)4 << 30, 1 << 10},
                {"file size", "-f", "KiB", RLIMIT_FSIZE, (rlim_t)1 << 30, 1 << 10},
                {"processor time", "-t", "seconds", RLIMIT_CPU, 86400, 1}};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    struct rlimit limit;
    char advice[160];
    if (getrlimit(limits[i].resource, &limit) != 0) continue;
    snprintf(advice, sizeof advice, "raise it in this shell: ulimit -S %s %ju (if that is refused, root sets the limit)", limits[i].option,
             (uintmax_t)(limits[i].needed / limits[i].unit));
    if (limit.rlim_cur == RLIM_INFINITY)
      add(health, limits[i].name, SF_HEALTH_OK, "", "no limit");
    else
      add(health, limits[i].name, health_of(limit.rlim_cur >= limits[i].needed, SF_HEALTH_PROBLEM), advice, "at most %ju %s",
          (uintmax_t)(limit.rlim_cur / limits[i].unit), limits[i].what);
  }
}

/* --- folders ------------------------------------------------------------------------------------------------------------ */

/* What is free in a folder that a new file can be made in, in MiB; NaN if it takes none. */
static double room_in(const char *folder) {
  char path[SF_PATH_TEXT];
  struct statvfs room;
  snprintf(path, sizeof path, "%s/shardfuzz-doctor-XXXXXX", folder);
  const int file = mkstemp(path);
  if (file < 0) return NAN;
  close(file);
  unlink(path);
  return statvfs(folder, &room) == 0 ? (double)room.f_bavail * (double)room.f_frsize / MIB : NAN;
}

static void check_folder(struct health *health, const char *name, const char *folder, double needed_mib, enum sf_health otherwise,
                         const char *advice) {
  const double room = room_in(folder);
  if (isnan(room))
    add(health, name, otherwise, advice, "%.200s takes no files", folder);
  else
    add(health, name, health_of(room >= needed_mib, otherwise), advice, "%.200s has %.0f MiB free; %.0f are enough", folder, room,
        needed_mib);
}

static void check_folders(struct health *health) {
  const char *temporary = getenv("TMPDIR");
  check_folder(health, "/dev/shm", "/dev/shm", SF_FRAMEWORK_ROOM_BYTES / MIB, SF_HEALTH_ABSENT,
               "frameworks write their traces into /tmp instead, which is slower; in a container: docker run --shm-size=2g");
  check_folder(health, "temporary", temporary && *temporary ? temporary : "/tmp", 256, SF_HEALTH_PROBLEM,
               "let TMPDIR name a folder with room that you may write into");
}

/* --- ranks and devices -------------------------------------------------------------------------------------------------- */

/* The first line that a shell command prints on stdout. False: it failed, or printed nothing. */
static bool ask(char *out, size_t size, const char *command) {
  FILE *from = popen(command, "r");
  *out = '\0';
  if (!from) return false;
  if (!fgets(out, (int)size, from)) *out = '\0';
  out[strcspn(out, "\n")] = '\0';
  while (fgetc(from) != EOF) continue;
  return pclose(from) == 0 && *out;
}

static void check_mpi(struct health *health) {
  char version[128];
  const bool runs = ask(version, sizeof version, "mpirun --version 2>/dev/null");
  if (!sf_mpi_available())
    add(health, "MPI", SF_HEALTH_ABSENT, "the simulator needs none; for real ranks build from source with Open MPI, or install the .deb",
        "this build has no MPI");
  else if (!runs)
    add(health, "MPI", SF_HEALTH_ABSENT, "the simulator needs none; for real ranks: apt-get install openmpi-bin",
        "this build has MPI, and there is no mpirun");
  else if (geteuid() == 0 && !getenv("OMPI_ALLOW_RUN_AS_ROOT"))
    add(health, "MPI", SF_HEALTH_ABSENT, "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        "%s, which does not run as root unless it is told to", version);
  else
    add(health, "MPI", SF_HEALTH_OK, "", "%s", version);
}

static void check_devices(struct health *health) {
  struct sf_error why = {SF_OK, ""};
  size_t bytes = 0;
  enum sf_status status = sf_device_probe(&bytes, SF_DEVICE_CUDA, sf_cpu_gemm_default(), &why);
  if (status == SF_OK)
    add(health, "GPU", SF_HEALTH_OK, "", "CUDA, %.0f MiB free", (double)bytes / MIB);
  else
    add(health, "GPU", SF_HEALTH_ABSENT, "only --device cuda needs it; harness/docs/mpi-slurm.md says how to build for GPUs", "%.200s",
        *why.text ? why.text : sf_status_text(status));
  why = (struct sf_error){SF_OK, ""};
  status = sf_nccl_probe(&why);
  add(health, "NCCL", health_of(status == SF_OK, SF_HEALTH_ABSENT),
      "only --backend nccl needs it; harness/docs/mpi-slurm.md says how to build with it", "%.200s",
      status == SF_OK ? "it can be loaded"
      : *why.text     ? why.text
                      : sf_status_text(status));
}

static void check_products(struct health *health) {
  static const enum sf_cpu_gemm gemms[] = {SF_CPU_GEMM_XSMM, SF_CPU_GEMM_BLAS};
  for (size_t i = 0; i < sizeof gemms / sizeof gemms[0]; i++) {
    struct sf_error why = {SF_OK, ""};
    const enum sf_status status = sf_device_probe(NULL, SF_DEVICE_CPU, gemms[i], &why);
    char advice[160];
    snprintf(advice, sizeof advice, "only --gemm %s needs it; build with its library", sf_gemm_names[i + 1]);
    add(health, i == 0 ? "LIBXSMM" : "OpenBLAS", health_of(status == SF_OK, SF_HEALTH_ABSENT), advice, "%.200s",
        status == SF_OK        ? "matrix products of the layers"
        : status == SF_ENOTSUP ? "not in this build"
                               : why.text);
  }
}

/* --- Python ------------------------------------------------------------------------------------------------------------- */

static void check_tracer(struct health *health) {
  char version[128];
  if (ask(version, sizeof version,
          "python3 -c 'import importlib.metadata as m; m.version(\"shardfuzz\"); print(\"with torch\", m.version(\"torch\"))' 2>/dev/null"))
    add(health, "tracer", SF_HEALTH_OK, "", "python3 has it, %s", version);
  else
    add(health, "tracer", SF_HEALTH_ABSENT, "only PyTorch training loops need it; harness/docs/install.md says how to install it",
        "python3 has not both shardfuzz and torch");
}

static void check_frameworks(struct health *health) {
  static char command[SF_FRAMEWORK_COMMAND_TEXT];
  for (const struct sf_framework_known *known = sf_frameworks; known->name; known++) {
    struct sf_error why = {SF_OK, ""};
    const char *named = getenv(known->folder_variable);
    const enum sf_status status = sf_framework_command(command, sizeof command, known->name, NULL, &why);
    char advice[320];
    snprintf(advice, sizeof advice, "only --target %s needs it: run %s in the source tree, or let %s name the folder that it made",
             known->name, known->setup, known->folder_variable);
    const char *folder = named && *named ? named : known->folder;
    add(health, known->name, health_of(status == SF_OK, SF_HEALTH_ABSENT), advice, status == SF_OK ? "%.200s" : "%.200s is not there",
        folder);
  }
}

int32_t sf_health_checks(struct sf_health_check out[SF_HEALTH_CHECKS_MAX]) {
  struct health health = {.checks = out};
  add(&health, "program", SF_HEALTH_OK, "", "shardfuzz %s, commit %s", sf_version, *sf_version_commit ? sf_version_commit : "not known");
  check_memory(&health);
  check_limits(&health);
  check_folders(&health);
  check_products(&health);
  check_mpi(&health);
  check_devices(&health);
  check_tracer(&health);
  check_frameworks(&health);
  return health.count;
}
