#!/usr/bin/env bash
# All tests: unit tests under the sanitizers, then attacks and behaviour on real boxes, by root and by
# an ordinary user. The last line counts all. A test that was skipped counts as failed: what a test
# needs, setup.sh installs.
# Most tests wait most of the time, so that they run in two rows: what root does with boxes, and
# meanwhile all else, whose output is shown at its end.
# COVE_SOAK=1 runs the full counts.
# usage: BUILD=build test.sh
set -euo pipefail

cd "$(dirname "$0")/.."
build=${BUILD:-build}
read -r -a pytest <<<"${PYTEST:-/usr/bin/python3 -m pytest}"
read -r -a arguments <<<"${PYTEST_ARGS:-}"

scripts/build.sh asan "$build/asan"
scripts/build.sh test "$build/test"
results=$build/results
mkdir -p "$results"
rm -f "$results"/*.xml

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}

# NAME WHAT PYTEST-ARGUMENT...
by_root() {
    echo "$2"
    "${pytest[@]}" -q --junitxml="$results/$1.xml" "${@:3}" || status=1
}

# The same by an ordinary user, who is made if he is missing and stays. What he makes lies in his home.
by_user() {
    echo "$2, by an ordinary user"
    scripts/as-user.sh "$build" "$results/$1.xml" "${@:3}" || status=1
}

boxes() {
    by_root boxes "boxes: attacks, posture, behaviour, real work" tests/box "${arguments[@]}"
    # What parses and reports, once more: a finding of a sanitizer is a line on stderr too many, or an
    # exit status that no test expects.
    # Left out where only some tests were asked for.
    [ ${#arguments[@]} -gt 0 ] || COVE=$build/asan/cove by_root sanitized \
        "boxes: the command line, under ASan and UBSan" tests/box/test_run.py tests/box/test_bad_input.py
    by_root library "libcove" tests/library "${arguments[@]}"
    by_root engine "the engine: its keeper" tests/engine "${arguments[@]}"
    by_root api "the API: its contract" tests/api "${arguments[@]}"
    [ ${#arguments[@]} -eq 0 ] || return 0
    echo "the npm packages: the client, Mastra, and what is published"
    scripts/test-js.sh "$results" || status=1
}

others() {
    echo "unit tests, under ASan and UBSan"
    meson test -C "$build/asan" --no-rebuild --print-errorlogs --suite unit || status=1
    cp "$build/asan/meson-logs/testlog.junit.xml" "$results/unit.xml"
    if [ ${#arguments[@]} -eq 0 ]; then
        HTTP_SERVER=$build/asan/tests/http-server by_root http \
            "the HTTP server, under ASan and UBSan" tests/http
        # But for what limits the memory of the program itself.
        COVE_TOOL=$build/asan/src/box/checked-tool COVE_GREP=$build/asan/src/box/cove-grep \
            by_root tools-sanitized "the tools, under ASan and UBSan" tests/tool \
            -k 'not in_little_memory'
        echo "the Node addon"
        scripts/test-addon.sh "$results" || status=1
    fi
    by_root tools "the tools" tests/tool "${arguments[@]}"
    by_root kernels "kernels: command line, prelude, TypeScript" tests/kernel "${arguments[@]}"
    [ "$(id -u)" = 0 ] || return 0
    by_user user "boxes" own tests/box "${arguments[@]}"
    by_user tools-user "the tools" own tests/tool "${arguments[@]}"
    by_user library-user "libcove" own tests/library "${arguments[@]}"
    by_user engine-user "the engine" own tests/engine "${arguments[@]}"
    by_user single "boxes: the walls, without ids to give" 0 tests/box/test_posture.py \
        tests/box/test_leaks.py tests/box/test_filesystem.py "${arguments[@]}"
}

status=0
log=$results/others.log
set -m # a group of its own, to be ended with all that it started
(
    others
    exit "$status"
) >"$log" 2>&1 &
row=$!
set +m
trap 'kill -- -"$row" 2>/dev/null || true' EXIT
echo "meanwhile, into $log: unit tests, the HTTP server, tools, kernels, and all by an ordinary user"
boxes
wait "$row" || status=1
cat "$log"

scripts/count.py "$results"/*.xml || status=1
exit "$status"
