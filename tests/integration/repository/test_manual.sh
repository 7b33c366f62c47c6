#!/usr/bin/env bash
# Man pages and completions: they agree with the help and the reference, shells and man take them, and cmake installs them.
source tests/integration/common.bash
run 0 manual "$work/made"
check "man pages, completions, help and reference agree" python3 tests/integration/manual.py "$work/made"
page=$work/made/share/man/man1/shardfuzz-fuzz.1 completion=$work/made/share/bash-completion/completions/shardfuzz

# The check itself: a page without an option, a completion without a field, another exit code.
altered() { # TEXT FILE SED-SCRIPT WORD
  local text=$1 file=$2 script=$3 word=$4 said
  rm -rf "$work/altered" && cp -r "$work/made" "$work/altered"
  sed -i "$script" "$work/altered/$file"
  said=$(python3 tests/integration/manual.py "$work/altered")
  checks=$((checks + 1))
  [[ $said == *"$word"* ]] || fail "$text is not noticed: $said"
}
altered "a page without an option" share/man/man1/shardfuzz-fuzz.1 's/^\.B .*stop.-after N$/.B \\-\\-stop N/' "only the help: --stop-after N"
altered "a completion without a field" share/bash-completion/completions/shardfuzz 's/layout\.tp= //' "only the help: layout.tp"
altered "another exit code" share/man/man1/shardfuzz.1 's/^\.B 130, 143/.B 130/' "only the help: 130, 143"
altered "a completion without a choice" share/zsh/site-functions/_shardfuzz 's/(sim mpi nccl)/(sim mpi)/' "only the help: nccl"

if command -v man >/dev/null; then
  warnings=$(man --warnings -l "$page" "$work/made/share/man/man7/shardfuzz-fields.7" 2>&1 >/dev/null)
  check "man has nothing to complain about: $warnings" [ -z "$warnings" ]
else
  echo "no man here: its pages are not rendered"
fi
completes() { # WORDS.. WANTED: what bash offers for the last word
  local wanted=${*: -1} said
  said=$(bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shardfuzz; echo "${COMPREPLY[*]}"' - "$completion" "${@:1:$#-1}")
  checks=$((checks + 1))
  [ "$said" = "$wanted" ] || fail "bash completes '${*:1:$#-1}' to '$said', expected '$wanted'"
}
completes "$SHARDFUZZ" fu fuzz
completes "$SHARDFUZZ" fuzz --stop --stop-after
completes "$SHARDFUZZ" fuzz --mode iso isolated
completes "$SHARDFUZZ" fuzz --mode = "drawn isolated e2e"
completes "$SHARDFUZZ" fuzz --preset = gpt2-small-t gpt2-small-tiny
completes "$SHARDFUZZ" fuzz --set layout.ep "layout.ep="
completes "$SHARDFUZZ" fuzz --cases 1 ""
completes "$SHARDFUZZ" list fie fields
completes "$SHARDFUZZ" replay CMakeL CMakeLists.txt
completes "$SHARDFUZZ" help gat gate
if command -v zsh >/dev/null; then
  offers() { # WORDS: the words that zsh's own completion lists for a line
    zsh -f tests/integration/complete.zsh "$work/made/share/zsh/site-functions" "$1" 2>&1
  }
  check "zsh completes commands: $(offers 'shardfuzz ')" grep -q 'run a campaign of random cases' <<<"$(offers 'shardfuzz ')"
  check "zsh completes options: $(offers 'shardfuzz fuzz --st')" grep -q -- '--stop-after' <<<"$(offers 'shardfuzz fuzz --st')"
  check "zsh completes choices: $(offers 'shardfuzz fuzz --mode ')" grep -q 'isolated' <<<"$(offers 'shardfuzz fuzz --mode ')"
else
  echo "no zsh here: its completion is compared, and not run"
fi

check "installed" cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
for file in man/man1/shardfuzz.1 man/man7/shardfuzz-fields.7 bash-completion/completions/shardfuzz zsh/site-functions/_shardfuzz; do
  check "cmake installs $file" cmp "$work/made/share/$file" "$work/prefix/share/$file"
done
refuses "Not a directory" manual "$work/made/share/man/man1/shardfuzz.1"
finish
