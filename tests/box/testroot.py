"""A root of Debian, made once for all tests that need one, by whoever comes first."""
import fcntl
import shutil
import subprocess

import harness

ROOT_PACKAGES = "sudo,passwd,procps,libcap2-bin"


def make(command):
    """What fetches a root: the network may fail once."""
    for _ in range(3):
        made = subprocess.run(command, capture_output=True, timeout=1800, check=False)
        if made.returncode == 0:
            return
    raise AssertionError(made.stderr.decode(errors="replace"))


def build_debian(target):
    """A small Debian root with apt, su and sudo, made once. Its files are root's where root runs the
    tests; else they are the caller's, who then is root of a box with this root."""
    marker = target / ".cove-test-root"
    wanted = f"2 {ROOT_PACKAGES}"
    if marker.exists() and marker.read_text() == wanted:
        return
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    archive = target.with_suffix(".tar")
    make(
        ["mmdebstrap", "--variant=apt", f"--include={ROOT_PACKAGES}",
         f"--mode={'root' if harness.EXPECT.is_root else 'unshare'}",
         "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
         "--dpkgopt=path-exclude=/usr/share/locale/*",
         '--customize-hook=chroot "$1" useradd -m -s /bin/bash -u 1000 user',
         '--customize-hook=echo "user ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/user"',
         '--customize-hook=chmod 440 "$1/etc/sudoers.d/user"', "bookworm", str(archive)])
    subprocess.run(["tar", "-xpf", archive, "-C", target, "--exclude=./dev/*"], check=True)
    archive.unlink()
    marker.write_text(wanted)


def debian():
    target = harness.MADE / "testroot"
    with open(harness.MADE / ".testroot.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_debian(target)
    return target
