#!/bin/sh
# Removes what `make install` of this build directory installed, and nothing else: Meson's files by its log, and what
# install-words.sh printed. Data and configuration of a server stay.
# usage: BUILD=build uninstall.sh, with the DESTDIR of the install
set -eu

cd "$(dirname "$0")/.."
build=${BUILD:-build}

[ -f "$build/meson-logs/install-log.txt" ] || {
    echo "uninstall: $build does not know what it installed: run make install once more, then make uninstall" >&2
    exit 1
}
prefix=$(meson introspect --buildoptions "$build" |
    python3 -c 'import json, sys; print(next(each["value"] for each in json.load(sys.stdin) if each["name"] == "prefix"))')
root=${DESTDIR:-}$prefix
ninja -C "$build" uninstall >/dev/null
pages=$("$build/cove" man --list) # of its own, or that it failed would not be seen
for page in $pages; do
    rm -f "$root/share/man/man1/$page.1"
done
rm -f "$root/share/man/man5/cove.conf.5" "$root/share/doc/cove/cove.conf.sample" \
    "$root/share/bash-completion/completions/cove" "$root/share/zsh/site-functions/_cove" \
    "$root/share/fish/vendor_completions.d/cove.fish"
for directory in share/doc/cove libexec/cove; do
    [ ! -d "$root/$directory" ] || rmdir --ignore-fail-on-non-empty "$root/$directory"
done
echo "uninstall: nothing of cove is left below $root; data and configuration are where they were"
