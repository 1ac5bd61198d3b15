"""Entries 29, 30, 32 to 38, 74 and 75 of the list of escapes: files, mounts and devices."""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

import pytest

import harness
from harness import ATTACK_MOUNT, EXPECT, attack, run

pytestmark = pytest.mark.wall


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


SYSTEM = ("--privileges", "system")


@pytest.mark.parametrize("words, privileges", [((), "plain"), (("own",), "system")], ids=["plain", "system"])
def test_29_what_is_the_hosts_cannot_be_written(words, privileges):
    """To a plain box the root is the host's, too."""
    attack(29, *words, options=("--privileges", privileges))
    assert not pathlib.Path("/usr/bin/cove-was-here").exists()
    assert not pathlib.Path("/cove-was-here").exists()


def test_29_root_of_a_system_box_writes_at_the_root():
    script = ("mkdir /workspace /app && echo hello >/hello.txt && touch /opt/x /srv/x /var/x /run/x && "
              "mv /hello.txt /workspace && mv /tmp /workspace/tmp && cat /workspace/hello.txt && stat -c %U:%a / /app")
    result = run(script, *SYSTEM)
    assert result.stdout.split() == ["hello", "root:755", "root:755"], result.stderr


@pytest.fixture
def bound(tmp_path):
    source = tmp_path / "bound"
    source.mkdir()
    source.chmod(0o777)
    return source


def test_29_each_directory_above_binds_is_held_once(bound):
    """Mounts are the host's, and a mount that took along those below it would double them with each bind."""
    binds = [word for number in range(12) for word in ("--mount", f"{bound}:/one/two/three/four/five/x{number}:ro")]
    rename = "import os\nfor path in '/one', '/one/two/three/four/five':\n try: os.rename(path, path + 'x')\n except OSError as e: print(e.errno)"
    result = run(f'grep -c " /one" /proc/self/mountinfo; python3 -c "{rename}"', *SYSTEM, *binds)
    assert result.stdout == "17\n16\n16\n", result


def test_29_a_bind_on_or_below_etc_changes_nothing_else_of_it(bound):
    result = run("touch /etc/own && ls /etc", *SYSTEM, "--mount", f"{bound}:/etc")
    assert result.stdout == "own\n", result.stderr
    result = run("touch /etc/ssl/foo/own && ls /etc/ssl/foo; touch /etc/x /etc/ssl/x", *SYSTEM, "--mount", f"{bound}:/etc/ssl/foo")
    assert result.stdout == "own\n" and result.stderr.count("Read-only file system") == 2, result


def test_29_another_user_of_a_system_box_writes_at_home_and_not_at_the_root():
    result = run("touch /x; mkdir /app; touch ~/x /tmp/x && ls /", *SYSTEM, "--user", "user")
    assert result.stderr.count("Permission denied") == 2 and "app" not in result.stdout, result


def test_29_a_plain_box_has_no_root_to_write_to():
    result = run("touch /x; mkdir /app; touch /opt/x ~/x /tmp/x; ls /")
    assert "x" not in result.stdout.split() and "app" not in result.stdout, result
    assert result.stderr.count("Read-only") >= 2, result.stderr


def test_29_what_is_written_at_the_root_counts_against_the_disk():
    script = "head -c 64M /dev/zero >/big; stat -c %s /big; head -c 4M /dev/zero >/tmp/more; stat -c %s /tmp/more"
    result = run(script, *SYSTEM, "--disk", "16M")
    assert result.stderr.count("No space left") == 2, result
    big, more = map(int, result.stdout.split())
    assert 8 << 20 < big <= 18 << 20 and big + more <= 18 << 20, result.stdout
    script = "mkdir /many; seq 3000 | sed s,^,/many/, | xargs touch 2>/dev/null; ls /many | wc -l"
    result = run(script, *SYSTEM, "--disk", "16M,1000")
    assert 500 < int(result.stdout) <= 1256, result


def test_29_who_replaces_links_and_directories_of_the_root_replaces_its_own():
    script = ("set -e; rm /bin /lib64; mkdir /bin /lib64; printf '#!/bin/evil' >/bin/sh; "
              "ln -s /etc /sbin/x 2>/dev/null || true; mv /home /away; /usr/bin/env true")
    before = {name: os.readlink(f"/{name}") for name in os.listdir("/") if os.path.islink(f"/{name}")}
    run(script, *SYSTEM)
    assert before == {name: os.readlink(f"/{name}") for name in os.listdir("/") if os.path.islink(f"/{name}")}
    result = run("readlink /bin; ls -d /home/user; ls /away; true", *SYSTEM)
    expected = [before["bin"]] if "bin" in before else []
    assert result.stdout.split() == [*expected, "/home/user"], result


def test_74_mounts_and_what_lies_above_them_stay_in_their_place(workspace):
    (workspace / "kept").write_text("kept")
    attack(74, options=(*SYSTEM, "--mount", f"{workspace}:/data/deep/ref:ro"))
    script = "mv /data /x; mv /data/deep /data/x; rm -rf /data; mkdir -p /data/deep/ref; cat /data/deep/ref/kept"
    result = run(script, *SYSTEM, "--mount", f"{workspace}:/data/deep/ref:ro")
    assert result.stdout == "kept" and result.stderr.count("busy") >= 2, result
    assert sorted(os.listdir(workspace)) == ["kept"]


def test_29_a_mount_lies_where_it_is_told_to_in_a_root_of_the_boxs_own(workspace):
    (workspace / "file").write_text("x")
    for target in ("/data", "/etc/app", "/opt/a/b", "/home/user/in", "/workspace/tree"):
        result = run(f"cat {target}/file; echo y >{target}/new", *SYSTEM, "--mount", f"{workspace}:{target}")
        assert result.stdout == "x" and (workspace / "new").read_text() == "y\n", (target, result)
        (workspace / "new").unlink()


def test_29_what_a_writable_root_takes_stays_in_the_box(debian):
    script = "echo changed > /etc/passwd; rm -rf /usr/share/bash-completion /usr/bin/env; touch /x"
    before = (digest(debian / "etc/passwd"), sorted(os.listdir(debian)),
              digest(debian / "usr/bin/env"))
    result = run(script + "; cat /etc/passwd; ls /x /usr/bin/env", "--root", debian, "--privileges",
                 "system")
    assert result.stdout == "changed\n/x\n"
    after = (digest(debian / "etc/passwd"), sorted(os.listdir(debian)),
             digest(debian / "usr/bin/env"))
    assert before == after


# ---- 30: images whose directories lead elsewhere -----------------------------------------------

LINKS = [("dev", "{outside}"), ("dev", "/etc"), ("proc", "{outside}"), ("sys", "{outside}"),
         ("tmp", "{outside}"), ("etc", "{outside}"), ("home", "{outside}"),
         ("dev", "../../..{outside}"),
         ("proc", "."), ("tmp", "/proc/1/root/tmp")]


@pytest.mark.parametrize("name, target", LINKS)
@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_30_a_symlink_in_an_image_leads_nowhere(name, target, privileges, busybox, tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    shutil.copytree(busybox, root, symlinks=True)
    outside.mkdir(mode=0o777)
    (outside / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (outside / "secret").write_text("secret\n")
    shutil.rmtree(root / name, ignore_errors=True)
    (root / name).symlink_to(target.format(outside=outside))
    script = f"/bin/cat /{name}/secret; echo bad > /{name}/escaped; ls /dev /proc/self/exe; true"
    result = harness.run_plain(["/bin/sh", "-c", script], "--root", root, "--privileges",
                               privileges)
    if result.code == 125:
        assert len(result.err.splitlines()) == 1, result.err
    else:
        assert result.code == 0, result.err
    assert b"secret\n" not in result.out.splitlines(keepends=True)
    assert sorted(os.listdir(outside)) == ["passwd", "secret"]
    assert (root / name).is_symlink()


@pytest.mark.parametrize("target", ["{outside}", "etc", "/etc"])
@pytest.mark.parametrize("place", ["/work", "/work/below", "/etc/work/below"])
def test_30_a_mount_goes_through_no_link_of_an_image(place, target, busybox, workspace, tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    shutil.copytree(busybox, root, symlinks=True)
    outside.mkdir()
    outside.chmod(0o777)
    link = root / place.removesuffix("/below").lstrip("/")
    link.symlink_to(target.format(outside=outside))
    result = harness.run_plain(["/bin/true"], "--root", root, "--mount", f"{workspace}:{place}")
    assert result.code == 125 and f"cannot use {place} as a mount target".encode() in result.err, result
    assert os.listdir(outside) == []


@pytest.mark.parametrize("name", ["dev", "proc", "sys", "tmp"])
def test_30_a_file_or_a_fifo_in_the_place_of_a_mount(name, busybox, tmp_path):
    for make in (lambda path: path.write_text("file"), os.mkfifo):
        root = tmp_path / f"root-{make.__name__.strip('<>')}"
        shutil.copytree(busybox, root, symlinks=True)
        shutil.rmtree(root / name, ignore_errors=True)
        make(root / name)
        before = (root / name).lstat()
        result = harness.run_plain(["/bin/sh", "-c", f"test -d /{name} && echo mounted || echo left"],
                                   "--root", root)
        # An image's own /tmp is not mounted over: it stays as it is, and is of no use.
        assert (result.code, result.out) == (0, b"left\n" if name == "tmp" else b"mounted\n"), result.err
        after = (root / name).lstat()
        assert (after.st_ino, after.st_mode, after.st_mtime) == (before.st_ino, before.st_mode, before.st_mtime)


# ---- 32: set-id ----------------------------------------------------------------------------------

@pytest.fixture(scope="session")
def set_id_root(debian, tmp_path_factory):
    """The programs of an attacker who made the image."""
    root = tmp_path_factory.mktemp("covetest-setid")
    for name, mode in (("setuid", 0o4755), ("setgid", 0o2755), ("caps", 0o755)):
        shutil.copy(harness.ATTACKS / "attack", root / name)
        (root / name).chmod(mode)
    # A user's capability counts in that user's namespaces, and the box is one.
    become = () if EXPECT.is_root else ("unshare", "--map-root-user")
    subprocess.run([*become, "setcap", "cap_sys_admin,cap_dac_override=ep", root / "caps"],
                   check=True)
    (root / "bin").mkdir()
    for name in ("etc", "tmp", "proc"):
        (root / name).mkdir()
    shutil.copy(debian / "etc/passwd", root / "etc/passwd")
    shutil.copy(debian / "etc/group", root / "etc/group")
    return root


@pytest.mark.parametrize("program", ["setuid", "setgid", "caps"])
def test_32_set_id_and_capabilities_gain_nothing_in_plain(program, set_id_root):
    result = run([f"/{program}", 32, "become"], "--root", set_id_root)
    checks = harness.attack_lines(result.stdout)
    values = {check["check"]: check.get("value") for check in checks}
    assert (values["euid"], values["egid"], values["CapEff"]) == (1000, 1000, 0)
    assert all(check["walled"] for check in checks)


@pytest.mark.parametrize("command",
                         [["su", "-c", "id"], ["sudo", "-n", "id"], ["chsh", "-s", "/bin/sh"],
                                     ["mount", "-t", "tmpfs", "none", "/tmp"], ["newgrp", "root"]])
def test_32_the_hosts_own_set_id_programs_gain_nothing(command):
    result = run(command, "--timeout", "5s")
    assert result.report["exit_code"] not in (0, None)
    assert "uid=0" not in result.stdout


def test_32_a_set_uid_program_in_system_is_root_of_the_box_only(set_id_root):
    result = run(["/setuid", 32], "--root", set_id_root, "--privileges", "system", "--user", "user")
    values = {check["check"]: check.get("value") for check in harness.attack_lines(result.stdout)}
    # Exactly what uid 0 of a system box has: no CAP_SYS_ADMIN among it.
    assert values["euid"] == 0 and values["CapEff"] == SYSTEM_CAPS
    capable = run(["/caps", 32], "--root", set_id_root, "--privileges", "system", "--user", "user")
    values = {check["check"]: check.get("value") for check in harness.attack_lines(capable.stdout)}
    assert values.get("CapEff", 0) & ~SYSTEM_CAPS == 0


SYSTEM_CAPS = sum(1 << cap for cap in (0, 1, 3, 4, 5, 6, 7, 10, 18, 31))


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_32_no_set_id_file_in_a_writable_bind(privileges, workspace):
    attack(32, "make", "/workspace", options=("--workspace", workspace, "--privileges", privileges))
    left = [path for path in workspace.rglob("*") if path.lstat().st_mode & 0o6000]
    assert left == []


def test_32_no_set_id_file_by_ordinary_tools_in_a_writable_bind(workspace):
    script = ("cp /bin/true a; chmod u+s a; chmod 2755 a; install -m 4755 /bin/true b; mkdir d; "
              "chmod g+s d; cp -a /bin/su c; tar --version > /dev/null; "
              "python3 -c 'import os; os.chmod(\"a\", 0o6755)'; true")
    result = run(script, "--workspace", workspace)
    assert "ermitted" in result.stderr
    assert [path for path in workspace.rglob("*") if path.lstat().st_mode & 0o6000] == []


def test_32_an_old_set_id_directory_gives_its_bit_to_no_file(workspace):
    workspace.chmod(0o2777)
    run("mkdir sub; touch file; cp /bin/true program", "--workspace", workspace)
    assert not (workspace / "file").stat().st_mode & 0o6000
    assert not (workspace / "program").stat().st_mode & 0o6000


# ---- 33 to 35 ----------------------------------------------------------------------------------

@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_33_devices(privileges, workspace):
    attack(33, options=("--privileges", privileges, "--workspace", workspace))
    assert list(workspace.iterdir()) == []


def test_33_device_nodes_of_an_image_do_not_open(busybox, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(busybox, root, symlinks=True)
    os.mknod(root / "mem", 0o020666, os.makedev(1, 1))
    os.mknod(root / "zero", 0o020666, os.makedev(1, 5))
    for privileges in ("plain", "system"):
        result = run(["/bin/sh", "-c", "head -c 1 /mem; head -c 1 /zero"], "--root", root,
                     "--privileges", privileges)
        assert result.report["exit_code"] != 0 and result.stdout == "", result.report


@pytest.mark.parametrize("root", ["directory", "erofs"])
def test_34_the_overlay_is_not_fooled(root, busybox, erofs):
    lower = busybox / "lower"
    for name in ("kept", "removed"):
        (lower / name).write_text(name)
    source = busybox
    if root == "erofs":
        source = erofs.with_name("lower.erofs")
        subprocess.run(["mkfs.erofs", source, busybox], check=True, capture_output=True)
    before = sorted((path.name, digest(path)) for path in lower.iterdir())
    attack(34, "/lower", options=("--root", source, "--privileges", "system"))
    assert sorted((path.name, digest(path)) for path in lower.iterdir()) == before
    assert not any(name.startswith("user.overlay") for name in os.listxattr(lower))


def test_34_copy_up_of_a_large_file_stops_at_the_limit(busybox, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(busybox, root, symlinks=True)
    with open(root / "large", "wb") as file:
        file.write(os.urandom(1 << 20) * 64)
    before = digest(root / "large")
    result = run(["/bin/sh", "-c", "echo more >> /large"], "--root", root, "--privileges", "system",
                 "--disk", "16M", "--memory", "128M")
    assert result.report["exit_code"] != 0 and "space" in result.stderr
    assert digest(root / "large") == before


def test_34_a_lower_directory_can_be_removed_and_made_again(busybox):
    # Not /etc itself: its resolv.conf is covered, and stays.
    script = "rm -r /lower /etc/passwd && mkdir /lower && ls /lower /etc/passwd; echo $?"
    result = run(["/bin/sh", "-c", script], "--root", busybox, "--privileges", "system")
    assert "No such file" in result.stderr and "kept" not in result.stdout
    assert (busybox / "etc/passwd").exists()


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_35_open_by_handle(privileges, workspace):
    attack(35, options=("--privileges", privileges, "--workspace", workspace))


# ---- 36: the workspace ---------------------------------------------------------------------------

@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_36_the_workspace_is_a_wall(privileges, workspace):
    (workspace / "kept").write_text("kept")
    (workspace / "foreign").write_text("foreign")
    (workspace / "foreign").chmod(0o644)
    foreign = harness.give_away(workspace / "foreign")
    (workspace.parent / "beside").write_text("beside")
    # Without a map of owners, root of a box may give its files to the ids that the box has.
    other = 4242 if EXPECT.is_root else 70000
    attack(36, other, options=("--workspace", workspace, "--privileges", privileges))
    assert (workspace / "foreign").stat().st_uid == foreign
    assert (workspace / "foreign").read_text() == "foreign"
    assert sorted(os.listdir(workspace)) == ["foreign", "kept"]


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_36_files_belong_to_the_caller_outside_and_to_the_user_inside(privileges, workspace):
    (workspace / "before").write_text("x")
    result = run("id -u; stat -c %u before; echo y > after; mkdir sub; ln -s x link; "
                 "stat -c %u after", "--workspace", workspace, "--privileges", privileges)
    uid = "1000" if privileges == "plain" else "0"
    assert result.stdout.split() == [uid, uid, uid], result.report
    for name in ("after", "sub", "link"):
        status = (workspace / name).lstat()
        assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())


def test_36_read_only_is_read_only(workspace):
    (workspace / "file").write_text("x")
    for option in (("--workspace", f"{workspace}:ro"), ("--mount", f"{workspace}:/workspace:ro")):
        result = run("cat file; echo y > file; touch new; rm file", *option, "--cwd", "/workspace")
        assert result.stdout == "x" and result.stderr.count("Read-only") == 3, result.stderr
    assert os.listdir(workspace) == ["file"] and (workspace / "file").read_text() == "x"


def test_36_flags_of_the_bind(workspace):
    result = run("grep ' /workspace ' /proc/self/mountinfo", "--workspace", workspace)
    flags = result.stdout.split()[5].split(",")
    assert set(EXPECT.bind_flags.split(",")) - {"ro"} <= set(flags)


def test_36_mounts_below_a_workspace_stay_out_or_are_as_confined(workspace):
    inner = workspace / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", inner], check=True)
    try:
        (inner / "file").write_text("x")
        os.mknod(inner / "zero", 0o020666, os.makedev(1, 5))
        script = "cat inner/file; head -c 1 inner/zero | wc -c; touch inner/new; stat -c %u inner"
        if harness.kernel() < (6, 3):  # owners of a tmpfs cannot be mapped there
            result = harness.run_plain(script, "--workspace", workspace)
            assert result.code == 125 and str(workspace) in result.stderr
            return
        result = run(script, "--workspace", workspace)
        assert "1\n" not in result.stdout.replace("1000\n", "")
        for path in inner.rglob("new"):
            assert path.stat().st_uid == os.getuid()
    finally:
        subprocess.run(["umount", inner], check=True)


def test_36_a_file_may_be_mounted(tmp_path):
    (tmp_path / "covetest.conf").write_text("setting\n")
    result = run("cat /home/user/deep/conf", "--mount",
                 f"{tmp_path}/covetest.conf:/home/user/deep/conf:ro")
    assert result.stdout == "setting\n"


# ---- 37 and 38 ---------------------------------------------------------------------------------

@pytest.mark.parametrize("root", ["host", "image"])
def test_37_nothing_of_the_box_before(root, debian):
    options = () if root == "host" else ("--root", debian)
    attack(37, "leave", options=options)
    attack(37, "look", options=options)


def test_38_locks_on_shared_files_do_not_hold_up_the_host():
    path = "/usr/bin/env"
    box = harness.start(["/attack/attack", 38, path, 30], "--mount", ATTACK_MOUNT)
    try:
        lines = [box.stdout.readline() for _ in range(6)]
        assert all(b'"walled": true' in line for line in lines), lines
        with open(path, "rb") as file:
            file.read()
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        subprocess.run([path, "true"], check=True, timeout=60 * harness.PATIENCE)
        if EXPECT.is_root:
            os.utime(path, ns=(os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns))
    finally:
        harness.end(box)


def test_38_the_channel_by_locks_is_documented():
    text = (harness.ROOT / "SECURITY.md").read_text().lower()
    assert "lock" in text and "page cache" in text


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_75_a_watch_on_what_is_shared_tells_nothing_of_reads(privileges):
    shared = ["/usr/bin/env", "/usr/bin", "/dev/null", "/attack/attack"]
    box = harness.start(["/attack/attack", 75, *shared], "--mount", ATTACK_MOUNT, "--privileges", privileges,
                        stdin=subprocess.PIPE)
    try:
        lines = list(iter(box.stdout.readline, b"ready\n"))
        run(["/bin/sh", "-c", "env true </dev/null; ls /usr/bin | tail -1; cat /attack/attack >/tmp/copy"],
            "--mount", ATTACK_MOUNT)
        subprocess.run(["/usr/bin/env", "true"], check=True)
        lines += box.communicate(b"read\n", timeout=60 * harness.PATIENCE)[0].splitlines()
    finally:
        harness.end(box)
    through = [line for line in lines if b'"walled": true' not in line]
    assert len(lines) == 15 and not through, lines


# ---- what the host profile shows -----------------------------------------------------------------

HIDDEN = ["/etc/shadow", "/etc/ssh", "/etc/sudoers", "/etc/gshadow", "/etc/machine-id",
          "/root/.bashrc",
          "/var/lib/dpkg", "/var/log", "/opt", "/srv", "/mnt", "/media", "/boot", "/run/lock",
          "/etc/cron.d", "/etc/environment", "/etc/krb5.keytab", "/etc/apt", "/etc/docker"]


@pytest.mark.parametrize("privileges", ["plain", "system"])
def test_the_host_profile_shows_nothing_private(privileges):
    result = run(["sh", "-c", 'for path; do test ! -e "$path" || echo "$path"; done', "sh",
                  *HIDDEN],
                 "--privileges", privileges)
    # Directories of a root of the box's own that have the names of the host's, and nothing in them.
    own = [] if privileges == "plain" else ["/opt", "/srv"]
    assert result.stdout.split() == own
    if own:
        assert run(["find", *own, "-mindepth", "1"], "--privileges", privileges).stdout == ""
    listing = run("ls -A / /home /var /run", "--privileges", privileges).stdout
    assert set(os.listdir("/home")) & set(listing.split()) <= {"user"}
    assert run("ls /etc/ssl/private").report["exit_code"] != 0


def test_the_host_profile_has_what_programs_need():
    script = ("getent passwd user; getent hosts localhost; ls /etc/ssl/certs/ca-certificates.crt; "
              "awk 'BEGIN { print 6 * 7 }'; ls -ld /tmp /home/user /dev/shm")
    result = run(script)
    assert result.report["exit_code"] == 0, result.stderr
    assert "user:x:1000:1000" in result.stdout and "42" in result.stdout


def test_writing_below_tmp_home_and_shm_works_and_moves_between_directories():
    script = ("cd /tmp && mkdir a b && echo x > a/f && mv a/f b/g && ln b/g b/h && cat b/h && "
              "cd ~ && mkdir c && touch c/d && mv c/d e && ls e && echo y > /dev/shm/z && "
              "touch /var/tmp/w && ls /tmp/w")
    result = run(script)
    assert result.report["exit_code"] == 0, result.stderr
    assert result.stdout.split() == ["x", "e", "/tmp/w"]


@pytest.mark.parametrize("descriptor", ["stdin", "stdout", "stderr"])
def test_a_directory_as_stdio_is_no_way_out(descriptor):
    """From a directory of the host, `..` leads to all of it."""
    directory = os.open("/usr", os.O_RDONLY | os.O_DIRECTORY)
    number = ("stdin", "stdout", "stderr").index(descriptor)
    try:
        above = f"/proc/self/fd/{number}/.."
        box = harness.start(f"cat {above}/etc/group {above}/../etc/group",
                            **{descriptor: directory})
        output, _ = box.communicate(timeout=20 * harness.PATIENCE)
    finally:
        os.close(directory)
    assert b"daemon" not in (output or b"")
    assert box.returncode == 125


def test_a_root_with_mounts_below_it_works_for_root_and_is_refused_with_the_remedy_for_others():
    result = harness.cove("run", "--root", "/", "--", "/bin/true")
    if harness.EXPECT.is_root:
        assert result.code == 0, result
    else:
        assert result.code == 125 and b"--root /:" in result.err and b"mounted below it" in result.err, result
