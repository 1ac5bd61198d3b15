"""A root of Debian, made once for all tests that need one, by whoever comes first."""
import fcntl
import shutil
import subprocess

import harness

ROOT_PACKAGES = "sudo,passwd,procps,libcap2-bin"


def make(command):
    """Runs a command that fetches a root; the network may fail once."""
    for _ in range(3):
        made = subprocess.run(command, capture_output=True, timeout=1800, check=False)
        if made.returncode == 0:
            return
    raise AssertionError(made.stderr.decode(errors="replace"))


ROOTS = {
    # A small Debian with apt, su and sudo.
    "testroot": ["--variant=apt", f"--include={ROOT_PACKAGES}",
                 '--customize-hook=chroot "$1" useradd -m -s /bin/bash -u 1000 user',
                 '--customize-hook=echo "user ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/user"',
                 '--customize-hook=chmod 440 "$1/etc/sudoers.d/user"'],
    # All that Debian calls required, and apt.
    "bareroot": ["--variant=minbase"],
}


def stamp(name):
    """Count it up with each change of ROOTS; scripts/vm-root.sh makes a root of its own with the same one."""
    return f"3 {name}"


def fetch(name):
    """The archive of a root, which whoever comes first makes; tests have no network to make it."""
    archive = harness.BUILD / "roots" / f"{name}.tar"
    made = archive.with_suffix(".made")
    if not (archive.exists() and made.exists() and made.read_text() == stamp(name)):
        assert harness.LANE is None, f"{archive} is missing or old, and a lane has no network; run scripts/build-tests.sh"
        archive.parent.mkdir(parents=True, exist_ok=True)
        make(["mmdebstrap", *ROOTS[name], f"--mode={'root' if harness.EXPECT.is_root else 'unshare'}",
              "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
              "--dpkgopt=path-exclude=/usr/share/locale/*", "bookworm", str(archive)])
        archive.chmod(0o644)
        made.write_text(stamp(name))
    return archive


def unpack(name):
    """A root. Its files are root's where root runs the tests; else they are the caller's, who then is root of a box
    with this root."""
    target = harness.MADE / name
    with open(harness.MADE / f".{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = target / ".cove-test-root"
        if not marker.exists() or marker.read_text() != stamp(name):
            archive = fetch(name)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            subprocess.run(["tar", "-xpf", archive, "-C", target, "--exclude=./dev/*"], check=True)
            marker.write_text(stamp(name))
    return target


def debian():
    return unpack("testroot")


if __name__ == "__main__":
    for each in ROOTS:
        fetch(each)
