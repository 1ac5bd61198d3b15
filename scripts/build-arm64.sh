#!/bin/sh
# Builds all that tests need on arm64, beside the release, and runs the unit tests that need no
# kernel of that machine, under an emulator:
#   arm64/cove            the release
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

export CC=aarch64-linux-gnu-gcc MUSL_GCC="$build/sysroot/musl-gcc"
scripts/test-programs.sh attack "$build/attacks/attack"
scripts/test-programs.sh driver "$build/drivers/commands-arm64" "$build"
scripts/test-programs.sh driver "$build/drivers/links-arm64" "$build"
scripts/test-programs.sh driver "$build/drivers/commands-test" "$build/test"
scripts/test-programs.sh driver "$build/drivers/links-test" "$build/test"

echo "arm64: unit tests, under qemu-aarch64"
# An emulated machine takes long for thousands of inputs.
meson test -C "$build/test" --no-rebuild --print-errorlogs --suite unit --timeout-multiplier 5
