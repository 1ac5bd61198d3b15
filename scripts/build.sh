#!/bin/sh
# Sets up one build directory and builds it. Every difference between the kinds of build is here:
#   release  what is installed; no test code, no test switches
#   test     the same flags, with COVE_TEST_OFF (switches features off to run their fallbacks)
#   asan     unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   fuzz     the same by clang, with libFuzzer: see fuzz.sh
# The kinds must never share a directory: a release with test switches would be one by accident.
# With MACHINE it builds for that one, by what scripts/MACHINE.sh prepares; there the test build has
# the unit tests, too, since no sanitizer runs under an emulator.
# TARGETS, if it is set, names what is built of it; else that is all.
# usage: [TARGETS=...] build.sh KIND DIRECTORY [arm64]
set -eu

kind=$1
directory=$2
machine=${3:-}
cd "$(dirname "$0")/.."

case $kind in
release)
    set --
    ;;
test)
    set -- -Dtest_switches=true -Db_ndebug=false
    ;;
asan)
    # Lines and functions are what a report names; all of -g takes a third longer to compile.
    set -- -Dtests=true -Dtest_switches=true -Dc_args=-g1 -Db_ndebug=false -Doptimization=1 \
        -Db_sanitize=address,undefined -Db_lundef=false
    ;;
fuzz)
    export CC=clang-14
    set -- -Dtests=true -Dfuzz=true -Dtest_switches=true -Ddebug=true -Db_ndebug=false \
        -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false
    ;;
*)
    echo "build.sh: kind '$kind' is unknown: release, test, asan or fuzz" >&2
    exit 1
    ;;
esac

if [ -n "$machine" ]; then
    sysroot=${BUILD:-build}/$machine/sysroot
    "scripts/$machine.sh" "$sysroot"
    set -- "$@" --cross-file "$sysroot/cross.ini"
    [ "$kind" != test ] || set -- "$@" -Dtests=true
fi

mkdir -p "$directory"

# Two ninjas in one directory would step on each other's files.
exec 9>"$directory/.lock"
flock 9

if [ ! -f "$directory/build.ninja" ]; then
    echo "setting up $directory ($kind)"
    meson setup "$directory" "$@" >"$directory/setup.log" 2>&1 || {
        cat "$directory/setup.log" >&2
        exit 1
    }
fi
# shellcheck disable=SC2086 # a list of words
exec ninja -C "$directory" --quiet ${TARGETS:-}
