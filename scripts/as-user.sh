#!/usr/bin/env bash
# Runs pytest as an ordinary user, for root: the user `covetest`, made if it is missing, with ids in
# /etc/subuid as adduser gives them. Nothing of this tree is his: what tests make lies in his home.
# The results are written by root.
# IDS: "own", or how many he shall have; the files that say so are then laid over in a namespace.
# usage: as-user.sh BUILD RESULTS.xml IDS PYTEST-ARGUMENT...
set -euo pipefail

cd "$(dirname "$0")/.."
build=$(realpath "$1")
results=$(realpath "$2")
ids=$3
user=covetest
read -r -a pytest <<<"${PYTEST:-/usr/bin/python3 -m pytest}"

id "$user" >/dev/null 2>&1 || {
    echo "as-user: making the user $user, who stays"
    useradd --create-home --shell /bin/sh "$user"
}
[ "$ids" = own ] || [ "${COVE_TEST_INNER:-}" = ids ] ||
    COVE_TEST_INNER=ids exec unshare -m --propagation private "$0" "$build" "$results" "${@:3}"
unset COVE_TEST_INNER
shift 3
if [ "$ids" != own ]; then
    file=$(mktemp /tmp/covetest-ids-XXXXXX)
    chmod 644 "$file"
    [ "$ids" = 0 ] || echo "$user:1000000000:$ids" >"$file"
    mount --bind "$file" /etc/subuid
    mount --bind "$file" /etc/subgid
    rm "$file" # the binds outlive it
fi
for file in /etc/subuid /etc/subgid; do
    [ "$ids" = 0 ] || grep -q "^$user:" "$file" || {
        echo "as-user: $user has no ids in $file (usermod --add-subuids 100000-165535" \
            "--add-subgids 100000-165535 $user)" >&2
        exit 1
    }
done
home=$(getent passwd "$user" | cut -d: -f6)
group=$(id -g "$user")

# No session's variables, and no rights that root's shell handed on.
as_user() {
    setpriv --reuid "$user" --regid "$group" --init-groups --reset-env "$@"
}

here=$PWD
if ! as_user test -r "$here/tests/box/harness.py" -a -x "$build/test/cove" -a -x "$build/cove"; then
    # Below /root, for example.
    here=$(mktemp -d /tmp/covetest-tree-XXXXXX)
    trap 'rm -rf "$here"' EXIT
    echo "as-user: $user cannot read this tree, so what is needed is copied to $here"
    chmod 755 "$here"
    cp -r --parents tests scripts include examples docs etc src/base src/front src/http \
        SECURITY.md README.md CHANGELOG.md LICENSE THIRD-PARTY.md js/packages/*/README.md "$here"
    find src -name '*.h' -exec cp --parents -t "$here" {} + # what drivers and embedders include
    mkdir "$here/build"
    (cd "$build" && cp -r --parents cove cove-js cove-keeper cove-engine test/cove test/cove-js test/cove-keeper \
        test/cove-engine test/src/box test/src/base test/src/keeper/build.h src/lib src/box/cove-tool \
        src/box/cove-grep meson-uninstalled python vite \
        "$here/build")
    chmod -R a+rX "$here"
    build=$here/build
fi

made=$home/made
mkdir -p "$made"
chown "$user:$group" "$made"
cd "$here"
status=0
as_user env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 BUILD="$build" COVE_SOAK="${COVE_SOAK:-}" COVE_TEST_MADE="$made" \
    "${pytest[@]}" -q -p no:cacheprovider --junitxml="$made/results.xml" "$@" || status=$?
# What was asked for may be root's alone.
[ "$status" != 5 ] || exit 0
as_user cat "$made/results.xml" >"$results"
exit "$status"
