#!/bin/sh
# Packs the npm packages as they are published, into the build directory: npm install takes the files from there.
# usage: BUILD=build pack-npm.sh
set -eu

cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")

BUILD=$build scripts/build-platform.sh
BUILD=$build scripts/build-addon.sh
scripts/build-js.sh
rm -rf "$build/npm"
mkdir -p "$build/npm"
for package in linux-x64 client node mastra; do
    (cd "js/packages/$package" && npm pack --loglevel=error --pack-destination "$build/npm" >/dev/null)
done
echo "npm: npm install takes them from here:"
ls "$build"/npm/*.tgz
