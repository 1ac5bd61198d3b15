"""A world for boxes to reach: servers at addresses that are nobody's, in a network namespace, and `cove serve` in
another one beside it, so that nothing of the host's network is touched. Who may not make namespaces has the
same world behind a proxy on loopback, as an operator may have to."""
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import harness
import serving

WORLD = harness.ROOT / "tests" / "net" / "drivers" / "world.py"
SERVER, SERVER6, OTHER, PRIVATE, OWN = ("203.0.113.2", "2001:db8:77::2", "203.0.113.3", "10.77.0.2",
                                        "203.0.113.1")
METADATA = "169.254.169.254"
MARKS = 40000  # the first port of what mark() sends
NAMES = {
    "both.test": [SERVER, SERVER6], "four.test": [SERVER], "six.test": [SERVER6],
    "other.test": [OTHER], "private.test": [PRIVATE], "own.test": [OWN], "meta.test": [METADATA],
    "loop.test": ["127.0.0.1"], "loop6.test": ["::1"], "mapped.test": ["::ffff:127.0.0.1"],
    "nat.test": ["64:ff9b::7f00:1"], "mixed.test": ["127.0.0.1", SERVER], "silent.test": None,
    "*.wild.test": [SERVER], "bare.wild.test": [OTHER],
}
PORTS = [7, 80, 443]


def run_in(pid, *command):
    subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", *map(str, command)], check=True)


class World:
    """With `services`, a directory of wares.py, real servers have the ports that are theirs. With `beyond` it is
    always behind a proxy, which dials for real whatever has no name here. With `everything` all addresses there
    are lead to its servers, so that who gets through anywhere is seen. `more` is for drivers/world.py."""

    def __init__(self, directory, names=None, services=None, beyond=False, everything=False, **more):
        self.directory = directory
        self.names = names if everything else {**NAMES, **(names or {})}
        self.everything = everything
        self.more = more
        self.more.update({"services": str(services)} if services else {})
        self.more.update({"beyond": True} if beyond else {})
        self.is_apart = harness.EXPECT.is_root and not beyond
        self.log = directory / "world.log"
        self.programs = []
        self.ports = None
        self.marks = 0  # so many were sent
        self.inner = None  # a process in the network of the engine
        self.servers = self.inside = None  # who serves; and on the engine's own host

    def said(self):
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def hello(self, name, address, port):
        """How a server begins that is dialled by this name. A proxy is told the name."""
        return f"hello {address if self.inner is not None else name} {port}"

    def start(self, *command):
        program = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        self.programs.append(program)
        return program

    @staticmethod
    def say(program, **what):
        program.stdin.write((json.dumps(what) + "\n").encode())
        program.stdin.flush()
        return json.loads(program.stdout.readline())

    def tell(self, program, **more):
        return self.say(program, names=self.names, **more)

    def forget(self):
        """What was seen on the wire is to be noted again when it comes again."""
        self.say(self.servers, forget=True)

    def mark(self):
        """Waits until all is noted that was on the wire before: a packet of our own is, which comes behind it. Each
        has a port of its own: the last one may have been sent more often than it was waited for."""
        port, sent = MARKS + self.marks, -math.inf
        self.marks += 1

        def has_come():
            nonlocal sent
            if time.monotonic() - sent >= harness.PATIENCE:
                sent = time.monotonic()
                self.say(self.inside, send=[SERVER, port])
            return f"packet 17 {SERVER} {port}" in self.said()

        harness.wait_for(has_come, 10 * harness.PATIENCE, "the mark")

    def all_marks(self):
        """As the log names them."""
        return {("17", SERVER, str(MARKS + n)) for n in range(self.marks)}

    def enter_other(self):
        """A process in a network of its own."""
        mine = os.readlink("/proc/self/ns/net")
        program = self.start("unshare", "-n", "cat")
        harness.wait_for(lambda: os.readlink(f"/proc/{program.pid}/ns/net") != mine,
                         10 * harness.PATIENCE, "a network")
        return program.pid

    def make_networks(self):
        mine = os.readlink("/proc/self/ns/net")
        servers = self.servers = self.start("unshare", "-n", sys.executable, WORLD, self.log)
        harness.wait_for(lambda: os.readlink(f"/proc/{servers.pid}/ns/net") != mine,
                         10 * harness.PATIENCE, "a network")
        self.inner = self.enter_other()
        run_in(self.inner, "ip", "link", "add", "inner", "type", "veth", "peer", "name", "outer",
               "netns", servers.pid)
        for pid, name, addresses in (
                (self.inner, "inner", ["203.0.113.1/24", "10.77.0.1/24", "2001:db8:77::1/64"]),
                (servers.pid, "outer", ["203.0.113.2/24", "203.0.113.3/24", "10.77.0.2/24",
                                        "169.254.169.254/32", "2001:db8:77::2/64"])):
            run_in(pid, "ip", "link", "set", "lo", "up")
            for address in addresses:
                more = ["nodad"] if ":" in address else []
                run_in(pid, "ip", "address", "add", address, "dev", name, *more)
            run_in(pid, "ip", "link", "set", name, "up")
        run_in(self.inner, "ip", "route", "add", "default", "via", SERVER)
        if self.everything:
            run_in(self.inner, "ip", "-6", "route", "add", "default", "via", SERVER6)
            for network in ("203.0.113.0/24", "10.77.0.0/24"):  # who is on the wire is not here
                run_in(servers.pid, "ip", "route", "add", "throw", network, "table", "local")
            run_in(servers.pid, "ip", "route", "add", "local", "default", "dev", "lo", "table", "local")
            run_in(servers.pid, "ip", "-6", "route", "add", "local", "default", "dev", "lo", "table", "100")
            for family in ("-4", "-6"):  # of IPv4 so that the kernel keeps both tables apart
                run_in(servers.pid, "ip", family, "rule", "add", "iif", "outer", "lookup", "100", "priority", "5")
        ports = PORTS + ([22, 5432] if "services" in self.more else [])
        self.ports = self.tell(servers, **{"dns": SERVER, "ports": ports, **self.more})

    def make_proxy(self):
        servers = self.start(sys.executable, WORLD, self.log)
        self.ports = self.tell(servers, dns="127.0.0.1", proxy=True, **self.more)

    def rests(self):
        """Whether no connection of the engine's host has anything more to say. Behind a proxy nobody looks."""
        if self.inner is None:
            return True
        net = pathlib.Path(f"/proc/{self.inner}/net")
        lines = [line.split() for name in ("tcp", "tcp6")
                 for line in (net / name).read_text(encoding="ascii").splitlines()[1:]]
        return all(line[3] in ("06", "0A") for line in lines)  # TIME_WAIT, LISTEN

    def start_inside(self, **more):
        """Servers on the engine's own host; their ports."""
        enter = [] if self.inner is None else ["nsenter", f"--net=/proc/{self.inner}/ns/net"]
        program = self.start(*enter, sys.executable, WORLD, self.log)
        self.inside = program
        return self.tell(program, **more)["ports"]

    def config(self, boxes=""):
        text = f"[boxes]\n{boxes}\n[network]\n"
        if self.inner is not None:
            return text + f"resolvers = {SERVER}\n"
        return (text + f"resolvers = 127.0.0.1:{self.ports['dns']}\n"
                f"proxy = http://127.0.0.1:{self.ports['proxy']}\nproxy_names = yes\n")

    def run(self, *words, config=None):
        return self.cove("run", *words, config=config)

    def cove(self, *words, config=None):
        return self.program(harness.COVE, *words, config=config)

    def program(self, *command, config=None):
        """A command in the engine's network, where the host's resolver is the world's; with a `config`, that of
        the system, it has none that answers."""
        etc = self.directory / "etc"
        (etc / "cove").mkdir(parents=True, exist_ok=True)
        (etc / "resolv.conf").write_text(f"nameserver {'127.0.0.1' if config else SERVER}\n", encoding="ascii")
        (etc / "cove" / "cove.conf").write_text(config or "", encoding="utf-8")
        line = 'mount -t overlay -o "lowerdir=$0:/etc" overlay /etc && exec "$@"'
        return subprocess.run(
            ["nsenter", f"--net=/proc/{self.inner}/ns/net", "unshare", "-m", "--propagation", "private",
             "sh", "-c", line, etc, *map(str, command)], capture_output=True, text=True,
            check=False, timeout=300 * harness.PATIENCE)

    def serve(self, directory, boxes="pool = 1"):
        serve = serving.Serve(directory, config=self.config(boxes))
        if self.inner is not None:
            serve.command = ["nsenter", f"--net=/proc/{self.inner}/ns/net", *serve.command]
        return serve

    def __enter__(self):
        try:
            if self.is_apart:
                self.make_networks()
            else:
                self.make_proxy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(5)
            program.kill()
            program.wait()
            program.stdout.close()
