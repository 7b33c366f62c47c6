#!/usr/bin/env bash
# Consistent tensors from Python: libshardfuzz.so gives the bits that the C generator gives. Needs neither torch nor NumPy.
source tests/integration/common.bash
export SHARDFUZZ
check "the library lies beside the program" [ -e "$(dirname "$SHARDFUZZ")/libshardfuzz.so" ]
check "the library needs nothing but libc" [ -z "$(ldd "$(dirname "$SHARDFUZZ")/libshardfuzz.so" | grep -vE 'libc\.|libm\.|ld-linux|linux-vdso')" ]
check "bytes and refusals from Python" python3 tests/integration/frameworks/library_python.py targets/python corpus/golden/consistent.csv
# A library that is not there is one clear error.
SHARDFUZZ_LIBRARY=$work/none.so python3 tests/integration/frameworks/library_python.py targets/python corpus/golden/consistent.csv 2>"$work/stderr"
check "the missing library is named" grep -q "RuntimeError: $work/none.so cannot be loaded" "$work/stderr"
finish
