#!/bin/sh
# Installs the Debian packages that a group of tasks needs, if they are missing, and says so.
#
# Tested on Debian 12 (bookworm), whose package versions are the pin: `setup.sh versions` prints
# what this machine has beside what was tested. It must stay quick when nothing is missing, for
# `make` runs it each time, and it must never remove or upgrade anything.
# usage: setup.sh [build|test|node|clients|bench|arm64|vm|pack|image|versions]
set -eu

group=${1:-build}

build='gcc make meson ninja-build pkg-config musl-tools linux-libc-dev libc6-dev libjansson-dev
    libuv1-dev libc-ares-dev libsqlite3-dev libcurl4-openssl-dev libpcre2-dev libmnl-dev libnftnl-dev
    libssl-dev python3 python3-pip python3-setuptools
    clang-14 lld-14 libclang-rt-14-dev-wasm32 wasi-libc wabt'
# Where there is an init, the last two start a service of their own. No test has to do with that
# one: it runs the programs itself, as servers of a network that it made.
test="$build git python3-pytest python3-yaml python3-venv python3-websockets python3-wsproto
    clang-tidy-14 clang-format-14 libclang-rt-14-dev cppcheck
    bubblewrap crun busybox-static erofs-utils e2fsprogs mmdebstrap sqlite3 openssh-client sudo
    dpkg-dev attr libarchive-tools libcap2-bin procps strace tar xz-utils mount uidmap curl ca-certificates openssl zsh fish
    mandoc python3-prometheus-client python3-protobuf tmux vim htop systemd
    python3-requests openssh-server postgresql iproute2"
bench="$build bubblewrap crun busybox-static iproute2 passt slirp4netns"
# What else an arm64 build needs are packages of that architecture: scripts/arm64.sh.
arm64="$build gcc-aarch64-linux-gnu libc6-dev-arm64-cross linux-libc-dev-arm64-cross qemu-user-static"
# Emulated machines and what their root is made with; used by make test-vm only.
vm="$build qemu-system-x86 qemu-system-arm mmdebstrap e2fsprogs busybox-static kmod python3-pytest tar"
# For the container image, and for its test.
image="$build git mmdebstrap podman crun fuse-overlayfs uidmap iproute2 curl"

# For packages, and for the roots in which they are installed.
pack="$build debhelper dpkg-dev lintian mmdebstrap systemd-container tar"

# Programs that tests run inside a box. Any version will do, from wherever: only a command that is
# missing is installed.
# COMMAND:PACKAGE
test_commands='go:golang-go java:default-jdk-headless javac:default-jdk-headless
    keytool:default-jdk-headless node:nodejs npm:npm'

# What the code was last tested with.
tested='gcc 4:12.2.0-3
meson 1.0.1-5
ninja-build 1.11.1-2~deb12u1
musl-tools 1.2.3-1
libjansson-dev 2.14-2
libuv1-dev 1.44.2-1+deb12u1
libc-ares-dev 1.18.1-3
libsqlite3-dev 3.40.1-2+deb12u2
libcurl4-openssl-dev 7.88.1-10+deb12u15
libpcre2-dev 10.42-1+deb12u2
libmnl-dev 1.0.4-3
libnftnl-dev 1.2.4-2
libssl-dev 3.0.19-1~deb12u2
python3 3.11.2-1+b1
python3-setuptools 66.1.1-1+deb12u2
lld-14 1:14.0.6-12
wasi-libc 0.0~git20220510.9886d3d-2
wabt 1.0.32-1
python3-pytest 7.2.1-2
python3-websockets 10.4-1
python3-wsproto 1.2.0-1
tmux 3.3a-3
vim 2:9.0.1378-2+deb12u2
htop 3.2.2-2
clang-14 1:14.0.6-12
cppcheck 2.10-2
bubblewrap 0.8.0-2+deb12u1
crun 1.8.1-1+deb12u1
passt 0.0~git20230309.7c7625d-1
slirp4netns 1.2.0-1
busybox-static 1:1.35.0-4+deb12u1+b1
erofs-utils 1.5-1
e2fsprogs 1.47.0-2
mmdebstrap 1.3.5-7
podman 4.3.1+ds1-8+deb12u1+b3
gcc-aarch64-linux-gnu 4:12.2.0-3
qemu-user-static 1:7.2+dfsg-7+deb12u18+b3
qemu-system-x86 1:7.2+dfsg-7+deb12u18+b3
qemu-system-arm 1:7.2+dfsg-7+deb12u18+b3
debhelper 13.11.4
lintian 2.116.3+deb12u1'

say() {
    echo "setup: $*" >&2
}

fail() {
    say "$*"
    exit 1
}

print_versions() {
    echo "$tested" | while read -r package version; do
        have=$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null) || have='not installed'
        [ "$have" = "$version" ] && note='' || note="   (tested: $version)"
        echo "$package $have$note"
    done
}

# The packages of $1 that dpkg does not have, by one call of dpkg-query.
missing_packages() {
    # shellcheck disable=SC2086 # a list of words
    have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $1 2>/dev/null |
        sed -n 's/^installed //p') || true
    for package in $1; do
        case "
$have
" in
        *"
$package
"*) ;;
        *) echo "$package" ;;
        esac
    done
}

missing_commands() {
    for pair in $test_commands; do
        command=${pair%%:*}
        command -v "$command" >/dev/null 2>&1 || [ -x "/usr/local/go/bin/$command" ] ||
            echo "${pair#*:}"
    done | sort -u
}

case $group in
build) packages=$build ;;
test) packages=$test ;;
node) packages=$build ;;
clients) packages='python3 python3-pip' ;;
bench) packages=$bench ;;
arm64) packages=$arm64 ;;
vm) packages=$vm ;;
pack) packages=$pack ;;
image) packages=$image ;;
versions)
    print_versions
    exit 0
    ;;
*) fail "there is no group '$group': build, test, node, clients, bench, arm64, vm, pack, image or versions" ;;
esac

# What Debian does not have, pinned with its hash; only tests use it. $1: where it goes, $2: the list.
python_packages() {
    target=${BUILD:-build}/$1
    if [ "$target/.done" -nt "$2" ]; then
        return
    fi
    say "installing what $2 lists into $target"
    /usr/bin/python3 -m pip install -q --no-deps --require-hashes --upgrade --target "$target" \
        -r "$2" || fail "the Python packages of $2 could not be installed"
    touch "$target/.done"
}

# The same for npm; the lock file has the hashes.
node_packages() {
    target=${BUILD:-build}/$1
    if [ "$target/.done" -nt "$2/package-lock.json" ]; then
        return
    fi
    say "installing what $2/package-lock.json lists into $target"
    mkdir -p "$target"
    cp "$2/package.json" "$2/package-lock.json" "$target"
    (cd "$target" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 ||
        fail "the npm packages of $2 could not be installed"
    touch "$target/.done"
}

# The workspace of our own packages, with what builds and tests them.
node_workspace() {
    if [ js/node_modules/.done -nt js/package-lock.json ]; then
        return
    fi
    say "installing what js/package-lock.json lists into js/node_modules"
    (cd js && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 ||
        fail "the npm packages of js could not be installed"
    touch js/node_modules/.done
}

# The same for Go, where it is new enough to read the list; go.sum has the hashes.
go_modules() {
    target=$(realpath -m "${BUILD:-build}/$1")
    if [ "$target/.done" -nt "$2/go.sum" ] || ! (cd "$2" && GOTOOLCHAIN=local go list -m) >/dev/null 2>&1; then
        return
    fi
    say "fetching what $2/go.mod lists into $target"
    (cd "$2" && GOMODCACHE=$target GOFLAGS=-modcacherw go mod download) >&2 ||
        fail "the modules of $2 could not be fetched"
    touch "$target/.done"
}

# Each in a directory of its own: the second has a newer pytest than Debian's, and only one program sees it.
finish() {
    if [ "$group" = test ]; then
        python_packages python tests/requirements.txt
        python_packages python-api tests/api/requirements.txt
        python_packages python-openapi tests/api/validator.txt
        node_packages vite tests/vite
        node_packages typescript tests/typescript
        node_packages conformance tests/conformance
    fi
    if [ "$group" = clients ]; then
        python_packages python-clients tests/clients/requirements.txt
        go_modules go tests/clients/go
    fi
    case $group in test | node) node_workspace ;; esac
    exit 0
}

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    # Elsewhere the names differ, so nothing is guessed: if the build's tools are there, go on.
    absent=
    for command in gcc make meson ninja musl-gcc python3 clang-14 wasm-ld-14 wasm2c $([ "$group" != node ] || echo npm); do
        command -v "$command" >/dev/null 2>&1 || absent="$absent $command"
    done
    if [ -z "$absent" ]; then
        [ "$group" != node ] || node_workspace
        exit 0
    fi
    fail "this is not a Debian system, and these commands are missing:$absent. Install what" \
        "Debian calls:" $packages
fi

missing=$(missing_packages "$packages")
[ "$group" != test ] || missing="$missing $(missing_commands)"
[ "$group" != node ] || command -v npm >/dev/null 2>&1 || missing="$missing nodejs npm"
# shellcheck disable=SC2086 # a list of words
missing=$(echo $missing)
[ -n "$missing" ] || finish

if [ "$(id -u)" = 0 ]; then
    as_root=env
elif command -v sudo >/dev/null 2>&1; then
    as_root='sudo env'
else
    fail "these packages are missing, and only root can install them: $missing"
fi

say "installing what is missing for '$group': $missing"
# A new machine may be installing something itself, and a network fail once.
apt() {
    # shellcheck disable=SC2086 # words
    $as_root DEBIAN_FRONTEND=noninteractive apt-get -q -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}
apt_install() {
    # shellcheck disable=SC2086 # a list of words
    apt update && apt -y --no-install-recommends -o Dpkg::Use-Pty=0 install $missing >&2
}
again() {
    say "that failed; it is tried again in $1 seconds"
    sleep "$1"
    apt_install
}
$as_root true || fail "these packages are missing, and only root can install them: $missing"
apt_install || again 10 || again 30 ||
    fail "the installation failed; the messages above say why (is the network there?)"
say "installed: $missing"
finish
