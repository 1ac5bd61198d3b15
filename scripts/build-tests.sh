#!/usr/bin/env bash
# Builds what the tests need beside the release: the build with the test switches, the one under the sanitizers, the
# programs that tests run in boxes, the npm packages, the Debian roots of boxes, which come from the network that the
# tests do not have, and what the servers of the tests' worlds give away. The last two are made beside the compilers' work.
# usage: BUILD=build build-tests.sh
set -euo pipefail

cd "$(dirname "$0")/.."
umask 022
build=$(realpath "${BUILD:-build}")
export BUILD=$build
mkdir -p "$build/results"

for what in testroot wares; do PYTHONPATH=tests/lib nice -n 5 python3 -m $what; done >"$build/results/made.log" 2>&1 &
made=$!
trap 'kill "$made" 2>/dev/null || true' EXIT
scripts/docker-profile.sh >/dev/null
scripts/build.sh test "$build/test"
scripts/test-programs.sh attack "$build/attacks/attack"
scripts/build.sh asan "$build/asan"
scripts/build-addon.sh
scripts/build-platform.sh
scripts/build-js.sh
# The package's engine has a libcurl of its own, which has the same walls.
own=tests/fetch-driver-own
if [ "$build/asan/tests/fetch-driver" -nt "$build/asan/$own" ]; then
    curl=$(scripts/libcurl.sh)
    (cd "$build/asan" && sh -c "$(ninja -t commands tests/fetch-driver | tail -n 1 |
        sed -e "s| -o tests/fetch-driver | -o $own |" -e "s|-Wl,--end-group|$curl -lssl -lcrypto &|")")
fi
wait "$made" || {
    cat "$build/results/made.log" >&2
    echo "build-tests.sh: the roots of boxes, or what servers give away, could not be made" >&2
    exit 1
}
