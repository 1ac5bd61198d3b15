"""What systemd is told of cove, and what cove takes from it: the units as they are shipped, sockets that are
listened on before there is an engine, and where it listens if nobody says so."""
import os
import pathlib
import socket
import subprocess

import harness
import serving

ETC = harness.ROOT / "etc"


def test_the_units_are_what_systemd_understands(tmp_path):
    """As they are installed, but for where: systemd looks for what they start."""
    units, libexec = tmp_path / "units", tmp_path / "libexec"
    units.mkdir()
    (libexec / "cove").mkdir(parents=True)
    (libexec / "cove" / "cove-keeper").symlink_to(harness.BUILD / "cove-keeper")
    service = (ETC / "cove.service.in").read_text().replace("@libexecdir@", str(libexec))
    assert "@" not in service
    (units / "cove.service").write_text(service)
    (units / "cove.socket").write_text((ETC / "cove.socket").read_text())

    def verify():
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", units / "cove.service",
             units / "cove.socket"], capture_output=True, text=True, timeout=60 * harness.PATIENCE,
            check=False, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"})
        ours = [line for line in (done.stdout + done.stderr).splitlines() if "cove" in line]
        return done.returncode, ours

    assert verify() == (0, [])
    # And it would have said so.
    (units / "cove.socket").write_text((ETC / "cove.socket").read_text().replace("ListenStream", "ListenSteam"))
    assert verify()[1], "a word that systemd does not know is let pass"


class Activated(serving.Serve):
    """Started by the first connection to sockets that systemd's own tool listens on."""

    def __init__(self, directory, **more):
        super().__init__(directory, **more)
        self.given = directory / "given.sock"
        self.command = ["systemd-socket-activate", "--listen", f"127.0.0.1:{self.port}", "--listen",
                        self.given, "--", *self.command]

    def client(self, timeout=60):
        return serving.Client(path=self.given, timeout=timeout)


def test_sockets_of_systemd_are_served_and_no_others(tmp_path):
    with Activated(tmp_path) as serve:
        assert not serve.socket.exists(), "it has made one of its own"
        with serve.client() as client:
            made = client.post("/v1/sandboxes", {"disk_kind": "ephemeral"})
            assert made.status == 201, made
            path = f"/v1/sandboxes/{made.json['id']}"
            said = client.post(f"{path}/exec", {"command": "env; ls /proc/self/fd"}).json["stdout"]
            assert "LISTEN_" not in said and said.split()[-4:] == ["0", "1", "2", "3"], said
        with serve.tcp() as stranger, serve.tcp(serve.key) as owner:
            assert stranger.get(path).status == 401
            assert owner.get(path).json["state"] == "running"
        serve.kill_engine()
        for next_client in (serve.client(), serve.tcp(serve.key)):
            with next_client as client:
                assert client.get(path).json["state"] == "running"
                assert client.post(f"{path}/exec", {"command": "echo on"}).json["stdout"] == "on\n"
        with serve.client() as client:
            assert client.delete(path).status == 204
    assert serve.given.exists(), "it is systemd's to remove"


# In a network that is new, lo is down.
UP = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sH22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
os.execv(sys.argv[1], sys.argv[1:])
"""


def listeners(pid):
    """Address and port of each TCP socket that is listened on in the network of a process."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A":
                address, port = local.split(":")
                if name == "tcp":
                    address = socket.inet_ntoa(bytes.fromhex(address)[::-1])
                found.add((address, int(port, 16)))
    return found


def test_without_an_address_it_listens_on_the_loopback(tmp_path):
    serve = serving.Serve(tmp_path)
    at = serve.command.index("--listen")
    del serve.command[at:at + 2]
    serve.command = ["unshare", "--net", "/usr/bin/python3", "-c", UP, *map(str, serve.command)]
    with serve:
        assert listeners(serve.process.pid) == {("127.0.0.1", 7070)}
        for path, status in (("/healthz", "200"), ("/v1/sandboxes", "401")):
            said = subprocess.run(
                ["nsenter", "--net", "--target", str(serve.process.pid), "curl", "-s", "-o", "/dev/null",
                 "-w", "%{http_code}", f"http://127.0.0.1:7070{path}"], capture_output=True, text=True,
                timeout=60 * harness.PATIENCE, check=True).stdout
            assert said == status, path
