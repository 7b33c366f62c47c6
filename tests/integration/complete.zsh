# Prints what zsh offers for a line:   zsh -f complete.zsh FOLDER LINE     FOLDER has the completions. A second zsh, on a terminal of its own, completes.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= RPS1= fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=1000; setopt nolistbeep nozle_bracketed_paste 2>/dev/null; echo rea''dy"
zpty -r shell said '*ready*'
zpty -w -n shell "$2"$'\t\t'
sleep 2
while zpty -r -t shell said; do print -r -- "$said"; done
zpty -d shell
