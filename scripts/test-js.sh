#!/bin/sh
# Builds the packages @cove/client and @cove/mastra, and those that they bring along, and tests them under the Node
# that js/package-lock.json pins, against engines of their own; then, by root, as they are published, in a Debian that
# has nothing but Node. Results in JUnit's form.
# usage: BUILD=build test-js.sh RESULTS
set -eu

cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")
results=$(realpath "$1")
status=0

BUILD=$build scripts/build-addon.sh
BUILD=$build scripts/build-platform.sh
scripts/build-js.sh
# No sanitizer's settings are meant for Node, and no server but the tests' own is to be found.
unset ASAN_OPTIONS UBSAN_OPTIONS COVE_URL COVE_API_KEY
export COVE_BIN="${COVE_BIN:-$build/cove}"
(cd js && find packages/client/test packages/mastra/test -name world -prune -o -name '*.test.mjs' -print | sort |
    xargs node_modules/.bin/node --test --test-concurrency=2 --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=junit --test-reporter-destination="$results/js.xml") || status=1
# What only root can make.
if [ "$(id -u)" = 0 ]; then
    /usr/bin/python3 -m pytest -q --junitxml="$results/js-bare.xml" js/packages/mastra/test || status=1
    # The package's engine has a libcurl of its own, which has the same walls. Other tests try them with the machine's
    # each time; these only where there is another libcurl, or something else that calls it, than when they last passed.
    own=tests/fetch-driver-own
    passed=$build/js-fetch.passed
    curl=$(scripts/libcurl.sh)
    tests='tests/kernel/test_engine_fetch.py tests/engine/test_kernel_fetch.py tests/engine/test_traces.py'
    # shellcheck disable=SC2086 # a list of words
    inputs=$({
        echo "$curl"
        cat src/engine/fetch* src/kernel/fetch/* src/front/native/telemetry* tests/kernel/fetch_* $tests \
            scripts/build-platform.sh scripts/test-js.sh
    } | sha256sum)
    if [ "${COVE_SOAK:-}" = 1 ] || [ "$(cat "$passed" 2>/dev/null)" != "$inputs" ]; then
        rm -f "$passed"
        (cd "$build/asan" && sh -c "$(ninja -t commands tests/fetch-driver | tail -n 1 |
            sed -e "s| -o tests/fetch-driver | -o $own |" -e "s|-Wl,--end-group|$curl -lssl -lcrypto &|")") || status=1
        # shellcheck disable=SC2086 # a list of words
        if FETCH_DRIVER=$build/asan/$own COVE=js/packages/linux-x64/bin/cove /usr/bin/python3 -m pytest -q \
            --junitxml="$results/js-fetch.xml" $tests; then
            echo "$inputs" >"$passed"
        else
            status=1
        fi
    fi
fi
exit "$status"
