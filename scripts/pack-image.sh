#!/bin/sh
# Packs the server as a container image, without a container engine: a small Debian tree as one layer, what make install
# installs as the other. docker load and podman load take the archive. It is in Docker's format, for OCI's has no health
# check. The same packages and the same build give the same bytes: times are those of the commit.
#
# The Debian tree is made once for its list of packages, and kept; remove BUILD/image/base-* for newer packages.
# usage: BUILD=build pack-image.sh [amd64|arm64]
set -eu

cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")
arch=${1:-$(dpkg --print-architecture)}
[ "$arch" = "$(dpkg --print-architecture)" ] || build=$build/$arch
# The first line is what the server needs. Sandboxes without a root of their own see the others in /usr.
packages='ca-certificates tini libuv1 libc-ares2 libsqlite3-0 libssl3 libcurl4 uidmap
    bzip2 curl file git jq less make nodejs npm openssh-client patch procps python3 python3-pip python3-venv
    ripgrep unzip xz-utils zip'

fail() {
    echo "pack-image.sh: $*" >&2
    exit 1
}

case $arch in amd64 | arm64) ;; *) fail "there is no image for '$arch': amd64 or arm64" ;; esac
[ -x "$build/cove-keeper" ] && [ -x "$build/cove-engine" ] && [ -x "$build/cove" ] ||
    fail "$build holds no whole build: run make, or make arm64, first"
mkdir -p "${BUILD:-build}/image"
image=$(realpath "${BUILD:-build}")/image
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

base=$image/base-$arch-$(cat scripts/pack-image.sh | sha256sum | cut -c1-12).tar
if [ ! -f "$base" ]; then
    echo "image: making a Debian tree for $arch; this is done once"
    make_tree=mmdebstrap
    [ "$arch" = "$(dpkg --print-architecture)" ] ||
        make_tree='scripts/emulated.sh mmdebstrap --skip=check/qemu,chroot/mount/sys'
    # shellcheck disable=SC2016 # $1 is the hook's
    $make_tree --quiet --format=tar --mode="$([ "$(id -u)" = 0 ] && echo root || echo unshare)" --arch="$arch" --variant=minbase \
        --include="$(echo "$packages" | tr -s ' \n' ',,')" \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --customize-hook='rm -f "$1"/etc/resolv.conf "$1"/etc/hostname "$1"/var/cache/debconf/*-old' \
        bookworm "$base.new"
    rm -f "$image/base-$arch"-*.tar
    mv "$base.new" "$base"
fi

tree=$image/tree-$arch
rm -rf "$tree"
meson install -C "$build" --no-rebuild --strip --quiet --destdir "$tree"
[ -x "$tree/usr/local/libexec/cove/cove-keeper" ] || fail "$build is not built for /usr/local; pack another build"
install -D -m 755 etc/container/start.sh "$tree/usr/local/libexec/cove/start-container"
install -d -m 711 "$tree/var/lib/cove"
chmod -R go=u-w "$tree/usr"
tar -c -f "$image/cove-$arch.layer" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner -C "$tree" usr var
rm -rf "$tree"

version=$(meson introspect "$build" --projectinfo | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
archive=$image/cove-$version-$arch.tar
scripts/image-archive.py "$arch" "$version" "$archive.new" "$base" "$image/cove-$arch.layer"
mv "$archive.new" "$archive"
rm "$image/cove-$arch.layer"
echo "image: $archive, $(($(stat -c %s "$archive") / 1000000)) MB; docker load -i, or podman load -i, takes it"
