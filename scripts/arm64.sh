#!/bin/sh
# Prepares DIRECTORY for building for arm64 on another machine: the libraries of that architecture,
# unpacked, and what Meson has to know (cross.ini). The cross compiler is setup.sh's (group arm64).
#
# The packages come by an apt with its own state, so that dpkg of this machine never hears of a
# second architecture; it takes the sources and the keys of this machine's, and checks what it gets.
# This must write nothing outside DIRECTORY.
# usage: arm64.sh DIRECTORY
set -eu

mkdir -p "$1"
directory=$(cd "$1" && pwd)
libraries=$directory/root/usr/lib/aarch64-linux-gnu
# These setup.sh installs for a build on this machine. A shared library is found by the link in its -dev package.
packages='musl-dev libjansson-dev libpcre2-dev libuv1-dev libuv1 libc-ares-dev libc-ares2 libsqlite3-dev libsqlite3-0
    libcurl4-openssl-dev libssl-dev libssl3'
gcc=aarch64-linux-gnu-gcc

fail() {
    echo "arm64.sh: $*" >&2
    exit 1
}

# Hooks of the host's apt would clean the host's cache.
private_apt() {
    cat >"$directory/apt/apt.conf" <<CONF
APT::Architecture "arm64";
#clear APT::Architectures;
APT::Architectures { "arm64"; };
#clear APT::Update;
#clear DPkg;
Dir::State "$directory/apt/state";
Dir::State::status "$directory/apt/status";
Dir::Cache "$directory/apt/cache";
Dir::Log "$directory/apt/log";
CONF
    apt-get -q -q -c "$directory/apt/apt.conf" "$@"
}

# Into a directory of its own that is renamed when it is whole: a run that was cut short leaves
# nothing that a later one would take for good.
fetch() {
    rm -rf "$directory/apt" "$directory/new"
    mkdir -p "$directory/apt/state/lists/partial" "$directory/apt/cache/archives/partial" \
        "$directory/apt/log" "$directory/apt/packages" "$directory/new"
    : >"$directory/apt/status"
    # As root, apt fetches as this user of its own.
    [ "$(id -u)" != 0 ] || chown _apt "$directory/apt/packages"
    echo "arm64.sh: fetching for arm64: $packages" >&2
    private_apt update >&2 || fail "the package lists could not be fetched; is the network there?"
    # shellcheck disable=SC2086 # a list of words
    (cd "$directory/apt/packages" && private_apt download $packages >&2) ||
        fail "a package could not be fetched; the message above says which"
    for package in "$directory"/apt/packages/*.deb; do
        dpkg-deb -x "$package" "$directory/new"
    done
    (cd "$directory/apt/packages" && ls) >"$directory/new/.versions"
    echo "$packages" >"$directory/new/.packages"
    rm -rf "$directory/apt" "$directory/root"
    mv "$directory/new" "$directory/root"
}

# gcc with the headers and the libraries of the root in front of its own, which may be this machine's.
write_gcc() {
    cat >"$directory/gcc" <<SCRIPT
#!/bin/sh
exec $gcc -isystem "$directory/root/usr/include/aarch64-linux-gnu" -isystem "$directory/root/usr/include" \\
    -B "$libraries/" "\$@"
SCRIPT
    chmod +x "$directory/gcc"
}

# musl-gcc, as the package musl-tools has it for the machine's own architecture: gcc with the
# headers, the start files and the library of musl in front of its own.
write_musl_gcc() {
    cat >"$directory/musl-gcc" <<SCRIPT
#!/bin/sh
exec $gcc -nostdinc -isystem "$directory/root/usr/include/aarch64-linux-musl" \\
    -isystem "$($gcc -print-file-name=include)" -B "$directory/root/usr/lib/aarch64-linux-musl/" "\$@"
SCRIPT
    chmod +x "$directory/musl-gcc"
}

# -L: where the emulator finds libc for a program that is linked to it, and LD_LIBRARY_PATH other libraries. A file that
# is as it was stays untouched, or Meson would set everything up again.
write_cross_file() {
    emulator="['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu', '-E', 'LD_LIBRARY_PATH=$libraries']"
    cat >"$directory/cross.new" <<INI
[binaries]
c = '$directory/gcc'
ar = 'aarch64-linux-gnu-gcc-ar'
strip = 'aarch64-linux-gnu-strip'
musl-gcc = '$directory/musl-gcc'
pkgconfig = 'pkg-config'
exe_wrapper = $emulator

[built-in options]
libdir = 'lib/aarch64-linux-gnu'

[properties]
emulator = $emulator
sys_root = '$directory/root'
pkg_config_libdir = '$libraries/pkgconfig'

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
INI
    cmp -s "$directory/cross.new" "$directory/cross.ini" ||
        mv "$directory/cross.new" "$directory/cross.ini"
    rm -f "$directory/cross.new"
}

exec 9>"$directory/.lock"
flock 9

command -v "$gcc" >/dev/null || fail "$gcc is missing: run scripts/setup.sh arm64"
[ "$(cat "$directory/root/.packages" 2>/dev/null)" = "$packages" ] || fetch
write_gcc
write_musl_gcc
write_cross_file
