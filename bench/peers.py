"""The peers' command lines: the same namespaces and the same root view as cove's host profile.

src/box/tree.c decides what the host profile shows; the lists here follow it, so that no peer is
slow because it shows more, or quick because it shows less. What cove adds to that (id range,
cgroups, seccomp, Landlock, masked /proc files) the peers are not asked to do.
"""
import json
import os
import stat

import report

SYSTEM_DIRECTORIES = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"]
EMPTY_DIRECTORIES = ["var", "run", "root", "sys", "home"]
ETC = ["alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs",
       "pki/ca-trust/extracted", "crypto-policies", "ld.so.cache", "localtime", "services",
       "protocols", "fonts"]
ETC_FILES = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n"
              "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\tbox\n",
    "hostname": "box\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                     "services: files\nprotocols: files\n",
}
ETC_LINKS = {"mtab": "/proc/self/mounts", "os-release": "../usr/lib/os-release"}
NAMESPACES = ["user", "mount", "pid", "network", "ipc", "uts", "cgroup"]
# An id range that cove never takes: above the last one of its own.
HOST_IDS = 1879048192 + 65536


def system_view():
    """What of the host is shown: ("bind" or "link", path in the box, path or target of the link)."""
    etc = ETC + sorted(name for name in os.listdir("/etc") if name.startswith("java-"))
    for name in SYSTEM_DIRECTORIES + ["etc/" + name for name in etc]:
        path = "/" + name
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(mode):
            yield "link", path, os.readlink(path)
        elif stat.S_ISDIR(mode) or stat.S_ISREG(mode) and mode & 0o004:
            yield "bind", path, path


def write_etc(directory):
    os.makedirs(directory, exist_ok=True)
    for name, text in ETC_FILES.items():
        with open(os.path.join(directory, name), "w", encoding="ascii") as out:
            out.write(text)
        os.chmod(os.path.join(directory, name), 0o644)


def bwrap(work, command):
    """bubblewrap's words, as spawn.c takes them: the files of /etc are given by fds."""
    etc = os.path.join(work, "etc")
    write_etc(etc)
    opened, view = [], []
    for fd, name in enumerate(ETC_FILES, start=10):
        opened.append(f"+{fd}={etc}/{name}")
        view += ["--perms", "0444", "--file", str(fd), "/etc/" + name]
    for kind, path, what in system_view():
        if path.startswith("/etc/"):
            view += ["--dir", os.path.dirname(path)]
        view += ["--ro-bind" if kind == "bind" else "--symlink", what, path]
    for name, target in ETC_LINKS.items():
        view += ["--symlink", target, "/etc/" + name]
    for name in EMPTY_DIRECTORIES:
        view += ["--dir", "/" + name]
    return opened + [
        "/usr/bin/bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc",
        "--unshare-uts", "--unshare-cgroup", "--uid", "1000", "--gid", "1000", "--hostname", "box",
        *view, "--symlink", "../tmp", "/var/tmp", "--proc", "/proc", "--dev", "/dev",
        "--perms", "1777", "--tmpfs", "/tmp", "--tmpfs", "/home/user", "--remount-ro", "/",
        "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/home/user",
        "--chdir", "/home/user", "--new-session", "--die-with-parent", "--cap-drop", "ALL",
        "--", *command]


def crun(work, command):
    """crun with a bundle whose root is a skeleton that the same binds fill."""
    bundle = os.path.join(work, "bundle")
    root = os.path.join(bundle, "rootfs")
    mounts = [
        mount("/proc", "proc", "proc", ["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", ["nosuid", "mode=755"]),
        mount("/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666",
                                               "mode=0620"]),
        mount("/dev/shm", "tmpfs", "shm", ["nosuid", "noexec", "nodev", "mode=1777"]),
        mount("/tmp", "tmpfs", "tmpfs", ["nosuid", "nodev", "mode=1777"]),
        mount("/home/user", "tmpfs", "tmpfs", ["nosuid", "nodev", "mode=0755"]),
    ]
    for name in EMPTY_DIRECTORIES + ["proc", "dev", "tmp", "home/user"]:
        os.makedirs(os.path.join(root, name), exist_ok=True)
    os.symlink("../tmp", os.path.join(root, "var/tmp"))
    write_etc(os.path.join(root, "etc"))
    for name, target in ETC_LINKS.items():
        os.symlink(target, os.path.join(root, "etc", name))
    for kind, path, what in system_view():
        inside = root + path
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        if kind == "link":
            os.symlink(what, inside)
            continue
        if os.path.isdir(what):
            os.mkdir(inside)
        else:
            open(inside, "w", encoding="ascii").close()
        mounts.append(mount(path, "none", what, ["rbind", "ro", "nosuid", "nodev"]))
    nothing = {name: [] for name in ("bounding", "effective", "permitted", "inheritable",
                                     "ambient")}
    ids = [{"containerID": 0, "hostID": HOST_IDS, "size": 65536}]
    config = {
        "ociVersion": "1.0.0",
        "process": {"terminal": False, "user": {"uid": 1000, "gid": 1000}, "args": command,
                    "env": ["PATH=/usr/bin:/bin", "HOME=/home/user"], "cwd": "/home/user",
                    "capabilities": nothing, "noNewPrivileges": True},
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "box",
        "mounts": mounts,
        "linux": {"namespaces": [{"type": name} for name in NAMESPACES], "uidMappings": ids,
                  "gidMappings": ids},
    }
    with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out)
    # crun refuses a host whose v2 tree beside v1 has a controller, even with cgroups disabled; it
    # only looks here.
    hidden = ["@without=/sys/fs/cgroup/unified"] if report.is_hybrid() else []
    return hidden + ["/usr/bin/crun", "--cgroup-manager=disabled", "--root", os.path.join(work, "crun"),
            "run", "--bundle", bundle, f"cove-bench-{os.getpid()}"]


def mount(destination, kind, source, options):
    return {"destination": destination, "type": kind, "source": source, "options": options}
