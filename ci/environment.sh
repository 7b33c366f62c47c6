# Sourced by the scripts beside it: settings that every build and test run shares.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)         # nproc says 1 where OpenMP may use one thread
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers run as root
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1                  # one job per core; BLAS must not add threads of its own
