#!/bin/sh
# Packs a release build for others to install:
#   deb      Debian packages, in OUT/deb; made on Debian 12, they install there and on later ones
#   tarball  an archive that runs from where it is unpacked, with its libraries in it, in OUT/tarball
# OUT is BUILD where it is not named. With arm64 it packs BUILD/arm64, which is built for that machine.
#
# The same commit and the same build give the same bytes: times are the commit's (SOURCE_DATE_EPOCH). The version is
# Meson's where the commit has the tag of that, and else one that comes before it and grows with the commits; VERSION
# names another. The maintainer of a package is whoever packs it (DEBFULLNAME, DEBEMAIL), or wrote the commit.
# usage: BUILD=build pack.sh deb|tarball [arm64]
set -eu

cd "$(dirname "$0")/.."
kind=$1
machine=${2:-}
base=$(realpath "${BUILD:-build}")
build=$base${machine:+/$machine}
out=$(realpath -m "${OUT:-$base}")
work=$build/pack-$kind
tree=$work/tree # as below the prefix

fail() {
    echo "pack.sh: $*" >&2
    exit 1
}

git_says() {
    git -c safe.directory="$PWD" "$@" 2>/dev/null
}

name_all() {
    case $(readelf -h "$build/cove" | sed -n 's/ *Machine: *//p') in
    *X86-64) debian=amd64 platform=x64 strip=strip ;;
    AArch64) debian=arm64 platform=arm64 strip=aarch64-linux-gnu-strip ;;
    *) fail "there are no packages for the machine of $build/cove: x86-64 or arm64" ;;
    esac
    [ "$debian" != "$(dpkg --print-architecture)" ] || strip=strip
    epoch=${SOURCE_DATE_EPOCH:-$(git_says log -1 --format=%ct || stat -c %Y CHANGELOG.md)}
    export SOURCE_DATE_EPOCH="$epoch" LC_ALL=C TZ=UTC
    version=${VERSION:-$(meson introspect --projectinfo "$build" | sed 's/.*"version": "\([^"]*\)".*/\1/')}
    if [ -z "${VERSION:-}" ] && commit=$(git_says rev-parse --short=8 HEAD) &&
        [ "$(git_says tag --points-at HEAD)" != "v$version" ]; then
        version=$version~git$(git_says log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd).$commit
    fi
}

# Installs into the tree as for the prefix $1, whatever that of the build is. The list that make uninstall reads stays as it was.
stage() {
    prefix=$(meson introspect --buildoptions "$build" |
        python3 -c 'import json, sys; print(next(each["value"] for each in json.load(sys.stdin) if each["name"] == "prefix"))')
    log=$build/meson-logs/install-log.txt
    rm -rf "$work"
    mkdir -p "$work"
    [ ! -f "$log" ] || cp -p "$log" "$work/log"
    meson install -C "$build" --no-rebuild --quiet --destdir "$work/installed"
    rm -f "$log"
    [ ! -f "$work/log" ] || mv "$work/log" "$log"
    mv "$work/installed$prefix" "$tree"
    sed -i "s|$prefix/|$1/|" "$tree/lib/systemd/system/cove.service"
    find "$tree" -name cove.pc -exec sed -i "s|^prefix=.*|prefix=$1|" '{}' +
}

# As Debian calls what these files are linked with, on 12 and after.
packages_of() {
    packages=
    for library in $(readelf -d "$@" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
        case $library in
        libc.so.6 | libm.so.6 | ld-linux-*)
            package="libc6 (>= $(readelf -V "$@" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | cut -d_ -f2))"
            ;;
        libcares.so.2) package='libc-ares2 (>= 1.18.1) | libcares2' ;;
        libsqlite3.so.0) package='libsqlite3-0 (>= 3.37)' ;;
        libssl.so.3 | libcrypto.so.3) package='libssl3 (>= 3.0.0) | libssl3t64' ;;
        libuv.so.1) package='libuv1 (>= 1.44) | libuv1t64' ;;
        *) fail "which package has $library is not known here: add it to packages_of" ;;
        esac
        packages="$packages$package
"
    done
    printf %s "$packages" | sort -u | paste -sd, | sed 's/,/, /g'
}

pack_deb() {
    installed=$work/cove/debian/tmp
    mkdir -p "$work/cove"
    cp -r packaging/debian "$work/cove"
    mkdir -p "$installed/etc/cove"
    cp CHANGELOG.md "$work/cove"
    mv "$tree" "$installed/usr"
    cp "$installed/usr/share/doc/cove/cove.conf.sample" "$installed/etc/cove/cove.conf"
    cd "$work/cove"
    # Where Meson was told of no directory of that machine.
    multiarch=$installed/usr/lib/$(dpkg-architecture -a "$debian" -qDEB_HOST_MULTIARCH 2>/dev/null)
    if [ ! -e "$multiarch" ]; then
        mkdir "$multiarch"
        mv "$installed"/usr/lib/libcove* "$installed/usr/lib/pkgconfig" "$multiarch"
        sed -i "s|^libdir=.*|libdir=\${prefix}/lib/${multiarch##*/}|" "$multiarch/pkgconfig/cove.pc"
    fi
    maintainer="${DEBFULLNAME:-$(cd "$OLDPWD" && git_says log -1 --format=%an || id -un)}"
    maintainer="$maintainer <${DEBEMAIL:-$(cd "$OLDPWD" && git_says log -1 --format=%ae || echo root@localhost)}>"
    sed -i "s|@MAINTAINER@|$maintainer|" debian/control
    cat >debian/changelog <<CHANGELOG
cove ($version) unstable; urgency=medium

  * CHANGELOG.md says what is new.

 -- $maintainer  $(date -R -d "@$epoch")
CHANGELOG
    depends=$(packages_of "$installed/usr/bin/cove" "$installed"/usr/libexec/cove/*)
    echo "cove:Depends=$depends" >>debian/cove.substvars
    # shellcheck disable=SC2046 # one file
    depends=$(packages_of $(find "$multiarch" -name 'libcove.so.*' -type f))
    echo "libcove:Depends=$depends" >>debian/libcove0.substvars
    DEB_RULES_REQUIRES_ROOT=no DEB_BUILD_OPTIONS=noautodbgsym \
        dpkg-architecture -a "$debian" --force -c debian/rules binary >"$work/log" 2>&1 ||
        { cat "$work/log" >&2 && fail "the packages cannot be made"; }
    mkdir -p "$out/deb"
    rm -f "$out"/deb/*_"$debian".deb "$out"/deb/*_all.deb
    mv ../*.deb "$out/deb"
    echo "deb: apt-get install takes them from here:"
    cd "$out/deb" && ls -1 "$PWD"/*_"$debian".deb "$PWD"/*_all.deb
}

# The programs are those of the npm package, which have their libraries in them: the archive runs where glibc is.
pack_tarball() {
    top=cove-$version-linux-$platform
    # shellcheck disable=SC2086 # none, or one
    BUILD=$base scripts/build-platform.sh $machine
    mv "$tree" "$work/$top"
    cp packaging/README "$work/$top/README"
    cd "js/packages/linux-$platform/bin"
    install -m 755 cove "$work/$top/bin"
    install -m 755 cove-engine cove-js cove-keeper "$work/$top/libexec/cove"
    install -m 644 libssl.so.3 libcrypto.so.3 "$work/$top/libexec/cove"
    install -m 644 ../THIRD-PARTY-LICENSES "$work/$top/share/doc/cove"
    cd "$work/$top"
    find lib -name 'libcove.so.*' -type f -exec "$strip" --strip-unneeded '{}' +
    find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS
    mkdir -p "$out/tarball"
    cd "$out/tarball"
    rm -f cove-*-linux-"$platform".tar.gz
    tar -c --sort=name --owner=root:0 --group=root:0 --mtime="@$epoch" --mode=u+rw,go+rX,go-w --format=gnu -C "$work" "$top" |
        gzip -9n >"$top.tar.gz"
    sha256sum -- *.tar.gz >SHA256SUMS
    echo "tarball: $PWD/$top.tar.gz"
}

[ -x "$build/cove-engine" ] || fail "$build has no engine: run make ${machine:-first}"
exec 9>"$build/.lock-pack"
flock 9
name_all
case $kind in
deb)
    stage /usr
    pack_deb
    ;;
tarball)
    stage /usr/local
    pack_tarball
    ;;
*) fail "there is no package of the kind '$kind': deb or tarball" ;;
esac
rm -rf "$work"
