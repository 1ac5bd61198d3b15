#!/bin/sh
# Builds what the tests of boxes and of the engine run beside cove. CC and MUSL_GCC name the compilers of another machine.
#   attack TARGET                  the attacks, static, so that they run in a box with any root
#   driver TARGET BUILD-DIRECTORY  drives the box library of that build without its command line; the
#                                  target is called NAME-..., of tests/box/drivers/NAME.c
#   stand-in TARGET                is an engine whose other end a test is, of tests/keeper/drivers
# These must not be part of any build of cove: tests alone decide which they need.
# usage: test-programs.sh attack|driver|stand-in TARGET [BUILD-DIRECTORY]
set -eu

cd "$(dirname "$0")/.."
cc=${CC:-gcc}
flags='-std=gnu17 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror'

kind=$1
target=$2
mkdir -p "$(dirname "$target")"

case $kind in
attack)
    headers=$(mktemp -d)
    trap 'rm -rf "$headers"' EXIT
    scripts/kernel-headers.sh "$headers" "$cc"
    # shellcheck disable=SC2086 # a list of words
    "${MUSL_GCC:-musl-gcc}" $flags -Wshadow -static -idirafter "$headers" -o "$target" \
        tests/box/attacks/*.c
    ;;
driver)
    name=$(basename "$target")
    # shellcheck disable=SC2086 # a list of words
    "$cc" $flags -Isrc -o "$target" "tests/box/drivers/${name%%-*}.c" \
        "$3/src/box/libbox.a" "$3/src/base/libbase.a"
    ;;
stand-in)
    # shellcheck disable=SC2086 # a list of words
    "$cc" $flags -static -o "$target" tests/keeper/drivers/stand_in.c
    ;;
*)
    echo "test-programs.sh: '$kind' is unknown: attack, driver or stand-in" >&2
    exit 1
    ;;
esac
