#!/bin/sh
# Builds what @cove/linux-ARCH holds: the programs of the build directory, stripped, into js/packages/linux-ARCH/bin,
# and the licences of all that is in them.
#
# They have to run where there is nothing but glibc. cove and cove-js, which start for every word, have beside them the
# one library that they load where a server is reached by https, and the machine has none. The engine has its libraries
# in it: root's engine gives its rights up before it is executed, and would have to open them as a user who may not
# enter every directory in which a package can be installed (/root is closed to others). The program itself is opened
# before that.
# With arm64 they are those of BUILD/arm64, which make arm64 built on another machine.
# usage: BUILD=build build-platform.sh [arm64]
set -eu

cd "$(dirname "$0")/.."
machine=${1:-}
build=$(realpath "${BUILD:-build}${machine:+/$machine}")
gcc=gcc
[ -z "$machine" ] || gcc=$build/sysroot/gcc
programs='cove cove-engine cove-js cove-keeper'
libraries='libssl.so.3 libcrypto.so.3'

fail() {
    echo "build-platform.sh: $*" >&2
    exit 1
}

case $("$gcc" -dumpmachine) in
x86_64-*) platform=linux-x64 ;;
aarch64-*) platform=linux-arm64 ;;
*) fail "there is no package for this machine yet" ;;
esac
package=$PWD/js/packages/$platform
for program in $programs; do
    [ -x "$build/$program" ] || fail "$build/$program is missing: run make ${machine:-first}"
done
exec 9>>"js/packages/.lock-$platform"
flock 9

# Of all that decides about the result; and whether the result is there.
# shellcheck disable=SC2086 # lists of words
{
    packages='libuv1-dev libssl-dev libc-ares-dev libsqlite3-dev libcurl4-openssl-dev'
    owners="musl libpcre2-dev libjansson-dev libc6-dev $packages" # whose licences are told
    stamp=$(cd "$build" && sha256sum $programs && cd "$OLDPWD" && cat scripts/build-platform.sh scripts/libcurl.sh \
        scripts/third-party.sh | sha256sum && dpkg-query -W $owners &&
        if [ -n "$machine" ]; then cat "$build/sysroot/root/.versions"; fi)
    (cd "$package" && ls THIRD-PARTY-LICENSES $(printf 'bin/%s ' $programs $libraries)) >/dev/null 2>&1 || stamp="$stamp, anew"
    [ "$stamp" != "$(cat "js/packages/.lock-$platform")" ] || exit 0

    # Beside the kernels' engine: what the build links anyway, and what is linked here.
    scripts/third-party.sh "$package/THIRD-PARTY-LICENSES" $owners
}
curl=$(scripts/libcurl.sh ${machine:+"$build/sysroot"})

work=$build/$platform
rm -rf "$work"
mkdir -p "$work"
strip=$("$gcc" -print-prog-name=strip)
for program in cove cove-js cove-keeper; do
    "$strip" -o "$work/$program" "$build/$program"
done
for library in $libraries; do
    cp -L "$("$gcc" -print-file-name="$library")" "$work/$library"
done

# The line that linked it, with archives for shared libraries, and libcurl.
line=$(ninja -C "$build" -t commands cove-engine | tail -n 1 |
    sed -e "s| -o cove-engine | -o $work/cove-engine.whole |" -e 's|/libuv\.so|/libuv_a.a|g' \
        -e 's|\(/lib[a-z0-9]*\)\.so|\1.a|g' -e "s|-Wl,--end-group|$curl -lm &|")
case $line in
*"$work/cove-engine.whole"*"$curl"*) ;;
*) fail "how cove-engine is linked has changed: $line" ;;
esac
(cd "$build" && sh -c "$line") || fail "cove-engine cannot be linked with its libraries in it"
"$strip" -o "$work/cove-engine" "$work/cove-engine.whole"
rm "$work/cove-engine.whole"

# Nothing but glibc's own.
for file in $programs $libraries; do
    foreign=$(readelf -d "$work/$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -Ev '^(lib[cm]\.so\.6|ld-linux-aarch64\.so\.1)$') || true
    [ "$file" != libssl.so.3 ] || foreign=$(echo "$foreign" | grep -vx libcrypto.so.3) || true
    [ -z "$foreign" ] || fail "$file needs $foreign, which not every machine has"
done
# What the engine looks for by name is found.
for name in $(echo "$curl" | grep -o 'symbol=[a-z0-9_]*' | cut -d= -f2); do
    "$("$gcc" -print-prog-name=nm)" -D --defined-only "$work/cove-engine" | grep -q " T $name\$" || fail "cove-engine shows no $name"
done
# All of it or nothing.
rm -rf "$package/bin" "$package/bin.new"
mkdir "$package/bin.new"
(cd "$work" && install -m 755 $programs "$package/bin.new" && install -m 644 $libraries "$package/bin.new")
mv "$package/bin.new" "$package/bin"
rm -rf "$work"
echo "${stamp%, anew}" >"js/packages/.lock-$platform"
