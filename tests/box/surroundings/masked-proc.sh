#!/bin/sh
# Runs a command where parts of /proc are masked, as container engines do: empty files and
# directories lie over what tells of the host, and what configures it is read-only. All of it is in
# a mount namespace that ends with the command.
# usage: masked-proc.sh COMMAND...
set -eu

[ "${COVE_TEST_INNER:-}" = masked-proc ] ||
    COVE_TEST_INNER=masked-proc exec unshare -m --propagation private "$0" "$@"
unset COVE_TEST_INNER

for name in acpi scsi asound; do
    [ ! -d "/proc/$name" ] || mount -t tmpfs -o ro,size=0 tmpfs "/proc/$name"
done
for name in kcore keys timer_list latency_stats sched_debug; do
    [ ! -e "/proc/$name" ] || mount --bind /dev/null "/proc/$name"
done
for name in bus fs irq sys sysrq-trigger; do
    [ ! -e "/proc/$name" ] || {
        mount --bind "/proc/$name" "/proc/$name"
        mount -o remount,bind,ro "/proc/$name"
    }
done
exec "$@"
