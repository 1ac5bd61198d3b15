#!/bin/sh
# Installs what cove itself prints: its manual pages, a sample of its configuration, and the completion of words for
# three shells. Run by `meson install`, with DESTDIR in the environment.
# usage: install-words.sh COVE MANDIR DATADIR
set -eu

cove=$1
man=${DESTDIR:-}$2
data=${DESTDIR:-}$3

mkdir -p "$man/man1" "$man/man5" "$data/doc/cove" "$data/bash-completion/completions" \
    "$data/zsh/site-functions" "$data/fish/vendor_completions.d"
pages=$("$cove" man --list) # of its own, or that it failed would not be seen
for page in $pages; do
    command=${page#cove}
    # shellcheck disable=SC2086 # of cove itself there is no word
    "$cove" man ${command#-} >"$man/man1/$page.1"
done
"$cove" man cove.conf >"$man/man5/cove.conf.5"
"$cove" config sample >"$data/doc/cove/cove.conf.sample"
"$cove" completion bash >"$data/bash-completion/completions/cove"
"$cove" completion zsh >"$data/zsh/site-functions/_cove"
"$cove" completion fish >"$data/fish/vendor_completions.d/cove.fish"
