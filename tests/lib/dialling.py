"""Boxes that reach for what is outside: what they dial with, and how they are answered."""
import json
import math
import textwrap

import harness
import sandboxes

QUICK = 1.0  # a refusal says so at once: whoever waits for a time to be over waits for longer

# Dials all that its arguments name, one after the other, and says what came: [text, seconds] each.
DIAL = r"""
import json, socket, sys, time
def dial(host, port):
    with socket.create_connection((host, port), 20) as s:
        s.sendall(b"ping\n")
        s.shutdown(socket.SHUT_WR)
        said = b""
        while data := s.recv(65536):
            said += data
        return said.decode()
out = []
for target in sys.argv[1:]:
    host, _, port = target.rpartition(":")
    began = time.monotonic()
    try:
        text = dial(host.strip("[]"), int(port))
    except OSError as error:
        text = f"{type(error).__name__} {error.errno}"
    out.append([text, time.monotonic() - began])
print(json.dumps(out))
"""

# In the box, before each script: `tried()` says what came of a call, or the name of its error.
BEGIN = """
import errno, fcntl, os, socket, struct, sys, time
V4, V6, STREAM, DATAGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
LIMIT = 20
def tried(function, *arguments):
    begun = time.monotonic()
    try:
        said = function(*arguments)
    except OSError as error:
        said = "late" if error.errno is None else errno.errorcode[error.errno]
    if time.monotonic() - begun > LIMIT / 2:
        said = f"late: {said}"
    return said
def dial(family, *address):
    with socket.socket(family, STREAM) as client:
        client.settimeout(LIMIT)
        client.connect(address)
        client.sendall(b"hello\\n")
        client.shutdown(socket.SHUT_WR)
        return client.makefile().read().strip()
def ask(family, *address):
    with socket.socket(family, DATAGRAM) as client:
        client.settimeout(LIMIT)
        client.connect(address)
        client.send(b"question")
        return client.recv(1000).decode()
"""

# Each by what the programs of the trade say to the kernel. What is printed is what succeeded.
TAMPER = """
    def netlink(protocol, *messages):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as kernel:
            kernel.settimeout(LIMIT)
            kernel.bind((0, 0))
            kernel.sendto(b"".join(messages), (0, 0))
            while True:
                data = kernel.recv(65536)
                length, kind = struct.unpack_from("=IH", data)
                if kind == 2:
                    code = -struct.unpack_from("=i", data, 16)[0]
                    if code:
                        raise OSError(code, "refused")
                    return "done"
    def message(kind, flags, body):
        body += bytes(-len(body) % 4)
        return struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body
    def attribute(kind, value):
        return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
    def route(kind, family, table, rtype):
        return netlink(0, message(kind, 0x400, struct.pack("=BBBBBBBBI", family, 0, 0, 0, table, 4, 254 if rtype == 2
                       else 0, rtype, 0) + attribute(4, struct.pack("=I", 1))))
    def flush():
        table = struct.pack("=BBH", 1, 0, 0) + attribute(1, b"cove\\0")
        edge = lambda kind: struct.pack("=IHHII", 20, kind, 1, 1, 0) + struct.pack("=BBH", 0, 0, 0x0a00)
        return netlink(12, edge(16), message(0x0a02, 0, table), edge(17))
    def make_link(kind):
        info = attribute(18, attribute(1, kind))
        return netlink(0, message(16, 0x600, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0) + info))
    def lo_down():
        with socket.socket(V4, DATAGRAM) as any:
            fcntl.ioctl(any, 0x8914, struct.pack("16sH14x", b"lo", 0))
            return "done"
    def address():
        return netlink(0, message(20, 0x600, struct.pack("=BBBBI", 2, 32, 0, 0, 1) +
                       attribute(2, bytes([10, 9, 9, 9]))))
    def sysctl(name, value):
        with open(f"/proc/sys/net/{name}", "w") as file:
            file.write(value)
        return "done"
    def option(level, name, value):
        with socket.socket(V4, STREAM) as any:
            any.setsockopt(level, name, value)
            return "done"
    def take(family, kind, address, *options):
        with socket.socket(family, kind) as any:
            for name in options:
                any.setsockopt(socket.SOL_SOCKET, name, 1)
            any.bind(address)
            if kind == STREAM:
                any.listen()
            return "done"
    def enter(kind):
        libc = __import__("ctypes").CDLL(None, use_errno=True)
        if libc.unshare(kind) < 0:
            raise OSError(__import__("ctypes").get_errno(), "unshare")
        return "done"
    tries = {
        "flush": (flush,), "route": (route, 24, 2, 255, 2), "unroute": (route, 25, 2, 255, 2),
        "unroute6": (route, 25, 10, 255, 2), "rule": (lambda: netlink(0, message(32, 0x600, bytes(12)))),
        "dummy": (make_link, b"dummy"), "veth": (make_link, b"veth"), "ifb": (make_link, b"ifb"),
        "down": (lo_down,), "address": (address,),
        "forward": (sysctl, "ipv4/ip_forward", "1"), "local": (sysctl, "ipv4/conf/lo/route_localnet", "1"),
        "disable": (sysctl, "ipv6/conf/all/disable_ipv6", "1"),
        "ports": (sysctl, "ipv4/ip_local_port_range", "61000 61001"),
        "mark": (option, socket.SOL_SOCKET, 36, 1), "transparent": (option, 0, 19, 1),
        "tun": (os.open, "/dev/net/tun", os.O_RDWR),
        "network": (enter, 0x40000000), "users": (enter, 0x10000000), "both": (enter, 0x50000000),
    }
    for kind, name in ((STREAM, "tcp"), (DATAGRAM, "udp")):
        for family, at in ((V4, "0.0.0.0"), (V4, "127.0.0.1"), (V4, "8.8.8.8"), (V6, "::"), (V6, "::1")):
            for options in ((), (2,), (15,), (2, 15)):
                tries[f"{name} {at} {options}"] = (take, family, kind, (at, 61000), *options)
    for name, call in tries.items():
        said = tried(*(call if isinstance(call, tuple) else (call,)))
        if said not in ("EPERM", "EACCES", "EROFS", "ENOENT", "ENODEV", "EADDRINUSE", "EAFNOSUPPORT", "ENXIO",
                        "EPROTONOSUPPORT", "EOPNOTSUPP", "ENOSYS"):
            print(name, said)
"""


def script(text):
    """A script for Python in the box."""
    return BEGIN + textwrap.dedent(text)


def is_late(answer):
    """A refusal: of what waits for a question that was lost, it comes after five seconds."""
    text, seconds = answer
    return QUICK * harness.PATIENCE <= seconds < 4.5 * harness.PATIENCE and not text.startswith("hello")


class Sandbox(sandboxes.Sandbox):
    def dial(self, *targets):
        """What came of each: (text, seconds). A late refusal is tried twice more: if it waits for something, it is late
        again; if the machine was busy, it is not. What waits for a question that was lost is late by five seconds."""
        answers = self.dialled(*targets)
        for _ in range(2):
            for at, answer in enumerate(answers):
                if is_late(answer):
                    answers[at] = min(answers[at], self.dialled_anew(targets[at]), key=lambda answer: answer[1])
        return answers

    def dialled_anew(self, target):
        """What came of it another time; where it is a name, which this sandbox keeps, in another sandbox."""
        if not target[0].isalpha():
            return self.dialled(target)[0]
        with Sandbox(self.client, network=self.network()["policy"]) as other:
            answer = other.dialled(target)[0]
        return (answer[0], math.inf) if answer[0].startswith("hello") else answer

    def dialled(self, *targets):
        return [tuple(one) for one in json.loads(self.output("python3", "-c", DIAL, *targets))]

    def set(self, **network):
        answer = self.client.ask("PATCH", self.path, {"network": network})
        assert answer.status == 200, answer
        return answer.json["network"]

    def network(self, **query):
        answer = self.client.get(f"{self.path}/network", query=query)
        assert answer.status == 200, answer
        return answer.json

    def records(self, **wanted):
        return [record for record in self.network(limit=256)["records"]
                if all(record[key] == value for key, value in wanted.items())]


def reaches(answer, hello="hello "):
    text, seconds = answer
    assert text.startswith(hello), text
    assert text.endswith("ping\nbye\n"), text
    assert seconds < 5 * harness.PATIENCE
    return True


def refused(answer, *kinds):
    """A reset may be there before the client has said that he says no more: that is ENOTCONN, or EPIPE."""
    text, seconds = answer
    assert text.split(" ")[0] in (kinds or ("ConnectionResetError", "ConnectionRefusedError",
                                            "BrokenPipeError")) or (not kinds and text == "OSError 107"), text
    assert seconds < QUICK * harness.PATIENCE, seconds
    return True


def no_name(answer):
    return refused(answer, "gaierror")


# Keeps one connection to each argument open; for each line of its input it asks all of them, and says which answer.
HOLD = r"""
import socket, sys
held = []
for target in sys.argv[1:]:
    host, _, port = target.rpartition(":")
    s = socket.create_connection((host, int(port)), 20)
    f = s.makefile("rwb")
    f.readline()
    held.append(f)
print("held", flush=True)
for line in sys.stdin:
    said = []
    for f in held:
        try:
            f.write(line.encode()); f.flush()
            said.append("yes" if f.readline().decode() == line else "no")
        except OSError as error:
            said.append("no")
    print(line.strip(), *said, flush=True)
"""


class Held:
    def __init__(self, sandbox, *targets, program=HOLD):
        self.sandbox = sandbox
        self.path = sandbox.start("python3", "-c", program, *targets, open_stdin=True)
        self.count = 0
        self.wait("held")

    def said(self):
        return self.sandbox.client.get(f"{self.path}/output").bytes.decode()

    def wait(self, word):
        def line():
            return [text for text in self.said().splitlines() if text.startswith(word)]
        harness.wait_for(line, 20 * harness.PATIENCE, word)
        return line()[0].split()[1:]

    def ask(self):
        self.count += 1
        self.sandbox.type(self.path, f"ask{self.count}\n")
        return self.wait(f"ask{self.count}")
