"""Ways around the policy of a sandbox, by the numbers of the list of attacks: each is tried from inside of a real
box, against a world in which whoever gets through is answered, and seen (worlds.py)."""
import json
import subprocess

import pytest

import harness
import serving
import worlds
from dialling import DIAL, Held, no_name, reaches, Sandbox, script, TAMPER
from worlds import METADATA, OTHER, OWN, PRIVATE, SERVER, SERVER6

pytestmark = pytest.mark.wall

IS_ROOT = harness.EXPECT.is_root
TLS_PORT = 8443
BRIDGE = "172.17.0.1"  # of the host, where containers have their gateway
OWN6 = "2001:db8:77::1"
LOOP = "127.0.0.1"
# A proxy that is told names is asked, too, for one that has no address here: behind it each turn has one.
TURNS = [[SERVER], [LOOP], [METADATA], [OWN], [PRIVATE], *([["::1"]] if IS_ROOT else []), ["0.0.0.0"]]

# What no rule opens, by name: each an address that is, or wraps, one of the host's or of the metadata services.
FIXED = {
    "any": ["0.0.0.0"], "any6": ["::"], "compat": ["::127.0.0.1"], "6to4": ["2002:7f00:1::"],
    "teredo": ["2001:0:cb00:7102:0:0:80ff:fffe"], "siit": ["::ffff:0:127.0.0.1"],
    "6to4-meta": ["2002:a9fe:a9fe::1"], "nat-meta": ["64:ff9b::a9fe:a9fe"],
    "nat-own": ["64:ff9b::cb00:7101"], "alibaba": ["100.100.100.200"], "azure": ["168.63.129.16"],
    "oracle": ["192.0.0.192"], "aws6": ["fd00:ec2::254"], "google6": ["fd20:ce::254"],
    "site-nat": ["64:ff9b:1::a9fe:a9fe"], "fake": ["198.18.0.2"], "multi": ["224.0.0.1"],
    "cname": {"cname": "inside.test", "addresses": [LOOP]},
    "cname-meta": {"cname": "inside.test", "addresses": [METADATA]},
}
HOSTILE = {
    **worlds.NAMES, **{f"{name}.fixed.test": found for name, found in FIXED.items()},
    "cname-private.test": {"cname": "inside.test", "addresses": [PRIVATE]},
    "cname-open.test": {"cname": "inside.test", "addresses": [SERVER]}, "open.fixed.test": [SERVER],
    "zero.test": {"addresses": [SERVER], "ttl": 0},
    "rebind.test": {"turns": [[SERVER], [LOOP]], "ttl": 0},
    "whirl.test": {"turns": TURNS * 30, "ttl": 0},
    "a.test": [OTHER], "xa.test": [OTHER], "*.a.test": [SERVER], "y.x.a.test": [SERVER],
    "x.a.test.other.test": [OTHER], "*.slow.test": None,
}

nothing_left, serve, client = serving.one_for_all(in_world=True)
KINDS = pytest.mark.parametrize("privileges", ["plain", "system"])
ALL = {"mode": "public", "allow": ["*", "0.0.0.0/0", "::/0", "*.test private=yes"]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Of a CA of our own, which is the server, too."""
    place = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", "/CN=four.test", "-addext", "subjectAltName=DNS:four.test",
                    "-keyout", place / "key", "-out", place / "certificate"], check=True, capture_output=True)
    return place / "certificate", place / "key"


@pytest.fixture(scope="module")
def world(tmp_path_factory, certificate):
    more = {"ports": [*worlds.PORTS, 53, 853, 5353], "sniff": True} if IS_ROOT else {}
    with worlds.World(tmp_path_factory.mktemp("world"), HOSTILE, everything=True,
                      tls=[TLS_PORT, *map(str, certificate)], **more) as made:
        if IS_ROOT:
            worlds.run_in(made.inner, "ip", "link", "add", "docker0", "type", "veth", "peer", "docker1")
            worlds.run_in(made.inner, "ip", "address", "add", f"{BRIDGE}/16", "dev", "docker0")
            worlds.run_in(made.inner, "ip", "link", "set", "docker0", "up")
        made.host_port, = made.start_inside(ports=[80 if IS_ROOT else 0])
        yield made


class Watch:
    """What of the world was touched since."""

    def __init__(self, world):
        self.world = world
        if IS_ROOT:  # what came before it is noted, and is noted again if it comes again
            world.mark()
            world.forget()
        self.before = len(world.said())

    def lines(self, kind):
        return [line.split(" ")[1:] for line in self.world.said()[self.before:] if line.startswith(kind + " ")]

    def touched(self):
        return self.lines("tcp") + self.lines("tls")

    def asked(self):
        return [name for name, _ in self.lines("dns")]

    def packets(self):
        """Of all kinds of packet, up to now. Who makes no networks sees none."""
        if IS_ROOT:
            self.world.mark()
        return {tuple(packet) for packet in self.lines("packet")} - self.world.all_marks()


def python(sandbox, code, *arguments, **fields):
    return sandbox.output("python3", "-c", code, *arguments, **fields)


def host_addresses(world):
    """Those that the engine's host has."""
    enter = ["nsenter", f"--net=/proc/{world.inner}/ns/net"] if IS_ROOT else []
    links = json.loads(subprocess.run([*enter, "ip", "-json", "address"], check=True, capture_output=True).stdout)
    return [one["local"] for link in links for one in link["addr_info"] if not one["local"].startswith("fe80")]


def at(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def none_reaches(sandbox, world, targets):
    """Not one of them, and each is told so at once."""
    watch = Watch(world)
    for target, (text, seconds) in zip(targets, sandbox.dial(*targets)):
        assert not text.startswith("hello"), (target, text)
        assert seconds < harness.PATIENCE, (target, text, seconds)
    assert not watch.touched(), watch.touched()


def reasons(sandbox):
    """For which it was refused something."""
    return {record["reason"] for record in sandbox.records(verdict="denied")}


# ---- the world itself ---------------------------------------------------------------------------

WOULD = [LOOP, "::1", "0.0.0.0", OWN, OWN6, BRIDGE, "10.77.0.1", METADATA, "100.100.100.200", "168.63.129.16",
         "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", PRIVATE]


def test_the_world_would_answer(world):
    """Or no test below could fail."""
    if IS_ROOT:
        for _ in range(2):
            watch = Watch(world)
            assert not watch.packets()
            subprocess.run(["nsenter", f"--net=/proc/{world.inner}/ns/net", "python3", "-c", DIAL, at(OTHER, 80),
                            at(SERVER6, 80)], check=True, capture_output=True)
            assert watch.packets() == {("6", OTHER, "80"), ("6", SERVER6, "80")}
        said = subprocess.run(["nsenter", f"--net=/proc/{world.inner}/ns/net", "python3", "-c", DIAL,
                               *[at(address, 80) for address in WOULD]], check=True, capture_output=True)
        assert all(text.startswith("hello ") for text, _ in json.loads(said.stdout)), said.stdout
    else:
        said = subprocess.run(["python3", "-c", DIAL, at(LOOP, world.host_port), at("::1", world.host_port)],
                              check=True, capture_output=True)
        assert all(text.startswith("hello ") for text, _ in json.loads(said.stdout)), said.stdout


# ---- 65: the host -------------------------------------------------------------------------------

@KINDS
def test_65_the_host_itself(client, world, privileges):
    port = world.host_port
    own = [at(address, port) for address in host_addresses(world)]
    four = [one for one in own if "[" not in one]
    loops = [at(address, port) for address in ("127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::", "0.1.2.3",
             "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0.0.0.0", "2002:7f00:1::", "64:ff9b::7f00:1")]
    assert len(own) > (4 if IS_ROOT else 1) and four
    with Sandbox(client, network=ALL, privileges=privileges) as sandbox:
        none_reaches(sandbox, world, own + loops + [f"[::ffff:{one.rpartition(':')[0]}]:{port}" for one in four])
        none_reaches(sandbox, world, [f"{name}.test:{port}" for name in ("loop", "loop6", "mapped", "nat")] +
                     ([f"own.test:{port}"] if IS_ROOT else []))
        done = sandbox.run("sh", "-c", "echo GET / | timeout 5 python3 -c 'import socket; "
                           f"socket.create_connection((\"localhost\", {port}), 5)'")
        assert done["process"]["exit_code"] != 0
        assert {"loopback"} <= reasons(sandbox) <= {"loopback", "host", "fake"}, reasons(sandbox)


def test_65_an_address_that_the_host_gets_is_its_own_at_once(client, world):
    if not IS_ROOT:
        assert host_addresses(world)
        return
    with Sandbox(client, network=ALL) as sandbox:
        for address in ("198.51.100.9", "2001:db8:99::9"):
            assert reaches(sandbox.dial(at(address, 80))[0])
            worlds.run_in(world.inner, "ip", "address", "add", address, "dev", "docker0",
                          *(["nodad"] if ":" in address else []))
            none_reaches(sandbox, world, [at(address, 80)])
            worlds.run_in(world.inner, "ip", "address", "del", address, "dev", "docker0")


def test_65_what_the_host_takes_for_itself_is_its_own(client, world):
    """A route says so as well as an address does: whoever listens on all addresses there has these."""
    if not IS_ROOT:
        assert host_addresses(world)
        return
    ranges = {"198.51.100.64/26": "198.51.100.70", "2001:db8:99::/64": "2001:db8:99::70"}
    with Sandbox(client, network=ALL) as sandbox:
        for network, address in ranges.items():
            family = "-6" if ":" in address else "-4"
            assert reaches(sandbox.dial(at(address, 80))[0])
            worlds.run_in(world.inner, "ip", family, "route", "add", "local", network, "dev", "lo")
            try:
                none_reaches(sandbox, world, [at(address, 80)])
            finally:
                worlds.run_in(world.inner, "ip", family, "route", "del", "local", network, "dev", "lo")
        assert reasons(sandbox) == {"host"}


# ---- 66: metadata -------------------------------------------------------------------------------

@KINDS
def test_66_metadata_in_all_spellings(client, world, privileges):
    spellings = [METADATA, "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518",
                 "169.16689662", "100.100.100.200", "168.63.129.16", "192.0.0.192", "169.254.170.2", "169.254.1.1"]
    six = ["fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", f"::ffff:{METADATA}", "::a9fe:a9fe",
           "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "2002:a9fe:a9fe::1", "::ffff:0:a9fe:a9fe",
           "64:ff9b::6464:64c8", "2001:0:cb00:7102:0:0:5601:5601", "64:ff9b:1::a9fe:a9fe"]
    targets = [f"{address}:80" for address in spellings] + [f"[{address}]:80" for address in six]
    with Sandbox(client, network=ALL, privileges=privileges) as sandbox:
        none_reaches(sandbox, world, targets)
        none_reaches(sandbox, world, ["meta.test:80"])
        assert {"metadata", "link_local"} <= reasons(sandbox), reasons(sandbox)


# ---- 67: names that lead elsewhere --------------------------------------------------------------

@pytest.mark.parametrize("network", [ALL, {"allow": ["*.fixed.test"]}, {"mode": "public"}])
def test_67_names_of_what_is_fixed(client, world, network):
    with Sandbox(client, network=network) as sandbox:
        none_reaches(sandbox, world, [f"{name}.fixed.test:80" for name in FIXED
                                      if IS_ROOT or name != "nat-own"])
        assert reaches(sandbox.dial("open.fixed.test:80")[0])
        assert reasons(sandbox) == {"loopback", "metadata", "reserved", "fake", "multicast"} | (
            {"host"} if IS_ROOT else set())


def test_67_an_alias_of_a_private_address(client, world):
    for network in ({"mode": "public"}, {"allow": ["cname-private.test", "cname-open.test"]}):
        with Sandbox(client, network=network) as sandbox:
            none_reaches(sandbox, world, ["cname-private.test:80"])
            assert reasons(sandbox) == {"private"}
            assert reaches(sandbox.dial("cname-open.test:80")[0])


def test_67_rebinding_between_two_lookups(client, world):
    """Judged when it is looked up, it is judged again when it is dialled."""
    with Sandbox(client, network=ALL) as sandbox:
        none_reaches(sandbox, world, ["rebind.test:80"] * 5)
        assert reaches(sandbox.dial("zero.test:80")[0])


def test_67_a_name_that_never_stands_still(client, world):
    watch = Watch(world)
    with Sandbox(client, network={"mode": "public"}) as sandbox:
        answers = sandbox.dialled(*["whirl.test:80"] * 60)
    reached = [text for text, _ in answers if text.startswith("hello")]
    assert len(watch.touched()) == len(reached) < 60
    assert all(where == [SERVER if IS_ROOT else "whirl.test", "80"] for where in watch.touched()), watch.touched()


# ---- 68: who is meant, by what is said inside ----------------------------------------------------

SECURE = r"""
import json, socket, ssl, sys, time
trusted, port = sys.argv[1], int(sys.argv[2])
def talk(host, sni, said, small=False):
    context = ssl.create_default_context(cadata=trusted) if sni == "four.test" else ssl._create_unverified_context()
    context.check_hostname = sni == "four.test"
    read, write = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(read, write, server_hostname=sni)
    with socket.create_connection((host, port), 20) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        def flush():
            data = write.read()
            step = 7 if small else len(data) or 1
            for at in range(0, len(data), step):
                wire.sendall(data[at:at + step])
        def until(call):
            while True:
                try:
                    return call()
                except ssl.SSLWantReadError:
                    flush()
                    data = wire.recv(65536)
                    read.write(data) if data else read.write_eof()
        until(tls.do_handshake)
        tls.write(said.encode())
        flush()
        text = until(lambda: tls.read(65536)).decode()
        while "}" not in text:
            text += until(lambda: tls.read(65536)).decode()
        return json.loads(text.partition("\r\n\r\n")[2])
for line in json.loads(sys.argv[3]):
    try:
        said = talk(*line)
        print(said["sni"], said["at"])
    except OSError as error:
        print(type(error).__name__)
"""


def test_68_what_is_said_inside_leads_nowhere_else(client, world, certificate):
    """Any server name, any Host, none at all, in pieces: it is the allowed host that hears it, and no other."""
    watch = Watch(world)
    host = "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"
    lines = [["four.test", "four.test", "GET / HTTP/1.1\r\nHost: four.test\r\n\r\n"],
             ["four.test", "four.test", host], ["four.test", "other.test", host], ["four.test", None, host],
             ["four.test", "four.test", "GET / HTTP/1.0\r\n\r\n"],
             ["four.test", "four.test", "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n"],
             ["four.test", "four.test", host, True],
             ["other.test", "four.test", host], [OTHER, "four.test", host]]
    with Sandbox(client, network={"allow": [f"four.test:{TLS_PORT}"]}) as sandbox:
        said = python(sandbox, SECURE, certificate[0].read_text(), str(TLS_PORT), json.dumps(lines)).splitlines()
        where = SERVER if IS_ROOT else LOOP
        assert said[:7] == [f"{sni} {where}" for _, sni, *_ in lines[:7]], said
        assert said[7] == "gaierror" and said[8] in ("ConnectionResetError", "BrokenPipeError"), said
    assert {name[0] for name in watch.lines("tls")} == {where}
    assert not IS_ROOT or not watch.lines("tcp")


# ---- 69: names that look alike -------------------------------------------------------------------

# Asks raw questions, [[server, "udp" or "tcp", [label in hex, ...], type], ...]: the code, and the addresses.
ASK = r"""
import json, socket, struct, sys
def ask(server, how, labels, kind):
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    name = b"".join(bytes([len(label) // 2]) + bytes.fromhex(label) for label in labels) + b"\0"
    packet = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + name + struct.pack("!HH", kind, 1)
    with socket.socket(family, socket.SOCK_DGRAM if how == "udp" else socket.SOCK_STREAM) as s:
        s.settimeout(20)
        s.connect((server, 53))
        if how == "udp":
            s.send(packet)
            data = s.recv(65536)
        else:
            s.sendall(struct.pack("!H", len(packet)) + packet)
            s.recv(2, socket.MSG_WAITALL)
            data = s.recv(65536)
    assert data[:2] == packet[:2] and data[2] & 0x80
    return [data[3] & 15, struct.unpack_from("!H", data, 6)[0]]
out = []
for question in json.loads(sys.argv[1]):
    try:
        out.append(ask(*question))
    except OSError as error:
        out.append(type(error).__name__)
print(json.dumps(out))
"""


def ask(sandbox, *questions):
    return json.loads(python(sandbox, ASK, json.dumps(questions)))


def labels(name):
    return [label.encode().hex() for label in name.split(".")]


def test_69_names_that_look_alike(client, world):
    watch = Watch(world)
    with Sandbox(client, network={"allow": ["*.a.test"]}) as sandbox:
        yes = ["x.a.test", "X.A.TEST", "x.a.test.", "y.x.a.test", "under_score.a.test", "b\u00fccher.a.test"]
        answers = sandbox.dial(*[f"{name}:80" for name in yes])
        assert all(reaches(answer) for answer in answers), answers
        no = ["a.test", "xa.test", "a.test.", "A.Test", "x.a.test.other.test", "x.a.testother.test", "x-a.test"]
        assert all(no_name(answer) for answer in sandbox.dial(*[f"{name}:80" for name in no]))
        # What one reads as the end of a name another reads as a part of it.
        tricks = [["x".encode().hex(), b"a.test".hex()], [b"other.test\0".hex(), *labels("a.test")],
                  [b"other.test.".hex(), *labels("a.test")], ["b\u00fc".encode().hex(), *labels("a.test")],
                  [b" x".hex(), *labels("a.test")], [b"*".hex(), *labels("a.test")]]
        for code, count in ask(sandbox, *[["198.18.0.1", "udp", trick, 1] for trick in tricks]):
            assert code == 3 and count == 0
    asked = set(watch.asked())
    assert asked <= {"x.a.test", "y.x.a.test", "under_score.a.test", "xn--bcher-kva.a.test"}, asked


# ---- 70: names as a way out ----------------------------------------------------------------------

RESOLVERS = ["198.18.0.1", "8.8.8.8", SERVER, "2001:4860:4860::8888", SERVER6, "9.9.9.9"]
TYPES = [1, 28, 16, 10, 255, 5, 15, 33, 65, 2, 6, 12, 65399]


@KINDS
def test_70_nothing_leaves_by_names(client, world, privileges):
    secret = ["61" * 63, "62" * 63, *labels("evil.test")]
    watch = Watch(world)
    with Sandbox(client, network={"allow": ["four.test:80"]}, privileges=privileges) as sandbox:
        asked = [[server, how, secret, kind] for server in RESOLVERS for how in ("udp", "tcp")
                 for kind in (TYPES if server == SERVER else TYPES[:4])]
        for question, answer in zip(asked, ask(sandbox, *asked)):
            assert answer == [3, 0], (question, answer)
        assert not watch.asked(), watch.asked()
        # Of an allowed name no more than its addresses is known, and nobody is asked for more.
        answers = ask(sandbox, *[["1.1.1.1", "udp", labels("four.test"), kind] for kind in TYPES])
        assert answers == [[0, 1], [0, 1]] + [[0, 0]] * (len(TYPES) - 2), answers
        assert {kind for _, kind in watch.lines("dns")} == {"A", "AAAA"}
        # DNS by other doors.
        targets = [f"{SERVER}:853", f"{SERVER}:443", f"[{SERVER6}]:853", "8.8.8.8:443", f"{SERVER}:5353"]
        none_reaches(sandbox, world, targets)


def test_70_port_53_is_no_tunnel(client, world):
    code = f"""
import socket
for host in ("{SERVER}", "{OTHER}", "{SERVER6}"):
    for data in (b"GET / HTTP/1.0\\r\\n\\r\\n", b"\\x00\\x00", b"\\xff\\xff" + bytes(70000), b"SSH-2.0-x\\r\\n" * 9):
        with socket.create_connection((host, 53), 20) as s:
            said = b""
            try:
                s.sendall(data); s.shutdown(socket.SHUT_WR)
                said = s.recv(100)
            except OSError: pass
            assert not said.startswith(b"hello"), said
print("done")
"""
    watch = Watch(world)
    for network in ({"mode": "public"}, {"allow": ["four.test"]}):
        with Sandbox(client, network=network) as sandbox:
            assert python(sandbox, code) == "done\n"
    assert not watch.touched(), watch.touched()


# ---- 71: what is no TCP --------------------------------------------------------------------------

OTHERS = """
    SERVER, SERVER6 = sys.argv[1:3]
    def send(family, address, port, size, *options):
        with socket.socket(family, DATAGRAM) as any:
            any.settimeout(LIMIT)
            for level, name, value in options:
                any.setsockopt(level, name, value)
            any.connect((address, port))
            any.send(bytes(size))
            return any.recv(100)
    def ping(family, protocol, address, kind):
        with socket.socket(family, DATAGRAM, protocol) as any:
            any.settimeout(LIMIT)
            any.connect((address, 0))
            any.send(struct.pack("!BBHHH", kind, 0, 0, 0, 1))
            return any.recv(100)
    def make(family, kind, protocol, address):
        with socket.socket(family, kind, protocol) as any:
            any.settimeout(LIMIT)
            any.connect((address, 80))
            any.send(b"hello")
            return any.recv(100)
    def through(family, address, level, name, value, limit=LIMIT):
        with socket.socket(family, STREAM) as any:
            any.settimeout(limit)
            any.setsockopt(level, name, value)
            any.connect((address, 443))
            return any.recv(100)
    def fast(address):
        with socket.socket(V4, STREAM) as any:
            any.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", LIMIT, 0))
            any.sendto(b"early", 0x20000000, (address, 443))
            return any.recv(100)
    def marked(address):
        with socket.socket(V4, DATAGRAM) as any:
            any.settimeout(LIMIT)
            any.sendmsg([b"x"], [(socket.SOL_SOCKET, 36, struct.pack("I", 1))], 0, (address, 443))
            any.connect((address, 443))
            return any.recv(100)
    v4 = socket.inet_pton(V4, SERVER)
    # A route that the sender chooses: strict and loose (IPv4), by segments and home address (IPv6).
    srh = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + 2 * socket.inet_pton(V6, SERVER6)
    home = bytes([0, 2, 2, 1, 0, 0, 0, 0]) + socket.inet_pton(V6, SERVER6)
    tries = {}
    for port in (443, 80, 123, 853, 4433, 5353, 61000):
        tries[f"udp {port}"] = (send, V4, SERVER, port, 10)
        tries[f"udp6 {port}"] = (send, V6, SERVER6, port, 10)
    tries["pieces"] = (send, V6, SERVER6, 443, 8000, (41, 24, 1280))
    tries["big"] = (send, V4, SERVER, 443, 65000)
    tries["big6"] = (send, V6, SERVER6, 443, 65000)
    tries["ping"] = (ping, V4, 1, SERVER, 8)
    tries["ping6"] = (ping, V6, 58, SERVER6, 128)
    for protocol in (1, 2, 4, 6, 17, 33, 41, 47, 50, 58, 103, 112, 115, 132, 136, 137, 255, 262):
        for kind in (STREAM, DATAGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET, 6):
            if (protocol, kind) not in ((6, STREAM), (17, DATAGRAM), (1, DATAGRAM)):
                tries[f"{protocol} {kind}"] = (make, V4, kind, protocol, SERVER)
            if (protocol, kind) not in ((6, STREAM), (17, DATAGRAM), (58, DATAGRAM)):
                tries[f"{protocol} {kind} six"] = (make, V6, kind, protocol, SERVER6)
    for name, option in (("loose", 131), ("strict", 137)):
        tries[name] = (through, V4, "203.0.113.3", 0, 4, bytes([option, 7, 4]) + v4 + bytes(1))
    # Kernels that know these drop them, and nobody can tell the sender: the address that it knows is no longer there.
    routed = {"segments": srh, "home": home}
    for name, header in routed.items():
        tries[name] = (through, V6, "2001:db8:77::3", 41, 57, header, 2)
    tries["hop"] = (through, V6, "2001:db8:77::3", 41, 54, bytes([0, 0, 1, 4, 0, 0, 0, 0]))
    tries["fast"] = (fast, SERVER)
    tries["mark"] = (marked, SERVER)
    for name, call in tries.items():
        said = tried(*call)
        if isinstance(said, bytes) and not said or said == "late" and name in routed or said in (
                "ECONNREFUSED", "EPERM", "EACCES", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EAFNOSUPPORT", "EINVAL",
                "EHOSTUNREACH", "ENETUNREACH", "ENOPROTOOPT", "ECONNRESET", "EMSGSIZE", "EPIPE", "EOPNOTSUPP"):
            continue
        print(name, said)
"""


def walls(sandbox, text, *arguments):
    return python(sandbox, script(text), *arguments)


@KINDS
def test_71_all_that_is_no_tcp_and_no_dns(client, world, privileges):
    watch = Watch(world)
    with Sandbox(client, network={"allow": ["four.test:80"]}, privileges=privileges) as sandbox:
        assert walls(sandbox, OTHERS, SERVER, SERVER6) == ""
        assert not watch.touched()
        assert reaches(sandbox.dial("four.test:80")[0])
    packets = watch.packets()
    assert packets == ({("17", SERVER, "53"), ("6", SERVER, "80")} if IS_ROOT else set()), packets


# ---- 72: a policy that changes -------------------------------------------------------------------

def test_72_a_change_holds_for_what_is_under_way(client, world):
    """What is open, what was looked up before, a stream of questions that stands: all of it by the policy of now."""
    stream = """
import socket, struct, sys
def ask(s, name):
    wire = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\\0"
    packet = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + wire + struct.pack("!HH", 1, 1)
    s.sendall(struct.pack("!H", len(packet)) + packet)
    size, = struct.unpack("!H", s.recv(2, socket.MSG_WAITALL))
    return s.recv(size, socket.MSG_WAITALL)
s = socket.create_connection(("9.9.9.9", 53), 20)
fake = socket.inet_ntoa(ask(s, "other.test")[-4:])
print("held", flush=True)
for line in sys.stdin:
    said = []
    try:
        said.append(str(ask(s, "other.test")[3] & 15))
    except (OSError, struct.error):
        said.append("cut")
    try:
        with socket.create_connection((fake, 80), 20) as one:
            said.append("yes" if one.recv(100).startswith(b"hello") else "no")
    except OSError:
        said.append("no")
    print(line.strip(), *said, flush=True)
"""
    with Sandbox(client) as sandbox:
        held = Held(sandbox, "four.test:80", "other.test:443")
        names = Held(sandbox, program=stream)
        assert held.ask() == ["yes", "yes"] and names.ask() == ["0", "yes"]
        sandbox.set(allow=["four.test"])
        watch = Watch(world)
        assert held.ask() == ["yes", "no"] and names.ask() == ["3", "no"]
        assert not watch.touched() and "other.test" not in watch.asked()
        sandbox.set(mode="none")
        assert held.ask() == ["no", "no"] and names.ask() == ["cut", "no"]
        assert not watch.touched()


def test_72_a_denied_address_is_cut_whatever_its_name(client):
    if not IS_ROOT:
        return  # which address it is only the proxy knows; test_network.py has the rest
    with Sandbox(client) as sandbox:
        held = Held(sandbox, "four.test:80", f"{SERVER}:443", "other.test:80")
        sandbox.set(mode="public", deny=[SERVER])
        assert held.ask() == ["no", "no", "yes"]


# ---- 73: nothing ---------------------------------------------------------------------------------

NOTHING = """
    routes = open("/proc/net/route").read().splitlines()[1:]
    routes6 = [line.split()[-1] for line in open("/proc/net/ipv6_route") if not line.startswith("0" * 31)
               and line.split()[5] != "ffffffff"]
    print(routes, [name for name in routes6 if name != "lo"], sorted(os.listdir("/sys/class/net"))
          if os.path.isdir("/sys/class/net") else ["lo"])
    print(*(tried(ask, V4, address, 53) for address in ("198.18.0.1", "8.8.8.8", "203.0.113.2")),
          *(tried(dial, V4, address, 80) for address in ("203.0.113.2", "198.18.0.2", "169.254.169.254")),
          *(tried(dial, V6, address, 80) for address in ("2001:db8:77::2", "fd63:6f76:6500::2")),
          tried(ask, V6, "2001:db8:77::2", 53))
    begun = time.monotonic()
    try:
        print(socket.getaddrinfo("four.test", 80))
    except socket.gaierror:
        print("no name", time.monotonic() - begun < LIMIT / 2)
"""


@pytest.mark.parametrize("was", [None, "public"])
@KINDS
def test_73_nothing_is_nothing(client, world, privileges, was):
    """Neither a route nor a resolver, from the beginning or from now on."""
    with Sandbox(client, network={"mode": was or "none"}, privileges=privileges) as sandbox:
        if was is not None:
            assert reaches(sandbox.dial("four.test:80")[0])
            sandbox.set(mode="none")
        harness.wait_for(world.rests, 20 * harness.PATIENCE, "the end of what was dialled")
        watch = Watch(world)
        first, second, third = walls(sandbox, NOTHING).splitlines()
        assert first == "[] [] ['lo']", first
        assert second.split() == ["ENETUNREACH"] * 9, second
        assert third == "no name True"
        assert not watch.touched() and not watch.asked() and not watch.packets()


# ---- 74, 75: what a box can do about it ----------------------------------------------------------

@KINDS
def test_74_rules_routes_and_settings_are_not_the_boxs(client, world, privileges):
    with Sandbox(client, network={"allow": ["four.test:80"]}, privileges=privileges) as sandbox:
        assert reaches(sandbox.dial("four.test:80")[0])
        assert walls(sandbox, TAMPER) == ""
        for command in ("nft flush ruleset", "iptables -F", "ip route add default dev lo", "ip rule add lookup main",
                        "ip link set lo down", "ip link add x type dummy", "sysctl -w net.ipv4.ip_forward=1"):
            done = sandbox.run("sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; {command}")
            assert done["process"]["exit_code"] != 0, (command, done)
        assert reaches(sandbox.dial("four.test:80")[0])
        none_reaches(sandbox, world, ["other.test:80", f"{SERVER}:80", f"[{SERVER6}]:80", f"{METADATA}:80"])


SERVERS = """
    servers = []
    def serve(family, kind, address, *options):
        server = socket.socket(family, kind)
        servers.append(server)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for level, name in options:
            server.setsockopt(level, name, 1)
        server.bind(address)
        if kind == STREAM:
            server.listen()
    for kind in (STREAM, DATAGRAM):
        for family, host in ((V4, "0.0.0.0"), (V4, sys.argv[1]), (V4, "198.18.0.1"), (V6, "::"), (V6, sys.argv[2])):
            for port in (53, 80, 443, *range(61000, 61006)):
                tried(serve, family, kind, (host, port))
                tried(serve, family, kind, (host, port), (0, 15))
    print("held", flush=True)
    sys.stdin.read()
"""


@KINDS
def test_75_servers_of_the_box_are_not_asked(client, world, privileges):
    """The ports of the interception, of DNS and of what is dialled, bound before there was a network."""
    with Sandbox(client, network={"mode": "none"}, privileges=privileges) as sandbox:
        path = sandbox.start("python3", "-c", script(SERVERS), SERVER, SERVER6, open_stdin=True)
        harness.wait_for(lambda: client.get(f"{path}/output").bytes == b"held\n", 20 * harness.PATIENCE, "servers")
        sandbox.set(allow=["four.test:80"])
        assert reaches(sandbox.dial("four.test:80")[0])
        none_reaches(sandbox, world, [f"{SERVER}:80", f"{SERVER}:443", f"[{SERVER6}]:80", f"{OTHER}:61000"])
        again = sandbox.start("python3", "-c", script(SERVERS), SERVER, SERVER6, open_stdin=True)
        harness.wait_for(lambda: client.get(f"{again}/output").bytes == b"held\n", 20 * harness.PATIENCE, "servers")
        watch = Watch(world)
        answers = ask(sandbox, *[[server, how, labels(name), 1] for server in ("8.8.8.8", SERVER6)
                                 for how in ("udp", "tcp") for name in ("four.test", "other.test")])
        assert answers == [[0, 1], [3, 0]] * 4, answers
        assert reaches(sandbox.dial("four.test:80")[0])
        assert "other.test" not in watch.asked()


# ---- 76: ports from outside ----------------------------------------------------------------------

REDIRECTS = """
import socket
server = socket.create_server(("127.0.0.1", 8080))
print("held", flush=True)
while True:
    one, _ = server.accept()
    one.recv(65536)
    one.sendall(b"HTTP/1.1 302 Elsewhere\\r\\nLocation: http://%s/\\r\\nContent-Length: 0\\r\\n\\r\\n" % WHERE)
    one.close()
"""


def test_76_a_port_is_no_way_to_others(client, world):
    """What is open for the host is not for another box, and nobody here follows where a server of a box points."""
    where = f"127.0.0.1:{world.host_port}"
    with Sandbox(client) as one, Sandbox(client, network=ALL) as two:
        path = one.start("python3", "-c", REDIRECTS.replace("WHERE", f"b'{where}'"))
        harness.wait_for(lambda: client.get(f"{path}/output").bytes == b"held\n", 20 * harness.PATIENCE, "a server")
        opened = client.post(f"{one.path}/ports", {"port": 8080})
        assert opened.status in (200, 201), opened
        port = int(opened.json["url"].rpartition(":")[2])
        watch = Watch(world)
        answer = client.get(f"{one.path}/ports/8080/")
        assert answer.status == 302 and answer.headers["Location"] == f"http://{where}/", answer
        none_reaches(two, world, [at(address, port) for address in [LOOP, "::1", *host_addresses(world)]])
        code = f"import socket; print(socket.create_connection(('198.18.0.1', {port}), 9).recv(9))"
        assert two.run("python3", "-c", code)["process"]["exit_code"] != 0
        assert not watch.touched()


# ---- fake addresses ------------------------------------------------------------------------------

def test_numbers_of_another_sandbox_are_nothing_here(client, world):
    look = ("python3", "-c", "import socket; print(socket.gethostbyname('other.test'))")
    with Sandbox(client) as one, Sandbox(client, network={"allow": ["four.test"]}) as two:
        known = one.run(*look)["stdout"].strip()
        assert reaches(one.dial(f"{known}:80")[0])
        none_reaches(two, world, [f"{known}:80"])
        guesses = [f"198.18.0.{i}:80" for i in range(40)] + [f"[fd63:6f76:6500::{i:x}]:80" for i in range(40)]
        guesses += ["198.19.255.255:80", "198.18.255.255:80", "198.19.255.254:80", "[fd63:6f76:6500:1::2]:80",
                    "[fd63:6f76:6500:ffff::1]:80", "[fd63:6f76:6500::1:0:2]:80", "[fd63:6f76:6501::2]:80"]
        none_reaches(two, world, guesses)
        # A number is of a name, and the name is asked for again: what the policy says now holds.
        one.set(allow=["four.test"])
        none_reaches(one, world, [f"{known}:80"])


def test_what_one_sandbox_looked_up_the_next_knows_nothing_of(client, world):
    for _ in range(4):
        watch = Watch(world)
        with Sandbox(client) as sandbox:
            assert ask(sandbox, ["9.9.9.9", "udp", labels("four.test"), 1]) == [[0, 1]]
        assert watch.asked().count("four.test") >= 2, watch.asked()


# ---- an engine that ends -------------------------------------------------------------------------

def test_no_engine_is_no_more_network(world, tmp_path):
    """Who dials all the time, while engines are killed: what is refused never gets through."""
    code = f"""
import socket, time
yes = no = 0
until = time.monotonic() + 1e6
while True:
    for host, port, is_no in (("{SERVER}", 80, True), ("other.test", 80, True), ("{METADATA}", 80, True),
                              ("four.test", 443, True), ("four.test", 80, False)):
        try:
            with socket.create_connection((host, port), 3) as s:
                s.settimeout(3)
                if s.recv(9).startswith(b"hello"):
                    no += is_no
                    yes += not is_no
        except OSError: pass
    print(yes, no, flush=True)
"""
    with world.serve(tmp_path) as serve:
        with serve.client() as client:
            sandbox = Sandbox(client, network={"allow": ["four.test:80"]})
            path = sandbox.start("python3", "-u", "-c", code)
        watch = Watch(world)

        def said():
            with serve.client() as now:
                lines = now.get(f"{path}/output").bytes.decode().split("\n")
            return [int(word) for word in lines[-2].split()] if len(lines) > 1 else [0, 0]
        for _ in range(3):
            before = said()[0]
            harness.wait_for(lambda: said()[0] > before, 60 * harness.PATIENCE, "it gets through")
            serve.kill_engine()
        before = said()[0]
        harness.wait_for(lambda: said()[0] > before, 60 * harness.PATIENCE, "it gets through")
        assert said()[1] == 0
        hosts = {tuple(where) for where in watch.touched()}
        assert hosts == {(SERVER if IS_ROOT else "four.test", "80")}, hosts
        assert "other.test" not in watch.asked()
        with serve.client() as client:
            sandbox.client = client
            sandbox.__exit__()
