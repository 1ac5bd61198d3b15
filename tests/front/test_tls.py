"""TLS of the server itself: real clients of it, those that mean it harm, and certificates that change."""
import asyncio
import contextlib
import ctypes
import ctypes.util
import hashlib
import http.client
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
import websockets

import guest_servers as guest
import harness
import serving
from certificates import Authority
from sandboxes import made
from scripted import cove
from terminals import Watcher

DOMAIN = "boxes.test"
NAMES = f"DNS:localhost,DNS:*.{DOMAIN},IP:127.0.0.1"
LIMIT = 60 * harness.PATIENCE
MIB = 1 << 20

nothing_left, _, _ = serving.one_for_all()

# Answers with what it was asked.
ECHO = r"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "one")


def place(directory, authority, name="server", alternatives=NAMES, days=2):
    """Certificate and key of the server, as an operator has them; put in the place of others."""
    both = authority.certificate(name, alternatives, days)
    chain, key = directory / "chain.pem", directory / "key.pem"
    for path, text in ((chain, both.with_suffix(".pem").read_text()),
                       (key, both.with_suffix(".key").read_text())):
        new = path.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o600)
        new.rename(path)
    return chain, key


def config_of(directory, more="", tls=True):
    text = f"[serve]\ntls_certificate = {directory}/chain.pem\ntls_key = {directory}/key.pem\n"
    return (text if tls else "") + f"[boxes]\npool = 0\nmemory = 512M\n[network]\nport_domain = {DOMAIN}\n" + more


class Tls:
    """A server, and clients of it that trust the authority."""

    def __init__(self, directory, authority, options=(), **more):
        self.authority = authority
        self.directory = directory
        place(directory, authority, **more)
        self.serve = serving.Serve(directory, config_of(directory), options, clock=True)

    def __enter__(self):
        self.serve.__enter__()
        return self

    def __exit__(self, *_):
        self.serve.__exit__()

    def context(self):
        return ssl.create_default_context(cafile=str(self.authority.file))

    def connect(self, context=None, timeout=LIMIT):
        plain = socket.create_connection(("127.0.0.1", self.serve.port), timeout)
        try:
            return (context or self.context()).wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise

    def client(self):
        client = serving.Client(port=self.serve.port, key=self.serve.key)
        client.connection = http.client.HTTPSConnection("localhost", self.serve.port, timeout=LIMIT,
                                                        context=self.context())
        return client

    def serial(self):
        with self.connect() as connection:
            return connection.getpeercert()["serialNumber"]

    def until(self, holds, what):
        """Goes from one look of the keeper's at the files to the next."""
        self.serve.clock.until(holds, 8, what, step=2)

    def says(self, *words):
        self.until(lambda: all(word in self.serve.said() for word in words), f"{words} in its log")


@pytest.fixture(scope="module")
def tls(tmp_path_factory, authority):
    with Tls(tmp_path_factory.mktemp("tls"), authority) as started:
        yield started


@pytest.fixture
def box(tls):
    with made(tls) as path:
        yield path.rsplit("/", 1)[1]


def curl(tls, path, *words, port=None):
    return subprocess.run(["curl", "-sS", "--cacert", tls.authority.file, *words,
                           path if "://" in path else f"https://localhost:{port or tls.serve.port}{path}"],
                          capture_output=True, timeout=LIMIT, check=False)


class OpenSsl:
    """A client of TLS 1.3 that does what Python's own does not: it has new keys whenever it likes, and hears on when it
    has said that it says no more."""

    def __init__(self, port):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python has it: OpenSSL's own sockets raise it
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT)
        self.ssl = self.library()
        self.context = self.call("SSL_CTX_new", self.call("TLS_client_method"))
        self.tls = self.call("SSL_new", self.context)
        self.socket.setblocking(True)
        assert self.number("SSL_set_fd", self.tls, self.socket.fileno()) == 1
        assert self.number("SSL_connect", self.tls) == 1

    @staticmethod
    def library():
        return ctypes.CDLL(ctypes.util.find_library("ssl"))

    def call(self, name, *arguments):
        function = getattr(self.ssl, name)
        function.restype = ctypes.c_void_p
        return function(*(ctypes.c_void_p(argument) for argument in arguments))

    def number(self, name, tls, *arguments):
        return getattr(self.ssl, name)(ctypes.c_void_p(tls), *arguments)

    def change(self):
        """False where it cannot be sent: nobody hears it any more."""
        assert self.number("SSL_key_update", self.tls, 0) == 1
        return self.number("SSL_do_handshake", self.tls) == 1

    def say(self, said):
        return self.number("SSL_write", self.tls, said, len(said)) == len(said)

    def hear(self):
        """Nothing at the end."""
        into = ctypes.create_string_buffer(65536)
        got = self.number("SSL_read", self.tls, into, len(into))
        return into.raw[:max(got, 0)]

    def end(self):
        assert self.number("SSL_shutdown", self.tls) == 0, "it was said, and the server says no more, either"

    def has_ended_well(self):
        return self.number("SSL_get_shutdown", self.tls) & 2 != 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("SSL_free", self.tls)
        self.call("SSL_CTX_free", self.context)
        self.socket.close()


# ---- clients -------------------------------------------------------------------------------------

def test_curl_is_answered_and_verifies_the_certificate(tls):
    result = curl(tls, "/healthz", "-w", " %{http_version} %{ssl_verify_result}")
    assert result.stdout == b'{"status":"ok"}\n 1.1 0', result
    other = subprocess.run(["curl", "-sS", f"https://localhost:{tls.serve.port}/healthz"],
                           capture_output=True, timeout=LIMIT, check=False)
    assert other.returncode == 60, other


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken_with_forward_secrecy_and_without_sessions(tls, version):
    context = tls.context()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with tls.connect(context) as connection:
        assert connection.version() == version.name.replace("_", ".")
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert connection.compression() is None
        name = connection.cipher()[0]
        assert name.startswith(("ECDHE-", "TLS_")) and ("GCM" in name or "CHACHA20" in name), name
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        first = connection.session
    if version == ssl.TLSVersion.TLSv1_2:
        plain = socket.create_connection(("127.0.0.1", tls.serve.port), LIMIT)
        with context.wrap_socket(plain, server_hostname="localhost", session=first) as again:
            assert not again.session_reused
    else:
        assert first is None or not first.has_ticket


def test_older_versions_and_other_protocols_are_refused(tls):
    for words in (["-tls1"], ["-tls1_1"]):
        result = subprocess.run(["openssl", "s_client", *words, "-cipher", "ALL:@SECLEVEL=0", "-connect",
                                 f"127.0.0.1:{tls.serve.port}"], input=b"", capture_output=True,
                                timeout=LIMIT, check=False)
        assert result.returncode != 0 and b"protocol version" in result.stderr, result
    for ciphers in ("AES128-SHA", "ECDHE-ECDSA-AES128-SHA"):
        result = subprocess.run(["openssl", "s_client", "-tls1_2", "-cipher", ciphers, "-connect",
                                 f"127.0.0.1:{tls.serve.port}"], input=b"", capture_output=True,
                                timeout=LIMIT, check=False)
        assert result.returncode != 0 and b"handshake failure" in result.stderr, result
    context = tls.context()
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match="(?i)no application protocol"):
        tls.connect(context)


def test_openssl_sees_the_chain_and_can_ask_for_new_keys(tls):
    """K has both sides take new keys, in the midst of the connection; R is of TLS 1.2, and refused."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with subprocess.Popen(["openssl", "s_client", "-CAfile", tls.authority.file, "-verify_return_error",
                           "-connect", f"127.0.0.1:{tls.serve.port}"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        said = b""
        for words in (request, b"K\n", request):
            client.stdin.write(words)
            client.stdin.flush()
            count = said.count(b'{"status":"ok"}') + (words is request)
            while said.count(b'{"status":"ok"}') < count or (words == b"K\n" and b"KEYUPDATE" not in said):
                part = os.read(client.stdout.fileno(), 65536)
                assert part, said
                said += part
        client.stdin.close()
        client.wait(LIMIT)
    assert b"Verify return code: 0 (ok)" in said


def test_the_command_line_works_by_https(tls):
    env = {"COVE_URL": f"https://localhost:{tls.serve.port}", "COVE_API_KEY": tls.serve.key,
           "SSL_CERT_FILE": str(tls.authority.file)}
    for words, given, wanted in (
            (["create", "far", "--ephemeral"], b"", None),
            (["exec", "-i", "far", "--", "sha256sum"], bytes(MIB),
             hashlib.sha256(bytes(MIB)).hexdigest().encode() + b"  -\n"),
            (["exec", "far", "--", "sh", "-c", "seq 100000"], b"",
             "".join(f"{i}\n" for i in range(1, 100001)).encode()),
            (["rm", "far"], b"", None)):
        result = cove(*words, stdin=given, env=env, limit=LIMIT)
        assert (result.returncode, result.stderr) == (0, b""), result
        assert wanted in (None, result.stdout)
    result = cove("ls", env={**env, "SSL_CERT_FILE": "/dev/null"}, limit=LIMIT)
    assert result.returncode != 0 and b"SSL_CERT_FILE" in result.stderr


def test_a_hundred_megabytes_come_through_both_ways(tls, box):
    data = os.urandom(MIB) * 100
    with tls.client() as client:
        answer = client.ask("PUT", f"/v1/sandboxes/{box}/files", data, {}, {"path": "/tmp/file"})
        assert answer.status in (200, 201, 204), answer
        answer = client.post(f"/v1/sandboxes/{box}/exec", {"argv": ["sha256sum", "/tmp/file"]})
        assert answer.json["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
        answer = client.get(f"/v1/sandboxes/{box}/files", query={"path": "/tmp/file"})
        assert answer.status == 200 and hashlib.sha256(answer.bytes).digest() == \
            hashlib.sha256(data).digest()
        # The connection is as good as before.
        assert client.get("/v1/version").status == 200


def test_a_download_that_is_slowly_taken_is_whole(tls, box):
    """What the socket does not take waits, and is sent as it was begun."""
    with tls.client() as client:
        data = os.urandom(MIB) * 8
        assert client.ask("PUT", f"/v1/sandboxes/{box}/files", data, {},
                          {"path": "/tmp/file"}).status < 300
        client.send("GET", f"/v1/sandboxes/{box}/files", query={"path": "/tmp/file"})
        response = client.connection.getresponse()
        came = hashlib.sha256()
        for _ in range(8 * 16):
            time.sleep(0.005)
            came.update(response.read(MIB // 16))
        assert came.digest() == hashlib.sha256(data).digest()


def test_a_terminal_is_used_over_tls(tls, box):
    with tls.client() as client:
        answer = client.post(f"/v1/sandboxes/{box}/processes",
                             {"command": "read x; echo got $x; seq 20000; exit 4",
                              "terminal": {"rows": 24, "columns": 80}})
        assert answer.status == 201, answer
    with Watcher(tls.serve, box, answer.json["id"], over=tls.connect(),
                 headers=[f"Authorization: Bearer {tls.serve.key}"]) as watcher:
        watcher.hears("attached")
        watcher.type("words\n")
        watcher.sees("got words")
        watcher.sees("\n20000\r")
        assert watcher.ends()["exit_code"] == 4


def test_what_is_sent_ahead_is_answered_in_order(tls):
    """All of it in one record, which no poll tells of twice."""
    with tls.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        said = b""
        while said.count(b'{"status":"ok"}') < 100:
            part = connection.recv(65536)
            assert part
            said += part


def test_the_end_of_an_answer_is_said(tls):
    """Who is cut off must see that: a client without the word of farewell takes nothing for whole."""
    context = tls.context()
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    with tls.connect(context) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = b""
        while part := connection.recv(65536):  # SSLError where it is not said
            said += part
        assert said.endswith(b'{"status":"ok"}\n')


def test_the_name_of_a_port_is_served_by_the_same_certificate(tls, box):
    with tls.client() as client:
        assert client.post(f"/v1/sandboxes/{box}/processes",
                           {"argv": ["python3", "-c", ECHO]}).status == 201
        answer = client.post(f"/v1/sandboxes/{box}/ports", {"port": 8000, "public": True})
        assert answer.status == 200, answer
        host = answer.json["host"]
        assert host == f"8000-{box}.{DOMAIN}"

    def served():
        return curl(tls, f"https://{host}:{tls.serve.port}/", "-f", "--resolve",
                    f"{host}:{tls.serve.port}:127.0.0.1")

    harness.wait_for(lambda: served().returncode == 0, LIMIT, "the server in the sandbox")
    said = served().stdout.decode().lower()
    assert "x-forwarded-proto: https\n" in said and "x-forwarded-for: 127.0.0.1\n" in said, said


@pytest.fixture
def guests(tls, box):
    """Servers in the box; where each of their ports has its name."""
    with tls.client() as client:
        source = pathlib.Path(guest.__file__).read_text(encoding="utf-8")
        answer = client.post(f"/v1/sandboxes/{box}/processes", {"argv": ["python3", "-c", source]})
        assert answer.status == 201, answer
        said = f"/v1/sandboxes/{box}/processes/{answer.json['id']}/output"
        harness.wait_for(lambda: b"ready" in client.get(said).bytes, LIMIT, "the servers in the sandbox")
        for port in (guest.WEB, guest.SOCKETS):
            assert client.post(f"/v1/sandboxes/{box}/ports", {"port": port, "public": True}).status == 200
    return lambda port: f"{port}-{box}.{DOMAIN}"


def secured(tls, host):
    plain = socket.create_connection(("127.0.0.1", tls.serve.port), LIMIT)
    return tls.context().wrap_socket(plain, server_hostname=host)


def test_a_websocket_passes_at_the_name_of_a_port(tls, guests):
    async def talk():
        host = guests(guest.SOCKETS)
        async with websockets.connect(f"wss://{host}:{tls.serve.port}/", host="127.0.0.1", port=tls.serve.port,
                                      ssl=tls.context(), server_hostname=host, max_size=1 << 26,
                                      open_timeout=LIMIT) as opened:
            for size in (1, 1000, 3 * MIB):
                await opened.send("y" * size)
                assert await opened.recv() == "y" * size

    asyncio.run(asyncio.wait_for(talk(), LIMIT))


def test_a_stream_comes_as_it_is_written_at_the_name_of_a_port(tls, box, guests):
    host = guests(guest.WEB)
    with tls.client() as client, secured(tls, host) as opened:
        opened.sendall(f"GET /stream HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        said = b""
        for number in range(3):
            while b"part %d\n" % number not in said:
                part = opened.recv(65536)
                assert part, said
                said += part
            assert b"part %d\n" % (number + 1) not in said
            assert client.post(f"/v1/sandboxes/{box}/exec", {"argv": ["touch", f"/tmp/go{number}"]}).status == 200
        while part := opened.recv(65536):
            said += part
        assert said.endswith(b"\r\n0\r\n\r\n")


def tunnel(tls, box, port):
    opened = OpenSsl(tls.serve.port)
    assert opened.say(f"GET /v1/sandboxes/{box}/tunnels/{port} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                      f"Upgrade: tcp\r\nAuthorization: Bearer {tls.serve.key}\r\n\r\n".encode())
    said = b""
    while b"\r\n\r\n" not in said:
        part = opened.hear()
        assert part, said
        said += part
    assert said.startswith(b"HTTP/1.1 101 "), said
    return opened, said.split(b"\r\n\r\n", 1)[1]


def test_each_side_of_a_tunnel_ends_its_half(tls, box, guests):
    """By the farewell of TLS, which is of one direction."""
    del guests
    opened, said = tunnel(tls, box, guest.ECHO)
    with opened:  # the client first
        assert said == b"" and opened.say(b"hello")
        assert opened.hear() == b"hello"
        opened.end()
        while part := opened.hear():
            said += part
        assert said == b"bye" and opened.has_ended_well()
    opened, said = tunnel(tls, box, guest.SEND)
    with opened, tls.client() as client:  # the server first
        digest, wanted = hashlib.sha256(said), hashlib.sha256()
        while part := opened.hear():
            digest.update(part)
        for part in guest.big():
            wanted.update(part)
        assert digest.digest() == wanted.digest() and opened.has_ended_well()
        assert opened.say(b"thanks")
        listed = client.get(f"/v1/sandboxes/{box}/processes").json["processes"]
        output = f"/v1/sandboxes/{box}/processes/{listed[0]['id']}/output"
        harness.wait_for(lambda: b"heard thanks" in client.get(output).bytes, LIMIT, "thanks")


def test_links_are_https(tls, box):
    with tls.client() as client:
        answer = client.post(f"/v1/sandboxes/{box}/urls",
                             {"method": "GET", "path": "/etc/hostname", "expires_in_ms": 60000})
        assert answer.status in (200, 201), answer
        assert answer.json["url"].startswith(f"https://localhost:{tls.serve.port}/"), answer


def test_clear_text_is_told_and_nothing_else(tls):
    with serving.Client(port=tls.serve.port, key=tls.serve.key) as client:
        answer = client.get("/v1/sandboxes")
        assert answer.status == 400 and answer.code == "needs_tls"
        # Once: a command line shows both.
        assert "https" in answer.json["remedy"] and "https" not in answer.json["detail"]
    with serving.Client(path=tls.serve.socket) as client:
        assert client.get("/v1/version").status == 200


# ---- those that mean harm ------------------------------------------------------------------------

HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(100)


def opened(tls, count, first):
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", tls.serve.port), LIMIT)
        with contextlib.suppress(OSError):
            connection.sendall(first)
        connections.append(connection)
    return connections


def ended(connection):
    connection.settimeout(LIMIT)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    finally:
        connection.close()
    return True


def test_half_open_handshakes_and_garbage_hold_nobody_up(tls):
    stop = threading.Event()

    def hammer():
        """Whole handshakes, one behind the other, that are left as soon as they are begun."""
        context = tls.context()
        while not stop.is_set():
            with contextlib.suppress(OSError), tls.connect(context):
                pass

    crowd = opened(tls, 100, b"") + opened(tls, 600, HELLO)
    hammers = [threading.Thread(target=hammer) for _ in range(2)]
    for thread in hammers:
        thread.start()
    try:
        for connection in opened(tls, 50, b"\x16\x03\x01\x00\x05hello") + opened(tls, 50, b"\0" * 50):
            assert ended(connection)
        for _ in range(20):
            with tls.client() as client:
                assert client.get("/v1/version").status == 200
            with tls.serve.client() as client:
                assert client.get("/readyz").status == 200
    finally:
        stop.set()
        for thread in hammers:
            thread.join(LIMIT)
    # Each has its time, and then is cut.
    tls.serve.clock.advance(10)
    assert all(ended(connection) for connection in crowd)


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_who_changes_keys_without_end_is_left_and_others_are_served(tls):
    """Such a record is small, and costs the server far more than the client."""
    with tls.client() as other, OpenSsl(tls.serve.port) as client:
        for _ in range(20):  # a few are nobody's business
            assert client.change()
        assert client.say(HEALTH) and b"200 OK" in client.hear()
        for _ in range(20000):
            if not client.change():
                break
        assert other.get("/healthz").status == 200
        assert not client.say(HEALTH) or client.hear() == b""
        assert other.get("/healthz").status == 200


def test_new_keys_with_much_between_them_are_taken(tls):
    """The longest connection has new keys now and then, and they count for what it carries."""
    body = b"{" + bytes(MIB) + b"}"
    head = (f"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {tls.serve.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    with OpenSsl(tls.serve.port) as client:
        for _ in range(4):
            for _ in range(20):
                assert client.change()
            assert client.say(head + body)
            assert b"HTTP/1.1 4" in client.hear()


def test_a_client_that_leaves_amid_the_handshake_leaves_nothing(tls):
    pid = tls.serve.engine_pid()

    def fds():
        return len(harness.children_of(pid)), len(os.listdir(f"/proc/{pid}/fd"))

    before = fds()
    for _ in range(300):
        for connection in opened(tls, 1, HELLO):
            connection.close()
    harness.wait_for(lambda: fds() <= before, LIMIT, "the end of their connections")


def test_the_key_is_nowhere_to_be_read(tls):
    pid = tls.serve.engine_pid()
    secret = (tls.directory / "key.pem").read_text().splitlines()[1]
    assert secret not in tls.serve.said()
    # Of one that can be looked into, or that leaves a core, it is its own user's.
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0
    if harness.EXPECT.is_root:
        for what in ("environ", "cmdline"):
            assert secret.encode() not in pathlib.Path(f"/proc/{pid}/{what}").read_bytes()
    else:
        with pytest.raises(PermissionError):
            pathlib.Path(f"/proc/{pid}/mem").open("rb").close()


# ---- certificates that change --------------------------------------------------------------------

@pytest.fixture
def own(tmp_path, authority):
    with Tls(tmp_path, authority) as started:
        yield started


def test_a_renewed_certificate_counts_by_itself_and_cuts_nobody(own):
    old, engine = own.serial(), own.serve.engine_pid()
    with own.client() as client, own.client() as follower:
        assert client.get("/v1/version").status == 200
        lines = serving.Lines(follower, "/v1/events")
        place(own.directory, own.authority, "renewed")
        # By the clock of the machine.
        harness.wait_for(lambda: own.serial() != old, LIMIT, "the renewed certificate")
        assert client.get("/v1/version").status == 200  # on the connection that it had
        made = client.post("/v1/sandboxes", {"disk_kind": "ephemeral"}).json["id"]
        assert any(made in str(line) for line in lines.until("sandbox.created"))
        assert client.delete(f"/v1/sandboxes/{made}").status == 204
    assert own.serve.engine_pid() == engine
    renewed = own.serial()
    own.serve.kill_engine()
    assert own.serial() == renewed


def test_what_cannot_be_used_is_said_and_the_certificate_that_there_was_holds_on(own, authority):
    old, key = own.serial(), own.directory / "key.pem"
    sound = key.read_text()
    shutil.copy(authority.directory / "ca.key", key)
    own.says("bad_key", f"{key} is not the key of the certificate in", "chain.pem")
    assert own.serial() == old
    key.write_text("nonsense\n")
    own.says("has no key that can be read")
    key.chmod(0o644)
    own.says(f"{key} is a secret, and others may read it; chmod 600 it")
    assert own.serial() == old
    said = own.serve.said().count("certificate_read")
    key.chmod(0o600)
    key.write_text(sound)
    own.until(lambda: own.serve.said().count("certificate_read") > said, "the key")
    assert own.serial() == old


def test_a_reload_keeps_tls_and_none_ends_in_clear_text(tmp_path, authority):
    """Reached by others, without --insecure-http: what takes its TLS away is not done."""
    with Tls(tmp_path, authority) as made:
        serve = made.serve
        serve.reload(config_of(tmp_path, "resolvers = 127.0.0.1\n"))
        assert made.serial()
        serve.reload(config_of(tmp_path, tls=False))  # on the loopback it may be had without
        with serve.tcp() as client:
            assert client.get("/healthz").status == 200
        serve.reload(config_of(tmp_path))
        assert made.serial()


def test_an_address_that_others_reach_needs_tls_and_keeps_it(tmp_path, authority):
    with Tls(tmp_path, authority) as made:
        pass
    serve = made.serve
    serve.command[serve.command.index("--listen") + 1] = f"0.0.0.0:{serve.port}"
    with made:
        assert curl(made, "/healthz").stdout == b'{"status":"ok"}\n'
        old = serve.engine_pid()
        serve.config.write_text(config_of(tmp_path, tls=False), encoding="utf-8")
        serve.process.send_signal(signal.SIGHUP)
        made.says("insecure", "a socket that is listened on is reached by other machines")
        made.says("upgrade_refused", "all goes on as before")
        assert serve.engine_pid() == old
        assert curl(made, "/healthz").stdout == b'{"status":"ok"}\n'


def test_a_reload_with_the_wrong_key_is_refused(tmp_path, authority):
    with Tls(tmp_path, authority) as made:
        serve, serial = made.serve, made.serial()
        wrong = tmp_path / "wrong.pem"
        shutil.copy(authority.directory / "ca.key", wrong)
        wrong.chmod(0o600)
        old, usual = serve.engine_pid(), serve.config.read_text(encoding="utf-8")
        serve.config.write_text(usual.replace(str(tmp_path / "key.pem"), str(wrong)), encoding="utf-8")
        serve.process.send_signal(signal.SIGHUP)
        made.says("bad_key", f"{wrong} is not the key of the certificate in")
        made.says("upgrade_refused", "all goes on as before")
        assert serve.engine_pid() == old and made.serial() == serial


def refusal(tmp_path, config):
    """Of a start that does not come about."""
    serve = serving.Serve(tmp_path, config)
    result = subprocess.run(serve.command, capture_output=True, timeout=LIMIT, check=False)
    assert result.returncode == 1, result
    return result.stderr.decode()


def test_a_start_without_what_it_needs_says_which(tmp_path, authority):
    chain, key = place(tmp_path, authority)
    assert "[serve] has tls_key and no tls_certificate" in refusal(tmp_path, f"[serve]\ntls_key = {key}\n")
    assert f"{tmp_path / 'cove.conf'}:3: tls_key: key.pem is not an absolute path" in \
        refusal(tmp_path, f"[serve]\ntls_certificate = {chain}\ntls_key = key.pem\n")
    key.chmod(0o640)
    assert f"tls_key {key} is a secret" in refusal(tmp_path, config_of(tmp_path))
    key.chmod(0o600)
    chain.unlink()
    assert f"cannot read tls_certificate {chain}" in refusal(tmp_path, config_of(tmp_path))


def test_a_start_with_the_wrong_key_serves_by_tcp_when_it_is_mended(tmp_path, authority):
    """Never in clear text meanwhile; the unix socket is served."""
    made = Tls(tmp_path, authority)
    key = tmp_path / "key.pem"
    sound = key.read_text()
    shutil.copy(authority.directory / "ca.key", key)
    key.chmod(0o600)
    with made:
        made.says("bad_key", str(key))
        with pytest.raises(OSError):
            made.connect()
        with socket.create_connection(("127.0.0.1", made.serve.port), LIMIT) as plain:
            with contextlib.suppress(OSError):
                plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert ended(plain)
        key.write_text(sound)

        def served():
            with contextlib.suppress(OSError):
                return made.serial()

        made.until(served, "a certificate that can be used")


def test_what_expires_and_what_has_no_name_for_ports_is_said(tmp_path, authority):
    with Tls(tmp_path, authority, alternatives="DNS:localhost", days=1) as made:
        made.says("certificate_expires", f"is not for *.{DOMAIN}")
        assert made.serial()
