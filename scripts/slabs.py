#!/usr/bin/python3
"""Says which objects of the kernel a box is charged for, and which are bounded by nothing.

A program in a box makes many objects of one family, while this looks from outside at what the box is charged and at
what the kernel's caches and counters grew by. Each family ends at its goal, at a refusal, or when the host has lost
300 MiB. A cache named kmalloc-cg-N, and one whose objects are charged as its own, is counted; where the kernel's
memory grows and the charge does not, something else must bound it: SECURITY.md has the table that was made of this.

Wants root, for /proc/slabinfo, and x86-64. Others that work on the machine are seen in it: run it twice.

usage: scripts/slabs.py [--cove PATH] [--memory SIZE] [--list] [FAMILY...]
"""
import argparse
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
LOSS = 300 * MIB
PATIENCE_S = 60
FAMILIES = {}
KEPT = []  # what must live until the end

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


# ---- in the box: families ----------------------------------------------------------------------

def family(goal, text):
    """A generator makes one object for each step."""
    def add(make):
        FAMILIES[make.__name__.replace("_", "-")] = (goal, text, make)
        return make
    return add


def call(number, *words):
    done = libc.syscall(number, *[ctypes.c_long(word) if isinstance(word, int) else word for word in words])
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def inet(kind=socket.SOCK_DGRAM, family_=socket.AF_INET):
    made = socket.socket(family_, kind)
    KEPT.append(made)
    return made


def each(make):
    while True:
        KEPT.append(make())
        yield


@family(15000, "open files of /dev/null")
def files():
    yield from each(lambda: os.open("/dev/null", os.O_RDONLY))


@family(7000, "pipes, empty")
def pipes():
    yield from each(os.pipe)


@family(300, "pipes with 64 KiB in them")
def pipes_full():
    for _ in each(os.pipe):
        os.write(KEPT[-1][1], bytes(65536))
        yield


@family(15000, "eventfds")
def eventfds():
    yield from each(lambda: os.eventfd(0))


@family(15000, "epoll instances")
def epolls():
    yield from each(select.epoll)


@family(15000, "items of an epoll instance")
def epoll_items():
    watching = select.epoll()
    KEPT.append(watching)
    for _ in each(lambda: os.eventfd(0)):
        watching.register(KEPT[-1])
        yield


@family(15000, "timerfds")
def timerfds():
    yield from each(lambda: libc.timerfd_create(1, 0))


@family(15000, "signalfds")
def signalfds():
    mask = ctypes.create_string_buffer(128)
    yield from each(lambda: call(289, -1, mask, 8, 0))


@family(1000000, "POSIX timers")
def posix_timers():
    event, timer = struct.pack("QiiQ40x", 0, 0, 1, 0), ctypes.c_int()
    yield from each(lambda: call(222, 1, event, ctypes.byref(timer)))


@family(1000000, "queued signals")
def signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    yield from each(lambda: call(129, os.getpid(), 40, struct.pack("iii116x", 40, 0, -1)))


@family(1000, "inotify instances")
def inotify_instances():
    yield from each(lambda: call(294, 0))


@family(20000, "inotify watches, each of a file of its own")
def inotify_watches():
    watching = call(294, 0)
    for number in range(1000000):
        path = f"/dev/shm/w{number}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        call(254, watching, path.encode(), 2)
        yield


@family(20000, "files watched above, without watches")
def inotify_control():
    for number in range(1000000):
        os.close(os.open(f"/dev/shm/w{number}", os.O_CREAT | os.O_WRONLY))
        yield


@family(8000, "memfds, empty")
def memfds():
    yield from each(lambda: os.memfd_create("m"))


@family(40, "shared memory by memfd, 1 MiB each")
def memfd_pages():
    for _ in each(lambda: os.memfd_create("m")):
        os.write(KEPT[-1], bytes(MIB))
        yield


@family(4000, "System V shared memory segments")
def shm():
    yield from each(lambda: call(29, 0, 4096, 0o1600))


@family(30000, "System V semaphore sets of one")
def semaphores():
    yield from each(lambda: call(64, 0, 1, 0o1600))


@family(30000, "undo lists of semaphores")
def semaphore_undo():
    for _ in each(lambda: call(64, 0, 1, 0o1600)):
        call(65, KEPT[-1], struct.pack("Hhh", 0, 1, 0x1000), 1)
        yield


@family(30000, "System V messages")
def messages():
    queues = []
    while True:
        queues.append(call(68, 0, 0o1600))
        with contextlib.suppress(OSError):
            while True:
                call(69, queues[-1], struct.pack("q200x", 1), 200, 0o4000)
                yield


@family(1500, "threads")
def threads():
    threading.stack_size(65536)
    while True:
        thread = threading.Thread(target=threading.Event().wait, daemon=True)
        thread.start()
        KEPT.append(thread)
        yield


@family(300, "processes")
def processes():
    while True:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        KEPT.append(pid)
        yield


@family(300, "processes that are sessions of their own")
def sessions():
    while True:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.pause()
        KEPT.append(pid)
        yield


@family(300, "mutexes with heirs of their priority, each with a thread that waits")
def futex_pi():
    word = mmap.mmap(-1, 4 * MIB)
    base = ctypes.addressof(ctypes.c_char.from_buffer(word))
    for number in range(300):
        at = base + 64 * number
        call(202, ctypes.c_void_p(at), 6, 0, None, None, 0)
        threading.Thread(target=libc.syscall, daemon=True,
                         args=(202, ctypes.c_void_p(at), 6, 0, None, None, 0)).start()
        yield


@family(60000, "mappings")
def mappings():
    number = 0
    while libc.mmap(None, 4096, 1 + 2 * (number % 2), 0x22, -1, 0) != ctypes.c_void_p(-1).value:
        number += 1
        yield


@family(30000, "mappings with a name of 79 bytes each")
def mappings_named():
    for number in range(30000):
        place = libc.mmap(None, 4096, 1 + 2 * (number % 2), 0x22, -1, 0)
        call(157, 0x53564d41, 0, ctypes.c_void_p(place), 4096, b"%079d" % number)
        yield


@family(5000, "page tables: a page in every 2 MiB")
def page_tables():
    place = libc.mmap(None, 5000 * 2 * MIB, 1, 0x4022, -1, 0)
    for number in range(5000):
        ctypes.c_char.from_address(place + number * 2 * MIB).value
        yield


@family(100000, "memory policies of pages of a shared file")
def policies():
    shared, node = os.memfd_create("m"), ctypes.c_ulong(1)
    os.ftruncate(shared, 1 << 40)
    for number in range(10000000):
        place = libc.mmap(None, 4096, 3, 1, shared, number * 4096)
        call(237, ctypes.c_void_p(place), 4096, 2 + number % 2, ctypes.byref(node), 2, 0)
        libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(4096))
        yield


def inodes(make, where):
    for number in range(10000000):
        make(f"{where}/{number}")
        yield


def touch(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


@family(20000, "empty files in /dev/shm")
def shm_files():
    yield from inodes(touch, "/dev/shm")


@family(20000, "empty files in the root")
def root_files():
    yield from inodes(touch, "/tmp")


@family(20000, "directories in /dev/shm")
def directories():
    yield from inodes(os.mkdir, "/dev/shm")


@family(20000, "links of 120 bytes in /dev/shm")
def symlinks():
    yield from inodes(lambda path: os.symlink("x" * 120, path), "/dev/shm")


@family(20000, "hard links in /dev/shm")
def hard_links():
    touch("/dev/shm/first")
    yield from inodes(lambda path: os.link("/dev/shm/first", path), "/dev/shm")


@family(20000, "names that are not there (dentries)")
def names_missing():
    yield from inodes(os.path.exists, "/dev/shm")


@family(10000, "extended attributes of 1,000 bytes (user.)")
def attributes():
    def make(path):
        touch(path)
        os.setxattr(path, "user.a", bytes(1000))
    yield from inodes(make, "/dev/shm")


@family(10000, "directories with a default access list of 1,020 bytes")
def access_lists():
    entries = [(1, 7, 0xffffffff), *[(2, 7, os.getuid())] * 123, (4, 7, 0xffffffff), (16, 7, 0xffffffff),
               (32, 7, 0xffffffff)]
    text = struct.pack("I", 2) + b"".join(struct.pack("HHI", *entry) for entry in entries)

    def make(path):
        os.mkdir(path)
        os.setxattr(path, "system.posix_acl_default", text)
    yield from inodes(make, "/dev/shm")


@family(50, "directories of the root, open and read once each after a change: 2,000 names of 240 bytes")
def merged_listings():
    for number in range(2000):
        touch(f"/many/{number:0240}")
    while True:
        fd = os.open("/many", os.O_RDONLY | os.O_DIRECTORY)
        KEPT.append(fd)
        buffer = ctypes.create_string_buffer(65536)
        call(217, fd, buffer, 65536)
        touch("/many/other")
        os.unlink("/many/other")
        yield


@family(100000, "POSIX locks of single bytes")
def posix_locks():
    fd = os.open("/dev/shm/locked", os.O_CREAT | os.O_RDWR)
    for number in range(10000000):
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, 2 * number)
        yield


@family(15000, "locks of whole files (flock)")
def flocks():
    for _ in each(lambda: os.open("/dev/shm/locked", os.O_CREAT | os.O_RDONLY)):
        fcntl.flock(KEPT[-1], fcntl.LOCK_SH)
        yield


@family(15000, "files with an owner for signals")
def owners():
    for _ in each(lambda: os.eventfd(0)):
        fcntl.fcntl(KEPT[-1], fcntl.F_SETOWN, os.getpid())
        yield


@family(200, "seccomp filters of 400 instructions")
def seccomp_filters():
    call(157, 38, 1, 0, 0, 0)
    code = ctypes.create_string_buffer(struct.pack("HBBI", 0x20, 0, 0, 0) * 120 +
                                       struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
    while True:
        call(317, 1, 0, struct.pack("HxxxxxxQ", 121, ctypes.addressof(code)))
        yield


@family(10000, "Landlock rulesets of one rule")
def landlock():
    root = os.open("/", os.O_PATH)
    for _ in each(lambda: call(444, struct.pack("QQQ", 4, 0, 0), 8, 0)):
        call(445, KEPT[-1], 1, struct.pack("=Qi", 4, root), 0)
        yield


@family(15000, "pidfds")
def pidfds():
    yield from each(lambda: os.pidfd_open(os.getpid()))


@family(1000, "terminals, with input that nobody reads")
def terminals():
    for _ in each(os.openpty):
        os.set_blocking(KEPT[-1][0], False)
        with contextlib.suppress(OSError):
            while os.write(KEPT[-1][0], b"x\n" * 2048):
                pass
        yield


@family(7000, "pairs of unix sockets")
def unix_pairs():
    yield from each(socket.socketpair)


@family(100, "pairs of unix sockets, full")
def unix_full():
    for _ in each(socket.socketpair):
        KEPT[-1][0].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while KEPT[-1][0].send(bytes(32768)):
                pass
        yield


@family(15000, "fds in flight")
def fds_in_flight():
    while True:
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        KEPT.append(ends)
        ends[0].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                socket.send_fds(ends[0], [b"x"], [1] * 200)
                for _ in range(200):
                    yield


@family(15000, "unix sockets with an abstract name of 100 bytes")
def unix_names():
    for number in range(1000000):
        made = inet(family_=socket.AF_UNIX)
        made.bind(b"\0%0100d" % number)
        yield


@family(4000, "connections of unix sockets that nobody accepts")
def unix_unaccepted():
    while True:
        listening = inet(socket.SOCK_STREAM, socket.AF_UNIX)
        listening.bind("")
        listening.listen(4096)
        for _ in range(4000):
            inet(socket.SOCK_STREAM, socket.AF_UNIX).connect(listening.getsockname())
            yield


@family(15000, "UDP sockets")
def udp():
    yield from each(inet)


@family(15000, "UDP sockets of IPv6, bound")
def udp6():
    while True:
        inet(family_=socket.AF_INET6).bind(("::1", 0))
        yield


@family(100, "UDP sockets with datagrams that nobody reads")
def udp_full():
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        to = inet()
        to.bind(("127.0.0.1", 0))
        for _ in range(16):
            sender.sendto(bytes(32768), to.getsockname())
        yield


@family(1000, "UDP sockets with a datagram that is not complete (MSG_MORE)")
def udp_corked():
    while True:
        made = inet()
        made.connect(("127.0.0.1", 9))
        made.send(bytes(60000), socket.MSG_MORE)
        yield


@family(20, "UDP sockets with errors that nobody reads")
def udp_errors():
    while True:
        made = inet()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * MIB)
        made.setsockopt(socket.IPPROTO_IP, 11, 1)
        for _ in range(2000):
            with contextlib.suppress(ConnectionRefusedError):
                made.sendto(bytes(1000), ("127.0.0.1", 1))
        yield


@family(20, "UDP sockets with time stamps of packets, which nobody reads")
def udp_stamps():
    while True:
        made = inet()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * MIB)
        made.setsockopt(socket.SOL_SOCKET, 37, 1 << 8 | 1 << 4)
        for _ in range(64):
            with contextlib.suppress(ConnectionRefusedError):
                made.sendto(bytes(32768), ("127.0.0.1", 1))
        yield


@family(15000, "TCP sockets")
def tcp():
    yield from each(lambda: inet(socket.SOCK_STREAM))


@family(15000, "TCP sockets that listen")
def tcp_listening():
    while True:
        inet(socket.SOCK_STREAM).listen(1)
        yield


@family(15000, "sockets that share a port")
def reuseport():
    while True:
        made = inet(socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("127.0.0.1", 0))
        yield


def tcp_listener():
    listening = inet(socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen(65535)
    return listening.getsockname()


@family(10000, "TCP connections that nobody accepts, closed by the client")
def tcp_unaccepted():
    while True:
        address = tcp_listener()
        for _ in range(4000):
            with socket.socket() as made:
                made.connect(address)
            yield


@family(1000, "TCP connections that nobody accepts, with what was sent")
def tcp_unaccepted_full():
    address = tcp_listener()
    while True:
        made = inet(socket.SOCK_STREAM)
        made.connect(address)
        made.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while made.send(bytes(65536)):
                pass
        yield


@family(300, "TCP connections with what was sent")
def tcp_full():
    listening = inet(socket.SOCK_STREAM)
    listening.listen(128)
    while True:
        made = inet(socket.SOCK_STREAM)
        made.connect(listening.getsockname())
        KEPT.append(listening.accept())
        made.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while made.send(bytes(65536)):
                pass
        yield


@family(10000, "TCP connections that are closed (TIME_WAIT)")
def tcp_waiting():
    listening = socket.socket()
    listening.listen(128)
    while True:
        made = socket.create_connection(listening.getsockname())
        other = listening.accept()[0]
        made.close()
        other.close()
        yield


@family(15000, "UDP sockets with IP options of 40 bytes")
def ip_options():
    while True:
        inet().setsockopt(socket.IPPROTO_IP, 4, b"\x01" * 40)
        yield


def filled(make, put):
    """Puts things into sockets, as many as each takes; what the first of one raises is why there are no more."""
    number = 0
    while True:
        made, first = make(), number + 1
        with contextlib.suppress(OSError):
            while True:
                number += 1
                put(made, number)
                yield
        if number == first:
            put(made, number)


def key_add(made, number):
    made.setsockopt(socket.IPPROTO_TCP, 14, struct.pack("HHI120xBBHi80s", 2, 0, number, 0, 0, 8, 0, b"k" * 8))


def group4_join(made, number):
    made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("!II", 0xe1000000 + number, 0) +
                    struct.pack("i", 1))


def group4_join_sources(made, number):
    for source in range(10):
        made.setsockopt(socket.IPPROTO_IP, 39, struct.pack("!III", 0xe1000000 + number, 0x7f000001,
                                                           0x0a000001 + source))


def group6_join(made, number):
    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, struct.pack("!HIIIH", 0xff02, 0, 0, number, 1) +
                    struct.pack("i", 1))


@family(50000, "keys for signed TCP (TCP_MD5SIG), as many as each socket takes")
def tcp_keys():
    yield from filled(lambda: inet(socket.SOCK_STREAM), key_add)


@family(50000, "memberships of IPv4 groups, as many as each socket takes")
def groups4():
    yield from filled(inet, group4_join)


@family(20000, "memberships of IPv4 groups with ten sources each")
def groups4_sources():
    yield from filled(inet, group4_join_sources)


@family(50000, "memberships of IPv6 groups, as many as each socket takes")
def groups6():
    yield from filled(lambda: inet(family_=socket.AF_INET6), group6_join)


@family(15000, "netlink sockets")
def netlink():
    yield from each(lambda: inet(socket.SOCK_RAW, socket.AF_NETLINK))


def netlink_asked(size):
    ask = struct.pack("IHHIIBBHiII", 32, 18, 1, 0, 0, 0, 0, 0, 1, 0, 0)
    while True:
        made = inet(socket.SOCK_RAW, socket.AF_NETLINK)
        if size:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        with contextlib.suppress(OSError):
            for _ in range(100):
                made.send(ask * 100)
        yield


@family(200, "netlink sockets with answers that nobody reads")
def netlink_full():
    yield from netlink_asked(0)


@family(10, "the same, with as long a queue as the host allows")
def netlink_fuller():
    yield from netlink_asked(8 * MIB)


def maker(name):
    goal, _, make = FAMILIES[name]
    made, why = 0, "goal"
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + PATIENCE_S
    try:
        for _ in make():
            made += 1
            if made >= goal or time.monotonic() > until:
                why = "goal" if made >= goal else "time"
                break
        else:
            why = "end"
    except (OSError, RuntimeError) as error:
        why = errno.errorcode.get(getattr(error, "errno", 0), type(error).__name__)
    print("made", made, why, flush=True)
    sys.stdin.readline()
    os._exit(0)


# ---- outside: what was charged, what grew ------------------------------------------------------

def caches():
    """Objects, and bytes of one, by cache."""
    lines = pathlib.Path("/proc/slabinfo").read_text(encoding="ascii").splitlines()[2:]
    return {words[0]: (int(words[1]), int(words[3])) for words in map(str.split, lines)}


def meminfo():
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}


OTHERS = ("buffer_head", "ext4_inode_cache")  # what works on the host's disks makes these

COUNTERS = ("SUnreclaim", "SReclaimable", "Percpu", "PageTables", "KernelStack", "VmallocUsed", "Shmem")


class Charge:
    """Of the group that a process of the box is in: memory of the kernel's, buffers of TCP and UDP, and all."""

    def __init__(self, pid):
        lines = [line.split(":", 2) for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
        v1 = [path for _, names, path in lines if "memory" in names.split(",")]
        found = [line.split() for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
        for words in found:
            kind, options = words[words.index("-") + 1], words[-1].split(",")
            if (v1 and kind == "cgroup" and "memory" in options) or (not v1 and kind == "cgroup2"):
                path = v1[0] if v1 else [path for number, _, path in lines if number == "0"][0]
                self.group, self.is_v1 = pathlib.Path(words[4] + path), bool(v1)

    def read(self):
        def number(name):
            return int((self.group / name).read_text())
        if self.is_v1:
            return (number("memory.kmem.usage_in_bytes"), number("memory.kmem.tcp.usage_in_bytes"),
                    number("memory.usage_in_bytes"))
        stat = dict(line.split() for line in (self.group / "memory.stat").read_text().splitlines())
        return int(stat["kernel"]), int(stat["sock"]), number("memory.current")


def descendants(pid):
    """Of those that end meanwhile nothing is said."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from descendants(child)
                yield child


def boxed(cove):
    for pid in descendants(cove.pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/usr/bin/python3\0"):
                return pid
    raise RuntimeError("no process of the box is found")


def kept(memory):
    """Memory that the kernel has for itself and cannot give back: slabs, and pages that no other line of meminfo has."""
    return memory["MemTotal"] - sum(memory[key] for key in ("MemFree", "Buffers", "Cached", "AnonPages",
                                                            "SReclaimable"))


def await_made(cove, before):
    """The line that it says, or that the host lost too much."""
    while not select.select([cove.stdout], [], [], 0.02)[0]:
        if kept(meminfo()) - kept(before) > LOSS:
            return f"made ? {LOSS >> 20} MiB"
    return cove.stdout.readline().strip() or "made ? ended"


def measure(cove, name):
    cove.stdout.readline()
    charge = Charge(boxed(cove))
    time.sleep(0.5)  # what the box before this one left is given back meanwhile
    before = caches(), meminfo(), charge.read()
    cove.stdin.write("\n")
    cove.stdin.flush()
    said = await_made(cove, before[1])
    after = caches(), meminfo(), charge.read()
    report(name, said, before, after)


def report(name, said, before, after):
    _, made, why = said.split(" ", 2)
    grown = {cache: (count - before[0].get(cache, (0, 0))[0], size) for cache, (count, size) in after[0].items()
             if cache not in OTHERS}
    total = max((count * size for count, size in grown.values()), default=0)
    least = int(made) // 4 if made.isdigit() else 0  # or it is somebody else's
    shown = sorted(((count * size, count, cache) for cache, (count, size) in grown.items()
                    if count >= least and count * size > max(total // 30, MIB // 8)), reverse=True)
    kernel, buffers, everything = (after[2][i] - before[2][i] for i in range(3))
    slabs = sum(size for size, _, _ in shown)
    print(f"{name}: {FAMILIES[name][1]}: {made} ({why})")
    if least:
        print(f"    each: charged {(kernel + buffers) // int(made)} bytes, in caches {slabs // int(made)}")
    print(f"    charged: kernel {kernel >> 10} KiB, TCP and UDP {buffers >> 10}, all {everything >> 10}; "
          f"caches {slabs >> 10}, the kernel's own {(kept(after[1]) - kept(before[1])) >> 10}")
    print("    " + ", ".join(f"{cache} {count} = {size >> 10} KiB" for size, count, cache in shown))
    counters = {key: (after[1][key] - before[1][key]) >> 10 for key in COUNTERS}
    print("    " + ", ".join(f"{key} {value}" for key, value in counters.items() if abs(value) > 256), flush=True)


def make_root(at):
    for place in ("usr", "tmp", "many", "proc", "dev", "etc", "home/user"):
        (at / place).mkdir(parents=True)
    for link in ("bin", "lib", "lib64", "sbin"):
        (at / link).symlink_to(f"usr/{link}")
    (at / "tmp").chmod(0o1777)
    (at / "many").chmod(0o1777)
    (at / "many" / "lower").touch()
    at.chmod(0o755)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--cove", default="build/cove")
    words.add_argument("--memory", default="512M")
    words.add_argument("--list", action="store_true")
    words.add_argument("--make", help=argparse.SUPPRESS)
    words.add_argument("families", nargs="*", metavar="FAMILY")
    given = words.parse_args()
    if given.make:
        maker(given.make)
    if given.list:
        for name, (goal, text, _) in FAMILIES.items():
            print(f"{name:20} {goal:8} {text}")
        return
    with tempfile.TemporaryDirectory() as place:
        root = pathlib.Path(place, "root")
        make_root(root)
        pathlib.Path(place).chmod(0o755)
        pathlib.Path(place, "slabs.py").write_bytes(pathlib.Path(__file__).read_bytes())
        for name in given.families or FAMILIES:
            box = [given.cove, "run", "--root", root, "--mount", "/usr:/usr:ro",
                   "--mount", f"{place}/slabs.py:/tmp/slabs.py:ro", "--memory", given.memory, "--pids", "4000",
                   "--timeout", "150s", "--", "/usr/bin/python3", "-I", "/tmp/slabs.py", "--make", name]
            with subprocess.Popen(box, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cove:
                try:
                    measure(cove, name)
                finally:
                    cove.kill()


if __name__ == "__main__":
    main()
