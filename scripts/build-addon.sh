#!/bin/sh
# Builds the addon of @cove/node into the package: js/packages/node/prebuilds/linux-ARCH/cove.node.
#
# It is the rooms base, policy and kernel once more, as code that may lie anywhere, and what JavaScript sees of
# them. Node shows libuv, OpenSSL and others of its own to what it loads: nothing here may be taken for theirs, so
# that the addon shows its entry and nothing else. The signal handlers and threads of kernels stay, and so must
# their code: it cannot be unloaded.
# The engine's machine code and its image are those of the build directory: with arm64 of BUILD/arm64, which
# make arm64 built on another machine.
# usage: BUILD=build build-addon.sh [arm64]
set -eu

cd "$(dirname "$0")/.."
machine=${1:-}
build=${BUILD:-build}${machine:+/$machine}
gcc=gcc
[ -z "$machine" ] || gcc=$build/sysroot/gcc
package=js/packages/node
headers=js/node_modules/node-api-headers/include

fail() {
    echo "build-addon.sh: $*" >&2
    exit 1
}

case $("$gcc" -dumpmachine) in
x86_64-*) arch=x64 branch=-fcf-protection=full ;;
aarch64-*) arch=arm64 branch=-mbranch-protection=standard ;;
*) fail "there is no addon for this processor yet" ;;
esac
[ -f "$build/src/kernel/js-embed.o" ] || fail "the kernel is not there: run make ${machine:-first}"
[ -f "$headers/node_api.h" ] || fail "the headers of Node-API are not there: run scripts/setup.sh node"

objects=$build/addon
target=$package/prebuilds/linux-$arch/cove.node
mkdir -p "$objects" "$(dirname "$target")"
exec 9>"$objects/.lock"
flock 9

# Whoever gets the addon gets the licences of what is in it.
scripts/third-party.sh "$package/THIRD-PARTY-LICENSES"

# Everything is made anew where anything is newer: it takes seconds.
newer=$([ ! -f "$target" ] || find src/base src/policy src/kernel "$package/src" scripts/build-addon.sh \
    "$build/src/kernel/js-embed.o" "$build/src/kernel/kernel_js.o" -type f -newer "$target" -print -quit)
[ ! -f "$target" ] || [ -n "$newer" ] || exit 0

flags="-std=gnu17 -O2 -fPIC -ftls-model=initial-exec -ffunction-sections -DNDEBUG -D_GNU_SOURCE -fno-strict-aliasing -fno-common
    -fvisibility=hidden -fstack-protector-strong $branch -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
    -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes -Wvla
    -Isrc -I$build/src/kernel -isystem $headers"
rm -f "$objects"/*.o
# shellcheck disable=SC2086 # lists of words
for file in src/base/*.c src/policy/*.c src/kernel/*.c src/kernel/js/module.c src/kernel/js/image.c \
    "$package"/src/*.c; do
    case $file in src/kernel/remote.c | src/kernel/proto.c | src/base/set_clock.c) continue ;; esac
    echo "$gcc $(echo $flags) -c $file -o $objects/$(echo "$file" | tr / _).o"
done | xargs -P 2 -I '{}' sh -c '{}' || fail "it does not compile"
"$gcc" -shared -o "$objects/cove.node" "$objects"/*.o "$build/src/kernel/kernel_js.o" \
    "$build/src/kernel/js-embed.o" -Wl,--exclude-libs=ALL "-Wl,--version-script=$package/src/exports.map" \
    -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-z,noexecstack -Wl,-z,nodelete -s -lpthread -lrt
mv "$objects/cove.node" "$target"
