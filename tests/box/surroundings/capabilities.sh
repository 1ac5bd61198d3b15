#!/bin/sh
# Runs a command as a root that has only the capabilities which Docker gives to a container.
# usage: capabilities.sh COMMAND...
set -eu

kept=+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service
kept=$kept,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap
exec setpriv --bounding-set "-all,$kept" --inh-caps -all "$@"
