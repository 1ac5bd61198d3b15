#!/usr/bin/env bash
# All tests: unit tests under the sanitizers, then attacks and behaviour on real boxes, by root and by
# an ordinary user. The last line counts all. A test that was skipped counts as failed: what a test
# needs, setup.sh installs.
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

echo "unit tests, under ASan and UBSan"
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
status=0
meson test -C "$build/asan" --no-rebuild --print-errorlogs --suite unit || status=1
cp "$build/asan/meson-logs/testlog.junit.xml" "$results/unit.xml"

if [ ${#arguments[@]} -eq 0 ]; then
    echo "the HTTP server, under ASan and UBSan"
    HTTP_SERVER=$build/asan/tests/http-server "${pytest[@]}" -q --junitxml="$results/http.xml" \
        tests/http || status=1
fi

echo "boxes: attacks, posture, behaviour, real work"
"${pytest[@]}" -q --junitxml="$results/boxes.xml" tests/box "${arguments[@]}" || status=1
echo "libcove"
"${pytest[@]}" -q --junitxml="$results/library.xml" tests/library "${arguments[@]}" || status=1
echo "the tools"
"${pytest[@]}" -q --junitxml="$results/tools.xml" tests/tool "${arguments[@]}" || status=1
echo "the engine: its keeper"
"${pytest[@]}" -q --junitxml="$results/engine.xml" tests/engine "${arguments[@]}" || status=1

echo "the API: its contract"
"${pytest[@]}" -q --junitxml="$results/api.xml" tests/api "${arguments[@]}" || status=1

# The same by an ordinary user, who is made if he is missing and stays. What he makes lies in his home.
if [ "$(id -u)" = 0 ]; then
    echo "boxes: the same, by an ordinary user"
    scripts/as-user.sh "$build" "$results/user.xml" own tests/box "${arguments[@]}" || status=1
    scripts/as-user.sh "$build" "$results/tools-user.xml" own tests/tool "${arguments[@]}" ||
        status=1
    scripts/as-user.sh "$build" "$results/library-user.xml" own tests/library "${arguments[@]}" ||
        status=1
    scripts/as-user.sh "$build" "$results/engine-user.xml" own tests/engine "${arguments[@]}" ||
        status=1
    echo "boxes: the walls, by a user who has no ids to give"
    scripts/as-user.sh "$build" "$results/single.xml" 0 tests/box/test_posture.py \
        tests/box/test_leaks.py tests/box/test_filesystem.py "${arguments[@]}" || status=1
fi

# What parses and reports, once more: a finding of a sanitizer is a line on stderr too many, or an
# exit status that no test expects.
# Left out where only some tests were asked for.
if [ ${#arguments[@]} -eq 0 ]; then
    echo "boxes: the command line, under ASan and UBSan"
    COVE=$build/asan/cove "${pytest[@]}" -q --junitxml="$results/sanitized.xml" \
        tests/box/test_run.py tests/box/test_bad_input.py || status=1
    echo "the tools, under ASan and UBSan"
    # But for what limits the memory of the program itself.
    COVE_TOOL=$build/asan/src/box/checked-tool COVE_GREP=$build/asan/src/box/cove-grep \
        "${pytest[@]}" -q --junitxml="$results/tools-sanitized.xml" tests/tool \
        -k 'not in_little_memory' || status=1
fi

scripts/count.py "$results"/*.xml || status=1
exit "$status"
