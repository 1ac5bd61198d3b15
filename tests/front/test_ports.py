"""Servers in a box, reached from outside by each of the ways there are: the listener on loopback, the path of the
API, a name of its own, and `cove port`; how long that lasts, and what is told of it."""
import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess

import pytest
import websockets

import guest_servers as guest
import harness
import serving
from port_ways import (
    CONFIG, connect, cove, DOMAIN, echoes, environment, Forward, is_closed, is_cut, Listener, one_box, raw,
    read_all, Sandbox, SECONDS, STAYS, STREAMS, SWITCH, web_by_name, web_by_path, WEBS)

nothing_left, serve, api = serving.one_for_all(CONFIG, clock=True)
box = one_box()


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
    # It may be so quick that connect() hears of it.
    with way(box, 6999) as port, pytest.raises(ConnectionError), connect(port) as opened:
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


# ---- their life ----------------------------------------------------------------------------------

def open_listener(sandbox):
    opened = connect(sandbox.host_port(guest.ECHO))
    opened.sendall(b"x")
    assert opened.recv(1) == b"x"
    return opened


def open_tunnel(sandbox):
    opened = raw(sandbox.serve.port, f"GET {sandbox.path}/tunnels/{guest.ECHO} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                 f"Authorization: Bearer {sandbox.serve.key}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
    assert opened.recv(1 << 16).startswith(b"HTTP/1.1 101 ")
    opened.sendall(b"x")
    assert opened.recv(1) == b"x"
    return opened


def open_page(web, port, more, answer):
    headers = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "127.0.0.1", **web.headers}.items())
    opened = raw(web.port, f"GET {web.prefix}/stream HTTP/1.1\r\n{headers}{more}\r\n")
    assert opened.recv(1 << 16).startswith(answer), port
    return opened


def pages(way):
    def page(sandbox):
        with way(sandbox, guest.WEB) as web:
            return open_page(web, guest.WEB, "", b"HTTP/1.1 200 ")

    def switched(sandbox):
        with way(sandbox, guest.SOCKETS) as web:
            return open_page(web, guest.SOCKETS, SWITCH, b"HTTP/1.1 101 ")

    return [page, switched]


@pytest.mark.parametrize("end", ["stop", "delete"])
def test_what_is_opened_is_closed_with_the_sandbox(serve, end):
    with Sandbox(serve, ports=[{"port": guest.ECHO}, {"port": 9, "public": True}],
                 disk_kind="persistent" if end == "stop" else "ephemeral") as sandbox:
        sandbox.serves()
        ports = sandbox.ports()
        assert ports[9]["public"] and not ports[9]["listening"] and ports[9]["open"]
        assert ports[guest.ECHO]["listening"] and not ports[guest.WEB]["open"]
        port, other = (int(ports[number]["url"].rpartition(":")[2]) for number in (guest.ECHO, 9))
        assert echoes(port)
        assert sandbox.close(9).status == 204 and is_closed(other)
        assert sandbox.close(9).code == "port_not_found"
        held = [way(sandbox) for way in (open_listener, open_tunnel, *pages(web_by_path), *pages(web_by_name))]
        if end == "stop":
            assert sandbox.ask("POST", "/stop").status == 200
            # Nothing of a box that was is held, also while there is another one.
            assert sandbox.ask("POST", "/start").status == 200
    for one in held:
        # Each half, though the client ends neither: else what is left of the box would stay with it.
        with contextlib.suppress(ConnectionError):
            read_all(one)
        harness.wait_for(lambda one=one: is_cut(one), SECONDS, "its end")
        one.close()
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
        assert sandbox.ask("GET", f"/ports/{guest.WEB}/").refusal == (409, "sandbox_stopped")
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


@pytest.mark.parametrize("way", STREAMS + [web_by_path])
def test_who_is_connected_is_not_idle(serve, way):
    with Sandbox(serve, disk_kind="persistent", lifecycle={"idle_ms": 20000, "then": "stop"}) as sandbox:
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
            for _ in range(6):
                serve.clock.advance(5)
            with Sandbox(serve):
                pass  # what was due before is done by now
            assert state()[sandbox.id] == "running"
            opened.close()
        serve.clock.until(lambda: state()[sandbox.id] == "stopped", 30, "its end", step=5)


# ---- what listens --------------------------------------------------------------------------------

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
        assert told[:4] == [("port.opened", port) for port in (4001, 4002, 4003, 4004)]
        # A look that comes between sees some of them closed already.
        assert sorted(told[4:]) == [("port.closed", port) for port in (4001, 4002, 4003, 4004)]


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
        process = sandbox.start("python3", "-c", MANY, open_stdin=True)
        harness.wait_for(lambda: len(sandbox.ports()) == 120, SECONDS, "all listen, and are listed")
        sandbox.type(process, "\n")
        harness.wait_for(lambda: not sandbox.ports(), SECONDS, "none listens")
        serve.clock.advance(1)
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

def test_a_sandbox_shows_what_is_open(serve):
    with Sandbox(serve, ports=[{"port": 9, "public": True}, {"port": 8}]) as sandbox:
        assert sandbox.ask("GET").json["ports"] == [{"port": 8, "public": False}, {"port": 9, "public": True}]
        sandbox.open(10)
        assert sandbox.close(9).status == 204
        assert sandbox.ask("GET").json["ports"] == [{"port": 8, "public": False}, {"port": 10, "public": False}]


def test_what_is_no_port_is_refused(api, box):
    for body in ({}, {"port": 0}, {"port": 65536}, {"port": "80"}, {"port": 80, "public": "yes"},
                 {"port": 80, "x": 1}):
        assert box.ask("POST", "/ports", body).code == "bad_request", body
    for ports in ([80], [{"port": 80}, {"port": 80}], [{"port": 0}], {"port": 80}, [{"public": True}]):
        assert api.post("/v1/sandboxes", {"ports": ports}).code == "bad_request", ports
    for rest in ("/ports/0/", "/ports/65536/", "/ports/x/", "/ports/-1/"):
        assert box.ask("GET", rest).code == "bad_request", rest
    assert box.ask("GET", "/tunnels/80").code == "upgrade_required"
    assert box.ask("GET", "/ports/6999/").refusal == (502, "port_closed")


def test_so_many_are_open_and_no_more(serve):
    with Sandbox(serve, ports=[{"port": number} for number in range(1, 33)]) as sandbox:
        assert len({port["url"] for port in sandbox.ports().values()}) == 32
        assert sandbox.ask("POST", "/ports", {"port": 33}).refusal == (409, "too_many_ports")
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


def test_a_sandbox_is_made_with_open_ports(serve):
    done = cove(serve, "create", "--ephemeral", "--port", 8000, "--port", "9:public", "--json")
    assert not done.stderr, done
    made = json.loads(done.stdout)
    assert made["ports"] == [{"port": 9, "public": True}, {"port": 8000, "public": False}]
    assert cove(serve, "rm", made["id"]).returncode == 0
    for word in ("0", "65536", "x", "80:", "80:private", ":public", "80:public:", "1000000000000000000000080"):
        done = cove(serve, "create", "--port", word)
        assert done.returncode == 125 and "NUMBER:public" in done.stderr and not done.stdout, (word, done)


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
        with contextlib.suppress(ConnectionError), connect(forward.port) as opened:
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
