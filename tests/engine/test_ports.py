"""Servers in a box, reached from outside by each of the ways there are: the listener on loopback, the path of the
API, a name of its own, and `cove port`. And what a server, a page or a caller may not get by them."""
import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import websockets

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "box"))
sys.path.insert(0, str(HERE / "drivers"))
sys.path.insert(0, str(HERE))
import guest_servers as guest  # noqa: E402
import harness  # noqa: E402
import serving  # noqa: E402

DOMAIN = "boxes.test"
CONFIG = f"[boxes]\npool = 1\nmemory = 512M\n[network]\nport_domain = {DOMAIN}\n"
SECONDS = 60 * harness.PATIENCE

nothing_left, serve, api = serving.one_for_all(CONFIG)


# ---- a sandbox, and the ways to it ---------------------------------------------------------------

class Sandbox:
    def __init__(self, serve, **spec):
        self.serve = serve
        self.client = serve.client()
        answer = self.client.post("/v1/sandboxes", {"privileges": "plain", "disk_kind": "ephemeral", **spec})
        assert answer.status == 201, answer
        self.id = answer.json["id"]
        self.path = f"/v1/sandboxes/{self.id}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.serve.client() as client:
            assert client.delete(self.path).status == 204
        self.client.close()

    def ask(self, method, rest="", body=None, **more):
        with self.serve.client() as client:
            return client.ask(method, self.path + rest, body, **more)

    def run(self, command):
        answer = self.ask("POST", "/exec", {"command": command})
        assert answer.status == 200, answer
        return answer.json

    def start(self, *argv):
        """Its path."""
        answer = self.ask("POST", "/processes", {"argv": argv})
        assert answer.status == 201, answer
        return f"/processes/{answer.json['id']}"

    def said(self, process):
        return self.ask("GET", f"{process}/output").bytes.decode(errors="replace")

    def wait_said(self, process, word):
        harness.wait_for(lambda: word in self.said(process), SECONDS, word)

    def serves(self):
        process = self.start("python3", "-c", pathlib.Path(guest.__file__).read_text(encoding="utf-8"))
        self.wait_said(process, "ready")
        return process

    def open(self, port, **more):
        answer = self.ask("POST", "/ports", {"port": port, **more})
        assert answer.status == 200, answer
        return answer.json

    def close(self, port):
        return self.ask("DELETE", f"/ports/{port}")

    def ports(self):
        answer = self.ask("GET", "/ports")
        assert answer.status == 200, answer
        return {port["port"]: port for port in answer.json["ports"]}

    def host_port(self, port):
        return int(self.open(port)["url"].rpartition(":")[2])


@pytest.fixture(scope="module")
def box(serve):
    with Sandbox(serve) as made:
        made.guest = made.serves()
        yield made


def environment(serve, **more):
    return {**os.environ, "COVE_URL": f"unix:{serve.socket}", **more}


def over_http(serve):
    return {"COVE_URL": f"http://127.0.0.1:{serve.port}", "COVE_API_KEY": serve.key}


def cove(serve, *words, **more):
    done = subprocess.run([harness.COVE, *map(str, words)], env=environment(serve, **more), text=True,
                          capture_output=True, timeout=SECONDS, check=False)
    return done


class Forward:
    """A `cove port` that runs; `port` is where it listens."""

    def __init__(self, serve, sandbox, port, *words, **more):
        self.process = subprocess.Popen(
            [harness.COVE, "port", sandbox, str(port), "--listen", "0", *words],
            env=environment(serve, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().strip()
        assert line.startswith("127.0.0.1:"), (line, self.process.poll() and self.process.stderr.read())
        self.port = int(line.rpartition(":")[2])

    def __enter__(self):
        return self

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(SECONDS) == -signal.SIGINT
        said = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()
        return said

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()


@contextlib.contextmanager
def by_listener(box, port):
    yield box.host_port(port)


@contextlib.contextmanager
def by_command(box, port):
    with Forward(box.serve, box.id, port) as forward:
        yield forward.port


@contextlib.contextmanager
def by_command_over_http(box, port):
    with Forward(box.serve, box.id, port, **over_http(box.serve)) as forward:
        yield forward.port


STREAMS = [by_listener, by_command, by_command_over_http]


def connect(port):
    opened = socket.create_connection(("127.0.0.1", port), SECONDS)
    opened.settimeout(SECONDS)
    return opened


def read_all(opened):
    said = b""
    while data := opened.recv(1 << 16):
        said += data
    return said


class Way:
    """To an HTTP server in a box: where to connect, and what to say."""

    def __init__(self, port, prefix="", **headers):
        self.port, self.prefix, self.headers = port, prefix, headers

    def ask(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, self.prefix + path, body, {**self.headers, **headers},
                           encode_chunked=hasattr(body, "__next__"))
        return connection, connection.getresponse()

    def get(self, path, *words, **headers):
        connection, answer = self.ask(path, *words, **headers)
        with contextlib.closing(connection):
            return serving.Answer(answer, answer.read())


@contextlib.contextmanager
def web_by_listener(box, port):
    yield Way(box.host_port(port))


@contextlib.contextmanager
def web_by_path(box, port):
    yield Way(box.serve.port, f"{box.path}/ports/{port}", Authorization=f"Bearer {box.serve.key}")


def named(box, port, **headers):
    return Way(box.serve.port, Host=f"{port}-{box.id}.{DOMAIN}:{box.serve.port}", **headers)


@contextlib.contextmanager
def web_by_name(box, port):
    yield named(box, port, **{"X-Cove-Token": box.serve.key})


@contextlib.contextmanager
def web_by_command(box, port):
    with by_command(box, port) as host_port:
        yield Way(host_port)


WEBS = [web_by_listener, web_by_path, web_by_name, web_by_command]


# ---- bytes ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("way", STREAMS)
def test_a_plain_server_answers_and_each_side_ends_its_half(box, way):
    with way(box, guest.ECHO) as port, connect(port) as opened:
        opened.sendall(b"hello")
        assert opened.recv(100) == b"hello"
        opened.shutdown(socket.SHUT_WR)
        assert read_all(opened) == b"bye"


@pytest.mark.parametrize("way", STREAMS)
def test_much_goes_in_whole(box, way):
    digest = hashlib.sha256()
    with way(box, guest.HASH) as port, connect(port) as opened:
        for part in guest.big():
            digest.update(part)
            opened.sendall(part)
        opened.shutdown(socket.SHUT_WR)
        assert read_all(opened).decode() == digest.hexdigest()


def wanted_digest():
    digest = hashlib.sha256()
    for part in guest.big():
        digest.update(part)
    return digest.hexdigest()


@pytest.mark.parametrize("way", STREAMS)
def test_much_comes_out_whole_and_who_has_said_all_still_hears(box, way):
    digest = hashlib.sha256()
    before = box.said(box.guest).count("heard thanks")
    with way(box, guest.SEND) as port, connect(port) as opened:
        while data := opened.recv(1 << 20):
            digest.update(data)
        assert digest.hexdigest() == wanted_digest()
        opened.sendall(b"thanks")
        opened.shutdown(socket.SHUT_WR)
        harness.wait_for(lambda: box.said(box.guest).count("heard thanks") > before, SECONDS, "thanks")


@pytest.mark.parametrize("way", STREAMS)
def test_many_at_once_are_none_of_each_others(box, way):
    with way(box, guest.ECHO) as port, contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(port)) for _ in range(40)]
        for number, one in enumerate(opened):
            one.sendall(b"%04d" % number * 1000)
        for number, one in reversed(list(enumerate(opened))):
            one.shutdown(socket.SHUT_WR)
            assert read_all(one) == b"%04d" % number * 1000 + b"bye"


@pytest.mark.parametrize("way", STREAMS)
def test_where_nothing_listens_the_connection_is_reset(box, way):
    with way(box, 6999) as port, connect(port) as opened:
        with pytest.raises(ConnectionError):
            opened.recv(10)
            raise AssertionError("an end in good order")


@pytest.mark.parametrize("way", STREAMS)
def test_a_server_that_closes_while_it_is_dialled_harms_nobody(box, way):
    with way(box, guest.SHY) as port:
        for _ in range(20):
            with contextlib.suppress(OSError), connect(port) as opened:
                assert opened.recv(10) == b""
        with way(box, guest.ECHO) as other, connect(other) as opened:
            opened.sendall(b"still here")
            assert opened.recv(100) == b"still here"


# ---- HTTP ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("way", WEBS)
def test_a_page_and_what_it_was_asked(box, way):
    with way(box, guest.WEB) as web:
        answer = web.get("/a%2Fb//c?x=%41&y=+&&z", **{"X-Mine": "v"})
        assert answer.status == 200, answer
        assert answer.json["line"] == "GET /a%2Fb//c?x=%41&y=+&&z HTTP/1.1"
        assert ["X-Mine", "v"] in answer.json["headers"]
        for method in ("HEAD", "DELETE", "PATCH", "OPTIONS", "PROPFIND"):
            assert web.get("/", method).status == 200, method


@pytest.mark.parametrize("way", WEBS)
def test_bodies_pass_with_a_length_and_in_chunks(box, way):
    data = os.urandom(3 << 20)
    with way(box, guest.WEB) as web:
        assert web.get("/echo", "POST", data).bytes == data
        connection, answer = web.ask("/echo", "PUT", iter([data[:1000], data[1000:]]),
                                     **{"Transfer-Encoding": "chunked"})
        with contextlib.closing(connection):
            assert answer.status == 200 and answer.read() == data


@pytest.mark.parametrize("way", WEBS)
def test_a_stream_comes_as_it_is_written(box, way):
    box.run("rm -f /tmp/go*")
    with way(box, guest.WEB) as web:
        connection, answer = web.ask("/stream")
        with contextlib.closing(connection):
            for number in range(3):
                assert answer.readline() == b"part %d\n" % number
                box.run(f"touch /tmp/go{number}")
            assert answer.read() == b""


@pytest.mark.parametrize("way", WEBS)
def test_a_large_page_comes_whole(box, way):
    digest = hashlib.sha256()
    with way(box, guest.WEB) as web:
        connection, answer = web.ask("/big")
        with contextlib.closing(connection):
            while data := answer.read(1 << 20):
                digest.update(data)
    assert digest.hexdigest() == wanted_digest()


@pytest.mark.parametrize("way", WEBS)
def test_a_websocket_echoes(box, way):
    async def talk(web):
        headers = {name: value for name, value in web.headers.items() if name != "Host"}
        host = web.headers.get("Host", f"127.0.0.1:{web.port}")
        async with websockets.connect(f"ws://{host}{web.prefix}/", host="127.0.0.1", port=web.port,
                                      extra_headers=headers, max_size=1 << 26, open_timeout=SECONDS) as opened:
            for size in (1, 1000, 3 << 20):
                await opened.send("y" * size)
                assert await opened.recv() == "y" * size

    with way(box, guest.SOCKETS) as web:
        asyncio.run(asyncio.wait_for(talk(web), SECONDS))


def test_curl_reaches_a_port_by_its_name(box):
    host = f"{guest.WEB}-{box.id}.{DOMAIN}"
    done = subprocess.run(
        ["curl", "-sS", "--resolve", f"{host}:{box.serve.port}:127.0.0.1", "-H", f"X-Cove-Token: {box.serve.key}",
         f"http://{host}:{box.serve.port}/there"], capture_output=True, timeout=SECONDS, check=True)
    assert json.loads(done.stdout)["line"] == "GET /there HTTP/1.1"


# ---- what must not pass --------------------------------------------------------------------------

OURS = {"Cookie": "mine=1; cove_token=covetok_secret", "Referer": "http://127.0.0.1/secret",
        "X-API-Key": "secret", "X-Forwarded-For": "6.6.6.6"}


def test_no_key_and_no_cookie_of_ours_reaches_the_box(box):
    for way in (web_by_path, web_by_name):
        with way(box, guest.WEB) as web:
            more = {**OURS, "X-Cove-Token": box.serve.key}
            if way is web_by_path:
                more["X-API-Key"] = box.serve.key
            said = web.get("/", **more).json["headers"]
            text = json.dumps(said)
            assert box.serve.key not in text and "covetok_" not in text and "6.6.6.6" not in text
            names = {name.lower() for name, _ in said}
            assert "x-cove-token" not in names
            if way is web_by_path:
                assert not names & {"cookie", "referer", "authorization", "x-api-key"}
            else:
                assert ["Cookie", "mine=1"] in said, "the page's own are its own"


def test_below_the_path_nothing_is_set_for_the_origin(box):
    with web_by_path(box, guest.WEB) as web:
        answer = web.get("/go")
        assert answer.status == 302
        assert answer.headers["Location"] == f"{box.path}/ports/{guest.WEB}/there?x=1"
        for name in ("Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed"):
            assert answer.headers[name] is None, name
        assert answer.headers["Content-Security-Policy"] == "sandbox"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    with web_by_name(box, guest.WEB) as web:
        answer = web.get("/go")
        assert answer.headers["Location"] == "/there?x=1" and "evil" in answer.headers["Set-Cookie"]
        assert web.get("/away").headers["Location"] == "//evil.example/x", "nobody follows it but the client"


@pytest.mark.parametrize("headers", [
    {"Sec-Fetch-Mode": "navigate"}, {"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Dest": "serviceworker"}, {"Sec-Fetch-Mode": "NAVIGATE"}])
def test_a_browser_does_not_go_below_the_path(box, headers):
    with web_by_path(box, guest.WEB) as web:
        answer = web.get("/", **headers)
        assert (answer.status, answer.code) == (403, "browser_refused")


@pytest.mark.parametrize("lie", ["rubbish", "split", "switch", "endless"])
def test_who_speaks_no_http_is_told_of_and_not_passed_on(box, lie):
    for way in (web_by_path, web_by_name):
        with way(box, guest.LIES) as web:
            answer = web.get(f"/{lie}")
            assert (answer.status, answer.code) == (502, "bad_gateway")
            assert answer.headers["Set-Cookie"] is None


def test_who_is_slow_holds_up_nobody_and_is_left_when_the_client_leaves(box):
    def count(word):
        return box.said(box.guest).count(f"{word} slow")

    begun, overs = count("begun"), count("over")
    with web_by_path(box, guest.LIES) as web:
        opened = [socket.create_connection(("127.0.0.1", web.port)) for _ in range(8)]
        for one in opened:
            one.sendall(f"GET {web.prefix}/slow HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                        f"Authorization: Bearer {box.serve.key}\r\n\r\n".encode())
        harness.wait_for(lambda: count("begun") >= begun + 8, SECONDS, "all of them")
        began = time.monotonic()
        assert box.run("true")["process"]["exit_code"] == 0
        assert time.monotonic() - began < 10 * harness.PATIENCE
        for one in opened:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.close()
    harness.wait_for(lambda: count("over") >= overs + 8, SECONDS, "the end of all")


def test_half_an_answer_is_no_answer(box):
    for way in (web_by_path, web_by_name):
        with way(box, guest.LIES) as web, pytest.raises((http.client.IncompleteRead, ConnectionError)):
            web.get("/cut")


# ---- who may -------------------------------------------------------------------------------------

def token(box, *verbs, **more):
    answer = box.ask("POST", "/tokens", {"verbs": verbs, **more})
    assert answer.status == 201, answer
    return answer.json["token"]


def test_a_token_for_ports_is_for_ports(serve, box):
    one, every = token(box, "ports", port=guest.WEB), token(box, "ports")
    other = token(box, "look")
    for secret, port, status in ((one, guest.WEB, 200), (one, guest.SOCKETS, 403), (every, guest.WEB, 200),
                                 (every, guest.ECHO, 502), (other, guest.WEB, 403), ("covetok_x", guest.WEB, 401)):
        by_path = Way(serve.port, f"{box.path}/ports/{port}", Authorization=f"Bearer {secret}")
        by_name = named(box, port, **{"X-Cove-Token": secret})
        for web in (by_path, by_name):
            assert web.get("/").status == status, (secret, port, web.prefix)
    with Forward(serve, box.id, guest.ECHO, **{**over_http(serve), "COVE_API_KEY": every}) as forward:
        with connect(forward.port) as opened:
            opened.sendall(b"x")
            assert opened.recv(1) == b"x"
    with serve.tcp(key=one) as client:
        assert client.post(f"{box.path}/ports", {"port": 1}).status == 403
        assert client.delete(f"{box.path}/ports/{guest.WEB}").status == 403


def test_a_token_that_ends_cuts_what_it_carried(serve):
    with Sandbox(serve) as sandbox:
        sandbox.serves()
        secret = token(sandbox, "ports")
        with Forward(serve, sandbox.id, guest.ECHO, **{**over_http(serve), "COVE_API_KEY": secret}) as forward:
            with connect(forward.port) as opened:
                opened.sendall(b"x")
                assert opened.recv(1) == b"x"
                assert sandbox.ask("DELETE", "/tokens").status == 204
                with contextlib.suppress(ConnectionError):
                    assert opened.recv(1) == b""


def test_a_browser_brings_its_token_once_and_keeps_it_as_a_cookie(box):
    secret = token(box, "ports", port=guest.WEB)
    answer = named(box, guest.WEB).get(f"/page?a=1&cove_token={secret}&b=2")
    assert answer.status == 302 and answer.headers["Location"] == "/page?a=1&b=2"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite" in cookie and "Domain" not in cookie
    answer = named(box, guest.WEB, Cookie=f"mine=1; {cookie.split(';')[0]}").get("/page?a=1&b=2")
    assert answer.status == 200 and secret not in answer.bytes.decode()
    assert ["Cookie", "mine=1"] in answer.json["headers"]
    assert named(box, guest.SOCKETS, Cookie=cookie.split(";")[0]).get("/").status == 403
    other = named(box, guest.WEB).get("/?cove_token=covetok_nothing")
    assert other.status == 401 and other.headers["Set-Cookie"] is None
    assert named(box, guest.WEB).get("//evil.example/?cove_token=" + secret).headers["Location"] == "/evil.example/"


@pytest.mark.parametrize("headers, status", [
    ({}, 200), ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "none"}, 200),
    ({"Sec-Fetch-Site": "same-site"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Origin": f"http://8000-c0abcdefghij01234567.{DOMAIN}"}, 403), ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
    ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403)])
def test_a_page_of_a_neighbour_does_not_use_the_cookie(box, headers, status):
    """To a browser all names below the domain are one site, so it sends the cookie."""
    cookie = f"cove_token={token(box, 'ports', port=guest.WEB)}"
    assert named(box, guest.WEB, Cookie=cookie).get("/", **headers).status == status
    assert named(box, guest.WEB, Cookie=cookie).get(
        "/", Origin=f"http://{guest.WEB}-{box.id}.{DOMAIN}:{box.serve.port}").status == 200
    if "Sec-Fetch-Mode" in headers:
        assert named(box, guest.WEB, Cookie=cookie).get("/", "POST", b"", **headers).status == 403


def stays_open(web):
    """A page that has begun and has not ended: how long it goes on, at most as long as is needed to know."""
    connection, answer = web.ask("/stream")
    assert answer.readline() == b"part 0\n"
    return connection, answer


def test_who_may_no_more_is_cut_also_at_a_name(serve):
    with Sandbox(serve) as sandbox:
        sandbox.serves()
        secret = token(sandbox, "ports")
        mine, mine_said = stays_open(named(sandbox, guest.WEB, **{"X-Cove-Token": secret}))
        sandbox.open(guest.WEB, public=True)
        theirs, theirs_said = stays_open(named(sandbox, guest.WEB))
        assert sandbox.ask("DELETE", "/tokens").status == 204
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            mine_said.read()
            raise AssertionError("its end was in good order")
        time.sleep(2)
        sandbox.run("touch /tmp/go0")
        assert theirs_said.readline() == b"part 1\n", "what is public is so for as long as it is"
        sandbox.open(guest.WEB, public=False)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            theirs_said.read()
            raise AssertionError("its end was in good order")
        mine.close()
        theirs.close()


def test_only_what_is_public_needs_no_key(box):
    web = named(box, guest.WEB)
    assert (web.get("/").status, web.get("/").code) == (401, "bad_key")
    assert box.open(guest.WEB, public=True)["public"] is True
    assert box.open(guest.WEB)["public"] is True, "what is not said stays"
    assert web.get("/").status == 200
    assert named(box, guest.SOCKETS).get("/").status == 401
    assert Way(box.serve.port, f"{box.path}/ports/{guest.WEB}").get("/").status == 401, "the path is the API's"
    assert box.open(guest.WEB, public=False)["public"] is False
    assert web.get("/").status == 401
    assert box.open(guest.WEB, public=True)["public"] is True
    assert box.close(guest.WEB).status == 204
    assert web.get("/").status == 401


def test_a_name_is_for_its_port_alone(box):
    for host in (f"{guest.WEB}-c0nothingnothing0000.{DOMAIN}", f"x-{box.id}.{DOMAIN}", f"0-{box.id}.{DOMAIN}",
                 f"{guest.WEB}-{box.id}.{DOMAIN}.evil", f"{guest.WEB}-{box.id}x.{DOMAIN}"):
        answer = Way(box.serve.port, Host=host).get("/v1/version")
        assert answer.status in (401, 403, 404), (host, answer)
        assert b'"version":' not in answer.bytes


def test_another_tenant_finds_nothing(serve, box):
    box.open(guest.WEB)
    with serve.client() as client:
        made = client.post("/v1/keys", {"label": "other", "tenant": "other", "scopes": ["read", "write"]}).json
    with serve.tcp(key=made["secret"]) as client:
        for method, rest, body in (("GET", "/ports", None), ("POST", "/ports", {"port": 1}),
                                   ("DELETE", f"/ports/{guest.WEB}", None), ("GET", f"/ports/{guest.WEB}/", None)):
            answer = client.ask(method, box.path + rest, body)
            assert (answer.status, answer.code) == (404, "sandbox_not_found"), (method, rest)
        answer = client.get(f"{box.path}/tunnels/{guest.WEB}",
                            headers={"Connection": "Upgrade", "Upgrade": "tcp"})
        assert (answer.status, answer.code) == (404, "sandbox_not_found")
    assert named(box, guest.WEB, **{"X-Cove-Token": made["secret"]}).get("/").status == 404
    with serve.client() as client:
        assert client.delete(f"/v1/keys/{made['id']}").status == 204


# ---- their life ----------------------------------------------------------------------------------

def is_closed(port):
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def echoes(port):
    with connect(port) as opened:
        opened.sendall(b"x")
        return opened.recv(1) == b"x"


def test_what_is_opened_is_closed_with_the_sandbox(serve):
    with Sandbox(serve, ports=[{"port": guest.ECHO}, {"port": 9, "public": True}]) as sandbox:
        sandbox.serves()
        ports = sandbox.ports()
        assert ports[9]["public"] and not ports[9]["listening"] and ports[9]["open"]
        assert ports[guest.ECHO]["listening"] and not ports[guest.WEB]["open"]
        port, other = (int(ports[number]["url"].rpartition(":")[2]) for number in (guest.ECHO, 9))
        assert echoes(port)
        held = connect(port)
        held.sendall(b"x")
        assert held.recv(1) == b"x"
        assert sandbox.close(9).status == 204 and is_closed(other)
        assert sandbox.close(9).code == "port_not_found"
    with held, contextlib.suppress(ConnectionError):
        assert held.recv(1) == b""
    assert is_closed(port)


def test_the_number_stays_by_stop_and_start(serve):
    with Sandbox(serve, disk_kind="persistent") as sandbox:
        sandbox.serves()
        port = sandbox.host_port(guest.ECHO)
        assert echoes(port)
        assert sandbox.ask("POST", "/stop").status == 200
        assert is_closed(port)
        assert sandbox.ports()[guest.ECHO] == {
            "port": guest.ECHO, "open": True, "public": False, "listening": False, "url": None,
            "path": f"{sandbox.path}/ports/{guest.ECHO}/", "host": f"{guest.ECHO}-{sandbox.id}.{DOMAIN}"}
        answer = sandbox.ask("GET", f"/ports/{guest.WEB}/")
        assert (answer.status, answer.code) == (409, "sandbox_stopped")
        assert sandbox.ask("POST", "/start").status == 200
        sandbox.serves()
        assert sandbox.host_port(guest.ECHO) == port and echoes(port)


def test_all_ways_go_on_with_the_next_engine(tmp_path):
    with serving.Serve(tmp_path, CONFIG) as serve, Sandbox(serve) as sandbox:
        sandbox.serves()
        port = sandbox.host_port(guest.ECHO)
        with Forward(serve, sandbox.id, guest.ECHO) as forward:
            held = connect(forward.port)
            assert echoes(port) and echoes(forward.port)
            for number in (signal.SIGKILL, signal.SIGTERM):
                serve.kill_engine(number)
                assert sandbox.host_port(guest.ECHO) == port
                assert echoes(port) and echoes(forward.port)
                with web_by_path(sandbox, guest.WEB) as web:
                    assert web.get("/").status == 200
                with web_by_name(sandbox, guest.SOCKETS):
                    test_a_websocket_echoes(sandbox, web_by_name)
            with held, contextlib.suppress(ConnectionError):
                assert held.recv(1) == b"", "what was carried by the last one is cut"


STAYS = """
import socket, threading
def stay(one):
    one.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    while one.recv(100):
        pass
    one.close()
server = socket.create_server(("127.0.0.1", 7000))
while True:
    threading.Thread(target=stay, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.mark.parametrize("way", STREAMS + [web_by_path])
def test_who_is_connected_is_not_idle(serve, way):
    with Sandbox(serve, disk_kind="persistent", lifecycle={"idle_ms": 1500, "then": "stop"}) as sandbox:
        # No command of ours runs then: what is left is a daemon, which keeps nothing alive.
        sandbox.run(f"setsid python3 -c '{STAYS}' >/tmp/log 2>&1 </dev/null &\n"
                    "until grep -q :1B58 /proc/net/tcp; do sleep 0.05; done")

        def state():
            with serve.client() as client:
                return {one["id"]: one["state"] for one in client.get("/v1/sandboxes").json["sandboxes"]}

        with way(sandbox, guest.ECHO) as port:
            if way is web_by_path:
                connection, opened = port.ask("/")
                assert opened.status == 200
                connection.close()  # the answer has the socket
            else:
                opened = connect(port)
                assert opened.recv(8) == b"HTTP/1.1"
            time.sleep(3)
            assert state()[sandbox.id] == "running"
            opened.close()
        harness.wait_for(lambda: state()[sandbox.id] == "stopped", SECONDS, "its end")


# ---- what listens --------------------------------------------------------------------------------

LISTEN = """
import socket, sys
held = []
for text in sys.stdin:
    what, family, host, port = text.split()
    if what == "open":
        s = socket.socket({"4": socket.AF_INET, "6": socket.AF_INET6}[family])
        if family == "6":
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((host, int(port)))
        s.listen()
        held.append(s)
    else:
        [s.close() for s in held]
        held = []
    print("done", text.strip(), flush=True)
"""


class Listener:
    def __init__(self, sandbox):
        answer = sandbox.ask("POST", "/processes", {"argv": ["python3", "-c", LISTEN], "open_stdin": True})
        self.sandbox, self.process = sandbox, f"/processes/{answer.json['id']}"

    def tell(self, text):
        answer = self.sandbox.ask("POST", f"{self.process}/stdin", f"{text}\n".encode(),
                                  headers={"Content-Type": "application/octet-stream"})
        assert answer.status in (200, 204), answer
        self.sandbox.wait_said(self.process, f"done {text}")


def test_what_listens_is_listed_and_told(serve):
    with Sandbox(serve) as sandbox, serve.client() as client:
        assert not sandbox.ports()
        events = serving.Lines(client, "/v1/events")
        listener = Listener(sandbox)
        for family, host, port in ((4, "127.0.0.1", 4001), (4, "0.0.0.0", 4002), (6, "::1", 4003), (6, "::", 4004)):
            listener.tell(f"open {family} {host} {port}")
            assert sandbox.ports()[port]["listening"] is True, "it is looked at when it is asked for"
        assert sorted(sandbox.ports()) == [4001, 4002, 4003, 4004]
        listener.tell("close - - -")
        assert not sandbox.ports()
        told = []
        while len(told) < 8:
            event = next(events)
            if event["type"].startswith("port."):
                assert event["sandbox"] == sandbox.id
                told.append((event["type"], event["traffic"]["port"]))
        assert told == [("port.opened", port) for port in (4001, 4002, 4003, 4004)] + [
            ("port.closed", port) for port in (4001, 4002, 4003, 4004)]


MANY = """
import socket, sys
held = []
for port in range(5000, 5120):
    s = socket.socket(); s.bind(("127.0.0.1", port)); held.append(s)
for s in held: s.listen()
sys.stdin.readline()
"""


def test_not_all_of_very_many_ports_is_told(serve):
    with Sandbox(serve) as sandbox, serve.client() as client:
        assert not sandbox.ports()
        events = serving.Lines(client, "/v1/events")
        process = sandbox.ask("POST", "/processes", {"argv": ["python3", "-c", MANY], "open_stdin": True}).json["id"]
        harness.wait_for(lambda: len(sandbox.ports()) == 120, SECONDS, "all listen, and are listed")
        assert sandbox.ask("POST", f"/processes/{process}/stdin", b"\n",
                           headers={"Content-Type": "application/octet-stream"}).status in (200, 204)
        harness.wait_for(lambda: not sandbox.ports(), SECONDS, "none listens")
        time.sleep(1)
        listener, told = Listener(sandbox), []
        listener.tell("open 4 127.0.0.1 4001")
        assert sandbox.ports()[4001]["listening"] is True
        while not told or told[-1]["traffic"]["port"] != 4001:
            told += [event for event in [next(events)] if event["type"].startswith("port.")]
        assert 50 <= len(told) < 241, "not all of it is told"
        assert len(told) + sum(event["traffic"]["left_out"] for event in told) == 241, "but how much it was"


def test_either_loopback_is_reached(serve):
    with Sandbox(serve) as sandbox:
        listener = Listener(sandbox)
        for family, host, port in ((4, "127.0.0.1", 4001), (4, "0.0.0.0", 4002), (6, "::1", 4003), (6, "::", 4004)):
            listener.tell(f"open {family} {host} {port}")
            with connect(sandbox.host_port(port)) as opened:
                opened.settimeout(1)
                with pytest.raises(socket.timeout):
                    opened.recv(1)


# ---- bounds, and what is wrong -------------------------------------------------------------------

def test_what_is_no_port_is_refused(api, box):
    for body in ({}, {"port": 0}, {"port": 65536}, {"port": "80"}, {"port": 80, "public": "yes"},
                 {"port": 80, "x": 1}):
        assert box.ask("POST", "/ports", body).code == "bad_request", body
    for ports in ([80], [{"port": 80}, {"port": 80}], [{"port": 0}], {"port": 80}, [{"public": True}]):
        assert api.post("/v1/sandboxes", {"ports": ports}).code == "bad_request", ports
    for rest in ("/ports/0/", "/ports/65536/", "/ports/x/", "/ports/-1/"):
        assert box.ask("GET", rest).code == "bad_request", rest
    assert box.ask("GET", "/tunnels/80").code == "upgrade_required"
    answer = box.ask("GET", "/ports/6999/")
    assert (answer.status, answer.code) == (502, "port_closed")


def test_so_many_are_open_and_no_more(serve):
    with Sandbox(serve, ports=[{"port": number} for number in range(1, 33)]) as sandbox:
        assert len({port["url"] for port in sandbox.ports().values()}) == 32
        answer = sandbox.ask("POST", "/ports", {"port": 33})
        assert (answer.status, answer.code) == (409, "too_many_ports")
        assert sandbox.close(1).status == 204
        sandbox.open(33)


# ---- the command line ----------------------------------------------------------------------------

def test_the_command_opens_lists_and_closes(serve):
    with Sandbox(serve, name="shown") as sandbox:
        sandbox.serves()
        done = cove(serve, "port", "shown", guest.WEB, "--open", "--public")
        url = sandbox.ports()[guest.WEB]["url"]
        assert done.stdout == f"{url}\n{guest.WEB}-{sandbox.id}.{DOMAIN}\n" and not done.stderr, done
        done = cove(serve, "ports", "shown")
        lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
        assert lines[str(guest.WEB)] == ["yes", "public", url, f"{guest.WEB}-{sandbox.id}.{DOMAIN}"]
        assert lines[str(guest.ECHO)][:3] == ["yes", "no", "-"]
        assert {port["port"] for port in json.loads(cove(serve, "ports", "shown", "--json").stdout)["ports"]} == set(
            sandbox.ports())
        done = cove(serve, "port", "shown", guest.WEB, "--close")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        done = cove(serve, "port", "shown", guest.WEB, "--close")
        assert done.returncode == 125 and "is not open" in done.stderr


def test_the_command_says_what_is_wrong(serve, box):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, said in (([box.id, "x"], "port"), ([box.id, "0"], "port"), (["nosuch", "80"], "cove ls"),
                            ([box.id, "80", "--open", "--close"], "give one"), ([box.id, "80", "--public"], "--open"),
                            ([box.id, "80", "--listen", "nowhere:x"], "no address and port"),
                            ([box.id, "80", "--listen", "::1:80"], "no address and port"),
                            ([box.id, "80", "--listen", "192.0.2.1:0"], "an address of this machine"),
                            ([box.id, guest.ECHO, "--listen", str(port)], "listens there already")):
            done = cove(serve, "port", *words)
            assert done.returncode == 125 and said in done.stderr and not done.stdout, (words, done)


def test_the_command_says_when_nothing_listens_yet(serve, box):
    with Forward(serve, box.id, 6999) as forward:
        with connect(forward.port) as opened, contextlib.suppress(ConnectionError):
            assert opened.recv(1) == b""
        said = forward.end()
    assert "nothing listens on port 6999 of this sandbox yet" in said
    assert "nothing listens on port 6999 in sandbox" in said


def test_the_command_listens_where_it_is_told(serve, box):
    process = subprocess.Popen([harness.COVE, "port", box.id, str(guest.ECHO), "--listen", "[::1]:0", "--json"],
                               env=environment(serve), stdout=subprocess.PIPE)
    said = json.loads(process.stdout.readline())
    assert said["port"] == guest.ECHO and said["listen"].startswith("[::1]:")
    with socket.create_connection(("::1", int(said["listen"].rpartition(":")[2])), SECONDS) as opened:
        opened.sendall(b"six")
        assert opened.recv(3) == b"six"
        process.send_signal(signal.SIGKILL)
        process.wait()
        opened.settimeout(SECONDS)
        with contextlib.suppress(ConnectionError):
            assert opened.recv(1) == b"", "all of it ends with the command"
    process.stdout.close()


def test_a_listener_that_nobody_reads_costs_nothing(serve, box):
    """Whoever connects and says nothing holds up nobody else."""
    port = box.host_port(guest.ECHO)
    idle = [connect(port) for _ in range(100)]
    answers = serving.at_once(*[lambda: echoes(port)] * 8)
    assert all(answers)
    for one in idle:
        one.close()
    assert threading.active_count() < 50
