#!/bin/sh
# Lays out every C file as .clang-format says; with --check it changes nothing and fails instead.
# Only files that git knows, or would: never the build directory.
set -eu

cd "$(dirname "$0")/.."
format=clang-format-14
command -v "$format" >/dev/null || format=clang-format

mode=-i
[ "${1:-}" != --check ] || mode='--dry-run -Werror'
# shellcheck disable=SC2086 # two words on purpose
git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h' |
    xargs -0 -r -n 8 -P 2 "$format" --style=file $mode
