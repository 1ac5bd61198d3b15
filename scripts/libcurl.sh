#!/bin/sh
# Makes the archive of libcurl that is linked into the npm package's engine, if the cache has none, and prints what a
# linker is told: the archive, and that what is looked for by name is in it and found. Debian's own archive needs two
# dozen libraries that are not there as archives, so that this one is made from Debian's source, with Debian's mends, of
# HTTP and TLS alone. apt fetches it, from where this machine's packages are fetched, and judges its signature.
# With SYSROOT, which scripts/arm64.sh prepared, it is of that machine.
# usage: libcurl.sh [SYSROOT]
set -eu

cd "$(dirname "$0")/.."
cache=$(realpath -m "${COVE_CACHE:-$PWD/build/cache}")
gcc=gcc
if [ $# = 1 ]; then
    gcc=$1/gcc
    export PKG_CONFIG_LIBDIR="$1/root/usr/lib/aarch64-linux-gnu/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$1/root"
fi
target=$("$gcc" -dumpmachine)
case $target in
x86_64-*) branch=-fcf-protection ;;
aarch64-*) branch=-mbranch-protection=standard ;;
esac
cc_flags="-O2 -fPIE -fstack-protector-strong -fstack-clash-protection $branch -D_FORTIFY_SOURCE=2"
# What no request of the engine's has to do with. What fetch_curl.c switches off has to be there to be switched off.
without='ftp file ldap ldaps rtsp dict telnet tftp pop3 imap smb smtp gopher mqtt manual ares cookies alt-svc hsts
    doh mime dateparse ntlm tls-srp unix-sockets websockets'
no_library='brotli zstd zlib libpsl libgsasl librtmp libssh2 libidn2 nghttp2 ca-bundle ca-path'
with='ipv6 threaded-resolver pthreads static'

fail() {
    echo "libcurl.sh: $*" >&2
    exit 1
}

for command in apt-get dpkg-query dpkg-source "$gcc"; do
    command -v "$command" >/dev/null || fail "$command is missing: run scripts/setup.sh test"
done
key=$({
    "$gcc" --version
    dpkg-query -W libcurl4-openssl-dev libssl-dev
    cat scripts/libcurl.sh
} | sha256sum | cut -c 1-32)
result=$cache/libcurl-$key.a
names=$(grep -oh '"curl_[a-z0-9_]*"' src/engine/fetch_curl.c src/front/native/telemetry.c | tr -d '"' | sort -u)
[ -n "$names" ] || fail "what is looked for in libcurl is not where it was"

# Only the sources of what apt knows, in a state of its own: nobody else's lists are changed, and no rights needed.
apt() {
    APT_CONFIG=$work/apt.conf apt-get -q -q -o Acquire::Retries=3 -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/sources" \
        -o Dir::State::lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root "$@" >&2
}

download() {
    rm -f "$work"/curl_*
    apt update && (cd "$work" && apt source --download-only "$1")
}

# The one whose headers and whose licence are installed, or what mended it since.
fetch() {
    installed=$(dpkg-query -W -f '${source:Version}' libcurl4-openssl-dev)
    mkdir -p "$work/sources" "$work/lists/partial"
    # What the machine does after an update of its own lists is not wanted after one of these. This file is read before
    # the machine's, the one that it names after them.
    echo "Dir::Etc::main \"$work/last.conf\";" >"$work/apt.conf"
    {
        [ ! -f /etc/apt/apt.conf ] || echo '#include "/etc/apt/apt.conf";'
        printf '#clear APT::Update::%s;\n' Pre-Invoke Post-Invoke Post-Invoke-Success
    } >"$work/last.conf"
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
        sed -n 's/^[[:space:]]*deb[[:space:]]/deb-src /p' >"$work/sources/lines.list"
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$file" ] || sed 's/^[Tt]ypes:.*/Types: deb-src/' "$file" >"$work/sources/$(basename "$file")"
    done
    download "curl=$installed" || { sleep 10 && download "curl=$installed"; } || {
        echo "libcurl.sh: instead of the source of curl $installed the newest is fetched" >&2
        download curl || fail "the source of curl could not be fetched; is the network there?"
    }
    version=$(sed -n 's/^Version: //p' "$work"/curl_*.dsc)
    dpkg --compare-versions "$version" ge "$installed" ||
        fail "the source of curl is of $version, and $installed is installed: look at the output of apt-get update"
    dpkg-source --no-check -x "$work"/curl_*.dsc "$work/curl" >/dev/null || fail "the source of curl cannot be unpacked"
}

# The Makefile would be made anew, for Debian's changes, by tools that nothing else needs: the files are enough.
build() {
    # shellcheck disable=SC2046,SC2086 # lists of words
    (cd "$work/curl" && CC=$gcc CFLAGS=$cc_flags ./configure --quiet --host="$target" --with-openssl --disable-shared $(printf -- '--enable-%s ' $with) \
        $(printf -- '--disable-%s ' $without) $(printf -- '--without-%s ' $no_library)) >"$work/log" 2>&1 ||
        { cat "$work/log" >&2 && fail "libcurl cannot be configured"; }
    (cd "$work/curl/lib" && find . -name '*.c' | sed 's|^\./||' | xargs -P "$(nproc)" -I '{}' sh -c \
        "$gcc $cc_flags -w -DHAVE_CONFIG_H -DBUILDING_LIBCURL -DCURL_STATICLIB -I ../include -I . -c {} \
        -o \"\$(echo {} | tr / _).o\"") >&2 || fail "libcurl does not compile"
    "$("$gcc" -print-prog-name=ar)" rcs "$work/libcurl.a" "$work"/curl/lib/*.o
    mv "$work/libcurl.a" "$result"
}

mkdir -p "$cache"
exec 9>"$cache/.libcurl.lock"
flock 9
if [ ! -f "$result" ]; then
    echo "building libcurl for the npm package" >&2
    work=$(mktemp -d "$cache/.libcurl.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    fetch
    build
fi
for name in $names; do
    printf -- '-Wl,-u,%s,--export-dynamic-symbol=%s ' "$name" "$name"
done
echo "$result"
