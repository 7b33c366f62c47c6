#!/usr/bin/env bash
# Sets up the virtual environment in which a framework runs, unmodified, on a CPU:
#   ci/frameworks.sh [--python PYTHON] NAME [FOLDER]
#   ci/frameworks.sh --test NAME    sets it up in its default folder and runs the target's tests
# --python: makes it over that Python and takes what it has, such as a PyTorch with CUDA, in whatever version; "alone:" below stays as it says.
#   ci/frameworks.sh --names        the names, a line each
#   ci/frameworks.sh --testable     those whose tests can run here: the checkouts that they need are on PYTHONPATH
# Names and default folders stand in the table below. Can be run again at any time; installs only what is missing.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# NAME FOLDER TESTS ADAPTER,.. PACKAGE=VERSION...; a package behind "alone:" comes without its dependencies, which would admit another torch.
# A module behind "checkout:" is no package: the user has its source, and gives that folder as --framework-path.
table="
megatron-core build-megatron tests/megatron     targets/megatron_core torch=2.13.0 numpy=2.4.6 packaging=26.2 alone:megatron-core=0.16.1
torch-dtensor build-torch    tests/torch_dtensor targets/torch_dtensor,targets/torch_train torch=2.13.0 numpy=2.4.6
torch-train   build-torch    tests/torch_train  targets/torch_dtensor,targets/torch_train torch=2.13.0 numpy=2.4.6
transformers  build-transformers tests/transformers targets/transformers torch=2.13.0 numpy=2.4.6 transformers=5.24.0 psutil=7.2.2 alone:accelerate=1.15.0
deepspeed     build-deepspeed tests/deepspeed targets/deepspeed torch=2.13.0 numpy=2.4.6 packaging=26.2 einops=0.8.1 hjson=3.1.0 msgpack=1.1.2 ninja=1.13.0 psutil=7.1.3 py-cpuinfo=9.0.0 pydantic=2.12.4 tqdm=4.67.1 alone:deepspeed=0.19.8
open-clip     build-open-clip tests/open_clip targets/open_clip torch=2.13.0 numpy=2.4.6 alone:open-clip-torch=3.3.0
marl-iql      build-marl     tests/marl_iql targets/marl_iql torch=2.13.0 numpy=2.4.6 packaging=26.2 cloudpickle=3.1.2 importlib-metadata=8.7.0 orjson=3.11.4 alone:pyvers=0.2.3 alone:hoptorch=0.1.4 alone:tensordict=0.14.3 alone:torchrl=0.14.1
jax           build-jax      tests/jax targets/jax torch=2.13.0 numpy=2.4.6 ml_dtypes=0.6.0 scipy=1.17.1 opt_einsum=3.4.0 alone:jax=0.10.2 alone:jaxlib=0.10.2
torchtitan    build-torchtitan tests/torchtitan targets/torchtitan torch=2.13.0 numpy=2.4.6 triton=3.9.0 datasets=4.7.0 torchtitan=0.3.0
neuronx-distributed build-neuronx tests/neuronx_distributed targets/neuronx_distributed torch=2.13.0 numpy=2.4.6 packaging=26.2 safetensors=0.7.0 alone:torch-xla=2.9.0 checkout:neuronx_distributed
"
names=$(awk 'NF { print $1 }' <<<"$table")
checkout_of() { # NAME: the module that it has from a checkout, if any
  awk -v name="$1" '$1 == name' <<<"$table" | grep -o 'checkout:[a-z_]*' | cut -d : -f 2
}
testable() { # NAME
  local module
  module=$(checkout_of "$1") || return 0
  python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)"
}
if [ "${1:-}" = --names ]; then
  echo "$names"
  exit
fi
if [ "${1:-}" = --testable ]; then
  for name in $names; do ! testable "$name" || echo "$name"; done
  exit
fi
test=0
if [ "${1:-}" = --test ]; then
  test=1
  shift
fi
base=
if [ "${1:-}" = --python ] && [ $# -ge 2 ]; then
  base=$2
  shift 2
fi
row=$(awk -v name="${1:-}" '$1 == name' <<<"$table")
if [ -z "$row" ] || [ $# -gt $((2 - test)) ]; then
  echo "usage: ci/frameworks.sh [--test] [--python PYTHON] NAME [FOLDER]; names: $(tr '\n' ' ' <<<"$names")" >&2
  exit 2
fi
read -r _ folder tests adapters packages <<<"${row% checkout:*}"
if [ $test -eq 1 ] && ! testable "$1"; then
  echo "ci/frameworks.sh: the tests of $1 need a checkout of it: set PYTHONPATH to the folder that holds $(checkout_of "$1")" >&2
  exit 3
fi
folder=${2:-$folder}

versions() { # PYTHON: prints what it has of the packages that count here, without importing them
  "$1" - $packages 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import PackageNotFoundError, version
for wanted in sys.argv[1:]:
    package = wanted.removeprefix("alone:").split("=")[0]
    try:
        print(package, version(package).split("+")[0])
    except PackageNotFoundError:
        print(package, "missing")
PYTHON
}
has() { # PYTHON PACKAGE VERSION
  [[ $'\n'$(versions "$1")$'\n' == *$'\n'"$2 $3"$'\n'* ]]
}

enough() { # [alone:]PACKAGE=VERSION: whether the folder's Python has it
  local pin=${1#alone:}
  if [ -n "$base" ] && [ "$pin" = "$1" ]; then ! has "$python" "${pin%=*}" missing; else has "$python" "${pin%=*}" "${pin#*=}"; fi
}

if [ ! -x "$folder/bin/python" ]; then "${base:-python3}" -m venv ${base:+--system-site-packages} "$folder"; fi
python=$folder/bin/python
site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
install() { "$python" -m pip install -q --disable-pip-version-check "$@"; }

# The adapters and the tracer are used where they lie, so that a change of theirs needs no installation; and so is the largest package where
# python3 or an environment made before has it in the right version.
paths=("$PWD/targets/python")
for adapter in ${adapters//,/ }; do paths+=("$PWD/$adapter"); done
if [ -n "$base" ]; then paths+=("$(site_of "$base")"); fi # which may be an environment itself
torch=$(grep -o 'torch=[0-9.]*' <<<"$packages" | head -n 1)
for at_hand in python3 build-python/bin/python3 build-megatron/bin/python build-torch/bin/python; do
  if [ -z "$base" ] && [ "$at_hand" != "$python" ] && command -v "$at_hand" >/dev/null && has "$at_hand" torch "${torch#*=}"; then
    paths+=("$("$at_hand" -c 'import importlib.util, os; print(os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin)))')")
    break
  fi
done
printf '%s\n' "${paths[@]}" >"$(site_of "$python")/shardfuzz.pth"

missing=() alone=()
for wanted in $packages; do
  pin=${wanted#alone:}
  enough "$wanted" && continue
  if [[ $wanted == alone:* ]]; then alone+=("${pin%=*}==${pin#*=}"); else missing+=("${pin%=*}==${pin#*=}"); fi
done
if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi
if [ ${#alone[@]} -gt 0 ]; then install --no-deps "${alone[@]}"; fi
for wanted in $packages; do
  enough "$wanted" && continue
  echo "ci/frameworks.sh: $folder has not ${wanted#alone:} but $(versions "$python" | tr '\n' ' ')" >&2
  exit 3
done
echo "ci/frameworks.sh: $folder is ready"
if [ $test -eq 1 ]; then
  SHARDFUZZ=${SHARDFUZZ:-$PWD/build/shardfuzz} PYTHONPATH=tests/frameworks${PYTHONPATH:+:$PYTHONPATH} "$python" -W ignore -m unittest discover -s "$tests"
fi
