#!/usr/bin/env bash
# What `ci/package.sh --objects BUILD` made: the wheel in a clean virtual environment, and the Debian package unpacked, each used without the source tree.
# Neither needs a network: PyTorch is taken from where it is already installed, and where it is not, that part is left out, and said so.
source tests/integration/common.bash
wheels=("$build"/dist/shardfuzz-*.whl) debs=("$build"/dist/shardfuzz_*.deb)
for package in "${wheels[0]}" "${debs[0]}"; do
  if [ ! -e "$package" ] || [ "$package" -ot "$SHARDFUZZ" ]; then
    echo "skipped: there is no $package, or it is older than the program; ci/package.sh --objects ${build#"$PWD/"} makes both packages"
    exit 77
  fi
done
has_torch() { "$1" -c 'import torch, numpy' 2>/dev/null; }
python=""
for candidate in build-python/bin/python3 python3 build-torch/bin/python build-megatron/bin/python; do
  if type -P "$candidate" >/dev/null && has_torch "$(type -P "$candidate")"; then python=$(realpath -s "$(type -P "$candidate")") && break; fi
done

# --- the wheel ---
check "one wheel" [ ${#wheels[@]} -eq 1 ]
check "a clean environment" command python3 -m venv "$work/venv"
check "pip installs it" "$work/venv/bin/pip" install -q --no-deps --no-index --disable-pip-version-check "${wheels[0]}"
clean() { (cd "$work" && env -u SHARDFUZZ -u SHARDFUZZ_LIBRARY -u PYTHONPATH PATH="$work/venv/bin:/usr/bin:/bin" "$@"); } # COMMAND...: as a user who has the wheel alone
check "the command is there" grep -q '^shardfuzz [0-9]' <<<"$(clean shardfuzz --version)"
check "the module is there" clean python -c 'import shardfuzz; shardfuzz.check'
check "the library is there" [ "$(clean python -c 'from shardfuzz import consistent; print(len(consistent.fill(consistent.key(1, "x"), [4])))')" = 16 ]
check "a campaign passes: $(clean shardfuzz fuzz --cases 4 --jobs 2 2>&1 | tail -n 5)" [ -e "$work/findings/campaign-0001.sqlite" ]
check "doctor runs" grep -q '^absent *MPI .*this build has no MPI' <<<"$(clean shardfuzz doctor)"
check "there are licences of what comes along" [ "$(find "$work/venv" -path '*bin/licences/*' | wc -l)" -ge 4 ]

# The tag says which glibc is enough, and whatever is not glibc comes along.
glibc=$(sed -n 's/.*manylinux_2_\([0-9]*\)_.*/\1/p' <<<"${wheels[0]}")
check "the name has a tag: ${wheels[0]}" [ -n "$glibc" ]
files=("$work"/venv/lib*/python3*/site-packages/shardfuzz/bin/{shardfuzz,libshardfuzz.so} "$work"/venv/lib*/python3*/site-packages/shardfuzz.libs/*)
newest=$(for file in "${files[@]}"; do objdump -T "$file"; done 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -t . -k 2 -n | tail -n 1)
check "glibc 2.$glibc has all symbols: $newest" [ "${newest#GLIBC_2.}" -le "$glibc" ]
outside=$(ldd "${files[0]}" | grep -vE 'shardfuzz\.libs/|linux-vdso|ld-linux|lib(c|m|mvec|dl|pthread|rt|z|gcc_s|stdc\+\+)\.so')
check "all else comes along: $outside" [ -z "$outside" ]

if [ -n "$python" ]; then
  "$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' >"$(echo "$work"/venv/lib/python3*/site-packages)/torch.pth"
  sed -n '/^import shardfuzz$/,/^```$/p' harness/docs/pytorch.md | sed '/^```$/,$d' >"$work/traced.py"
  cp tests/python/models.py "$work"
  printf '%s\n' 'import models' 'build, train_step = models.build, models.train_step' 'def build_parallel():' '    return models.build_parallel({"tp": 2})[0]()' >"$work/my_training.py"
  check "a reference" clean env PYTHONWARNINGS=ignore python traced.py >"$work/said"
  check "a run of two ranks" clean env PYTHONWARNINGS=ignore OMP_NUM_THREADS=1 python -m torch.distributed.run --nproc-per-node 2 traced.py >>"$work/said"
  check "the verdict: $(clean shardfuzz check reference parallel)" grep -qE '^verdict +PASS$' <<<"$(clean shardfuzz check reference parallel)"
else
  echo "no PyTorch here: the tracer of the wheel is imported, and not used"
fi

# --- the Debian package ---
check "one package" [ ${#debs[@]} -eq 1 ]
mkdir "$work/deb"
check "dpkg reads it" dpkg-deb -x "${debs[0]}" "$work/deb"
depends=$(dpkg-deb -f "${debs[0]}" Depends)
for library in libc6 libjansson4 libsqlite3-0 libxml2; do check "it depends on $library: $depends" grep -qF "$library" <<<"$depends"; done
for file in bin/shardfuzz share/man/man1/shardfuzz.1 share/man/man7/shardfuzz-fields.7 share/bash-completion/completions/shardfuzz \
  share/zsh/vendor-completions/_shardfuzz lib/libshardfuzz.so include/shardfuzz/plugin.h; do
  check "it has $file" [ -e "$work/deb/usr/$file" ]
done
SHARDFUZZ=$work/deb/usr/bin/shardfuzz
cd "$work" || exit 1
run 0 fuzz --cases 4 --jobs 2 --out deb-findings --json
is_json "j['passed']" 4
finish
