#!/bin/sh
# Installs what cove itself prints: its manual pages, a sample of its configuration, and the completion of words for
# three shells. Run by `meson install`, with DESTDIR in the environment.
# usage: install-words.sh MANDIR DATADIR COVE... : how cove is started here, which may be one of another machine's
set -eu

man=${DESTDIR:-}$1
data=${DESTDIR:-}$2
shift 2

mkdir -p "$man/man1" "$man/man5" "$data/doc/cove" "$data/bash-completion/completions" \
    "$data/zsh/site-functions" "$data/fish/vendor_completions.d"
pages=$("$@" man --list) # of its own, or that it failed would not be seen
for page in $pages; do
    command=${page#cove}
    # shellcheck disable=SC2086 # of cove itself there is no word
    "$@" man ${command#-} >"$man/man1/$page.1"
done
"$@" man cove.conf >"$man/man5/cove.conf.5"
"$@" config sample >"$data/doc/cove/cove.conf.sample"
"$@" completion bash >"$data/bash-completion/completions/cove"
"$@" completion zsh >"$data/zsh/site-functions/_cove"
"$@" completion fish >"$data/fish/vendor_completions.d/cove.fish"
