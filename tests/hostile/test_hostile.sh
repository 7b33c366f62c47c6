#!/usr/bin/env bash
# A worker and files whose names and texts are made to mislead: what is different stays different, and nothing of theirs reaches a report as it is.
source tests/integration/common.bash

launch=(--launcher "$PWD/tests/integration/launch_ranks.sh {n}")
hostile="worker:python3 -S tests/hostile/worker.py"

# --- names that do not fit -------------------------------------------------------------------------------------------
# Each name is a module of its own: a signature, a folder and a known entry of its own.
fuzz_names() { # EXIT OUT ARGUMENT...
  run "$1" fuzz --target "$hostile" --cases 40 --layouts 1 --seed 5 --set ranks=2 --set does=run --shrink-budget 0 --jobs 1 --json --out "$work/$2" "${@:3}" "${launch[@]}"
}
fuzz_names 1 names
is_json 'j["signatures"]' 11
is_json 'max(len(s["signature"].encode()) for s in j["by_signature"]) < 256' True
is_json 'len({s["min"] for s in j["by_signature"]})' 11
is_json 'all(__import__("os").path.exists(s["min"]) for s in j["by_signature"])' True
check "each has a folder" [ "$(find "$work/names" -mindepth 1 -maxdepth 1 -type d | wc -l)" = 11 ]

# A known entry forgives its own module and no other.
json '"[" + ", ".join("{\"signature\": %s}" % json.dumps(s["signature"]) for s in j["by_signature"] if not s["signature"].endswith("1@none")) + "]"' >"$work/known.json"
fuzz_names 1 known --known "$work/known.json"
is_json 'sorted(s["known"] for s in j["by_signature"])' "[False, True, True, True, True, True, True, True, True, True, True]"

# --- texts that mislead ------------------------------------------------------------------------------------------------
# Whatever is printed or written: no control characters but newlines, UTF-8, no line that a CI system takes for a command, nothing that Markdown, XML or the
# shell take for more than text.
cat >"$work/plain.py" <<'PYTHON'
import json, re, sys
for path in sys.argv[1:]:
    text = open(path, "rb").read().decode()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]", text), f"{path}: a control character"
    assert not re.search(r"^\s*::|##[A-Za-z]*\[", text, re.M), f"{path}: a command"
    if path.endswith(".md"):
        rest = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "CODE", text, flags=re.S)
        assert "| CODE |" in rest, f"{path}: no code in a cell"
        assert not re.search(r"[`\[\]()!@~$\\'&]|<(?!/?(details|summary)>)", rest), f"{path}: HTML or a code span of others: {rest}"
PYTHON
plain() { check "$1" python3 "$work/plain.py" "${@:2}"; }
hostile_run() { run "$@" "${launch[@]}"; plain "what '${*:2:2}' prints" "$work/stdout" "$work/stderr"; }

for does in refuse raise crash; do
  case $does in refuse) expected=3 ;; *) expected=1 ;; esac
  hostile_run $expected fuzz --target "$hostile" --cases 1 --set ranks=2 --set does=$does --set name=10 --shrink-budget 0 --jobs 1 --json --out "$work/$does"
done
plain "reports" "$work"/raise/*/report.txt "$work"/crash/*/report.txt "$work"/names/*/report.txt
check "what the ranks printed is in the report, marked" grep -qF '           | \x1b[31m<img' "$work"/crash/*/report.txt
check "a path in it is no part of the finding's name: $(ls "$work/raise")" [ -d "$(echo "$work"/raise/crash-candidate-ValueError.at.m.img*)" ]
mkdir "$work/bin" # lists take no launcher
printf '#!/bin/bash\nexec "%s/tests/integration/launch_ranks.sh" "${@:3}"\n' "$PWD" >"$work/bin/mpirun"
chmod +x "$work/bin/mpirun"
listed() { PATH=$work/bin:$PATH run 0 list features --target "$1"; plain "list features" "$work/stdout" "$work/stderr"; }
listed "$hostile"
check "a refusal's reason is one line" [ "$(grep -c '^refused: ' "$work/stdout")" = 1 ]
listed "$hostile name"
hostile_run 0 worker --describe "${hostile#worker:} name"
hostile_run 0 fuzz --dry-run --target "$hostile name" --cases 2

# The gate: a corpus whose files have such names, and findings of such modules.
evil=$(printf '%s/corpus/x\033[31m <img>`|$(touch forged)\047; touch forged; \047\n::error::forged ##[error].json' "$work")
mkdir "$work/corpus"
cp "$(grep -lF '"name": 10' "$work"/names/*/case.json | head -n 1)" "$evil"
sed -i 's/"FINDING"/"PASS"/' "$evil"
hostile_run 1 gate --target "$hostile" --corpus "$work/corpus" --cases 1 --set name=10 --set ranks=2 --set does=run --shrink-budget 0 --out "$work/gate" --junit "$work/junit.xml" \
  --summary "$work/summary.md" --json
plain "the gate's files" "$work/summary.md"
check "JUnit is well-formed" python3 -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' "$work/junit.xml"
check "the corpus file is shown" grep -qF 'x\x1b[31m <img>' "$work/stderr"
hostile_run 2 replay "$work/nowhere$evil"
hostile_run 2 "$(printf 'no\033command\n::error::forged')"
hostile_run 2 fuzz --target "$(printf 'op:\033\n::error::forged')"

# The lines that replay a finding, in its report and while the campaign runs, are for a shell, and start the worker.
replays() { # LINE
  local line=${1/' shardfuzz replay'/' "$SHARDFUZZ" replay'} # the folder's name may have shardfuzz in it
  check "the replay line names the worker" grep -qF "worker:python3 -S tests/hostile/worker.py" <<<"$line"
  checks=$((checks + 1))
  (eval "$line" >"$work/stderr" 2>&1); [ $? = 1 ] || fail "the replay line: $line"
  check "the replay shows the finding" grep -q '^verdict      FINDING (crash)' "$work/stderr"
}
replays "$(sed -n 's/^replay       //p' "$work"/raise/*/report.txt)"
hostile_run 1 fuzz --target "$hostile" --cases 1 --set ranks=2 --set does=raise --shrink-budget 0 --jobs 1 --out "$work/it's"
replays "$(sed -n 's/^new finding .* in case [0-9]*: //p' "$work/stderr")"
check "nothing was run" [ ! -e forged ]

finish
