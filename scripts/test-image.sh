#!/usr/bin/env bash
# Makes the container image and uses it as docs/container.md says: by root's Podman and by a user's, with all rights and
# with fewer. Each container serves, runs a command in a sandbox, is stopped, and finds the sandbox's file again.
# All of it is in namespaces of its own with a loopback alone, and Podman's storage in BUILD/image/test; nothing stays.
# With arm64 that is done in an emulated machine (scripts/test-vm.sh), by root's Podman alone: it takes minutes to load.
# usage: BUILD=build test-image.sh [arm64]
set -Eeuo pipefail
trap 'echo "test-image.sh: line $LINENO failed" >&2' ERR

cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")
user=covetest # as scripts/test.py has it
work=$build/image/test
parent=cove-image-test

if [ "${1-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo "test-image.sh: root is needed" >&2; exit 1; }
    id $user >/dev/null 2>&1 || useradd --create-home --shell /bin/sh $user
    mkdir -p "$build/image"
    case ${1-} in
    --packed) # in a guest
        ln -sf "$(realpath "$2")"/*.tar "$build/image/"
        export users=root
        ;;
    arm64)
        BUILD=$build scripts/pack-image.sh arm64
        packed=$(mktemp -d "$build/image/packed-XXXXXX")
        trap 'rm -r "$packed"' EXIT
        ln "$build"/image/cove-*-arm64.tar "$packed/"
        BUILD=$build scripts/test-vm.sh arm64 image "$packed"
        exit
        ;;
    *) BUILD=$build scripts/pack-image.sh ;;
    esac
    exec 9>"$build/image/.lock" # one at a time: the end of one removes what all have
    flock 9
    status=0
    BUILD=$build unshare --mount --net --pid --fork --kill-child --mount-proc "$0" inside 9>&- || status=$?
    rm -rf "$work"
    find /sys/fs/cgroup -depth -type d -path "*/$parent*" -exec rmdir {} + 2>/dev/null || true
    exit $status
fi

case $(uname -m) in aarch64) machine=arm64 ;; *) machine=amd64 ;; esac
archive=$(ls "$build"/image/cove-*-$machine.tar)
export DISABLE_HC_SYSTEMD=true # no systemd asks for their health
passed=0
ip link set lo up
# This crun takes either version of cgroups, not both at once.
umount /sys/fs/cgroup/unified 2>/dev/null || true
rm -rf "$work"
mkdir -p "$work/root" "$work/$user"
# Nobody else's directories lie above it for a user.
mount --bind "$work" /mnt
chmod 755 /mnt
chown $user: /mnt/$user

fail() {
    echo "image: $name: $*" >&2
    podman logs c 2>&1 | tail -n 20 >&2 || true
    podman rm -f -t 5 c >/dev/null 2>&1 || true
    exit 1
}

podman() {
    local as=(env)
    [ "$who" = root ] || as=(setpriv "--reuid=$who" "--regid=$who" --init-groups)
    (cd "/mnt/$who" && HOME=/mnt/$who XDG_RUNTIME_DIR=/mnt/$who/run "${as[@]}" podman --root "/mnt/$who/storage" \
        --runroot "/mnt/$who/run/containers" --cgroup-manager=cgroupfs --events-backend=none "$@")
}

healthy() {
    for _ in $(seq 150); do
        ! podman healthcheck run c >/dev/null 2>&1 || return 0
        [ "$(podman inspect c --format '{{.State.Running}}')" = true ] || return 1
        sleep 0.2
    done
    return 1
}

# $1: what it has by /v1/version, or none; then the options.
try() {
    local has=$1 keys=/mnt/$who/keys limit
    shift
    name="$who's Podman with ${*:-no options}"
    limit=$(ulimit -Hn) # more than there is cannot be given away
    rm -rf "$keys"
    mkdir "$keys"
    chown "$who:" "$keys"
    local common=(--ulimit "nofile=$limit:$limit" --ulimit nproc=4096:4096 --network=host)
    [ "$who" != root ] || common+=("--cgroup-parent=/$parent")
    if [ "$has" = none ]; then
        ! podman run --rm "${common[@]}" "$@" cove cove doctor >"$work/said" || fail "cove doctor finds no fault"
        grep -q 'level none' "$work/said" || fail "$(cat "$work/said")"
        grep -qF "$(grep -m 1 -o 'docker run -d .* cove$' docs/container.md)" "$work/said" || fail "cove doctor names no line"
    else
        podman run -d --name c "${common[@]}" "$@" -v c:/var/lib/cove -v "$keys:/run/cove-key" cove >/dev/null || fail "it does not start"
        healthy || fail "its health check does not pass"
        podman exec c cove doctor >"$work/said" || fail "$(cat "$work/said")"
        grep -q '^cove run has here: level full' "$work/said" || fail "$(cat "$work/said")"
        # From outside, with the key that the container shows soon after it is ready.
        for _ in $(seq 50); do [ ! -s "$keys/operator.key" ] || break; sleep 0.2; done
        [ "$(stat -c '%U %a' "$keys/operator.key")" = "$who 600" ] || fail "the key is not $who's alone"
        (umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$(cat "$keys/operator.key")" >"$work/curl")
        said=$(curl -sS -K "$work/curl" http://127.0.0.1:7070/v1/version | sed 's/.*"level":"\([a-z-]*\)","limits":"\([a-z]*\)","ids":"\([a-z]*\)","disk":"\([a-z]*\)".*/\1 \2 \3 \4/')
        [ "$said" = "$has" ] || fail "has $said, not $has"
        curl -sSf -K "$work/curl" http://127.0.0.1:7070/v1/sandboxes >/dev/null || fail "the key is refused"
        podman exec c cove create work >/dev/null || fail "no sandbox is made"
        said=$(podman exec c cove exec work -- sh -c 'python3 -c "print(6 * 7)" | tee kept; node -p "6 * 8"' | tr '\n' ' ') ||
            fail "no command runs in a sandbox"
        [ "$said" = "42 48 " ] || fail "a command in a sandbox said '$said'"
        podman stop -t 60 c >/dev/null
        [ "$(podman inspect c --format '{{.State.ExitCode}}')" = 0 ] || fail "it does not end by itself"
        podman start c >/dev/null || fail "it does not start again"
        healthy || fail "its health check does not pass after a restart"
        said=$(podman exec c cove exec --start work -- cat kept) || fail "the sandbox does not start again"
        [ "$said" = 42 ] || fail "the file is gone after a restart"
        podman exec c ps -A -o stat= >"$work/states" || fail "no process can be listed"
        ! grep -q Z "$work/states" || fail "nobody reaps"
        podman logs c >"$work/log" 2>&1 || fail "there is no log"
        ! grep -qFf "$keys/operator.key" "$work/log" || fail "the key is in the log"
        podman rm -f -t 60 c >/dev/null
        podman volume rm c >/dev/null
    fi
    passed=$((passed + 1))
    echo "image: $name: as it should be"
}

seccomp='--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt unmask=ALL'
limits=rlimit # of root's container where groups are those of v1; those of v2 it may write to when nothing is masked
[ ! -e /sys/fs/cgroup/cgroup.controllers ] || limits=cgroup
for who in ${users:-root $user}; do
    name=$who
    mkdir -p "/mnt/$who/run"
    chown "$who:" "/mnt/$who/run"
    chmod 700 "/mnt/$who/run"
    podman load -q -i "$archive" >/dev/null || fail "the image cannot be loaded"
    [ "$(podman inspect cove --format '{{index .HealthCheck.Test 1}}')" = curl ] || fail "the image has no health check"
    # shellcheck disable=SC2086 # words
    case $who in
    root)
        try 'full cgroup range hard' --privileged
        try "full $limits range watched" $seccomp
        try none
        ;;
    *) try 'full rlimit slice watched' $seccomp ;;
    esac
done
echo "image: $passed passed"
