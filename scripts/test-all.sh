#!/usr/bin/env bash
# All that can be tried: the tests, those that fetch from package registries, the whole lint with both compilers and the
# analyser, the packages in empty roots, the container image, the guests of both machines, what is packed for arm64
# in one of them, a minute for each fuzz entry, and a soak of five minutes. Each part runs to its end, whatever another
# said. Where all pass, docs/tested.md gets a line, which belongs into the next commit.
# usage: BUILD=build test-all.sh
set -euo pipefail

cd "$(dirname "$0")/.."
build=${BUILD:-build}
started=$SECONDS
commit=$(git rev-parse --short=12 HEAD)
# But for what the lint writes when it is clean.
changes() { git status --porcelain -- ':!.ci/tidied' ':!docs/tested.md'; }
[ -z "$(changes)" ] || echo "test-all: there are changes that no commit has; no line will be written"
failed=()

part() {
    local name=$1 began=$SECONDS
    shift
    echo "==== $name"
    "$@" || failed+=("$name")
    echo "==== $name: $(((SECONDS - began + 30) / 60)) minutes"
}

soak() {
    COVE_SOAK_SECONDS=300 COVE_SOAK_KILLS=40 scripts/test.py --limit 900 --silence 900 --suite soak
}

packages() {
    scripts/setup.sh pack && scripts/test-packages.py
}

make_image() {
    scripts/setup.sh image && scripts/test-image.sh "$@"
}

scripts/build-tests.sh
part tests scripts/test.py
part registries scripts/test.py --suite registries
part lint scripts/lint.sh
part packages packages
part image make_image
part "guest, x86_64" make test-vm BUILD="$build"
part "guest, arm64" make test-vm ARCH=arm64 BUILD="$build"
part "image, arm64" make_image arm64
part "addon, arm64" scripts/test-addon-arm64.sh
part fuzz scripts/fuzz.sh 60
part soak soak

if [ ${#failed[@]} -gt 0 ]; then
    printf 'test-all: failed: %s\n' "${failed[*]}"
    exit 1
fi
minutes=$(((SECONDS - started + 59) / 60))
echo "test-all: all passed, in $minutes minutes"
[ -n "$(changes)" ] ||
    printf '| `%s` | %s | %s | %s cores, Linux %s |\n' "$commit" "$(date -u +%F)" "$minutes" "$(nproc)" \
        "$(uname -r | cut -d. -f1,2)" >>docs/tested.md
