#!/usr/bin/env bash
# The tour: a hostile program fails at every wall of a box, then useful work succeeds in one, each
# with its time. Exit status 1 if a wall was missing or the work failed, so that it cannot boast.
# It leaves nothing behind, and works on files of its own only.
# usage: COVE=build/cove examples/tour.sh
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath -m "${COVE:-$here/../build/cove}")
hostile=$(dirname "$program")/examples
for needed in "$program" "$hostile/hostile"; do
    [ -x "$needed" ] || {
        echo "tour: $needed is missing: run make first" >&2
        exit 1
    }
done

# Boxes need root in this version.
cove=("$program")
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo 'tour: boxes need root in this version, and there is no sudo: run this as root' >&2
        exit 1
    }
    cove=(sudo "$program")
fi
work=$(mktemp -d)
failed=0
trap 'rm -rf "$work"' EXIT

# Runs a command, prints the time it took and keeps its status in $status.
timed() {
    local started ended
    started=${EPOCHREALTIME//[!0-9]/}
    status=0
    "$@" || status=$?
    ended=${EPOCHREALTIME//[!0-9]/}
    elapsed=$(printf '%d.%03d ms' $(((ended - started) / 1000)) $(((ended - started) % 1000)))
}

expect() {
    if [ "$status" = "$1" ]; then
        printf '  -> exit %s, %s\n\n' "$status" "$elapsed"
    else
        printf '  -> exit %s, %s: THIS SHOULD HAVE BEEN %s\n\n' "$status" "$elapsed" "$1"
        failed=1
    fi
}

heading() {
    printf '%s\n' "$*"
}

heading '1. A hostile program, in a box with 64 processes, 256 MiB of memory and 64 MiB of disk'
timed "${cove[@]}" run --pids 64 --memory 256M --disk 64M,4096 --mount "$hostile:/hostile:ro" -- \
    /hostile/hostile </dev/null
expect 0

heading '2. A program that will not stop, given one second: cove run --timeout 1s'
timed "${cove[@]}" run --timeout 1s -- sh -c 'trap "" TERM INT; while :; do sleep 60; done' </dev/null
expect 124

heading '3. Useful work: the least there is'
timed "${cove[@]}" run -- true </dev/null
expect 0

heading '4. Useful work, with your files: a directory of yours is /workspace, and what is written there is yours'
cp "$here/primes.c" "$work/"
if [ -x /usr/bin/cc ]; then
    timed "${cove[@]}" run --workspace "$work" -- \
        sh -c 'cc -O2 -o primes primes.c && ./primes' </dev/null
else
    timed "${cove[@]}" run --workspace "$work" -- sh -c 'wc -l primes.c >primes; cat primes' </dev/null
fi
expect 0
if [ "$(stat -c %u "$work/primes" 2>/dev/null)" != "$(id -u)" ]; then
    echo '  THE RESULT DOES NOT BELONG TO YOU'
    failed=1
fi

heading '5. The same as JSON, for a program: cove run --json'
timed "${cove[@]}" run --json --workspace "$work" -- sh -c 'ls; echo oops >&2; exit 3' </dev/null
expect 3

if [ "$failed" = 0 ]; then
    echo 'Every wall held, and the work was done.'
else
    echo 'SOMETHING ABOVE IS NOT AS IT SHOULD BE.'
fi
exit "$failed"
