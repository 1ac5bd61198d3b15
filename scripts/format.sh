#!/bin/sh
# Lays out every C file as .clang-format says; with --check it changes nothing, names the files that
# it would change, and fails if there are any. Only files that git knows, or would: never the build
# directory.
# usage: format.sh [--check]
set -eu

cd "$(dirname "$0")/.."
format=clang-format-14
command -v "$format" >/dev/null || format=clang-format

files() {
    git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h'
}

if [ "${1:-}" != --check ]; then
    files | xargs -0 -r -n 8 -P 2 "$format" --style=file -i
    exit 0
fi

wrong=$(files | xargs -0 -r "$format" --style=file --dry-run 2>&1 |
    sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
[ -n "$wrong" ] || exit 0
echo "not laid out as .clang-format says; run make format:"
echo "$wrong"
exit 1
