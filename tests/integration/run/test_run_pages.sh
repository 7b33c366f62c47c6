#!/usr/bin/env bash
# Pages for a browser: of a campaign with planted bugs, of a clean one, of a gate, of traces, of a case. Each is well-formed, needs no other file, and holds what
# its subject has; a large campaign makes a small page in little time. Chromium, where it is there, shows that nothing overflows or is empty.
source tests/integration/common.bash

page() { # FILE: what must hold of every page
  check "$1 is well-formed" xmllint --noout --nonet "$1"
  check "$1 needs no other file" bash -c "! grep -nEi '(src|href)=\"[^#]|url\(|@import|<script|<link|http[^\"]*\"' '$1' | grep -v 'xmlns=\"http'"
  if command -v chromium >/dev/null; then
    for width in 1280 400; do check "$1 fits a window of $width pixels" timeout 120 python3 tests/integration/run/page_layout.py "$1" $width; done
  fi
}
count() { # FILE XPATH
  xmllint --nonet --xpath "count($2)" "$1" 2>/dev/null | cut -d. -f1
}
svg='//*[local-name()="svg"]'
command -v chromium >/dev/null || echo "SKIPPED: no chromium here: nobody looks at how pages are laid out" >&2

# --- a campaign with a planted bug, and the pages of its parts
run 1 fuzz "${plain[@]}" --plant rowparallel-bias-xtp --cases 12 --set layout.tp=2..4 --out "$work/planted" --html "$work/planted.html"
page "$work/planted.html"
check "it has a finding" grep -q '<h1>[1-9][0-9]* finding' "$work/planted.html"
check "its cause" grep -q 'the bias is added 2 times' "$work/planted.html"
check "three maps, modules, ranks and the campaign" [ "$(count "$work/planted.html" "$svg")" -ge 7 ]
check "the way of the shrinker" grep -q 'How it became small' "$work/planted.html"
check "pairs of settings" grep -q 'Pairs of settings that ran together' "$work/planted.html"
check "a command" grep -q "shardfuzz replay &#39;$work/planted/" "$work/planted.html"
folder=$(dirname "$(ls "$work"/planted/*/min.json | head -n 1)")
check "the way is kept beside the case" grep -qE '^\+' "$folder/shrink.txt"
run 0 report "$work/planted" -o "$work/again.html"
page "$work/again.html"
check "the same findings" [ "$(grep -c '<section id="item' "$work/again.html")" = "$(grep -c '<section id="item' "$work/planted.html")" ]
run 0 report "$folder"
check "says where" grep -qx "wrote $folder/report.html" "$work/stdout"
page "$folder/report.html"
check "the worst element" grep -q '<dt>worst element</dt><dd>\[' "$folder/report.html"
run 0 report "$folder/case.json"
page "$folder/case.html"
run 1 replay "$folder/min.json" --html "$work/replay.html"
page "$work/replay.html"
run 0 replay --plant none "$folder/min.json" --html "$work/pass.html"
page "$work/pass.html"
check "the file's finding is missed" grep -q '<dd>FINDING [^<]*, which this run did not show</dd>' "$work/pass.html"
check "the first page has it" grep -q '<dd>FINDING [^<]*, as it was</dd>' "$folder/report.html"
check "no cause of what passes" bash -c "! grep -q 'class=\"cause\"' '$work/pass.html'"

# --- a clean campaign, a gate
run 0 fuzz "${plain[@]}" --cases 6 --out "$work/clean" --html "$work/clean.html"
page "$work/clean.html"
check "says so" grep -q '<h1>Nothing new was found</h1>' "$work/clean.html"
mkdir "$work/corpus"
sed 's/FINDING/PASS/' "$folder/min.json" >"$work/corpus/wrong.json"
run 1 gate --corpus "$work/corpus" --time 60s --cases 4 --seed 1 "${plain[@]}" --out "$work/gate" --html "$work/gate.html"
page "$work/gate.html"
check "the case of the corpus has pictures" [ "$(count "$work/gate.html" "//*[@id='item-0']$svg")" -ge 3 ]

# --- traces of several steps
case_file() { # FILE LAYOUT PLANT
  cat >"$1" <<JSON
{"schema": 1, "mode": "e2e", "model": {"layers": 2, "hidden": 16, "heads": 4, "kv_heads": 4, "head_dim": 4, "ffn": 32, "vocab": 32, "vocab_padded": 32, "seq": 8,
  "bias": true}, "train": {"microbatches": 2, "microbatch_size": 2, "steps": 3}, "layout": {$2}, "plant": {"id": "$3"}}
JSON
}
traced() { # EXIT NAME LAYOUT PLANT
  case_file "$work/$2.json" "$3" "$4"
  run "$1" replay "$work/$2.json" --trace "$work/$2"
}
traced 0 ref '' ''
traced 0 draw1 '"tp": 4' ''
traced 0 draw2 '"cp": 2' ''
traced 0 right '"dp": 2' ''
traced 1 wrong '"tp": 2, "sp": true' sp-final-ln-nosync
run 0 noise "$work/ref" "$work/draw1" "$work/draw2"
run 1 check "$work/ref" "$work/right" "$work/wrong" --html "$work/check.html"
page "$work/check.html"
check "errors by layer and step, of both" [ "$(grep -c '<h3>Error by layer and step' "$work/check.html")" = 2 ]
check "the first wrong tensor" grep -q 's0/mb0/step/main_grad/decoder.final_layernorm.weight/0' "$work/check.html"

# --- text of others: a module that wants to be markup
python3 - "$work/planted" "$work/hostile.sqlite" <<'PY'
import glob, shutil, sqlite3, sys
shutil.copy(sorted(glob.glob(sys.argv[1] + "/campaign-*.sqlite"))[0], sys.argv[2])
store = sqlite3.connect(sys.argv[2])
bad = '<script>alert(1)</script>"\'&]]>'
store.execute("UPDATE finding SET diagnosis = ?1, what = ?1, steps = '+' || ?1, report = ?1", (bad,))
store.execute("UPDATE verdict SET unjudged = ?", ("<b>x</b>=3",))
store.execute("UPDATE meta SET value = '- <i>=1' || char(10) || 'o <b>=2' WHERE key = 'pairs'")
store.commit()
PY
run 0 report "$work/hostile.sqlite" --findings "$work/planted" -o "$work/hostile.html"
page "$work/hostile.html"
check "it is shown as text" grep -q '&lt;script&gt;alert(1)&lt;/script&gt;' "$work/hostile.html"

# --- a large campaign
python3 - "$work/planted" "$work/large.sqlite" <<'PY'
import glob, shutil, sqlite3, sys
shutil.copy(sorted(glob.glob(sys.argv[1] + "/campaign-*.sqlite"))[0], sys.argv[2])
store = sqlite3.connect(sys.argv[2])
columns = [row[1] for row in store.execute("PRAGMA table_info(verdict)") if row[1] != "idx"]
first = store.execute("SELECT max(idx) + 1 FROM verdict").fetchone()[0]
names = ", ".join(columns)
(passed,) = [row[0] for row in store.execute("SELECT min(idx) FROM verdict WHERE verdict = 'PASS'")]
store.execute(f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < 99999) "
              f"INSERT INTO verdict(idx, {names}) SELECT i, {names} FROM n, verdict WHERE idx = {passed}")
store.execute("UPDATE meta SET value = 100000 WHERE key = 'high_water'")
columns = [row[1] for row in store.execute("PRAGMA table_info(finding)") if row[1] not in ("signature", "idx", "shrink_key", "diagnosis_cause", "shown")]
names = ", ".join(columns)
for i in range(30):
    kind = ("act", "act_grad", "wgrad", "main_grad", "param")[i % 5]
    store.execute(f"INSERT OR IGNORE INTO finding(signature, idx, shrink_key, shown, diagnosis_cause, {names}) "
                  f"SELECT 'tolerance/{kind}/module{i}@tp', {i}, shrink_key, '', 'cause {i}', {names} FROM finding ORDER BY idx LIMIT 1")
store.commit()
PY
begin=$(date +%s%N)
run 0 report "$work/large.sqlite" --findings "$work/planted" -o "$work/large.html"
seconds=$((($(date +%s%N) - begin) / 1000000000))
check "30 findings" [ "$(grep -c '<section id="item' "$work/large.html")" -ge 30 ]
check "with pictures" [ "$(count "$work/large.html" "$svg")" -ge 150 ]
check "100,000 cases" grep -q '100000 in' "$work/large.html"
check "less than 3 MB: $(stat -c %s "$work/large.html")" [ "$(stat -c %s "$work/large.html")" -lt 3000000 ]
check "in less than 10 s: $seconds" [ "$seconds" -lt 10 ]
page "$work/large.html"

# --- wrong input
refuses "there is no such file" report "$work/nothing"
refuses "neither a finding" report "$work/corpus"
echo "{" >"$work/broken.json"
refuses "broken.json" report "$work/broken.json"
head -c 4096 "$work/large.sqlite" >"$work/cut.sqlite"
refuses "cut.sqlite" report "$work/cut.sqlite"
refuses "no/folder" report "$folder" -o "$work/no/folder/page.html"
refuses "no/folder" fuzz --cases 1 --html "$work/no/folder/page.html"
refuses "mpirun" report "$folder" --backend mpi

finish
