#!/usr/bin/python3
"""Installs what scripts/pack.sh packs into empty roots of Debian 12 and 13, and uses it there. First the archive, as its
README says; then the packages, as an operator does where no service manager runs: a first sandbox, a server, an upgrade
under a command that goes on, a purge of which nothing stays. Then the packages in a root that systemd has booted, as a
container. lintian reads the packages, and a second packing of the same build has to give the same bytes.

A root is made once, in BUILD/packages. Each is tried in a lane with the host's network, so that a process, a mount or
a cgroup that stays is named. Needs root, a way to Debian's packages, and minutes.

usage: BUILD=build scripts/test-packages.py [bookworm|trixie ...]
"""
import contextlib
import ctypes
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
BUILD = (HERE / os.environ.get("BUILD", "build")).resolve()
PLACE = BUILD / "packages"
SUITES = ("bookworm", "trixie")
OLD, NEW = "0.0~1", "0.0~2"
PATIENCE_S = 120
PREFIX = []  # of a command in the root, where this program is outside of it
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Directories in which apt, dpkg and a running system keep what is theirs.
NOT_COMPARED = ("dev", "proc", "sys", "tmp", "packages", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log")


def say(text):
    print(f"packages: {text}", flush=True)


def expect(is_so, text):
    if not is_so:
        raise SystemExit(f"packages: {text}")


def until(what, is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := is_so()):
        expect(time.monotonic() < deadline, f"it was waited {PATIENCE_S} s in vain for this: {what}")
        time.sleep(0.1)
    return found


# ---- outside: making packages and roots ----

def pack(kind, version, place):
    subprocess.run([HERE / "scripts" / "pack.sh", kind], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "BUILD": str(BUILD), "OUT": str(place), "VERSION": version})
    return sorted((place / kind).iterdir())


def hashes(files):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def make_packages(place):
    debs = pack("deb", OLD, place / "old")
    say("made: " + " ".join(file.name for file in debs))
    expect(len(debs) == 4, "there are not four packages")
    expect(hashes(debs) == hashes(pack("deb", OLD, place / "again")), "the same build was packed twice, and differs")
    subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", *debs], check=True)
    say("the same build gives the same bytes, and lintian has nothing to say")
    pack("deb", NEW, place / "new")
    pack("tarball", OLD, place / "old")


def make_root(suite):
    archive = PLACE / f"{suite}.tar"
    if not archive.exists():
        say(f"making a root of {suite}; this is done once")
        PLACE.mkdir(parents=True, exist_ok=True)
        unfinished = archive.with_suffix(".new.tar")
        subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", suite, unfinished], check=True)
        unfinished.rename(archive)
    return archive


def in_lanes(place, archives):
    failed = []
    for archive in archives:
        for how in INSIDE:
            if subprocess.run([HERE / "scripts" / "lane.py", "--host-network", f"packages-{archive.stem}", "--",
                               sys.executable, HERE / "scripts" / "test-packages.py", how, archive, place],
                              check=False).returncode != 0:
                failed.append(f"{archive.stem} {how}")
    expect(not failed, f"failed: {' '.join(failed)}")
    say("all passed")


def outside(suites):
    expect(os.geteuid() == 0, "only root can make the roots in which the packages are installed")
    with tempfile.TemporaryDirectory(prefix="packages-", dir=BUILD) as directory:
        place = pathlib.Path(directory)
        make_packages(place)
        in_lanes(place, [make_root(suite) for suite in suites])


# ---- inside: a root of its own, in a lane ----

def run_here(*words):
    subprocess.run(words, check=True)


def unpack(archive, place):
    root = pathlib.Path(tempfile.mkdtemp())
    root.chmod(0o755)
    run_here("tar", "-x", "-f", archive, "-C", root)
    for name in ("resolv.conf", "hosts", "subuid", "subgid"):  # the last two keep the ids of lanes apart
        shutil.copy(f"/etc/{name}", root / "etc" / name)
    for name in ("old", "new"):
        shutil.copytree(place / name / "deb", root / "packages" / name)
    for file in (place / "old" / "tarball").glob("*.tar.gz"):
        shutil.copy(file, root / "packages")
    return root


def enter(root):
    """Goes there for good. Not by chroot, in which no user namespace can be made."""
    expect(ctypes.CDLL(None).unshare(0x20000) == 0, "there is no mount namespace")  # CLONE_NEWNS
    for words in (["--bind", root, root], ["--rbind", "/dev", root / "dev"], ["--rbind", "/sys", root / "sys"],
                  ["-t", "proc", "proc", root / "proc"], ["-t", "tmpfs", "-o", "mode=755", "run", root / "run"]):
        run_here("mount", *words)
    os.chdir(root)
    (root / "host").mkdir()
    run_here("pivot_root", ".", "host")
    os.chdir("/")
    expect(ctypes.CDLL(None).umount2(b"/host", 2) == 0, "the host is still there")
    os.rmdir("/host")


def sh(script, check=True):
    """Returns all that it printed, which is shown where it fails."""
    ended = subprocess.run([*PREFIX, "/bin/bash", "-ec", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                           env={"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"})
    if check and ended.returncode != 0:
        with contextlib.suppress(OSError):
            print(pathlib.Path("/var/log/cove.log").read_text(encoding="utf-8"))
        raise SystemExit(f"packages: this failed with status {ended.returncode}: {script}\n{ended.stdout}")
    return ended.stdout


def files():
    found = set()
    for directory, below, names in os.walk("/"):
        here = directory.lstrip("/")
        below[:] = [name for name in below if os.path.join(here, name) not in NOT_COMPARED]
        found.update(os.path.join(here, name) for name in [*below, *names])
    return found


def users():
    """Names of users and groups, also where only a shadow of one is left; an empty root may have no such file yet."""
    return sorted(set(sh("sort -u /etc/passwd /etc/group | cut -d: -f1; grep -sh cove /etc/shadow /etc/gshadow || true").split()))


def programs():
    """Processes of cove: pid and the name of the program."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found[int(pid)] = os.readlink(f"/proc/{pid}/exe")
    return {pid: path for pid, path in found.items() if "cove" in os.path.basename(path)}


def engine():
    return [pid for pid, path in programs().items() if os.path.basename(path) == "cove-engine"]


def apt(words):
    return sh(f"apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 {words}")


def install(version):
    said = apt(f"install /packages/{version}/cove_*.deb /packages/{version}/cove-server_*.deb "
               f"/packages/{version}/libcove*.deb")
    expect("invoke-rc.d" not in said and "arning" not in said.replace("delaying package configuration", ""),
           f"the installation complains:\n{said}")


def archive_for_all():
    """As its README says, in place of packages; the engine has its libraries in it."""
    sh("mv /usr/local /usr/local.before; mkdir /usr/local /archive; cd /archive; "
       "tar -x --strip-components=1 -f /packages/*.tar.gz; sha256sum --check --quiet SHA256SUMS; "
       "bin/cove run -- true; cp=$(grep '^    cp -r' README); $cp")
    boxes()
    sh("rm -r /archive /usr/local; mv /usr/local.before /usr/local")


def boxes():
    sh("useradd --create-home someone")
    for user in ("root", "someone"):
        said = sh(f"su -l {user} -c 'cove run -- sh -c \"echo hello\"'")
        expect(said.splitlines()[-1] == "hello", f"cove run of {user} says: {said}")
    sh("su -l someone -c 'cove create first --ephemeral; cove exec first -- true; cove rm first'")
    until("the engine of an ordinary user ends", lambda: sh(
        "pkill -TERM -u someone -x cove-keeper; ! pgrep -u someone", check=False) == "")
    sh("userdel --remove someone")


def first_steps():
    boxes()
    sh("test -s /usr/share/bash-completion/completions/cove; test -s /usr/share/zsh/vendor-completions/_cove; "
       "test -s /usr/share/fish/vendor_completions.d/cove.fish; cove config check")
    for page in sh("cove man --list").split():
        expect(os.path.exists(f"/usr/share/man/man1/{page}.1.gz"), f"{page} has no manual page")


def serve():
    """As the documentation says for a place without a service manager. Returns the keeper's pid."""
    sh("setsid cove serve </dev/null >>/var/log/cove.log 2>&1 &")
    pid = int(until("the server runs", lambda: sh("cove serve --pid 2>/dev/null", check=False)))
    until("the engine runs", engine)
    until("the server listens", lambda: sh("cove ls >/dev/null && echo yes", check=False))
    owner = os.stat(f"/proc/{engine()[0]}").st_uid
    expect(int(sh("id -u cove")) == owner, f"the engine is of the user {owner}, and not of cove")
    return pid


def upgrade_under_way(keeper):
    sh("cove create work")
    sh("cove exec -d work -- sh -c 'n=0; while :; do n=$((n + 1)); echo tick $n; sleep 0.1; done' >/tmp/process")
    sh("cove logs -f work $(cat /tmp/process) >/tmp/ticks 2>/tmp/ticks.err & "
       "cove exec work -- sh -c 'until [ -e go ]; do sleep 0.1; done; echo went on' >/tmp/went 2>&1 &")
    read = lambda: len(pathlib.Path("/tmp/ticks").read_text(encoding="utf-8").split("\n"))  # noqa: E731
    until("output of the command is read", lambda: read() > 10)
    engines = engine()
    install("new")
    until("the server was upgraded", lambda: "upgraded" in pathlib.Path("/var/log/cove.log").read_text(encoding="utf-8"))
    until("another engine runs", lambda: engine() and engine() != engines)
    expect(int(sh("cove serve --pid")) == keeper, "the keeper is another process")
    expect("deleted" not in os.readlink(f"/proc/{keeper}/exe"), "the keeper is still the program of before")
    before = read()
    until("output goes on to be read", lambda: read() > before + 20)
    ticks = pathlib.Path("/tmp/ticks").read_text(encoding="utf-8").split("\n")[:-1]
    expect(ticks == [f"tick {n + 1}" for n in range(len(ticks))], f"lines are missing or twice: {ticks}")
    sh("cove exec work -- touch go")
    until("a command from before ends", lambda: pathlib.Path("/tmp/went").read_text(encoding="utf-8") == "went on\n")
    sh("cove exec work -- sh -c 'echo kept >~/file'")


def purge(users_before):
    apt("purge cove cove-server libcove0 libcove-dev")
    until("all processes of cove end", lambda: not programs())
    left = sorted(path for path in files() if "cove" in path)
    expect(not left, f"the purge left these: {left}")
    expect(users() == users_before, f"the purge left other users: {users()}")
    expect(" /run/cove" not in (mounts := pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")) and
           " /var/lib/cove" not in mounts, "the purge left a mount")


def inside(archive, place):
    enter(unpack(archive, place))
    suite = re.search(r"VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(encoding="utf-8"))[1]
    apt("update")
    apt("install passwd procps")  # of what this test uses itself
    users_before = users()
    archive_for_all()
    say(f"{suite}: boxes of root and of a user, and a sandbox of a user, by the archive")
    install("old")
    expect(not programs(), f"a server runs after the installation: {programs()}")
    say(f"{suite}: installed, with all that the packages need")
    first_steps()
    purge(users_before)
    # Their dependencies stay until apt is told otherwise, and would hide what they leave.
    files_before = files()
    install("old")
    say(f"{suite}: boxes of root and of a user, a sandbox of a user, purged, and installed again")
    upgrade_under_way(serve())
    say(f"{suite}: an upgrade, and commands from before it go on and are read")
    purge(users_before)
    pathlib.Path("/var/log/cove.log").unlink()
    left = sorted(files() - files_before)
    expect(not left, f"the second purge left these: {left}")
    say(f"{suite}: purged under a server that ran, and nothing is left")


# ---- inside: a root that systemd has booted, in a lane ----

def boot(root):
    """Starts it; returns its systemd. No other manager has to know of it, and v1 is not for it."""
    run_here("chroot", root, "sh", "-ec", "apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq -y "
             "-o Dpkg::Use-Pty=0 --no-install-recommends install systemd dbus >/dev/null 2>&1")
    container = subprocess.Popen(
        ["systemd-nspawn", "--quiet", f"--directory={root}", "--boot", "--register=no", "--keep-unit",
         "--link-journal=no", "--resolv-conf=off", "--console=pipe", "--capability=all",
         "--system-call-filter=@keyring"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
    children = pathlib.Path(f"/proc/{container.pid}/task/{container.pid}/children")

    def leader():  # the last of it: one before it makes namespaces, and ends
        PREFIX[:] = ["nsenter", "--target", *children.read_text(encoding="utf-8").split()[-1:], "--all", "--"]
        return sh("systemctl is-system-running", check=False).strip() in ("running", "degraded") and int(PREFIX[2])

    return container, until("systemd is up", leader)


def removed(directory):
    with contextlib.suppress(OSError):
        os.rmdir(directory)
    return not os.path.exists(directory)


def shut_down(container, leader):
    os.kill(leader, signal.SIGKILL)
    container.wait()
    # Groups into which the container was put, and of what was in it.
    for group in os.environ["COVE_TEST_GROUPS"].split(":"):
        for name in "payload", "supervisor":
            for directory, _, _ in os.walk(f"{group}/{name}", topdown=False):
                until(f"{directory} is empty", lambda: removed(directory))  # pylint: disable=cell-var-from-loop


def with_systemd(archive, place):
    container, leader = boot(unpack(archive, place))
    try:
        install("old")
        expect(sh("systemctl is-active cove; systemctl is-enabled cove") == "active\nenabled\n", "cove.service does not run")
        until("the server listens", lambda: sh("cove ls >/dev/null && echo yes", check=False) == "yes\n")
        sh("cove create work --ephemeral")
        sh("cove exec work -- sh -c 'until [ -e go ]; do sleep 0.1; done; echo went on' >/tmp/went 2>&1 &")
        until("the command runs", lambda: "until" in sh("cove ps work"))
        engines, keeper = engine(), sh("systemctl show -P MainPID cove")
        install("new")
        until("another engine runs", lambda: engine() and engine() != engines)
        sh("cove exec work -- touch go")
        until("a command from before ends", lambda: sh("cat /tmp/went") == "went on\n")
        expect(sh("systemctl is-active cove; systemctl show -P MainPID cove") == f"active\n{keeper}",
               "the service is another process")
        say("with systemd: started, and upgraded under a command that goes on")
        apt("purge cove cove-server libcove0 libcove-dev")
        until("all processes of cove end", lambda: not programs())
        left = sh("find / -xdev -name '*cove*' -not -path '/packages/*' -not -path '/var/log/*'; id cove 2>&1 || true; "
                  "find /run /sys/fs/cgroup -name '*cove*'; systemctl list-unit-files --no-legend 'cove*' || true")
        expect(left == "id: \u2018cove\u2019: no such user\n", f"the purge left these: {left}")
        say("with systemd: purged, and nothing is left")
    finally:
        shut_down(container, leader)


INSIDE = {"--inside": inside, "--with-systemd": with_systemd}


def main():
    if sys.argv[1:2] and sys.argv[1] in INSIDE:
        try:
            INSIDE[sys.argv[1]](pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
        finally:
            for pid, path in programs().items():
                if os.path.basename(path) == "cove-keeper":
                    os.kill(pid, signal.SIGTERM)
        return
    wrong = [word for word in sys.argv[1:] if word not in SUITES]
    expect(not wrong, f"there is no root of {' '.join(wrong)}: {' or '.join(SUITES)}")
    outside(sys.argv[1:] or SUITES)


if __name__ == "__main__":
    main()
