"""Tenants that write more than the file system under the data directory has: they alone find their disks full."""
import concurrent.futures
import os
import subprocess

import pytest

import harness
import serving
from sandboxes import make, new_key, printed, run, start
from small_disk import SmallDisk, ext4_mount

MIB = 1 << 20
HEADROOM = 256 * MIB
CONFIG = "[boxes]\npool = 0\nmemory = 512M\nheadroom_disk = 256M\ndisk_overcommit = 1000\n"
PERSISTENT = {"privileges": "system", "disk_kind": "persistent", "resources": {"disk_bytes": 1000 * MIB}}
# Each line that comes is one that is safe on the disk.
WRITES_ON = ("i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); head -c 100000 /dev/zero >/tmp/w$((i%50)) && "
             "sync /tmp/w$((i%50)) && touch /tmp/m$i && rm /tmp/m$i || exit 1; sleep 0.02; done; echo $i")


@pytest.fixture
def full_soon(tmp_path, request):
    """Little more is left than makes room short: a box can have that in its caches at once."""
    before = getattr(request, "param", "")
    with SmallDisk(tmp_path, before + ext4_mount(tmp_path, 1200 * MIB), clock=False, config=CONFIG) as serve, \
            serve.client() as operator:
        serve.take(left=2 * HEADROOM + 100 * MIB)
        hog, victim = (serve.tcp(new_key(operator, tenant=name)["secret"]) for name in ("hog", "victim"))
        with hog, victim:
            yield serve, hog, victim


def writes_on(victim):
    path = make(victim, **PERSISTENT)
    return path, start(victim, path, WRITES_ON)


def was_well(serve, victim, path, process):
    """It has written all the while, and writes more than a little still."""
    assert printed(victim, path, "head -c 20000000 /dev/zero >/tmp/more && sync /tmp/more && "
                                 "touch /tmp/stop && echo well") == "well\n"
    assert victim.get(f"{process}/wait").json["exit_code"] == 0, victim.get(f"{process}/output").bytes
    assert int(victim.get(f"{process}/output").bytes) > 5
    assert serve.free() > HEADROOM / 2


def test_a_tenant_that_fills_the_hosts_disk_finds_its_own_full_and_no_other(full_soon):
    serve, hog, victim = full_soon
    path, process = writes_on(victim)
    box = make(hog, **PERSISTENT)
    said = run(hog, box, "head -c 1500000000 /dev/zero >/tmp/big; echo $?; sync", timeout_ms=100000)
    assert "No space left on device" in said["stderr"] and said["stdout"].startswith("1\n"), said
    was_well(serve, victim, path, process)
    assert hog.get(box).json["state"] == "running", "nobody is ended for that"
    with serve.tcp(hog.key) as client:
        assert serving.Lines(client, "/v1/events", {"from": 1}).until("sandbox.disk_held")[-1]["sandbox"] in box
    answer = hog.ask("PUT", f"{box}/files", b"x" * (4 * MIB), query={"path": "/tmp/up"})
    assert answer.refusal == (507, "disk_full") and "host" in answer.json["detail"], answer
    assert "disk_held" in serve.said() and "disk_short" in serve.said()
    told = subprocess.run([harness.COVE, "cp", harness.COVE, f"{hog.get(box).json['id']}:/tmp/up"], check=False,
                          text=True, stderr=subprocess.PIPE,
                          env={**os.environ, "COVE_URL": f"http://127.0.0.1:{serve.port}", "COVE_API_KEY": hog.key})
    assert told.returncode != 0 and told.stderr.count("\n") == 1, told
    assert "host's disk is nearly full" in told.stderr and "make room" in told.stderr, told
    # Others are made and started still, and what it removes it may write again.
    other = make(victim, **PERSISTENT)
    assert victim.post(f"{other}/stop").status == 200 and victim.post(f"{other}/start").status == 200
    serve.give()
    again = "rm -f /tmp/big; head -c 50000000 /dev/zero >/tmp/again && sync /tmp/again && echo well"
    harness.wait_for(lambda: printed(hog, box, again) == "well\n", what="room again")


def test_a_tenant_that_has_taken_room_before_it_was_short_is_ended_alone(full_soon):
    """Blocks that are allocated and not written are the disk's already, and nobody can hold them. With a quarter of the
    usual headroom they may be written at a quarter of the rate that SECURITY.md names."""
    serve, hog, victim = full_soon
    path, process = writes_on(victim)
    boxes = [make(hog, **PERSISTENT) for _ in range(2)]

    def fill(box):
        with serve.tcp(hog.key) as client:
            return client.post(f"{box}/exec", {"timeout_ms": 60000, "command":
                "fallocate -l 500M /tmp/big; for i in $(seq 0 24); do dd if=/dev/zero of=/tmp/big bs=1M count=20 "
                "seek=$((i * 20)) conv=notrunc || exit; sleep 0.05; done; sync; echo end"})

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = list(pool.map(fill, boxes))
    was_well(serve, victim, path, process)
    reasons = [hog.get(box).json["reason"] for box in boxes]
    assert "host_full" in reasons, (reasons, said)
    with serve.tcp(hog.key) as client:
        assert serving.Lines(client, "/v1/events", {"from": 1}).until("sandbox.stopped")[-1]["reason"] == "host_full"


@pytest.mark.parametrize("full_soon", ["mount -t tmpfs none /sys/fs/ext4; "], indirect=True)
def test_where_disks_cannot_be_held_the_tenant_that_grows_most_is_ended_alone(full_soon):
    serve, hog, victim = full_soon
    path, process = writes_on(victim)
    box = make(hog, **PERSISTENT)
    start(hog, box, "for i in $(seq 80); do head -c 10000000 /dev/zero >/tmp/f$i; sync /tmp/f$i; done")
    harness.wait_for(lambda: hog.get(box).json["reason"] == "host_full", 30 * harness.PATIENCE, "its end")
    was_well(serve, victim, path, process)


def test_a_disk_is_held_after_an_upgrade_too(full_soon):
    serve, hog, victim = full_soon
    box = make(hog, **PERSISTENT)
    serve.reload()
    with serve.tcp(hog.key) as hog, serve.tcp(victim.key) as victim:
        path, process = writes_on(victim)
        said = run(hog, box, "head -c 1500000000 /dev/zero >/tmp/big; echo $?; sync", timeout_ms=100000)
        assert "No space left on device" in said["stderr"] and said["stdout"].startswith("1\n"), said
        was_well(serve, victim, path, process)
        assert hog.get(box).json["state"] == "running", "nobody is ended for that"
        assert hog.post(f"{box}/stop").status == 200 and hog.post(f"{box}/start").status == 200, "its disk is let go"
