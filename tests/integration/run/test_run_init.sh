#!/usr/bin/env bash
# `shardfuzz init` writes what a gate needs, and overwrites nothing; the examples name options that exist.
source tests/integration/common.bash
options_exist() { # FILE: each option of shardfuzz gate that it names is one
  local option
  for option in $(grep -oE -- '(^|[ (])--[a-z-]+' "$1" | tr -d ' ('); do
    check "$1: $option" grep -qE -- "^  $option( |\$)" "$work/help"
  done
}
run 0 gate --help
cp "$work/stdout" "$work/help"

mkdir "$work/cron" "$work/github" "$work/gitlab"
run 0 init --ci cron --target op:gelu_fwd "$work/cron"
check "it says what it wrote" [ "$(grep -c '^wrote ' "$work/stdout")" -eq 3 ]
check "the list is empty" [ "$(cat "$work/cron/shardfuzz/known.json")" = "[]" ]
options_exist "$work/cron/shardfuzz/gate.sh"
check "the gate passes, and is silent" [ -z "$(SHARDFUZZ_TIME=2s "$work/cron/shardfuzz/gate.sh" 2>&1)" ]
check "it fuzzed" grep -qE '^fuzzed: [1-9][0-9]* cases' "$work/cron/gate.log"
echo '{"schema": 1, "expect": {"verdict": "FINDING"}}' >"$work/cron/shardfuzz/corpus/wrong.json"
check "a gate that fails is told" grep -q '^gate: FAILED$' <(SHARDFUZZ_TIME=2s "$work/cron/shardfuzz/gate.sh" 2>&1)

run 0 init --target plugin:./x.so --repository me/shardfuzz "$work/github"
workflow=$work/github/.github/workflows/shardfuzz.yml
check "the action is named" grep -q 'uses: me/shardfuzz/ci/examples/gate@main$' "$workflow"
check "so is the target" grep -q 'target: "plugin:./x.so"$' "$workflow"
options_exist ci/examples/gate/action.yml
run 0 init --ci gitlab --target op:all "$work/gitlab"
options_exist "$work/gitlab/shardfuzz.gitlab-ci.yml"

# --- what was written runs, as far as that needs no service ------------------------------------------------------------
tree=$PWD
mkdir -p "$work/temp"
ln -s "$build" "$work/temp/shardfuzz" # where the action's first step has built it
in_github() { # EXPECTED_EXIT INPUT=VALUE...: the action's step in the repository that has the workflow
  local expected=$1 seen=0
  shift
  (cd "$work/github" && RUNNER_TEMP=$work/temp GITHUB_STEP_SUMMARY=$work/step.md python3 "$tree/tests/integration/workflow.py" github \
    "$tree/ci/examples/gate/action.yml" Gate .github/workflows/shardfuzz.yml "$@" >"$work/stdout" 2>"$work/stderr") || seen=$?
  check "the action's step ends with $expected" [ $seen -eq "$expected" ]
}
in_github 0 target=op:gelu_fwd time=2s
check "it fuzzed" grep -qE '^fuzzed: [1-9][0-9]* cases' "$work/stdout"
check "the summary of the step is there" grep -q '^# \|^## ' "$work/step.md"
check "so are the files" [ -s "$work/github/shardfuzz-out/gate.sarif" -a -s "$work/github/shardfuzz-out/gate.xml" ]
in_github 1 target=builtin time=8s "options=--plant rowparallel-bias-xtp --mode isolated --max-ranks 2"
check "a finding is an annotation" grep -q '^::error' "$work/stdout"
sed -i 's/--time 10m/--time 2s/' "$work/gitlab/shardfuzz.gitlab-ci.yml"
check "GitLab's script passes" eval '(cd "$work/gitlab" && python3 "$tree/tests/integration/workflow.py" gitlab shardfuzz.gitlab-ci.yml) >"$work/stdout" 2>&1'
check "its files are there" [ -s "$work/gitlab/gate.xml" -a -s "$work/gitlab/codequality.json" ]

run 0 init --ci cron --target op:all "$work/gitlab/shardfuzz/corpus"
refuses "shardfuzz.yml: exists already; nothing was written" init --target op:all --repository me/shardfuzz "$work/github"
rm "$workflow"
refuses "known.json: exists already; nothing was written" init --target op:all --repository me/shardfuzz "$work/github"
check "nothing was written" [ ! -e "$workflow" ]
refuses "--target T is missing" init --ci cron "$work"
for repository in me /x me/ a/b/c; do refuses "--repository OWNER/NAME is missing" init --target op:all --repository $repository "$work"; done
refuses "--repository is only for --ci github" init --ci cron --target op:all --repository me/shardfuzz "$work"
refuses 'has a blank, a quote or a dollar sign' init --ci cron --target 'worker:a b' "$work"
refuses 'did you mean github?' init --ci githb --target op:all "$work"
refuses "$work/none: not a folder" init --ci cron --target op:all "$work/none"
finish
