#!/usr/bin/env bash
# ci/tidy finds one offence of each rule where it is, and nothing in a tree that keeps the rules.
set -euo pipefail

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{harness/base,harness/spec,harness/run,oracles,targets,tests,build}
failures=0

expect_line() { # PATTERN: a line of the report
  if ! grep -qE "$1" "$tree/build/report"; then
    echo "ci/tidy did not report: $1" >&2
    failures=$((failures + 1))
  fi
}
fill() { # FOLDER COUNT: that many files
  mkdir -p "$1"
  for ((i = 0; i < $2; i++)); do echo >"$1/file-$i"; done
}
long_function() { # NAME LINES
  echo "void $1(int *x) {"
  for ((i = 2; i < $2; i++)); do echo "  *x += $i;"; done
  echo "}"
}

# A tree without offence: what the rules allow, and what only looks like an offence.
cat >"$tree/harness/base/good.h" <<'C'
#ifndef GOOD_H
#define GOOD_H
struct good { int value; };
extern const int good_table[3];
int good_value(const struct good *good); /* never negative */
/* Both take NULL. */
int good_first(const struct good *good);
static inline int good_second(const struct good *good) {
  return good == 0;
}
#endif
C
{
  printf '#include "harness/base/good.h"\n#include <stdio.h>\n'
  printf '/* 1e-4 in a comment, and a text: */\nstatic const char text[] = "} 1e-4 {";\nconst char *good_text(void) { return text; }\n'
  printf '#define GOOD_BLOCK(x) { x }\nstatic const struct good table[] = {{1}, {2}};\n'
  printf 'int good_value(const struct good *good) { return good->value + table[0].value; }\n'
  long_function exactly_long_enough 70
  printf '/* long: a list that reads best in one piece */\n'
  long_function longer_with_reason 90
} >"$tree/harness/base/good.c"
printf '#include "harness/base/good.h"\nconst double seconds = 1e-9, coefficient = 2.1219444e-4;\n' >"$tree/harness/run/time.c"
printf '#include "harness/base/good.h"\nconst double bound = 3e-4;\n' >"$tree/oracles/bound.c"
echo "int built;	" >"$tree/build/generated.c"
fill "$tree/harness/base/full" 30
fill "$tree/corpus/golden" 31
for room in harness/base harness/run oracles corpus; do for ((i = 0; i < 100; i++)); do echo line; done >"$tree/$room/README.md"; done
if ! ci/tidy "$tree" >"$tree/build/report" 2>&1; then
  cat "$tree/build/report" >&2
  echo "ci/tidy reported a tree without offence" >&2
  exit 1
fi

# One offence of each rule.
printf '#include "oracles/judge.h"\n' >"$tree/targets/graph.c"
echo '#define JUDGE 1' >"$tree/oracles/judge.h"
printf '\n#include "targets/graph.c"\n' >"$tree/targets/include_c.c"
printf '#include "good.h"\n' >"$tree/harness/base/path.c"
for ((i = 0; i <= 600; i++)); do echo; done >"$tree/targets/size.c"
for ((i = 0; i <= 300; i++)); do echo; done >"$tree/targets/size.h"
{ echo "int before;" && long_function too_long 71; } >"$tree/targets/long.c"
echo 'size_t not_alone(void); /* bytes */' >"$tree/targets/alone.h"
printf '/* One. */\nint one(int x)\n    __attribute__((const));\n/* --- a heading --- */\nint two(void) __attribute__((const));\n' >"$tree/harness/base/contract.h"
printf 'int x;\nint blanks; \n' >"$tree/targets/blanks.c"
printf 'void f(void) {\n\tf();\n}\n' >"$tree/targets/tab.c"
printf 'double ok(double x) { return x; }\ndouble bound = 1e-4;\n' >"$tree/targets/literal.c"
printf 'const float bound = 2.5E-3F;\n' >"$tree/harness/run/literal.c"
printf '/* puts(x) */\nvoid f(void) { puts("x"); }\n' >"$tree/harness/run/print.c"
printf 'int x;\nint %0136d;\nconst char *text = "%0200d";\n' 0 0 >"$tree/targets/columns.c"
printf '# one\n# TO''DO: two\n' >"$tree/tests/notes.md"
printf '/* FIX''ME */\n' >"$tree/targets/fix.c"
echo "one line more" >>"$tree/oracles/README.md" # tests has a file and no README.md
mkdir -p "$tree/harness/run/support" "$tree/harness/run/trial" "$tree/harness/run/new" "$tree/harness/base/system"
printf '#include "harness/run/trial/up.h"\n' >"$tree/harness/run/support/up.c"
printf '#include "harness/base/good.h"\n' | tee "$tree/harness/run/trial/up.h" >"$tree/harness/run/new/layer.c"
printf '\n#include "harness/base/system/circle.h"\n' >"$tree/harness/base/circle.c"
printf '#include "harness/base/good.h"\n' >"$tree/harness/base/system/circle.h"
for ((i = 0; i < 3; i++)); do echo line; done >"$tree/targets/README.md"
fill "$tree/tests/many" 31
mkdir "$tree/misc" && echo >"$tree/misc/file"
if ci/tidy "$tree" >"$tree/build/report" 2>/dev/null; then
  echo "ci/tidy left with 0 in a tree with offences" >&2
  failures=$((failures + 1))
fi
expect_line '^targets/graph.c:1: include-graph: targets may not include oracles'
expect_line '^harness/run/support/up.c:1: run-layers: support may not include harness/run/trial/up.h'
expect_line '^harness/run/new/layer.c:1: run-layers: its folder is no layer'
expect_line '^harness/base/circle.c:2: include-circle: harness/base includes harness/base/system'
expect_line '^harness/base/system/circle.h:1: include-circle: harness/base/system includes harness/base,'
expect_line '^targets/include_c.c:2: include-c: '
expect_line '^harness/base/path.c:1: include-path: '
expect_line '^targets/size.c:601: file-size: 601 lines, at most 600'
expect_line '^targets/size.h:301: file-size: 301 lines, at most 300'
expect_line '^targets/columns.c:2: columns: 141, at most 140'
expect_line '^targets/columns.c:3: columns: 222, at most 140' # a long text is cut, too
expect_line '^targets/long.c:2: function-length: 71 lines'
expect_line '^targets/alone.h:1: header-alone: .*size_t'
expect_line '^harness/base/contract.h:5: contract: '
expect_line '^targets/blanks.c:2: whitespace: blanks at the end'
expect_line '^targets/tab.c:2: whitespace: a tab'
expect_line '^targets/literal.c:2: tolerance: 1e-4'
expect_line '^harness/run/literal.c:1: tolerance: 2.5E-3F'
expect_line '^harness/run/print.c:2: printing: puts'
expect_line '^tests/notes.md:2: unfinished: TO''DO'
expect_line '^targets/fix.c:1: unfinished: FIX''ME'
expect_line '^misc:1: top-level: '
expect_line '^oracles/README.md:101: room-readme: 101 lines, at most 100'
expect_line '^tests/many:1: folder-size: 31 files, at most 30'
expect_line '^tests/README.md:1: room-readme: missing'
count=$(wc -l <"$tree/build/report")
if [ "$count" -ne 25 ]; then
  echo "ci/tidy reported $count offences, 25 were made" >&2
  failures=$((failures + 1))
fi

if [ "$failures" -ne 0 ]; then
  cat "$tree/build/report" >&2
  exit 1
fi
echo "ci/tidy: 25 offences found, none where there was none"
