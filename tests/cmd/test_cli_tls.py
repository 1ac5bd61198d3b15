"""https in COVE_URL: a front with TLS before a real engine, and fronts that nobody should trust."""
import contextlib
import os
import select
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

import harness
import serving
from certificates import Authority, openssl
from scripted import Listening, answer, chunked, cove, failed, good, read_request

nothing_left, serve, _ = serving.one_for_all()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "one")


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.certificate("good", "DNS:localhost,IP:127.0.0.1")


class Front(Listening):
    """Listens with TLS; `serve(connection)` has each connection, and closes it as it likes."""

    def __init__(self, certificate, serve, highest=ssl.TLSVersion.TLSv1_3):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.context.maximum_version = highest
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        self.serve = serve
        self.names = []
        self.context.sni_callback = lambda _, name, __: self.names.append(name)
        self.protocols = []
        self.shaken = 0
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        super().__init__(listener)

    def take(self, connection):
        with contextlib.suppress(OSError):  # ssl.SSLError is one
            connection.settimeout(60 * harness.PATIENCE)
            wrapped = self.context.wrap_socket(connection, server_side=True)
            self.shaken += 1
            self.protocols.append((wrapped.version(), wrapped.selected_alpn_protocol()))
            with wrapped:
                self.serve(wrapped)


def relay(path):
    """Passes bytes to and from a unix socket."""
    def serve(connection):
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(str(path))
            while True:
                ready, _, _ = select.select([connection, engine], [], [])
                if connection in ready:
                    data = connection.recv(65536)
                    while connection.pending() > 0:
                        data += connection.recv(65536)
                    if not data:
                        return
                    engine.sendall(data)
                if engine in ready:
                    data = engine.recv(65536)
                    if not data:
                        connection.unwrap()
                        return
                    connection.sendall(data)
    return serve


def says(*pieces, farewell):
    """Answers one request, and ends the connection with or without saying so."""
    def serve(connection):
        read_request(connection, b"")
        for piece in pieces:
            connection.sendall(piece)
        if farewell:
            connection.unwrap()
        else:
            socket.socket(fileno=connection.detach()).close()
    return serve


@pytest.fixture
def front():
    made = []

    def make(*words, **more):
        made.append(Front(*words, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def environment(front, authority, host="localhost", **more):
    return {"COVE_URL": f"https://{host}:{front.port}", "SSL_CERT_FILE": str(authority.file), **more}


# ---- a front before an engine --------------------------------------------------------------------

def test_a_sandbox_is_used_over_tls(serve, front, authority, certificate):
    server = front(certificate, relay(serve.socket))
    env = environment(server, authority)
    limit = 60 * harness.PATIENCE
    good(cove("create", "far", "--ephemeral", env=env, limit=limit))
    assert good(cove("exec", "far", "--", "echo", "x", env=env, limit=limit)) == "x\n"
    data = os.urandom(1 << 20)
    result = cove("exec", "-i", "far", "--", "cat", stdin=data, env=env, limit=limit)
    assert result.returncode == 0 and result.stdout == data
    result = cove("exec", "far", "--", "sh", "-c", "seq 300000; exit 3", env=env, limit=limit)
    assert result.returncode == 3
    assert result.stdout == "".join(f"{i}\n" for i in range(1, 300001)).encode()
    process = good(cove("exec", "-d", "far", "--", "sh", "-c", "echo a; sleep 1; echo b", env=env,
                        limit=limit)).strip()
    assert good(cove("logs", "-f", "far", process, env=env, limit=limit)) == "a\nb\n"
    assert set(server.names) == {"localhost"}
    assert set(server.protocols) == {("TLSv1.3", "http/1.1")}
    good(cove("rm", "far", env=env, limit=limit))


def relay_halves(path):
    """The same, each half to its own end, as a front does that passes upgrades on."""
    def serve(connection):
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(str(path))
            ended = set()
            while len(ended) < 2:
                ready, _, _ = select.select([one for one in (connection, engine) if one not in ended], [], [])
                for one in ready:
                    data = one.recv(65536)
                    while one is connection and connection.pending() > 0:
                        data += connection.recv(65536)
                    if data:
                        (engine if one is connection else connection).sendall(data)
                        continue
                    ended.add(one)
                    if one is connection:
                        engine.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                connection.unwrap()
    return serve


SERVER = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b"bye")
socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer(("127.0.0.1", 7000), Echo).serve_forever()
"""


def test_a_port_is_carried_over_tls_and_each_half_ends_by_itself(serve, front, authority, certificate):
    server = front(certificate, relay_halves(serve.socket))
    env = {**os.environ, **environment(server, authority)}
    good(cove("create", "port", "--ephemeral", env=env))
    good(cove("exec", "-d", "port", "--", "python3", "-c", SERVER, env=env))
    harness.wait_for(lambda: "7000" in good(cove("ports", "port", env=env)), 60 * harness.PATIENCE, "the server")
    data = os.urandom(8 << 20)
    with subprocess.Popen([harness.COVE, "port", "port", "7000", "--listen", "0"], env=env,
                          stdout=subprocess.PIPE) as running:
        port = int(running.stdout.readline().rpartition(b":")[2])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), 60 * harness.PATIENCE) as opened:
                def say(opened=opened):
                    opened.sendall(data)
                    opened.shutdown(socket.SHUT_WR)
                speaker = threading.Thread(target=say)
                speaker.start()
                said = b""
                while part := opened.recv(1 << 16):
                    said += part
                speaker.join()
                assert said == data + b"bye"
        running.terminate()
    good(cove("rm", "port", env=env))


def test_output_comes_over_tls_as_it_is_written(serve, front, authority, certificate):
    server = front(certificate, relay(serve.socket))
    env = {**os.environ, **environment(server, authority)}
    good(cove("create", "slow", "--ephemeral", env=env))
    with subprocess.Popen([harness.COVE, "exec", "slow", "--", "sh", "-c", "echo one; read x"], env=env,
                          stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"one\n"
        assert running.wait(30 * harness.PATIENCE) == 1  # there is no input
    good(cove("rm", "slow", env=env))


# ---- which servers are trusted -------------------------------------------------------------------

LIST = answer({"sandboxes": []})


def test_a_connection_is_kept_for_the_next_request(front, authority, certificate):
    def serve(connection):
        buffer = b""
        for cursor in ("1", "2", None):
            _, buffer = read_request(connection, buffer)
            connection.sendall(answer({"sandboxes": [], "next": cursor}))
        connection.unwrap()

    server = front(certificate, serve)
    good(cove("ls", env=environment(server, authority)))
    assert server.shaken == 1


@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_server_is_trusted_by_its_name_or_its_address(front, authority, certificate, host, highest):
    server = front(certificate, says(LIST, farewell=True), highest=highest)
    good(cove("ls", "-q", env=environment(server, authority, host)))
    assert server.names == ([host] if host == "localhost" else [None])  # an address is no such name


def test_authorities_may_lie_in_a_directory(front, authority, certificate, tmp_path):
    (tmp_path / "one.pem").write_bytes(authority.file.read_bytes())
    openssl("rehash", str(tmp_path))
    server = front(certificate, says(LIST, farewell=True))
    env = environment(server, authority, SSL_CERT_DIR=str(tmp_path))
    del env["SSL_CERT_FILE"]
    good(cove("ls", "-q", env=env))


def test_an_unknown_authority_is_refused(front, authority, certificate, tmp_path):
    server = front(certificate, says(LIST, farewell=True))
    other = Authority(tmp_path / "other")
    env = {**environment(server, other), "COVE_API_KEY": "k-123"}
    failed(cove("ls", env=env), "not signed by an authority", "SSL_CERT_FILE")
    failed(cove("ls", env={**env, "SSL_CERT_FILE": "/none"}), "SSL_CERT_FILE names /none", "cannot be read")
    assert server.shaken == 0  # and the key got nowhere


@pytest.mark.parametrize("alternatives, days, words", [
    ("DNS:other.example", 2, ("localhost", "not for the name")),
    ("DNS:localhost.other.example,DNS:l*,IP:127.0.0.1", 2, ("not for the name",)),
    ("DNS:localhost", -1, ("expired",)),
])
def test_a_certificate_that_is_not_good_is_refused(front, authority, alternatives, days, words):
    name = f"bad{len(list(authority.directory.iterdir()))}"
    server = front(authority.certificate(name, alternatives, days), says(LIST, farewell=True))
    failed(cove("ls", env=environment(server, authority)), *words)
    assert server.shaken == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_tls_is_refused(front, authority, certificate):
    server = front(certificate, says(LIST, farewell=True), highest=ssl.TLSVersion.TLSv1_2)
    server.context.minimum_version = ssl.TLSVersion.TLSv1
    server.context.maximum_version = ssl.TLSVersion.TLSv1_1
    server.context.set_ciphers("ALL:@SECLEVEL=0")
    failed(cove("ls", env=environment(server, authority)), "TLS 1.2")


def test_a_server_without_tls_is_told(authority):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def refuse():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=refuse, daemon=True).start()
        env = {"COVE_URL": f"https://localhost:{listener.getsockname()[1]}",
               "SSL_CERT_FILE": str(authority.file)}
        failed(cove("ls", env=env), "no TLS connection", "COVE_URL")


def test_a_missing_library_is_told(tmp_path):
    """The loader looks for it in this order, and what it finds first is not it."""
    (tmp_path / "libssl.so.3").write_bytes(b"no library")
    failed(cove("ls", env={"COVE_URL": "https://localhost:1", "LD_LIBRARY_PATH": str(tmp_path)}),
           "libssl.so.3", "install")


@pytest.mark.parametrize("where", ["bin", "libexec/cove"])
def test_a_library_that_comes_with_the_program_serves_where_the_system_has_none(front, authority, certificate, tmp_path, where):
    for name in "bin", where:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    shutil.copy2(harness.COVE, tmp_path / "bin" / "cove")
    (tmp_path / "libssl.so.3").write_bytes(b"no library")
    for name in "libssl.so.3", "libcrypto.so.3":
        found = subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
        shutil.copy2(found.strip(), tmp_path / where / name)
    server = front(certificate, says(LIST, farewell=True))
    good(subprocess.run([tmp_path / "bin" / "cove", "ls", "-q"], capture_output=True, check=False,
                        env={**os.environ, **environment(server, authority), "LD_LIBRARY_PATH": str(tmp_path)}))


def test_no_key_is_warned_of_over_tls(front, authority, certificate):
    server = front(certificate, says(LIST, farewell=True))
    good(cove("ls", "-q", env=environment(server, authority, COVE_API_KEY="k-123")))


# ---- ends and cuts -------------------------------------------------------------------------------

OPEN_ENDED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b'{"sandboxes": []}'


def test_a_cut_is_no_end(front, authority, certificate):
    """An answer without a length ends with its connection: who cuts that must not end the answer."""
    said = front(certificate, says(OPEN_ENDED, farewell=True))
    good(cove("ls", "-q", env=environment(said, authority)))
    cut = front(certificate, says(OPEN_ENDED, farewell=False))
    failed(cove("ls", "-q", env=environment(cut, authority)), "ended the connection")


@pytest.mark.parametrize("farewell", [True, False])
def test_a_body_that_is_not_whole_is_told(front, authority, certificate, farewell):
    for said in (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", chunked(b'{"sandboxes": []}', end=False),
                 b"HTTP/1.1 200"):
        server = front(certificate, says(said, farewell=farewell))
        failed(cove("ls", env=environment(server, authority)), "ended the connection")


def test_a_server_that_says_nothing_is_left(authority):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = {"COVE_URL": f"https://localhost:{listener.getsockname()[1]}",
               "SSL_CERT_FILE": str(authority.file)}
        failed(cove("ls", env=env, limit=60 * harness.PATIENCE), f"{env['COVE_URL'][8:]}: the server did not answer in time")
