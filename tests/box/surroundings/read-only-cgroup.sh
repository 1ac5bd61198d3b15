#!/bin/sh
# Runs a command where every cgroup hierarchy is mounted read-only, as containers have them. The
# mounts of a mount namespace of its own are changed, not the host's.
# usage: read-only-cgroup.sh COMMAND...
set -eu

[ "${COVE_TEST_INNER:-}" = read-only-cgroup ] ||
    COVE_TEST_INNER=read-only-cgroup exec unshare -m --propagation private "$0" "$@"
unset COVE_TEST_INNER

while read -r _ point type _; do
    case $type in
    cgroup | cgroup2) echo "$point" ;;
    esac
done </proc/mounts | while read -r point; do
    mount -o remount,bind,ro "$point"
done
exec "$@"
