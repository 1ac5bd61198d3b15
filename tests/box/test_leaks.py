"""Entries 57 to 64 of the list of escapes: what of the host, of the caller or of a neighbour shows
in a box."""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading

import pytest

import harness
from harness import EXPECT, attack, run

pytestmark = pytest.mark.wall


@pytest.fixture(params=["plain", "system"])
def privileges(request):
    return ("--privileges", request.param)


def test_57_fds_of_the_caller_stay_out(privileges):
    descriptors = []
    for _ in range(50):
        descriptor = os.open("/etc/passwd", os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        descriptors.append(descriptor)
    try:
        more = {"close_fds": False}
        result = run(["/attack/attack", 57], "--mount", harness.ATTACK_MOUNT, *privileges, **more)
        checks = harness.attack_lines(result.stdout)
        assert checks and all(check["walled"] for check in checks), checks
        listing = run("ls /proc/self/fd", *privileges, **more)
        assert listing.stdout.split() == ["0", "1", "2", "3"]  # 3 is ls's own
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_57_no_process_of_cove_keeps_an_fd_of_the_caller(tmp_path):
    """The guard outlives a killed cove: what it held open would stay open."""
    path = tmp_path / "held"
    path.write_text("x")
    with open(path, encoding="ascii") as file:
        os.set_inheritable(file.fileno(), True)
        box = harness.start("sleep 60", close_fds=False)
    try:
        harness.wait_for(lambda: harness.box_processes(box), what="the box")
        for pid in harness.children_of(box.pid):
            if not os.access(f"/proc/{pid}/fd", os.R_OK):  # as those in the box are, but for root
                assert (pid in harness.box_processes(box) or
                        harness.status_of(pid).get("Name") == "cove-guard")
                continue
            for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    assert os.readlink(descriptor) != str(path)
                except FileNotFoundError:
                    continue
    finally:
        harness.end(box)


def test_58_environment_of_the_caller_is_not_visible(privileges):
    secret = "cove-secret-4711"
    result, _ = attack(58, secret, options=privileges, )
    environment = dict(os.environ, COVE_SECRET=secret)
    result = run(["/attack/attack", 58, "no-such-word", ], "--mount", harness.ATTACK_MOUNT,
                 *privileges, env=environment)
    assert all(check["walled"] for check in harness.attack_lines(result.stdout))
    shown = run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null", *privileges,
                env=environment)
    assert secret not in shown.stdout


def test_58_coves_own_command_line_is_not_visible():
    shown = run("cat /proc/*/cmdline", "--env", "TOKEN=hidden-4711").stdout
    assert "hidden-4711" not in shown and "--json" not in shown


def test_59_unix_sockets_of_the_host(privileges, tmp_path):
    name = f"cove-attack-{os.getpid()}"
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind("\0" + name)
        abstract.listen()
        named.bind(str(path))
        named.listen()
        attack(59, name, path, options=privileges)


def test_59_abstract_sockets_of_a_neighbour():
    script = ("import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('\\0neighbour'); "
              "s.listen(); print('listening', flush=True); time.sleep(60)")
    neighbour = harness.start(["/usr/bin/python3", "-c", script])
    try:
        assert neighbour.stdout.readline() == b"listening\n"
        attack(59, "neighbour")
    finally:
        harness.end(neighbour)


# Of nobody else who runs these tests here.
KEY = 0x63000000 | os.getpid()


def host_ipc(key, create):
    libc = ctypes.CDLL(None, use_errno=True)
    flags = 0o1666 if create else 0
    shared, semaphores, messages = (libc.shmget(key, 4096, flags), libc.semget(key, 1, flags),
                                    libc.msgget(key, flags))
    return libc, shared, semaphores, messages


def test_60_ipc_of_the_host(privileges):
    libc, shared, semaphores, messages = host_ipc(KEY, True)
    queue = libc.mq_open(b"/cove-attack", os.O_CREAT | os.O_RDWR, 0o666, None)
    memory = pathlib.Path(f"/dev/shm/covetest-{os.getpid()}")
    memory.write_text("x")
    try:
        assert min(shared, semaphores, messages) >= 0
        attack(60, KEY, options=privileges)
    finally:
        libc.shmctl(shared, 0, None)
        libc.semctl(semaphores, 0, 0)
        libc.msgctl(messages, 0, None)
        if queue >= 0:
            libc.mq_unlink(b"/cove-attack")
            os.close(queue)
        memory.unlink()


def test_60_ipc_of_a_neighbour():
    script = ("import ctypes, time; c = ctypes.CDLL(None); "
              f"k = {KEY}; "
              "made = min(c.shmget(k, 4096, 0o1666), c.semget(k, 1, 0o1666), c.msgget(k, 0o1666)); "
              f"assert (made >= 0) == {EXPECT.has_cgroup}; "
              "open('/dev/shm/x', 'w'); print('made', flush=True); time.sleep(60)")
    neighbour = harness.start(["/usr/bin/python3", "-c", script])
    try:
        assert neighbour.stdout.readline() == b"made\n"
        attack(60, KEY)
        _, *ids = host_ipc(KEY, False)
        assert ids == [-1, -1, -1]
    finally:
        harness.end(neighbour)


def test_61_socket_families_and_the_network(privileges):
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        attack(61, server.getsockname()[1], options=privileges)
        try:
            accepted.append(server.accept())
        except TimeoutError:
            pass
    assert accepted == []


def test_61_the_boxs_own_loopback_works():
    script = ("import socket; s = socket.create_server(('127.0.0.1', 0)); "
              "c = socket.create_connection(s.getsockname()); a, _ = s.accept(); a.send(b'hello'); "
              "print(c.recv(9).decode()); "
              "t = socket.create_server(('::1', 0), family=socket.AF_INET6); "
              "socket.create_connection(t.getsockname()[:2]); print('six')")
    result = run(["/usr/bin/python3", "-c", script])
    assert result.stdout.split() == ["hello", "six"], result.stderr


@pytest.mark.parametrize("root", ["host", "image"])
def test_62_the_host_does_not_show(privileges, root, busybox, tmp_path):
    """Neither where the caller is, nor where its directories and the box's root are."""
    named = tmp_path / f"covetest-named-{os.getpid()}"
    shutil.copytree(busybox, named / "root", symlinks=True)
    options = (*privileges, *(("--root", named / "root") if root == "image" else ()))
    here = {name: str(named) for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    attack(62, os.uname().nodename, named.name, "/var/lib", "/srv/", "/opt/", "overlay2", "docker",
           options=options, cwd=named, env={**os.environ, **here})


def test_62_a_place_that_shows_is_noticed(tmp_path):
    """Of a mount beside the attack's own: the kernel says of a bind where it lies on its file system."""
    named = tmp_path / f"covetest-named-{os.getpid()}"
    named.mkdir()
    result = run(["/attack/attack", 62, "no-host", named.name], "--mount", harness.ATTACK_MOUNT,
                 "--mount", f"{named}:/named:ro")
    through = [check["check"] for check in harness.attack_lines(result.stdout) if not check["walled"]]
    assert through == ["paths of the host in mountinfo"], through


def test_62_the_uptime_is_the_boxs():
    result = run("cat /proc/uptime; uptime; ps -o etimes= -p 1; cat /proc/loadavg")
    uptime = float(result.stdout.split()[0])
    if harness.kernel() >= (6, 3):  # a new time namespace is entered by exec only from there on
        assert uptime < 30 < float(pathlib.Path("/proc/uptime").read_text().split()[0])
    assert result.stdout.splitlines()[-1].startswith("0.00 0.00 0.00 ")


def test_62_the_process_list_is_the_boxs():
    result = run("ps -e -o pid=,comm=; ls -d /proc/[0-9]* | wc -l")
    assert re.search(r"^\s*1 ", result.stdout) and len(result.stdout.splitlines()) <= 6


def box_ids(process):
    """The host ids of a box, as the kernel maps them, users' and groups' the same."""
    pid = harness.wait_for(lambda: harness.box_processes(process), what="the box")[0]
    maps = [pathlib.Path(f"/proc/{pid}/{name}").read_text().split() for name in ("uid_map",
                                                                                 "gid_map")]
    assert maps[0] == maps[1]
    lines = list(zip(*[iter(map(int, maps[0]))] * 3))
    return {first: inside for inside, outside, count in lines
            for inside, first in enumerate(range(outside, outside + count), inside)}


def reserved_ranges():
    ranges = []
    for name in ("/etc/subuid", "/etc/subgid"):
        if os.path.exists(name):
            for line in pathlib.Path(name).read_text().splitlines():
                fields = line.split(":")
                if len(fields) == 3:
                    ranges.append((int(fields[1]), int(fields[1]) + int(fields[2])))
    return ranges


def test_63_no_two_boxes_share_ids(privileges):
    boxes = [harness.start("sleep 60", *privileges) for _ in range(8)]
    try:
        found = [box_ids(box) for box in boxes]
        if EXPECT.ids == "single":
            assert all(list(ids) == [os.getuid()] for ids in found)
        else:
            assert sum(map(len, found)) == len(set().union(*found))
            assert all(EXPECT.is_box_id(uid) for ids in found for uid in (min(ids), max(ids)))
        if EXPECT.is_root:
            for ids in found:
                first = min(ids)
                assert first % 65536 == 0 and len(ids) == 65536
                assert not any(first < end and low < first + 65536
                               for low, end in reserved_ranges())
        for box in boxes:
            for pid in harness.box_processes(box):
                assert os.stat(f"/proc/{pid}").st_uid != 0
    finally:
        for box in boxes:
            harness.end(box)


def test_63_a_neighbour_cannot_be_signalled_or_seen():
    neighbour = harness.start("sleep 60")
    try:
        pids = harness.wait_for(lambda: harness.box_processes(neighbour), what="the box")
        numbers = " ".join(map(str, pids))
        result = run(f"for pid in {numbers}; do test $pid -gt 20 && kill -9 $pid; done; kill -9 -1; true",
                     "--privileges", "system")
        assert result.report["exit_code"] in (0, None, 137)
        assert neighbour.poll() is None
    finally:
        harness.end(neighbour)


def test_64_processes_are_killed_by_pidfd_or_group_only(tmp_path):
    """A pid may be another process's by the time it is used."""
    assert shutil.which("strace"), "strace is among the packages for tests"
    for command, option in ((["/bin/true"], ()), (["sleep", "60"], ("--timeout", "300ms")),
                            (["sh", "-c", "sleep 60 & echo"], ())):
        log = tmp_path / "log"
        subprocess.run(
            ["strace", "-f", "-qq", "-o", log, "-e", "trace=kill,tkill,tgkill,rt_sigqueueinfo",
             str(harness.COVE), "run", *option, "--", *command],
            capture_output=True, check=False, timeout=60 * harness.PATIENCE)
        calls = [line for line in log.read_text().splitlines()
                 if re.search(r"\b(kill|tkill|tgkill|rt_sigqueueinfo)\(", line)]
        assert not calls, calls


def test_64_a_command_that_ended_is_not_signalled():
    """Signals that arrive while the box goes down meet nobody else."""
    victim = subprocess.Popen(["sleep", "60"])
    stop = threading.Event()

    def storm(box):
        while not stop.is_set() and box.poll() is None:
            box.send_signal(signal.SIGUSR1)

    try:
        for _ in range(harness.scaled(20, 3)):
            box = harness.start("true")
            thread = threading.Thread(target=storm, args=(box,))
            stop.clear()
            thread.start()
            box.wait(timeout=60 * harness.PATIENCE)
            stop.set()
            thread.join()
            harness.end(box)
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
