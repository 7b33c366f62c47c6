# What the tests that start mpirun share. Sourced after common.bash; skips the test (exit 77) where there is no MPI.
probe=$("$SHARDFUZZ" fuzz --cases 1 --out "$work/probe" --launcher 'true {n}' 2>&1)
if ! command -v mpirun >/dev/null || [[ $probe == *"has no MPI"* ]]; then
  echo "skipped: no MPI"
  exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
# What a killed mpirun leaves behind goes with the test's folder.
export OMPI_MCA_btl_vader_backing_directory=$work
launcher='mpirun --oversubscribe -n {n}'
# Deeper models and longer trainings cover no more pairs of choices, and take many times as long where ranks outnumber cores.
flat=(--set model.layers=1..4 --set train.steps=1..2)

# A program of this test's own, since other tests run beside it: its processes are told from theirs by its path.
cp "$SHARDFUZZ" "$work/program"
SHARDFUZZ=$work/program

# RANKS ARGUMENT...: shardfuzz in a job; the exit code is $seen
job() {
  local ranks=$1
  shift
  seen=0
  checks=$((checks + 1))
  TMPDIR=$work timeout -k 1 150 mpirun --oversubscribe -n "$ranks" "$SHARDFUZZ" "$@" >"$work/stdout" 2>"$work/stderr" || seen=$?
  if [ $seen -eq 124 ] || [ $seen -eq 137 ]; then fail "mpirun -n $ranks shardfuzz $*: did not end"; fi
}

# Processes of this test's executable; ones that have ended and wait for their parent do not count.
alive() { ps -eo stat=,args= | grep -v '^Z' | grep -F "$SHARDFUZZ" | grep -vc grep; }
# Within 3 seconds none is left.
none_left() {
  for _ in $(seq 30); do
    if [ "$(alive)" -eq 0 ]; then return 0; fi
    sleep 0.1
  done
  return 1
}

# What a verdict of real ranks has in common with that of simulated ones.
# A routing tie counts where a run turned it, as real ranks may and simulated ones not: of experts end to end neither what could be checked nor
# "inconclusive" is compared.
bit_of() { echo $((1 << ($("$SHARDFUZZ" list features | grep -nx "$1" | cut -d: -f1) - 1))); }
turns="(features & $(bit_of moe)) <> 0 AND (features & $(bit_of isolated)) = 0"
columns="idx, CASE WHEN $turns AND verdict = 'INCONCLUSIVE' THEN 'PASS' ELSE verdict END, class, signature, ranks, layers, features, more_features"
columns="$columns, CASE WHEN $turns THEN checked + unchecked ELSE checked END, CASE WHEN $turns THEN 0 ELSE unchecked END"

# FOLDER WORD: the replay line of a finding's report there has the word, and shows the finding when it is copied
replay_line() {
  local report line
  report=$(find "$1" -name report.txt | head -n 1)
  line=$(sed -n 's/^replay       //p' "$report")
  check "the replay line has '$2': $line" grep -qF -- "$2" <<<"$line"
  check "it shows the finding: $line" grep -q '^verdict      FINDING' <(eval "TMPDIR=$work timeout 150 ${line/shardfuzz replay/\"\$SHARDFUZZ\" replay}" 2>&1)
}
