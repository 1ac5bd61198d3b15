"""The `system` profile: what agents expect of a machine (apt, su, sudo, chown) works, and nothing
outside is any closer."""
import os
import pathlib
import subprocess

import pytest

import harness
from harness import EXPECT, run

SYSTEM = ("--privileges", "system")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A .deb with a program, a set-id program, a file of another owner and a script that runs."""
    tree = tmp_path_factory.mktemp("covetest-deb") / "hello-box"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: hello-box\nVersion: 1.0\nArchitecture: all\nMaintainer: none <none@localhost>\n"
        "Description: a package for tests\n")
    (tree / "DEBIAN/postinst").write_text(
        "#!/bin/sh\nset -e\nuseradd --system hello-daemon\nchown hello-daemon /usr/bin/hello-box\n"
        "echo configured > /etc/hello-box.state\n")
    (tree / "DEBIAN/postinst").chmod(0o755)
    for name, mode in (("hello-box", 0o755), ("hello-setid", 0o4755)):
        (tree / "usr/bin" / name).write_text("#!/bin/sh\necho hello from the package\n")
        (tree / "usr/bin" / name).chmod(mode)
    target = tree.with_suffix(".deb")
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, target], check=True,
                   capture_output=True)
    return target


def test_apt_get_installs_a_local_package(debian, package):
    script = ("apt-get install -y /package/hello-box.deb >/tmp/log 2>&1 || cat /tmp/log; hello-box; "
              "cat /etc/hello-box.state; stat -c '%U %a' /usr/bin/hello-box /usr/bin/hello-setid; "
              "dpkg -s hello-box | grep Status; apt-get remove -y hello-box >/dev/null 2>&1; "
              "test ! -e /usr/bin/hello-box && echo removed")
    result = run(script, "--root", debian, *SYSTEM, "--mount", f"{package.parent}:/package:ro",
                 "--timeout", "60s")
    assert result.stdout.splitlines() == [
        "hello from the package", "configured", "hello-daemon 755", "root 4755",
        "Status: install ok installed", "removed"], (result.stdout, result.stderr)
    assert not (debian / "usr/bin/hello-box").exists()
    assert not (debian / "etc/hello-box.state").exists()


def test_a_package_with_set_id_programs_says_so_beside_a_writable_bind(debian, package, workspace):
    result = run("dpkg -i /package/hello-box.deb", "--root", debian, *SYSTEM, "--workspace",
                 workspace,
                 "--mount", f"{package.parent}:/package:ro", "--timeout", "60s")
    assert result.report["exit_code"] != 0 and "not permitted" in result.stderr


def test_chown_and_modes(debian):
    script = ("cd /tmp && touch f && chown 123:321 f && stat -c '%u %g' f && chmod 4755 f && "
              "stat -c %a f && mkdir d && chgrp 50 d && chmod g+s d && touch d/x && stat -c %g d/x")
    for root in ((), ("--root", debian)):
        result = run(script, *SYSTEM, *root)
        assert result.stdout.split() == ["123", "321", "4755", "50"], result.stderr


def test_su(debian):
    result = run("su user -c 'id -u; id -un; echo $HOME; grep -E \"^Cap(Prm|Eff)\" /proc/self/status'",
                 "--root", debian, *SYSTEM)
    lines = result.stdout.split()
    assert lines[:3] == ["1000", "user", "/home/user"], result.stderr
    assert lines[4] == lines[6] == "0" * 16


def test_su_back_to_root_asks_for_a_password(debian):
    result = run("su user -c 'su root -c id'", "--root", debian, *SYSTEM, send=b"guess\n")
    assert result.report["exit_code"] != 0 and "uid=0" not in result.stdout


def test_sudo(debian):
    result = run("id -u; sudo id -u; sudo -u nobody id -un; sudo chown root /home/user; "
                 "stat -c %U /home/user", "--root", debian, *SYSTEM, "--user", "user")
    assert result.stdout.split() == ["1000", "0", "nobody", "root"], result.stderr


def test_sudo_gains_nothing_in_plain(debian):
    result = run("sudo -n id -u", "--root", debian)
    assert result.report["exit_code"] != 0 and result.stdout == ""
    assert "no new privileges" in result.stderr


def test_users_can_be_made(debian):
    result = run("useradd -m -s /bin/sh agent && su agent -c 'cd; pwd; touch x; stat -c %U x' && "
                 "passwd -d agent >/dev/null && groupadd team && usermod -aG team agent && id -Gn agent",
                 "--root", debian, *SYSTEM)
    assert result.stdout.split() == ["/home/agent", "agent", "agent", "team"], result.stderr


def test_capabilities_can_be_set_on_files_inside(debian):
    result = run("cp /bin/cat /tmp/cat && setcap cap_net_bind_service+ep /tmp/cat && getcap /tmp/cat",
                 "--root", debian, *SYSTEM)
    assert result.stdout.strip() == "/tmp/cat cap_net_bind_service=ep", result.stderr


def test_a_low_port_can_be_bound():
    result = run(["/usr/bin/python3", "-c",
                  "import socket; s = socket.create_server(('', 80)); print(1)"],
                 *SYSTEM)
    assert result.stdout == "1\n", result.stderr


def test_kill_of_another_users_process(debian):
    result = run("su user -c 'sleep 60 &'; until pgrep -u user -x sleep >/dev/null; do sleep 0.05; done; "
                 "pkill -u user -x sleep; echo $?; "
                 "for i in $(seq 200); do pgrep sleep >/dev/null || break; sleep 0.05; done; pgrep sleep; echo $?", "--root", debian, *SYSTEM)
    assert result.stdout.split() == ["0", "1"], result.stderr


def test_root_of_the_box_is_nobody_outside(debian):
    """Or the caller, whose files the image's are, and who is not root."""
    box = harness.start("echo ready; sleep 60", "--root", debian, *SYSTEM)
    assert box.stdout.readline() == b"ready\n"
    try:
        pids = harness.box_processes(box)
        assert len(pids) >= 2
        for pid in pids:
            fields = dict(line.split(":", 1) for line in
                          pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":"
                          in line)
            for key in ("Uid", "Gid"):
                ids = [int(number) for number in fields[key].split()]
                assert all(EXPECT.is_box_id(number) or number == os.getuid() != 0 for number in ids)
    finally:
        harness.end(box)


def test_files_of_the_host_stay_out_of_reach(tmp_path):
    """A file that the caller may read, named by the caller's mount, and its neighbours."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "mine").chmod(0o600)
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "theirs").chmod(0o600)
    foreign = harness.give_away(tmp_path / "theirs")
    result = run("cat /data/mine; cat /data/theirs; chown 0 /data/theirs; chmod 777 /data/theirs; "
                 "echo x > /data/theirs; rm -f /data/new; echo n > /data/new", "--mount",
                 f"{tmp_path}:/data", *SYSTEM)
    assert result.stdout == "mine" and result.stderr.count("theirs") == 4, result.stderr
    status = (tmp_path / "theirs").stat()
    assert (status.st_size, status.st_mode & 0o777, status.st_uid) == (6, 0o600, foreign)
    assert (tmp_path / "new").stat().st_uid == os.getuid()


def test_the_hosts_root_is_read_only_for_root_of_the_box_too():
    result = run("echo x > /usr/file; rm /usr/bin/env; mount -o remount,rw /; apt-get update",
                 *SYSTEM)
    assert result.report["exit_code"] != 0 and result.stderr.count("Read-only") >= 2
    assert os.path.exists("/usr/bin/env")


ADD = """
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
EVERYTHING, CHANGES = 0xfff, 0xfce

def add(path, mask=EVERYTHING):
    fd = libc.inotify_init1(os.O_CLOEXEC)
    watch = libc.inotify_add_watch(fd, path.encode(), mask)
    print(path, "taken" if watch > 0 else os.strerror(ctypes.get_errno()))
    os.close(fd)
"""
ADDS = """
os.makedirs("/tmp/new/here")
os.chmod("/tmp/new", 0o711)
add("/root")
add("/dev/fd/0")
thread = threading.Thread(target=add, args=("/tmp/new",))
thread.start()
thread.join()
os.chdir("/tmp")
add("new/here")
add("nothing")
if os.fork() == 0:
    os.setgroups([])
    os.setgid(1000)
    os.setuid(1000)
    add("/tmp", CHANGES)
    add("/tmp")
    os.execlp("python3", "python3", "-c", os.environ["ADD"] + "add('/tmp'), add('/tmp/new'), add('/tmp/new/here')")
os.wait()
os.chroot("/tmp/new")
add("/here")
add("/tmp")
"""
ADDED = """/root taken
/dev/fd/0 taken
/tmp/new taken
new/here taken
nothing No such file or directory
/tmp taken
/tmp Permission denied
/tmp taken
/tmp/new Permission denied
/tmp/new/here taken
/here taken
/tmp No such file or directory
"""


def test_a_watch_is_added_with_the_rights_and_the_names_of_whoever_asks():
    """The fifth line but one is of a process that gave up its ids, so that no other may look into it."""
    result = run(["python3", "-uc", ADD + ADDS], *SYSTEM, "--env", f"ADD={ADD}")
    assert result.stdout == ADDED, result.report
