#!/bin/sh
# PID 1 of a guest: makes of the kernel's defaults the machine that nearly every user has (pure
# cgroup v2 in the hands of systemd, its sysctls), runs the tests as root or as an ordinary user, and
# puts the results on the third disk. It must end in power-off whatever happens: who waits for the
# guest sees no more of it than the console.
#
# The kernel's command line says part=root or part=user, or what is packed.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
trap 'busybox sync; echo "guest: over"; busybox poweroff -f' EXIT

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm /mnt
mount -t devpts -o ptmxmode=666,mode=620,gid=5 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 shm /dev/shm
mount -t tmpfs -o nosuid,nodev,mode=755 run /run
ln -sf /proc/self/fd /dev/fd
ln -sf pts/ptmx /dev/ptmx
ip link set lo up 2>/dev/null || busybox ifconfig lo 127.0.0.1 up
hostname guest
chmod 1777 /tmp

# As systemd sets them on Debian.
ulimit -Hn 1048576
for setting in fs/protected_hardlinks=1 fs/protected_symlinks=1 fs/protected_regular=2 \
    fs/protected_fifos=1 kernel/pid_max=4194304; do
    echo "${setting#*=}" >"/proc/sys/${setting%=*}"
done

for word in $(cat /proc/cmdline); do
    case $word in
    part=*) part=${word#*=} ;;
    esac
done

# ---- cgroups, as systemd lays them out: a slice per user, one delegated to him ----

groups=/sys/fs/cgroup
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate cgroup2 $groups

# Makes a group, level by level, and hands the controllers down to each but the last.
make_group() {
    path=$groups
    for level in $(echo "$1" | tr / ' '); do
        echo '+cpuset +cpu +io +memory +pids' >"$path/cgroup.subtree_control" ||
            echo '+cpu +memory +pids' >"$path/cgroup.subtree_control"
        path=$path/$level
        [ -d "$path" ] || mkdir "$path"
    done
}

mkdir $groups/init.scope
echo 1 >$groups/init.scope/cgroup.procs
case $part in
root | packages | image)
    group=user.slice/user-0.slice/session-1.scope
    make_group $group
    as_whom=
    ;;
user)
    service=user.slice/user-1001.slice/user@1001.service
    group=$service/app.slice/tests.scope
    make_group $group
    for name in $service $service/app.slice $group; do
        chown covetest: $groups/$name $groups/$name/cgroup.procs \
            $groups/$name/cgroup.subtree_control $groups/$name/cgroup.threads
    done
    chown -R covetest: /cove
    mkdir -p /run/user/1001
    chown covetest: /run/user/1001
    export HOME=/home/covetest USER=covetest XDG_RUNTIME_DIR=/run/user/1001
    as_whom='setpriv --reuid 1001 --regid 1001 --init-groups --inh-caps=-all'
    ;;
esac

# ---- the tests ----

# Another mount of the same image: a root for `--root` that the tests cannot wear out.
mkdir -p /cove/build/testroot
mount -t ext4 -o ro,noload /dev/vdd /cove/build/testroot

# Packages, and the host's network, from which roots have theirs.
if [ -e /dev/vde ]; then
    mount -t ext4 -o ro,noload /dev/vde /cove/build/packed
    modprobe virtio_net
    ip link set eth0 up
    ip address add 10.0.2.15/24 dev eth0
    ip route add default via 10.0.2.2
    echo 'nameserver 10.0.2.3' >/etc/resolv.conf
fi

echo "guest: up after $(cut -d ' ' -f 1 /proc/uptime) s, Linux $(uname -r) $(uname -m), as $part"
cd /cove || exit 1
. ./vm.conf
. tests/vm/tests.conf
(
    # This shell stays where it is; only what the tests start is in their group.
    echo 0 >"$groups/$group/cgroup.procs"
    # shellcheck disable=SC2086,SC2154 # lists of words, from the two files
    eval exec $as_whom /usr/bin/python3 -m pytest -p no:cacheprovider --color=no --tb=short \
        --durations=12 --junitxml=/tmp/results.xml $tests '-k "not ($without)"' $more_arguments
) </dev/null
echo "guest: pytest has ended with $? after $(cut -d ' ' -f 1 /proc/uptime) s"
tar -c -f /dev/vdc -C /tmp results.xml
