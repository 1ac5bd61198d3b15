#!/usr/bin/env bash
# Builds what the tests need beside the release: the build with the test switches, the one under the sanitizers, the
# programs that tests run in boxes, the npm packages, and the Debian roots of boxes. These come from the network,
# which the tests do not have: they are fetched beside the compilers' work.
# usage: BUILD=build build-tests.sh
set -euo pipefail

cd "$(dirname "$0")/.."
umask 022
build=$(realpath "${BUILD:-build}")
export BUILD=$build
mkdir -p "$build/results"

PYTHONPATH=tests/lib nice -n 5 python3 -m testroot >"$build/results/roots.log" 2>&1 &
roots=$!
trap 'kill "$roots" 2>/dev/null || true' EXIT
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
wait "$roots" || {
    cat "$build/results/roots.log" >&2
    echo "build-tests.sh: the roots of boxes could not be made" >&2
    exit 1
}
