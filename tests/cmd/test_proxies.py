"""The configurations of nginx and Caddy in docs/proxies.md, run as they stand there but for names of files and numbers
of ports: all that goes through a front of HTTP goes through each of these. Debian's packages of both are fetched."""
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess

import pytest

import harness
import serving
from certificates import Authority
from sandboxes import run
from scripted import COVE, good
from terminals import Watcher

pytestmark = pytest.mark.registry

API, DOMAIN = "cove.example.com", "boxes.example.com"
LIMIT = 60 * harness.PATIENCE
ROOT = harness.BUILD / "proxies"
# Says a line, and the next one when a file is there.
SLOW = r"""
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"one\n")
        self.wfile.flush()
        while not os.path.exists("/tmp/go"):
            time.sleep(0.02)
        self.wfile.write(b"two\n" + str(self.headers).encode())
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""

nothing_left = serving.one_for_all()[0]


def block(begin):
    """An indented block of the page, by its first words."""
    text = (harness.ROOT / "docs" / "proxies.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    found = [each for each in blocks if each.strip().startswith(begin)]
    assert len(found) == 1, begin
    return found[0]


def fetch():
    """The programs, unpacked: nothing of them is installed, and no service starts."""
    if not (ROOT / "usr/bin/caddy").exists():
        packages = ROOT / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        for command in (["apt-get", "-q", "-q", "update"], ["apt-get", "-q", "-q", "download", "nginx", "caddy"]):
            subprocess.run(command, cwd=packages, check=True, stdin=subprocess.DEVNULL, timeout=100 * harness.PATIENCE)
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, ROOT], check=True)


def nginx(place, text):
    config = place / "nginx.conf"
    config.write_text(f"daemon off; master_process off; pid {place}/pid; error_log stderr;\nevents {{}}\n"
                      f"http {{ access_log off;\n{text}}}\n")
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        config.write_text(config.read_text().replace("access_log off;", f"access_log off; {kind}_temp_path {place}/{kind};"))
    return [ROOT / "usr/sbin/nginx", "-c", config, "-p", place]


def caddy(place, text):
    config = place / "Caddyfile"
    config.write_text("{\n admin off\n auto_https off\n}\n" + text)
    return [ROOT / "usr/bin/caddy", "run", "--config", config, "--adapter", "caddyfile"]


class Front:
    def __init__(self, directory, authority, kind, begin, listens):
        self.directory, self.authority = directory, authority
        self.serve = serving.Serve(directory / "serve", f"[serve]\nhosts = {API}\n[network]\nport_domain = {DOMAIN}\n")
        self.port = harness.free_port()
        both = authority.certificate("front", f"DNS:{API},DNS:*.{DOMAIN}")
        text = (block(begin).replace("127.0.0.1:7070", f"127.0.0.1:{self.serve.port}")
                .replace("/etc/cove/chain.pem", str(both.with_suffix(".pem")))
                .replace("/etc/cove/key.pem", str(both.with_suffix(".key"))))
        self.command = kind(directory, listens(text, self.port))
        self.process = None

    def __enter__(self):
        self.serve.__enter__()
        with open(self.directory / "front.log", "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, "HOME": str(self.directory)})
        harness.wait_for(self.answers, LIMIT, "the front")
        return self

    def answers(self):
        assert self.process.poll() is None, (self.directory / "front.log").read_text()
        try:
            return self.ask("GET", API, "/readyz")[0] == 200
        except OSError:
            return False

    def connect(self, host=API):
        plain = socket.create_connection(("127.0.0.1", self.port), LIMIT)
        return ssl.create_default_context(cafile=str(self.authority.file)).wrap_socket(plain, server_hostname=host)

    def request(self, method, host, path, **headers):
        client = http.client.HTTPConnection(host, self.port, timeout=LIMIT)
        client.sock = self.connect(host)
        client.request(method, path, headers={"Host": f"{host}:{self.port}", **headers})
        return client.getresponse()

    def ask(self, *words, **headers):
        answer = self.request(*words, **headers)
        return answer.status, answer.read(), answer.headers

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT)
        self.serve.__exit__()


FRONTS = {
    "nginx": (nginx, "map ", lambda text, port: text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")),
    "caddy": (caddy, f"{API},", lambda text, port: text.replace(f"{API}, *.{DOMAIN}",
                                                                f"https://{API}:{port}, https://*.{DOMAIN}:{port}")),
}


@pytest.fixture(scope="module", params=FRONTS)
def front(request, tmp_path_factory):
    fetch()
    authority = Authority(tmp_path_factory.mktemp("authority") / "one")
    with Front(tmp_path_factory.mktemp(request.param), authority, *FRONTS[request.param]) as started:
        yield started


@pytest.fixture
def env(front, tmp_path):
    """Of a command: the front's name leads to this machine, for this command alone."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 {API}\n")
    return {"COVE_URL": f"https://{API}:{front.port}", "SSL_CERT_FILE": str(front.authority.file),
            "COVE_API_KEY": front.serve.key, "COVE_HOSTS": str(hosts)}


def by_name(*words, env, **more):
    """cove, in a mount namespace whose /etc/hosts has the front's name."""
    mount = f"mount --bind {env['COVE_HOSTS']} /etc/hosts && exec \"$@\""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COVE_", "XDG_"))}
    return subprocess.run(["unshare", "-m", "sh", "-c", mount, "sh", COVE, *words], capture_output=True, timeout=LIMIT,
                          env={**environment, **env}, check=False, **{"stdin": subprocess.DEVNULL, **more})


@pytest.fixture
def box(front):
    with front.serve.client() as client:
        made = client.post("/v1/sandboxes", {"name": "work", "disk_kind": "persistent"}).json
        yield made["id"]
        assert client.delete(f"/v1/sandboxes/{made['id']}").status == 204


def test_commands_files_and_uploads_go_through(env, box, tmp_path):
    assert good(by_name("ls", "--quiet", env=env)).strip() == box
    assert by_name("exec", "-i", "work", "--", "cat", env=env, stdin=None, input=b"typed\n").stdout == b"typed\n"
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1 << 20) * 64)
    digest = hashlib.sha256(big.read_bytes()).hexdigest()
    good(by_name("cp", str(big), "work:/root/big", env=env))
    assert digest in good(by_name("exec", "work", "--", "sha256sum", "/root/big", env=env))
    good(by_name("cp", "work:/root/big", str(tmp_path / "back"), env=env))
    assert hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest() == digest


def test_a_stream_says_each_line_when_it_comes(front, box):
    path = f"/v1/sandboxes/{box}/processes"
    with front.serve.client() as client:
        spec = {"command": "echo one; until test -e /tmp/go; do sleep 0.02; done; echo two"}
        process = client.post(path, spec).json["id"]
        answer = front.request("GET", API, f"{path}/{process}/follow", Authorization=f"Bearer {front.serve.key}")
        assert b"one" in answer.readline()
        client.post(f"/v1/sandboxes/{box}/exec", {"command": "touch /tmp/go"})
        assert [kind in answer.readline() for kind in (b"two", b'"exit"')] == [True, True]


def test_a_client_that_leaves_takes_its_command_with_it(front, box):
    asks = json.dumps({"command": "touch /tmp/began; exec sleep 1000"})
    with front.serve.client() as client, front.connect() as opened:
        path = f"/v1/sandboxes/{box}/exec"
        opened.sendall(f"POST {path} HTTP/1.1\r\nHost: {API}:{front.port}\r\nAuthorization: Bearer {front.serve.key}\r\n"
                       f"Content-Type: application/json\r\nContent-Length: {len(asks)}\r\n\r\n{asks}".encode())

        def sleeps():
            said = run(client, f"/v1/sandboxes/{box}", "test -e /tmp/began && pgrep -x sleep")
            return said["process"]["exit_code"] == 0
        harness.wait_for(sleeps, LIMIT, "the command")
        opened.close()
        harness.wait_for(lambda: not sleeps(), LIMIT, "the command's end")


def test_a_terminal_goes_through(front, box):
    with front.serve.client() as client:
        process = client.post(f"/v1/sandboxes/{box}/processes",
                              {"argv": ["cat"], "terminal": {"rows": 24, "columns": 80}}).json["id"]
    with Watcher(front.serve, box, process, headers=[f"Authorization: Bearer {front.serve.key}"],
                 over=front.connect(), host=f"{API}:{front.port}") as watcher:
        watcher.hears("attached")
        watcher.type(b"typed\n")
        watcher.sees(b"typed\r\ntyped\r\n")


def test_pages_of_sandboxes_have_names_behind_it(front, box):
    with front.serve.client() as client:
        client.post(f"/v1/sandboxes/{box}/processes", {"argv": ["python3", "-c", SLOW]})
        harness.wait_for(lambda: any(port["listening"] for port in client.get(f"/v1/sandboxes/{box}/ports").json["ports"]),
                         LIMIT, "a port")
        host = f"8000-{box}.{DOMAIN}"
        assert front.ask("GET", host, "/")[0] == 401
        token = client.post(f"/v1/sandboxes/{box}/tokens", {"verbs": ["ports"]}).json["token"]
        status, _, headers = front.ask("GET", host, f"/?cove_token={token}")
        assert status in (302, 303, 307), status
        cookie = headers["Set-Cookie"].split(";")[0]
        answer = front.request("GET", host, "/", Cookie=cookie)
        assert answer.readline() == b"one\n"
        client.post(f"/v1/sandboxes/{box}/exec", {"command": "touch /tmp/go"})
        rest = answer.read()
        assert rest.startswith(b"two\n") and b"X-Forwarded-Proto: https" in rest and cookie.encode() not in rest


def test_a_signed_url_begins_with_the_fronts_name(front, box):
    with front.serve.client() as client:
        client.ask("PUT", f"/v1/sandboxes/{box}/files?path=/tmp/a", b"signed")
    client = http.client.HTTPConnection(API, front.port, timeout=LIMIT)
    client.sock = front.connect()
    client.request("POST", f"/v1/sandboxes/{box}/urls", '{"method":"GET","path":"/tmp/a"}',
                   {"Host": f"{API}:{front.port}", "Authorization": f"Bearer {front.serve.key}"})
    said = client.getresponse().read().decode()
    begin = f'"url":"https://{API}:{front.port}'
    assert begin in said, said
    path = said.split(begin)[1].split('"')[0]
    assert front.ask("GET", API, path)[1] == b"signed"


def test_a_tunnel_goes_through(front, env, box):
    with front.serve.client() as client:
        client.post(f"/v1/sandboxes/{box}/processes",
                    {"command": "cd /etc && python3 -m http.server 8001 --bind 127.0.0.1"})
        harness.wait_for(lambda: any(port["listening"] for port in client.get(f"/v1/sandboxes/{box}/ports").json["ports"]),
                         LIMIT, "a port")
    with front.connect() as opened:
        opened.sendall(f"GET /v1/sandboxes/{box}/tunnels/8001 HTTP/1.1\r\nHost: {API}:{front.port}\r\n"
                       f"Authorization: Bearer {front.serve.key}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode())
        assert opened.recv(1000).startswith(b"HTTP/1.1 101")
        opened.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
        said = b""
        while not said.endswith(b"box\n"):
            said += opened.recv(1000)
