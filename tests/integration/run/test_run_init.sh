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
for input in $(sed -n '/with:/,$p' "$workflow" | sed -n 's/^ *\([a-z]*\): .*/\1/p'); do
  check "the action has the input $input" grep -q "^  $input:$" ci/examples/gate/action.yml
done
run 0 init --ci gitlab --target op:all "$work/gitlab"
options_exist "$work/gitlab/shardfuzz.gitlab-ci.yml"
options_exist ci/examples/gate/action.yml

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
