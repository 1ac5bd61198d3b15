#!/bin/sh
# Packs the npm packages as they are published, into the build directory: npm install takes the files from there.
# With arm64 it packs them for that machine, into BUILD/arm64, for npm refuses to install programs of another machine
# than its own. The addon of this one is in that @cove/node, too.
# usage: BUILD=build pack-npm.sh [arm64]
set -eu

cd "$(dirname "$0")/.."
machine=${1:-}
BUILD=$(realpath "${BUILD:-build}")
export BUILD
target=$BUILD${machine:+/$machine}/npm
here=$(node -p process.arch)
addons=js/packages/node/prebuilds

if [ -n "$machine" ]; then
    scripts/build.sh release "$BUILD/$machine" "$machine"
    scripts/build-addon.sh "$machine"
elif [ -d "$addons" ]; then
    # They may be of other sources.
    find "$addons" -mindepth 1 -maxdepth 1 ! -name "linux-$here" -exec rm -rf {} +
fi
# shellcheck disable=SC2086 # one word or none
scripts/build-platform.sh $machine
scripts/build-addon.sh
scripts/build-js.sh
rm -rf "$target"
mkdir -p "$target"
for package in "linux-${machine:-$here}" client node mastra; do
    (cd "js/packages/$package" && npm pack --loglevel=error --pack-destination "$target" >/dev/null)
done
echo "npm: npm install takes them from here:"
ls "$target"/*.tgz
