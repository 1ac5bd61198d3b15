"""A keeper of the test build, and the other end of its engine's socket.

The structs are those of src/keeper/request.h and names.h; the sizes are checked by the keeper itself,
which ends an engine that gets one wrong."""
import array
import contextlib
import fcntl
import os
import pathlib
import pwd
import re
import select
import signal
import socket
import struct
import subprocess
import time

import harness

(HELLO, MAKE, CLAIM, USAGE, END, DROP_DISK, WEIGH_DISK, NETWORK, BEAT, ATTACH, DETACH, DISK_ROOM, HOLD_DISK,
 CUT_DISK) = range(1, 15)
HOST, NAMED, BOX, DONE, REFUSED, MADE, USED, ENDED, DISK, SOCKET = range(64, 74)
TCP, UDP, SHUT, DIAL, DIAG = range(1, 6)
ROOT, MOUNT = 1, 2
EPHEMERAL, PERSISTENT = 1, 2
PLAIN, SYSTEM = 0, 1
ADD, REMOVE, LIST = 1, 2, 4
NAME = struct.Struct("=IIII64s1024s512s")

# Another one of a build with the test switches may be named: the one under the sanitizers.
KEEPER = pathlib.Path(os.environ.get("COVE_KEEPER", harness.BUILD / "test/cove-keeper")).absolute()
# As the build has made it.
BUILD = re.search(rb'KEEPER_BUILD "(.*)"', (KEEPER.parent / "src/keeper/build.h").read_bytes())[1]

HEAD = struct.Struct("=II")
LIMITS = struct.Struct("=QIIQQ")
OF_BOX = struct.Struct("=IIQ")
REPORT = struct.Struct("=IIQIIIIQQQQ")
ERROR = struct.Struct("=i32s480s")
MOUNT_ENTRY = struct.Struct("=64s256sII")
NAMED_ENTRY = struct.Struct("=II64s1024sI")
REGISTER = struct.Struct("=IIII64s1024s")

F_OFD_GETLK = 36  # asks who has a lock, and takes none

# How many pid namespaces a box's init is in.
BOX_DEPTH = 3 if harness.EXPECT.is_root else 2

OWNER = "c0" + "a" * 18

# All that a box sees of its network. The rest of a line of sockstat is of the whole host.
TABLES = ("cd /proc/net && cat dev snmp snmp6 netstat dev_snmp6/lo tcp tcp6 route ipv6_route; "
          "grep -o '^[^ ]* [a-z]* [0-9]*' sockstat sockstat6")


def ids_of_disks(data):
    """The disks of an ordinary user by their own words: ids, users and groups, as places in the file of locks; none where
    there is one id."""
    texts = [path.read_text() for path in (data / "disks").glob("*/ids")]
    found = [re.search(r"^ids (range|slice) (\d+) (\d+) ", text, re.MULTILINE) for text in texts]
    return [[int(match[2]), (1 << 32) + int(match[3])] for match in found if match]


def open_ids_lock():
    """The file of locks of an ordinary user."""
    return open(os.path.expanduser(f"~{pwd.getpwuid(os.getuid()).pw_name}/.cache/cove/ids.lock"), "r+b")


def is_free(ids_lock, place):
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
    return struct.unpack("hhqqi4x", fcntl.fcntl(ids_lock, F_OFD_GETLK, wanted))[0] == fcntl.F_UNLCK


def text(data):
    return data.split(b"\0", 1)[0].decode()


def hello(request, build=BUILD):
    return HEAD.pack(HELLO, request) + build.ljust(64, b"\0")


def limits(memory=256 << 20, cpu=0, pids=64, disk=64 << 20, inodes=4096):
    return LIMITS.pack(memory, cpu, pids, disk, inodes)


def make(request, root=b"host", privileges=PLAIN, disk_kind=EPHEMERAL, disk=b"", owner=b"",
         hostname=b"", limit=None, mounts=(), count=None, disk_new=None, tenant=None,
         takes_mounts=0):
    # Mounts are for a sandbox, which is a tenant's.
    owner = owner or (OWNER.encode() if mounts or tenant else b"")
    tenant = (b"default" if owner else b"") if tenant is None else tenant
    entries = b"".join(MOUNT_ENTRY.pack(name, target, read_only, 0)
                       for name, target, read_only in mounts)
    return (struct.pack("=II64sII24s24s64s65s3sI", MAKE, request, root, privileges, disk_kind, disk,
                        owner, tenant, hostname, b"",
                        int(disk_kind == PERSISTENT) if disk_new is None else disk_new) + (limit or limits()) +
            struct.pack("=II", len(mounts) if count is None else count, takes_mounts) +
            entries.ljust(16 * MOUNT_ENTRY.size, b"\0"))


def claim(request, box, owner=OWNER, tenant=b"default"):
    return struct.pack("=IIQ24s64s", CLAIM, request, box, owner.encode(), tenant)


def usage(request, box):
    return OF_BOX.pack(USAGE, request, box)


def end(request, box):
    return OF_BOX.pack(END, request, box)


def drop_disk(request, disk=OWNER):
    return struct.pack("=II24s", DROP_DISK, request, disk.encode())


def weigh_disk(request, disk=OWNER):
    return struct.pack("=II24s", WEIGH_DISK, request, disk.encode())


def network(request, box, what):
    return struct.pack("=IIQII", NETWORK, request, box, what, 0)


def attach(request, box, name, target, read_only=0, tenant=b"default"):
    return struct.pack("=IIQ64s", ATTACH, request, box, tenant) + MOUNT_ENTRY.pack(name, target, read_only, 0)


def detach(request, box, target):
    return struct.pack("=IIQ256s", DETACH, request, box, target)


class Engine:
    """The engine's end of the keeper's socket, and its other fds."""

    def __init__(self, connection, said, fds):
        self.connection = connection
        self.facts = dict(word.split("=", 1) for word in said.split(" "))
        self.pid = int(self.facts["pid"])
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=fds[0])
        self.state = fds[1]
        self.requests = fds[2]
        self.more = fds[3:]
        self.ids = 0
        self.unasked = []

    def close(self):
        self.socket.close()
        for descriptor in (self.state, self.requests, *self.more):
            if descriptor is not None:
                os.close(descriptor)
        self.more, self.state, self.requests = [], None, None
        self.connection.close()

    def next_id(self):
        self.ids += 1
        return self.ids

    def send(self, packet):
        with contextlib.suppress(BrokenPipeError):  # its end is to be read
            while packet:
                select.select([], [self.requests], [], 30 * harness.PATIENCE)
                packet = packet[os.write(self.requests, packet):]

    def receive(self, seconds=30):
        """(type, id, body, fds) of the next answer, or None at the end."""
        self.socket.settimeout(seconds * harness.PATIENCE)
        try:
            data, control, _, _ = self.socket.recvmsg(8192, socket.CMSG_SPACE(64))
        except ConnectionResetError:
            return None
        fds = array.array("i")
        for _, _, value in control:
            fds.frombytes(value[:len(value) - len(value) % fds.itemsize])
        if not data:
            return None
        kind, request = HEAD.unpack_from(data)
        return kind, request, data[HEAD.size:], list(fds)

    def ask(self, function, *arguments, **more):
        """Sends a request and waits for its answer."""
        request = self.next_id()
        self.send(function(request, *arguments, **more))
        while True:
            answer = self.receive()
            assert answer, "the keeper has hung up"
            if answer[1] == request:
                return answer
            self.unasked.append(answer)

    def hello(self):
        """(host, names, boxes as {handle: (owner, control)})"""
        request = self.next_id()
        self.send(hello(request))
        host, names, boxes = None, {}, {}
        self.disks, self.tenants = set(), {}
        while True:
            kind, answered, body, fds = self.receive()
            assert answered == request
            if kind == HOST:
                host = body
            elif kind == NAMED:
                named, is_there, name, tenants, _ = NAMED_ENTRY.unpack(body)
                names[named, text(name)] = bool(is_there)
                self.tenants[named, text(name)] = text(tenants)
            elif kind == BOX:
                handle, owner, _, _, _ = struct.unpack("=Q24s24sII", body)
                boxes[handle] = (text(owner), fds[0])
            elif kind == DISK:
                self.disks.add(text(body))
            elif kind == DONE:
                return host, names, boxes

    def make(self, **more):
        """(handle, control)"""
        kind, _, body, fds = self.ask(make, **more)
        assert kind == MADE, error_of(body)
        assert len(fds) == 1
        return struct.unpack("=Q", body)[0], fds[0]

    def boxed(self, command, uid=None, **more):
        """What a command prints in a box that is ended then, and the report of it."""
        handle, control = self.make(**more)
        box = Control(control).wait_ready()
        printed = box.run(command, uid)
        box.close()
        return printed, self.end(handle)

    def network(self, handle):
        """The two sockets of a box's network, for TCP and for DNS."""
        sockets = []
        for what, kind in ((TCP, socket.SOCK_STREAM), (UDP, socket.SOCK_DGRAM)):
            answer, _, body, fds = self.ask(network, handle, what)
            assert answer == SOCKET, error_of(body)
            assert len(fds) == 1 and not body
            sockets.append(socket.socket(socket.AF_INET6, kind, fileno=fds[0]))
        return sockets

    def refused(self, function, *arguments, **more):
        kind, _, body, fds = self.ask(function, *arguments, **more)
        assert kind == REFUSED and not fds, kind
        return error_of(body)[0]

    def end(self, handle):
        """The report of a box's end."""
        kind, _, body, _ = self.ask(end, handle)
        assert kind == ENDED, kind
        return report_of(body)


def error_of(body):
    _, code, sentence = ERROR.unpack(body)
    return text(code), text(sentence)


def report_of(body):
    names = ("box", "known", "oom_kills", "pids_exceeded", "disk_exceeded",
             "locks_exceeded", "sockets_exceeded", "files_exceeded", "pad", "cpu_ns", "memory", "peak", "disk_bytes")
    return dict(zip(names, struct.unpack("=QIIIIIIIIQQQQ", body)))


class Control:
    """The outside end of a box's control socket: enough of src/box/proto.h to run a command."""

    CONFIG, EXEC, FAILED, READY, STARTED, REFUSED, EXITED = 1, 2, 64, 65, 66, 67, 68

    def __init__(self, descriptor):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=descriptor)

    def receive(self, seconds=30):
        self.socket.settimeout(seconds * harness.PATIENCE)
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:  # what it said before comes after this
            data = self.socket.recv(65536)
        return (*HEAD.unpack_from(data), data[HEAD.size:]) if data else None

    def wait_ready(self):
        kind, _, body = self.receive()
        assert kind == self.READY, body
        return self

    def start(self, command, uid=None):
        """Starts a shell in the box; where its output can be read. `uid` where its init is root."""
        reading, writing = os.pipe()
        strings = b"".join(word.encode() + b"\0" for word in (
            "/", "/bin/sh", "-c", command, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"))
        flags = 0 if uid is None else 4
        packet = struct.pack("=IIIIIIIII128sHH", self.EXEC, 1, flags, 3, 1, len(strings),
                             uid or 0, uid or 0, 0, b"", 0, 0) + strings
        with open("/dev/null", "rb") as null:
            socket.send_fds(self.socket, [packet], [null.fileno(), writing, writing])
        os.close(writing)
        return open(reading, "rb", buffering=0)

    def run(self, command, uid=None, seconds=30):
        """What a shell prints in the box, and all that it left running with the same output."""
        printed, deadline = b"", time.monotonic() + seconds * harness.PATIENCE
        with self.start(command, uid) as output:
            while readable(output, deadline - time.monotonic()):
                data = output.read(65536)
                if not data:
                    break
                printed += data
            else:
                raise AssertionError(f"{command}: not done after {seconds} s")
        while (answer := self.receive())[0] != self.EXITED:
            assert answer[0] == self.STARTED, answer
        return printed.decode()

    def has_ended(self, seconds=30):
        """Whether the other end goes within this time."""
        deadline = time.monotonic() + seconds * harness.PATIENCE
        try:
            while self.receive(max(0.01, deadline - time.monotonic())):
                pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.socket.close()


class Keeper:
    """Runs one; used as a context, which ends it in order."""

    def __init__(self, stand_in, directory, *options, environment=None):
        self.data = directory / "data"
        self.api = directory / "api.sock"
        self.log = directory / "log"
        self.data.mkdir(mode=0o700, exist_ok=True)
        (self.data / "FORMAT").write_text("cove data 1\n")
        (self.data / "engine").mkdir(mode=0o700, exist_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = self.data / "engine" / "test.sock"
        path.unlink(missing_ok=True)
        self.listener.bind(str(path))
        path.chmod(0o666)
        self.listener.listen()
        self.command = [KEEPER, "--data", self.data, "--socket", self.api, "--listen", "none",
                        *options]
        self.environment = {**os.environ, "COVE_TEST_ENGINE": str(stand_in), "SECRET": "4711",
                            **(environment or {})}
        self.process = None
        self.engines = []

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stderr=log,
                                            stdin=subprocess.DEVNULL)
        return self

    def said(self):
        return self.log.read_text(encoding="utf-8")

    def engine(self, seconds=30):
        """The next engine that the keeper starts."""
        self.listener.settimeout(seconds * harness.PATIENCE)
        connection, _ = self.listener.accept()
        said, fds, _, _ = socket.recv_fds(connection, 4096, 16)
        self.engines.append(Engine(connection, said.decode(), fds))
        return self.engines[-1]

    def greeted(self):
        engine = self.engine()
        engine.hello()
        return engine

    def client(self):
        """A connection to keeper.sock."""
        path = str(self.api.with_name("keeper.sock"))
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(30 * harness.PATIENCE)
        harness.wait_for(lambda: client.connect_ex(path) == 0, what="keeper.sock")
        return client

    def register(self, verb, kind=ROOT, name=b"", read_only=0, descriptor=None, tenants=b""):
        """The answer of keeper.sock: (code, sentence, the entries of a list)."""
        with self.client() as client:
            request = REGISTER.pack(verb, kind, read_only, 0, name, tenants)
            socket.send_fds(client, [request], [] if descriptor is None else [descriptor])
            data, fds, _, _ = socket.recv_fds(client, 4096, 2)
            assert len(data) == ERROR.size
            entries = b""
            for listed in fds:
                with open(listed, "rb") as file:
                    entries += file.read()
            return (*error_of(data), list(NAME.iter_unpack(entries)))

    def give(self, path, name=b"given", kind=MOUNT, read_only=0, tenants=b""):
        """Registers what is there. Returns the code of what is wrong with it."""
        descriptor = os.open(path, os.O_PATH)
        try:
            return self.register(ADD, kind, name, read_only, descriptor, tenants)[0]
        finally:
            os.close(descriptor)

    def is_alive(self):
        return self.process.poll() is None

    def __enter__(self):
        return self.start()

    def stop(self, seconds=20):
        for engine in self.engines:
            with contextlib.suppress(OSError):
                engine.connection.send(b"\0")
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds * harness.PATIENCE)

    def __exit__(self, *_):
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            for engine in self.engines:
                with contextlib.suppress(OSError, TypeError):
                    engine.close()
            self.listener.close()


def readable(descriptor, seconds):
    return bool(select.select([descriptor], [], [], max(0, seconds))[0])
