#!/usr/bin/env bash
# The tests of boxes and of their network on what nearly every user has and a build machine may not:
# Debian's kernel, its modules loaded as they are asked for, with pure cgroup v2; in two emulated
# machines at once, as root in one and as an ordinary user in the other. They are emulated in software,
# about thirteen times slower than the real one: tests/vm/tests.conf says which tests run there, and
# COVE_TEST_SCALE divides their counts. The last line counts.
# Consoles and results stay in BUILD/vm/ARCH.
#
# With PART and DIRECTORY it starts one guest for what is packed, which lies in that directory and in the guest in
# build/packed; scripts/test-packages.py and test-image.sh call it so. Such a guest reaches the host's network.
# usage: BUILD=build PYTEST_ARGS=... test-vm.sh [x86_64|arm64 [packages|image DIRECTORY]]
set -euo pipefail

cd "$(dirname "$0")/.."
build=${BUILD:-build}
arch=${1:-x86_64}
parts=${2:-${VM_PARTS:-root user}}
packed=${3:-}
of=${packed:+$parts-} # names of files
# Under load a boot takes 10 s; one that hangs, hangs for ever.
boot_seconds=90
run_seconds=3600
[ -z "$packed" ] || run_seconds=10800 # roots of two distributions, each used twice

case $arch in
x86_64)
    debian=amd64
    programs=$build
    # The fewer features, the faster. Left to itself the kernel distrusts this TSC, and a clock on
    # the far side of an emulated bus makes every box half as slow again.
    machine=(qemu-system-x86_64 -M q35 -cpu qemu64)
    kernel_words='console=ttyS0 tsc=reliable'
    ;;
arm64)
    debian=arm64
    programs=$build/arm64
    machine=(qemu-system-aarch64 -M virt -cpu cortex-a57)
    # Two sets of page tables, which this kernel keeps only because it lies at a random address,
    # make every test half as slow again.
    kernel_words='console=ttyAMA0 kpti=off nokaslr'
    ;;
*)
    echo "test-vm.sh: there is no guest for '$arch': x86_64 or arm64" >&2
    exit 1
    ;;
esac
# Of what a kernel does against attacks on itself, only what costs most under emulation is off.
kernel_words_of_all='loglevel=2 panic=-1 cgroup_no_v1=all mitigations=off init_on_alloc=0'
work=$build/vm/$debian

build_programs() {
    if [ "$arch" = arm64 ]; then
        scripts/build-arm64.sh
        return
    fi
    scripts/build.sh release "$build"
    scripts/build.sh test "$build/test"
    scripts/test-programs.sh attack "$build/attacks/attack"
    scripts/test-programs.sh driver "$build/drivers/commands-test" "$build/test"
    scripts/test-programs.sh driver "$build/drivers/links-test" "$build/test"
    scripts/test-programs.sh stand-in "$build/drivers/stand_in"
}

# The engine, what starts for JavaScript, and their tests; and the lanes of all tests.
write_engine() {
    local tree=$1
    mkdir -p "$tree/build/test/src/keeper"
    cp -p "$programs"/cove-{engine,js,keeper} "$tree/build/"
    cp -p "$programs"/test/cove-{engine,js,keeper} "$tree/build/test/"
    cp -p "$programs/test/src/keeper/build.h" "$tree/build/test/src/keeper/"
    cp -rp tests/engine tests/front tests/keeper tests/net tests/runner "$tree/tests/"
    mkdir "$tree/tests/kernel"
    cp -p tests/kernel/{conftest,test_cove_js}.py "$tree/tests/kernel/"
    mkdir "$tree/scripts"
    cp -p scripts/{lane,test}.py "$tree/scripts/"
}

# Of x86-64 the unit tests have run on this machine, under the sanitizers.
write_units() {
    local tree=$1
    mkdir "$tree/build/test/tests"
    grep -v '^#' tests/vm/units | while read -r name; do
        cp -p "$programs/test/tests/$name" "$tree/build/test/tests/"
    done
    cp -p "$programs/test/tests/kernel-test.image" "$tree/build/test/tests/"
}

# Packages, and the programs that try them. Roots and images are large: they come by a disk of their own.
write_packed() {
    local tree=$work/${of}tree/cove
    mkdir -p "$tree/build/packed" "$tree/docs" "$tree/tests"
    cp -rp scripts "$tree/"
    cp -rp tests/vm "$tree/tests/"
    cp -p pytest.ini "$tree/"
    cp -p docs/container.md "$tree/docs/"
    printf 'more_arguments=-s\n' >"$tree/vm.conf"
    tar -c -f "$work/${of}tree.tar" -C "$work/${of}tree" cove
    rm -rf "$work/${of}tree"
    rm -f "$work/${of}disk.ext4"
    mkfs.ext4 -q -F -O ^has_journal -m 0 -d "$packed" "$work/${of}disk.ext4" 4G
}

# The second disk of a guest: a tar file that becomes /cove.
write_tree() {
    local tree=$work/cove
    rm -rf "$tree"
    mkdir -p "$tree/build/test" "$tree/tests"
    cp -p "$programs/cove" "$tree/build/"
    cp -p "$programs/test/cove" "$tree/build/test/"
    cp -rp "$programs/attacks" "$programs/drivers" "$tree/build/"
    cp -rp tests/box tests/lib tests/vm "$tree/tests/"
    cp -p pytest.ini "$tree/"
    write_engine "$tree"
    [ "$arch" = x86_64 ] || write_units "$tree"
    cp -p SECURITY.md "$tree/"
    {
        echo "export COVE_TEST_SCALE=${COVE_TEST_SCALE:-20}"
        printf 'more_arguments=%q\n' "${PYTEST_ARGS:-}"
    } >"$tree/vm.conf"
    tar -c -f "$work/tree.tar" -C "$work" cove
    rm -rf "$tree"
}

# Starts a guest; its console goes to a file. Sets `guest`.
start_guest() {
    local part=$1
    rm -f "$work/$part.console"
    truncate -s 0 "$work/$part.tar"
    truncate -s 16M "$work/$part.tar"
    : >"$work/$part.console"
    "${machine[@]}" -accel tcg,thread=multi,tb-size=512 -smp ${VM_SMP:-2} -m 2048 \
        -nodefaults -no-user-config -display none -no-reboot \
        -serial "file:$work/$part.console" \
        -kernel "$work/kernel" -initrd "$work/initramfs.cpio" \
        -append "$kernel_words $kernel_words_of_all part=$part" \
        -device virtio-rng-pci \
        -drive "file=$work/root.ext4,format=raw,if=virtio,snapshot=on,cache=unsafe" \
        -drive "file=$work/${of}tree.tar,format=raw,if=virtio,readonly=on" \
        -drive "file=$work/$part.tar,format=raw,if=virtio,cache=unsafe" \
        -drive "file=$work/root.ext4,format=raw,if=virtio,readonly=on,file.locking=off" \
        "${more_devices[@]}" \
        </dev/null &
    guest=$!
}

# Waits until the guest has said WORD on its console or is gone, or SECONDS are over.
wait_for_word() {
    local part=$1 word=$2 deadline=$((SECONDS + $3))
    until grep -q "guest: $word" "$work/$part.console"; do
        kill -0 "$guest" 2>/dev/null && [ $SECONDS -lt $deadline ] || return 1
        sleep 0.2
    done
}

stop_guest() {
    kill -9 "$guest" 2>/dev/null || true
    wait "$guest" 2>/dev/null || true
}

# One part, to its end: a boot that hangs is tried once more.
run_part() {
    local part=$1 try
    rm -f "$work/$part.xml"
    for try in first second; do
        start_guest "$part"
        trap 'stop_guest' EXIT
        trap 'exit 143' TERM
        tail -n +1 --pid="$guest" -s 0.5 -f "$work/$part.console" |
            sed -u "s/\r//g; s/^/$part: /" &
        if wait_for_word "$part" up "$boot_seconds"; then
            break
        fi
        stop_guest
        echo "$part: the $try boot hangs"
    done
    wait_for_word "$part" over "$run_seconds" || echo "$part: the guest has not come to an end"
    # It switches itself off.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$guest" 2>/dev/null && sleep 0.5
    done
    stop_guest
    tar -x -O -f "$work/$part.tar" results.xml >"$work/$part.xml" 2>/dev/null || {
        echo "$part: no results; the console ends so:"
        tail -n 40 "$work/$part.console"
        rm -f "$work/$part.xml"
        return 1
    }
}

[ "$(id -u)" = 0 ] || {
    echo "test-vm.sh: root is needed to make the guest's root file system" >&2
    exit 1
}
mkdir -p "$work"
scripts/vm-root.sh "$debian" "$work"
more_devices=()
if [ -n "$packed" ]; then
    write_packed
    more_devices=(-drive "file=$work/${of}disk.ext4,format=raw,if=virtio,readonly=on"
        -netdev 'user,id=net,ipv6=off' -device 'virtio-net-pci,netdev=net,romfile=')
else
    build_programs
    write_tree
fi

status=0
# Who stops this stops the guests.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
for part in $parts; do
    run_part "$part" &
done
while [ "$(jobs -rp | wc -l)" -gt 0 ]; do
    wait -n || status=1
done
# shellcheck disable=SC2046 # words
scripts/count.py $(printf "$work/%s.xml " $parts) || status=1
exit "$status"
