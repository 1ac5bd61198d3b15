#!/bin/sh
# Builds and runs one bench: installs a peer that is missing, compiles the programs that measure,
# and starts the bench's own script, which prints and judges. Nothing is skipped: what cannot be
# measured fails.
# usage: run.sh BENCH
set -eu

cd "$(dirname "$0")/.."
bench=${1:-box}
build=${BUILD:-build}

fail() {
    echo "bench: $*" >&2
    exit 1
}

case $bench in
box | engine | fair | files | idle | net) ;;
store)
    mkdir -p "$build/bench"
    # shellcheck disable=SC2046 # lists of words
    gcc -std=gnu17 -D_GNU_SOURCE -O2 -Isrc -o "$build/bench/store" bench/store.c \
        "$build/src/store/libstore.a" "$build/src/base/libbase.a" \
        $(pkg-config --libs libuv sqlite3)
    rm -rf "$build/bench/store.data"
    exec "$build/bench/store" "$build/bench/store.data"
    ;;
kernels)
    mkdir -p "$build/bench"
    gcc -std=gnu17 -D_GNU_SOURCE -O2 -Isrc -o "$build/bench/kernels" bench/kernels.c bench/kernels_raw.c \
        "$build/src/kernel/libkernel.a" "$build/src/kernel/libkernel-runtime.a" \
        "$build/src/kernel/libkernel-manifest.a" "$build/src/policy/libpolicy.a" "$build/src/base/libbase.a"
    gcc -std=gnu17 -D_GNU_SOURCE -O2 -Isrc -o "$build/bench/kernels_worker" bench/kernels_worker.c \
        bench/kernels_raw.c "$build/src/kernel/libkernel-remote.a" \
        "$build/src/kernel/libkernel-manifest.a" "$build/src/box/libbox.a" \
        "$build/src/policy/libpolicy.a" "$build/src/base/libbase.a"
    # The Node that runs the addon, the addon, and what it is measured beside.
    scripts/setup.sh node
    BUILD=$build scripts/build-addon.sh
    if [ ! "$build/kernels-peers/.done" -nt bench/kernels-peers/package-lock.json ]; then
        mkdir -p "$build/kernels-peers"
        cp bench/kernels-peers/package.json bench/kernels-peers/package-lock.json "$build/kernels-peers"
        # No script is needed: isolated-vm comes with a build of its own.
        (cd "$build/kernels-peers" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
            fail "the npm packages of bench/kernels-peers could not be installed"
        touch "$build/kernels-peers/.done"
    fi
    exec python3 -B bench/kernels.py "$build"
    ;;
mastra)
    mkdir -p "$build/bench"
    scripts/setup.sh bench
    scripts/setup.sh node
    BUILD=$build scripts/build-addon.sh
    scripts/build-js.sh
    exec python3 -B bench/mastra.py "$build"
    ;;
typescript)
    scripts/setup.sh test
    mkdir -p "$build/bench"
    gcc -std=gnu17 -D_GNU_SOURCE -O2 -Isrc -o "$build/bench/typescript" bench/typescript.c \
        src/kernel/js/typescript*.c
    cd "$build/typescript/node_modules"
    exec ../../bench/typescript rxjs/src/internal/Observable.ts zod/src/v4/core/schemas.ts \
        mobx/src/types/observablearray.ts openai/src/client.ts typescript/lib/typescript.js
    ;;
*) fail "there is no bench '$bench': box, engine, fair, files, idle, kernels, mastra, net, store, typescript" ;;
esac
[ "$(id -u)" = 0 ] || fail "the $bench bench makes cgroups and network namespaces: run it as root"
[ -x "$build/cove" ] || fail "$build/cove is missing: run make first"

if [ "$bench" = idle ]; then
    exec python3 -B bench/idle.py "$build"
fi
scripts/setup.sh bench
mkdir -p "$build/bench"
scripts/kernel-headers.sh "$build/bench/kernel-headers" gcc

flags='-std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -Wshadow -Wmissing-prototypes'
# shellcheck disable=SC2086 # a list of words
small() {
    musl-gcc $flags -static -s -idirafter "$build/bench/kernel-headers" -o "$@"
}
small "$build/bench/true" bench/true.c
small "$build/bench/spawn" bench/spawn.c bench/series.c
if [ "$bench" = net ]; then
    small "$build/bench/net_peer" bench/net_peer.c bench/series.c
    # shellcheck disable=SC2086 # a list of words
    gcc $flags -Wconversion -Isrc -o "$build/bench/net_slot" bench/net_slot.c bench/series.c \
        "$build/src/box/libbox.a" "$build/src/base/libbase.a"
    # shellcheck disable=SC2046,SC2086 # lists of words
    gcc $flags -Wconversion -Isrc -o "$build/bench/net_pump" bench/net_pump.c bench/series.c \
        "$build/src/net/libnet.a" "$build/src/policy/libpolicy.a" "$build/src/base/libbase.a" \
        $(pkg-config --libs libuv libcares)
    # shellcheck disable=SC2086 # a list of words
    gcc $flags -Wconversion -o "$build/bench/net_create" bench/net_create.c bench/client.c \
        bench/series.c
    # shellcheck disable=SC2086 # a list of words
    gcc $flags -Wconversion -o "$build/bench/fair" bench/fair.c bench/client.c bench/series.c
    exec python3 -B bench/net.py "$build"
fi
if [ "$bench" = engine ]; then
    # shellcheck disable=SC2086 # a list of words
    gcc $flags -Wconversion -o "$build/bench/engine" bench/engine.c bench/client.c bench/series.c
    exec python3 -B bench/engine.py "$build"
fi
if [ "$bench" = fair ]; then
    # shellcheck disable=SC2086 # a list of words
    gcc $flags -Wconversion -o "$build/bench/fair" bench/fair.c bench/client.c bench/series.c
    exec python3 -B bench/fair.py "$build"
fi
if [ "$bench" = files ]; then
    # shellcheck disable=SC2086 # a list of words
    gcc $flags -Wconversion -o "$build/bench/files" bench/files.c bench/series.c
    exec python3 -B bench/files.py "$build"
fi
# shellcheck disable=SC2086 # a list of words
gcc $flags -Wconversion -Isrc -o "$build/bench/box" bench/box.c bench/maker.c bench/series.c \
    "$build/src/box/libbox.a" "$build/src/base/libbase.a"

# Not at a better priority: within a box's cgroup it counts for nothing, and the peers have none.
exec python3 -B "bench/$bench.py" "$build"
