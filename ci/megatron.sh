#!/usr/bin/env bash
# Sets up a virtual environment in which the unmodified Megatron Core runs on a CPU:  ci/megatron.sh [FOLDER]   (default: build-megatron)
# Can be run again at any time; installs only what is missing.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

folder=${1:-build-megatron}
case $folder in -*) echo "usage: ci/megatron.sh [FOLDER]" >&2 && exit 2 ;; esac
torch=2.13.0 megatron_core=0.16.1 numpy=2.4.6 packaging=26.2

versions() { # PYTHON: prints what it has of the three packages that count here, without importing torch
  "$1" - 2>/dev/null <<'PYTHON'
from importlib.metadata import PackageNotFoundError, version
for package in ("torch", "megatron-core", "numpy", "packaging"):
    try:
        print(package, version(package).split("+")[0])
    except PackageNotFoundError:
        print(package, "missing")
PYTHON
}
has() { # PYTHON PACKAGE VERSION
  [[ $'\n'$(versions "$1")$'\n' == *$'\n'"$2 $3"$'\n'* ]]
}

if [ ! -x "$folder/bin/python" ]; then python3 -m venv "$folder"; fi
python=$folder/bin/python
site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
install() { "$python" -m pip install -q --disable-pip-version-check "$@"; }

# The adapter and the tracer are used where they lie, so that a change of theirs needs no installation; and so is the largest package where
# python3 or the folder that ci/setup.sh --python makes has it in the right version.
paths=("$PWD/targets/megatron_core" "$PWD/targets/python")
for at_hand in python3 build-python/bin/python3; do
  if command -v "$at_hand" >/dev/null && has "$at_hand" torch $torch; then paths+=("$(site_of "$at_hand")") && break; fi
done
printf '%s\n' "${paths[@]}" >"$(site_of "$python")/shardfuzz.pth"

has "$python" torch $torch || install "torch==$torch"
has "$python" numpy $numpy || install "numpy==$numpy"
has "$python" packaging $packaging || install "packaging==$packaging"
# Without its dependencies: they would admit another torch.
has "$python" megatron-core $megatron_core || install --no-deps "megatron-core==$megatron_core"

for wanted in "torch $torch" "megatron-core $megatron_core" "numpy $numpy" "packaging $packaging"; do
  read -r package version <<<"$wanted"
  has "$python" "$package" "$version" && continue
  echo "ci/megatron.sh: $folder has not $wanted but $(versions "$python" | tr '\n' ' ')" >&2
  exit 3
done
echo "ci/megatron.sh: $folder is ready"
