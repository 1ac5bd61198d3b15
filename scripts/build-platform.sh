#!/bin/sh
# Builds what @cove/linux-ARCH holds: the programs of the build directory, stripped, into js/packages/linux-ARCH/bin,
# and the licences of all that is in them.
#
# They have to run where there is nothing but glibc. cove, which starts for every word, has beside it the one library
# that it loads where a server is reached by https. The engine has its libraries in it: root's engine gives its rights
# up before it is executed, and would have to open them as a user who may not enter every directory in which a package
# can be installed (/root is closed to others). The program itself is opened before that.
# usage: BUILD=build build-platform.sh
set -eu

cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")
programs='cove cove-engine cove-js cove-keeper'
libraries='libssl.so.3 libcrypto.so.3'

fail() {
    echo "build-platform.sh: $*" >&2
    exit 1
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "there is no package for this machine yet"
package=$PWD/js/packages/linux-x64
for program in $programs; do
    [ -x "$build/$program" ] || fail "$build/$program is missing: run make first"
done
exec 9>js/packages/.lock-linux-x64
flock 9

newer=$([ ! -d "$package/bin" ] || find $(printf "$build/%s " $programs) scripts/build-platform.sh scripts/libcurl.sh \
    -newer "$package/bin" -print -quit 2>/dev/null) || true
[ ! -d "$package/bin" ] || [ -n "$newer" ] || exit 0

# Beside the kernels' engine: what the build links anyway, and what is linked here.
scripts/third-party.sh "$package/THIRD-PARTY-LICENSES" musl libpcre2-dev libjansson-dev libc6-dev \
    libuv1-dev libssl-dev libc-ares-dev libsqlite3-dev libcurl4-openssl-dev
curl=$(scripts/libcurl.sh)

work=$build/linux-x64
rm -rf "$work"
mkdir -p "$work"
for program in cove-js cove-keeper; do
    strip -o "$work/$program" "$build/$program"
done

# What is linked as the build links it, but for what sed's script $2 changes of that.
link() {
    line=$(ninja -C "$build" -t commands "$1" | tail -n 1 | sed -e "s| -o $1 | -o $work/$1.whole |" -e "$2")
    case $line in
    *"$work/$1.whole"*) ;;
    *) fail "how $1 is linked has changed: $line" ;;
    esac
    (cd "$build" && sh -c "$line") || fail "$1 cannot be linked for the package"
    strip -o "$work/$1" "$work/$1.whole"
    rm "$work/$1.whole"
}

# An RPATH, not a RUNPATH, which would not hold for the library that the first one needs.
# shellcheck disable=SC2016 # $ORIGIN is the loader's word
link cove 's|$| -Wl,--disable-new-dtags,-rpath,'"'"'$ORIGIN'"'"'|'
for library in $libraries; do
    cp -L "$(gcc -print-file-name="$library")" "$work/$library"
done
# Archives for shared libraries, and libcurl whole, by whose names it is found.
link cove-engine 's|/libuv\.so|/libuv_a.a|g
    s|\(/lib[a-z0-9]*\)\.so|\1.a|g
    s|-Wl,--start-group|& -Wl,--whole-archive '"$curl"' -Wl,--no-whole-archive -Wl,--export-dynamic-symbol=curl_*|
    s|-Wl,--end-group|-lm &|'

# Nothing but glibc's own.
for program in $programs; do
    foreign=$(readelf -d "$work/$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev '^(libc|libm)\.so\.6$') || true
    [ -z "$foreign" ] || fail "$program needs $foreign, which not every machine has"
done
# All of it or nothing.
rm -rf "$package/bin" "$package/bin.new"
mkdir "$package/bin.new"
(cd "$work" && install -m 755 $programs "$package/bin.new" && install -m 644 $libraries "$package/bin.new")
mv "$package/bin.new" "$package/bin"
rm -rf "$work"
