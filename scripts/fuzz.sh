#!/bin/sh
# Hunts with libFuzzer: each fuzz entry for so long, two at a time, over its corpus and what was found
# before in BUILD/fuzz/found. Fails, and names the input, where one fails. An input that found something
# new is worth a place in tests/fuzz/corpus.
# usage: BUILD=build fuzz.sh SECONDS [ENTRY...]
set -eu

cd "$(dirname "$0")/.."
build=${BUILD:-build}/fuzz
seconds=$1
# More than the longest seed, and than the largest message of a fixed size; libFuzzer's own is 4096.
longest=16384
shift

scripts/build.sh fuzz "$build"
[ $# -gt 0 ] || set -- $(cd "$build/tests" && ls -d fuzz_* | grep -v '\.')
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

hunt() {
    entry=$1
    found=$build/found/$entry
    corpus=tests/fuzz/corpus/${entry#fuzz_}
    mkdir -p "$found"
    # From nothing it would look for the outermost form only.
    [ -n "$(ls "$corpus" 2>/dev/null)" ] || {
        echo "fuzz: $entry: FAILED: there is no seed in $corpus: put a whole input there" >&2
        return 1
    }
    if "$build/tests/$entry" -max_total_time="$seconds" -max_len="$longest" -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$found.bad-" "$found" "$corpus" \
        >"$found.log" 2>&1; then
        echo "fuzz: $entry: clean, $(sed -n 's/^stat::number_of_executed_units: *//p' "$found.log") inputs"
    else
        echo "fuzz: $entry: FAILED" >&2
        tail -40 "$found.log" >&2
        return 1
    fi
}

status=0
while [ $# -gt 0 ]; do
    hunt "$1" &
    first=$!
    second=
    shift
    if [ $# -gt 0 ]; then
        hunt "$1" &
        second=$!
        shift
    fi
    wait "$first" || status=1
    [ -z "$second" ] || wait "$second" || status=1
done
exit "$status"
