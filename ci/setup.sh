#!/usr/bin/env bash
# Installs what the build and the tests need and this machine lacks (Debian, Ubuntu). Does nothing when all of it is there.
#   ci/setup.sh [--python]     --python: also PyTorch, for the Python parts' tests: python3's own if it is the right one, else in build-python
#   ci/setup.sh --cuda         cuBLAS and NCCL alone, for builds with nvcc: PyPI packages in build-cuda, unless the toolkit has them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

with_python=0
if [ "${1:-}" = --python ]; then with_python=1; fi
if [ "${1:-}" = --cuda ]; then
  command -v nvcc >/dev/null || { echo "ci/setup.sh: there is no nvcc" >&2 && exit 1; }
  install() { # FOLDER PACKAGE: pip does not add to a folder of another package's
    echo "ci/setup.sh: installing $2 in $1" >&2
    python3 -m pip install -q --no-deps --disable-pip-version-check --root-user-action=ignore --target "$1" "$2"
  }
  if [ ! -e build-cuda/packages/nvidia/cu13/include/cublasLt.h ] && [ ! -e /usr/local/cuda/include/cublasLt.h ]; then
    install build-cuda/packages nvidia-cublas==13.10.0.20
  fi
  if [ ! -e build-cuda/nccl/nvidia/nccl/include/nccl.h ] && [ ! -e /usr/local/cuda/include/nccl.h ]; then
    install build-cuda/nccl nvidia-nccl-cu13==2.32.3
  fi
  exit 0
fi

packages=(
  build-essential cmake file git ninja-build pkg-config python3
  libopenmpi-dev openmpi-bin libcmocka-dev libxsmm-dev libopenblas-dev libjansson-dev
  libsqlite3-dev sqlite3 libxml2-dev libxml2-utils libdlpack-dev
  clang-14 libclang-rt-14-dev clang-format-14 pyflakes3
)
has_pytorch() { "$1" -c 'import numpy, setuptools, torch; assert torch.__version__.split("+")[0] == "2.13.0"' 2>/dev/null; }
if [ $with_python -eq 1 ] && ! has_pytorch python3; then packages+=(python3-venv); fi
install_pytorch() {
  if [ $with_python -eq 0 ] || has_pytorch python3 || has_pytorch build-python/bin/python3; then return 0; fi
  echo "ci/setup.sh: installing PyTorch in build-python" >&2
  python3 -m venv build-python
  build-python/bin/python3 -m pip install -q torch==2.13.0 numpy 'setuptools>=70.1' pytest
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "ci/setup.sh: no apt-get here; install what these Debian packages hold: ${packages[*]}" >&2
  exit 1
fi

installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  install_pytorch
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    echo "ci/setup.sh: neither root nor sudo; have these packages installed: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "ci/setup.sh: installing ${missing[*]}" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
install_pytorch
