#!/bin/sh
# Builds all that tests need on arm64, beside the release, and runs the unit tests that need no
# kernel of that machine, under an emulator:
#   arm64                 the release, whole: `meson install -C BUILD/arm64 --destdir ...` installs it
#   arm64/test            with the test switches; its unit tests lie in arm64/test/tests
#   arm64/attacks/attack  the attacks
#   arm64/drivers         as the box tests look for them where BUILD is that directory
# usage: BUILD=build build-arm64.sh
set -eu

cd "$(dirname "$0")/.."
build=${BUILD:-build}/arm64
export BUILD="${BUILD:-build}"

scripts/build.sh release "$build" arm64
scripts/build.sh test "$build/test" arm64

export CC="$build/sysroot/gcc" MUSL_GCC="$build/sysroot/musl-gcc"
scripts/test-programs.sh attack "$build/attacks/attack"
scripts/test-programs.sh driver "$build/drivers/commands-arm64" "$build"
scripts/test-programs.sh driver "$build/drivers/links-arm64" "$build"
scripts/test-programs.sh driver "$build/drivers/commands-test" "$build/test"
scripts/test-programs.sh driver "$build/drivers/links-test" "$build/test"
scripts/test-programs.sh stand-in "$build/drivers/stand_in"

echo "arm64: unit tests, under qemu-aarch64"
# Of a guest are also those that tests/vm/units names. These give code too little time for an emulated
# machine; the last one is a program of that list once more.
others='kernel_test_attacks kernel_test_pristine kernel_test_runs fuzz_snapshot kernel_test_worker_drops'
tests=$(meson test -C "$build/test" --list 2>/dev/null | sed -n 's|^cove:unit.* / ||p' |
    grep -vxF -e "$(cat tests/vm/units)" -e "$(echo "$others" | tr ' ' '\n')")
# An emulated machine takes long for thousands of inputs, so there are fewer.
# shellcheck disable=SC2086 # a list of words
COVE_TEST_SCALE=${COVE_TEST_SCALE:-20} meson test -C "$build/test" --no-rebuild --print-errorlogs --timeout-multiplier 5 $tests
