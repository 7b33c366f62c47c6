#!/usr/bin/env bash
# Everything that must hold before a change goes in, in three builds: Release with all tests, AddressSanitizer + UBSan with the unit and
# contract suites, and a short libFuzzer run of each entry. Stops at the first failure.
#   ci/test.sh [--all]     --all: also the Python and CUDA parts of the tree
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

export PIP_COMPILE=0 # pip would compile every module of a package; Python compiles the few that are imported
unset PYTHONDONTWRITEBYTECODE
fuzz_seconds=4 # for each libFuzzer entry
all=0
for argument in "$@"; do
  case $argument in
  --all) all=1 ;;
  *) echo "usage: ci/test.sh [--all]" >&2 && exit 2 ;;
  esac
done

report=""
cpu_s() { awk -v tick="$(getconf CLK_TCK)" '{ print int(($16 + $17) / tick) }' /proc/$$/stat; } # of all processes that have ended
run_stage() { # NAME FUNCTION: runs it, keeps its time for the closing table
  local start=$SECONDS cpu
  cpu=$(cpu_s)
  echo "== $1"
  current=$1
  "$2"
  report+=$(printf '%5d s  %5d CPU s  %s' $((SECONDS - start)) $(($(cpu_s) - cpu)) "$1")$'\n'
  echo "== $1: $((SECONDS - start)) s"
}
current="start"
declare -A begun # by name: the process groups that begin started and await has not seen the end of
ended() { # STATUS: says what failed, and ends what still runs
  local group
  if [ "$1" -ne 0 ]; then echo "ci/test.sh: FAILED in: $current (after $SECONDS s)" >&2; fi
  for group in "${begun[@]}"; do
    kill -- "-$group" 2>/dev/null || true
    wait "$group" || true
  done
}
trap 'ended $?' EXIT

begin() { # NAME FUNCTION...: runs the functions in order beside what follows, in a process group of their own
  local name=$1
  shift
  set -m
  (
    set +m
    for stage in "$@"; do "$stage"; done
  ) >"build/$name.log" 2>&1 </dev/null &
  begun[$name]=$!
  set +m
}
await() { # NAME: prints what it printed, and has its exit status
  local status=0
  wait "${begun[$1]}" || status=$?
  unset "begun[$1]"
  cat "build/$1.log"
  return $status
}

build() { # FOLDER NINJA_TARGET OPTIONS...
  local folder=$1 target=$2
  shift 2
  cmake -G Ninja -S . -B "$folder" "$@" >/dev/null
  ninja -C "$folder" --quiet "$target"
}
# FOLDER OPTIONS...: keeps the closing lines for the end. One test more than there are cores: many wait for a deadline.
suite() {
  local folder=$1 failed=0
  shift
  ctest --test-dir "$folder" --output-on-failure --no-tests=error -j $((jobs + 1)) "$@" 2>&1 | tee "$folder/ctest.log" || failed=1
  if [ $failed -eq 1 ]; then
    grep '^FAILED: ' "$folder/ctest.log" >&2 || true # once more, where the end of a log shows it
    return 1
  fi
  report+=$(grep -E 'tests passed' "$folder/ctest.log" | sed "s|^|         $folder: |")$'\n'
}

cuda=OFF
stage_cuda_setup() { # without nvcc or cuBLAS the CUDA device is not built, and that is said
  mkdir -p build
  if [ $all -eq 1 ] && ci/setup.sh --cuda >build/cuda-setup.log 2>&1; then
    cuda=ON
    report+="         CUDA: compiled for sm_90 and PTX; kernels run on the CPU"$'\n'
  elif [ $all -eq 1 ]; then
    report+="         CUDA: skipped, ci/setup.sh --cuda failed: $(tail -n 1 build/cuda-setup.log)"$'\n'
  fi
}
stage_release() { build build all -DCMAKE_BUILD_TYPE=Release -DSF_WERROR=ON -DSF_CUDA=$cuda; }
stage_package() { # of the objects that are there; integration.test_package uses them. Without a network pip has no auditwheel for the wheel, and that is said
  local status=0
  if [ $all -eq 0 ]; then return 0; fi
  ci/package.sh --objects build >build/package.log 2>&1 || status=$?
  if [ $status -eq 3 ]; then
    report+="         wheel: skipped, $(tail -n 1 build/package.log)"$'\n'
  elif [ $status -ne 0 ]; then
    tail -n 5 build/package.log >&2
    return 1
  fi
}
stage_release_suite() { suite build; }
stage_sanitize() { build build-asan all -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DSF_WERROR=ON -DSF_SANITIZE=ON -DSF_CUDA=OFF; }
stage_sanitize_suite() {
  # Open MPI keeps memory until the process ends; what we leak ourselves still fails.
  export LSAN_OPTIONS="suppressions=$PWD/ci/lsan.supp:print_suppressions=0" UBSAN_OPTIONS=print_stacktrace=1
  suite build-asan -L '^(unit|contract)$'
}
stage_fuzz_build() {
  build build-fuzz fuzz_entries -DCMAKE_C_COMPILER=clang-14 -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DSF_FUZZ=ON -DSF_MPI=OFF -DSF_CUDA=OFF
}
fuzz_entry() { # NAME
  mkdir -p "build-fuzz/corpus/$1" build-fuzz/artifacts
  local folders=("build-fuzz/corpus/$1")
  if [ -d "corpus/seeds/$1" ]; then folders+=("corpus/seeds/$1"); fi
  if ! "build-fuzz/tests/fuzz/$1" -max_total_time=$fuzz_seconds -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
    -artifact_prefix=build-fuzz/artifacts/ "${folders[@]}" >"build-fuzz/$1.log" 2>&1; then
    tail -n 60 "build-fuzz/$1.log" >&2
    return 1
  fi
  echo "-- $1"$'\n'"$(grep -E 'stat::number_of_executed_units|stat::executed_bytes|DONE' "build-fuzz/$1.log")"
}
stage_fuzz_run() {
  local entries i entry process processes failed=0
  entries=($(basename -s .c tests/fuzz/fuzz_*.c))
  for ((i = 0; i < ${#entries[@]}; i += jobs)); do # as many at a time as there are cores
    processes=()
    for entry in "${entries[@]:i:jobs}"; do
      fuzz_entry "$entry" &
      processes+=($!)
    done
    for process in "${processes[@]}"; do wait "$process" || failed=1; done
    [ $failed -eq 0 ] || return 1
  done
  report+="         libFuzzer entries run: ${#entries[@]}"$'\n'
}
stage_setup() { if [ $all -eq 1 ]; then ci/setup.sh --python; else ci/setup.sh; fi; }
stage_python() { # syntax errors and undefined names, before any script runs. Unused names are allowed: stand-alone scripts share their first lines
  local said
  pyflakes3 --version >/dev/null
  said=$(find ci corpus tests targets harness -name '*.py' -print0 | xargs -0r pyflakes3 | grep -vE 'unused|never used' || true)
  [ -z "$said" ] || { echo "$said" >&2 && return 1; }
}
stage_tracer() {
  local python=build-python/bin/python3
  [ -x $python ] || python=python3
  SHARDFUZZ=$PWD/build/shardfuzz PYTHONPATH=$PWD/targets/python "$python" -W ignore -m unittest discover -s tests/python
}
stage_untestable() {
  local name
  for name in $(comm -13 <(ci/frameworks.sh --testable | sort) <(ci/frameworks.sh --names | sort)); do
    echo "Skipped the tests of $name: they need a checkout of it on PYTHONPATH"
  done
}
# Tests each framework that no other call of this function has taken. Says so where it skips one, because its packages cannot be had.
stage_frameworks() {
  local name failed=0
  for name in $(ci/frameworks.sh --testable); do
    mkdir "build/frameworks/$name" 2>/dev/null || continue # who makes the folder has taken it
    if flock build/frameworks ci/frameworks.sh "$name" >"build/$name-setup.log" 2>&1; then
      ci/frameworks.sh --test "$name" || failed=1
    else
      echo "Skipped the tests of $name: ci/frameworks.sh $name failed: $(tail -n 1 "build/$name-setup.log")"
    fi
  done
  return $failed
}
# Compilers and the Python tests run beside the other tests, at the lowest priority, so that no deadline passes because of them.
last_in_turn() { renice -n 19 $BASHPID >/dev/null; }
begin_builds() { begin builds last_in_turn stage_sanitize stage_fuzz_build; }
await_builds() { await builds; }
begin_python() {
  rm -rf build/frameworks
  mkdir build/frameworks
  begin python last_in_turn stage_untestable stage_tracer stage_frameworks
}
await_python() { # one core is free by now: a second chain takes what the first one has not begun
  local failed=0
  begin frameworks stage_frameworks
  await python || failed=1
  await frameworks || failed=1
  [ $failed -eq 0 ] || return 1
  report+=$(grep -hE '^Ran |^Skipped ' build/python.log build/frameworks.log | sed 's|^|         Python: |')$'\n'
}

run_stage "setup" stage_setup
run_stage "tidy" ci/tidy
run_stage "Python scripts" stage_python
run_stage "CUDA setup" stage_cuda_setup
run_stage "Release build" stage_release
run_stage "packages" stage_package
begin_builds
if [ $all -eq 1 ]; then begin_python; fi
run_stage "Release tests" stage_release_suite
run_stage "sanitizer and libFuzzer builds, begun beside the Release tests" await_builds
run_stage "sanitizer tests (unit, contract)" stage_sanitize_suite
run_stage "libFuzzer entries, $fuzz_seconds s each" stage_fuzz_run
if [ $all -eq 1 ]; then run_stage "Python and framework tests, begun beside the Release tests" await_python; fi

echo
printf '%s' "$report"
echo "ci/test.sh: all passed in $SECONDS s"
