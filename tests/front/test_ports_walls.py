"""Servers in a box, reached from outside: what a server, a page, a visitor or a caller may not get by that."""
import contextlib
import http.client
import json
import select
import socket
import time

import pytest

import guest_servers as guest
import harness
import serving
from port_ways import (
    CONFIG, connect, DOMAIN, Forward, Listener, named, one_box, over_http, raw, read_all, Sandbox, SECONDS,
    STAYS, SWITCH, token, Way, web_by_name, web_by_path)

pytestmark = pytest.mark.wall

nothing_left, serve, api = serving.one_for_all(CONFIG, clock=True)
box = one_box()


# ---- what must not pass --------------------------------------------------------------------------

# As a front with TLS says it.
TLS = {"X-Forwarded-Proto": "https"}
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
        assert web.get("/", **headers).refusal == (403, "browser_refused")


@pytest.mark.parametrize("lie", ["rubbish", "split", "switch", "endless"])
def test_who_speaks_no_http_is_told_of_and_not_passed_on(box, lie):
    for way in (web_by_path, web_by_name):
        with way(box, guest.LIES) as web:
            answer = web.get(f"/{lie}")
            assert answer.refusal == (502, "bad_gateway")
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
    answer = named(box, guest.WEB, **TLS).get(f"/page?a=1&cove_token={secret}&b=2")
    assert answer.status == 302 and answer.headers["Location"] == "/page?a=1&b=2"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite" in cookie and "Domain" not in cookie
    answer = named(box, guest.WEB, Cookie=f"mine=1; {cookie.split(';')[0]}", **TLS).get("/page?a=1&b=2")
    assert answer.status == 200 and secret not in answer.bytes.decode()
    assert ["Cookie", "mine=1"] in answer.json["headers"]
    assert named(box, guest.SOCKETS, Cookie=cookie.split(";")[0], **TLS).get("/").status == 403
    other = named(box, guest.WEB, **TLS).get("/?cove_token=covetok_nothing")
    assert other.status == 401 and other.headers["Set-Cookie"] is None
    assert named(box, guest.WEB, **TLS).get("//evil.example/?cove_token=" + secret).headers["Location"] == "/evil.example/"


@pytest.fixture(params=[False, True])
def public(box, request):
    box.open(guest.WEB, public=request.param)
    yield request.param
    box.close(guest.WEB)


def test_a_cookie_is_neither_given_nor_taken_in_clear_text(box, public):
    """There a browser does not say which page has it ask: a neighbour's page could, with the visitor's cookie."""
    secret = token(box, "ports", port=guest.WEB)
    for scheme in ({}, {"X-Forwarded-Proto": "http"}):
        answer = named(box, guest.WEB, **scheme).get(f"/page?cove_token={secret}")
        assert answer.refusal == (400, "needs_tls") and answer.headers["Set-Cookie"] is None
        assert secret not in answer.bytes.decode() and "X-Cove-Token" in answer.json["detail"]
        for name in ("cove_token", "__Host-cove_token"):
            answer = named(box, guest.WEB, Cookie=f"{name}={secret}; mine=1", **scheme).get("/")
            if public:
                assert answer.status == 200 and ["Cookie", "mine=1"] in answer.json["headers"]
            else:
                assert answer.refusal == (401, "bad_key")
        assert named(box, guest.WEB, **{"X-Cove-Token": secret}, **scheme).get("/").status == 200


@pytest.mark.parametrize("headers, status", [
    ({}, 200), ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "none"}, 200),
    ({"Sec-Fetch-Site": "same-site"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Origin": f"https://8000-c0abcdefghij01234567.{DOMAIN}"}, 403), ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
    ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403)])
def test_a_page_of_a_neighbour_does_not_use_the_cookie(box, headers, status):
    """To a browser all names below the domain are one site, so it sends the cookie."""
    web = named(box, guest.WEB, Cookie=f"__Host-cove_token={token(box, 'ports', port=guest.WEB)}", **TLS)
    assert web.get("/", **headers).status == status
    assert web.get("/", Origin=f"https://{guest.WEB}-{box.id}.{DOMAIN}:{box.serve.port}").status == 200
    if "Sec-Fetch-Mode" in headers:
        assert web.get("/", "POST", b"", **headers).status == 403


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
        serve.clock.advance(5)
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
    path, other = [Way(box.serve.port, f"{box.path}/ports/{port}") for port in (guest.WEB, guest.SOCKETS)]
    assert path.get("/").status == 200 and other.get("/").code == "bad_key"
    page = path.get("/", **{"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"})
    assert page.code == "browser_refused", "whose origin would be the API's"
    for more in ("", f"/ports/{guest.WEB}", f"/tunnels/{guest.WEB}"):
        assert Way(box.serve.port, f"{box.path}{more}").get("").status == 401, f"{more}: not the port itself"
    assert path.get("/", Authorization="Bearer cove_none").status == 401, "a wrong key is wrong"
    assert box.open(guest.WEB, public=False)["public"] is False
    assert web.get("/").status == path.get("/").status == 401
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
            assert client.ask(method, box.path + rest, body).refusal == (404, "sandbox_not_found"), (method, rest)
        answer = client.get(f"{box.path}/tunnels/{guest.WEB}",
                            headers={"Connection": "Upgrade", "Upgrade": "tcp"})
        assert answer.refusal == (404, "sandbox_not_found")
    assert named(box, guest.WEB, **{"X-Cove-Token": made["secret"]}).get("/").status == 404
    with serve.client() as client:
        assert client.delete(f"/v1/keys/{made['id']}").status == 204


# ---- what is ours --------------------------------------------------------------------------------

def test_a_key_does_not_go_by_a_url(box):
    for public in (False, True):
        box.open(guest.WEB, public=public)
        for secret in (box.serve.key, "x", ""):
            answer = named(box, guest.WEB).get(f"/?cove_token={secret}")
            assert answer.refusal == (401, "bad_key"), (public, secret)
    box.close(guest.WEB)


def test_our_secrets_stay_ours_at_a_public_name(box):
    box.open(guest.WEB, public=True)
    secret = token(box, "ports")
    for mine in (box.serve.key, secret):
        for headers in ({"Authorization": f"Bearer {mine}"}, {"authorization": mine}, {"X-API-Key": mine},
                        {"Authorization": f"token  {mine}"},
                        {"Cookie": f"cove_token={mine}; __Host-cove_token={mine}"}):
            answer = named(box, guest.WEB).get("/", **headers)
            assert answer.status == 200 and mine not in answer.bytes.decode(), headers
    theirs = named(box, guest.WEB).get("/", Authorization="Bearer theirs", **{"X-API-Key": "own"}).json["headers"]
    assert ["Authorization", "Bearer theirs"] in theirs and ["X-API-Key", "own"] in theirs
    box.close(guest.WEB)


def test_a_token_in_a_url_goes_on_without_it_however_it_is_written(box):
    secret = token(box, "ports", port=guest.WEB)
    web = named(box, guest.WEB, **TLS)
    for query in (f"cove%5Ftoken={secret}", f"%63ove_token={secret}&a=1", f"a=1&cove_token={secret}&cove_%74oken=x"):
        answer = web.get(f"/page?{query}")
        assert answer.status == 302, query
        assert answer.headers["Location"] == ("/page?a=1" if "a=1" in query else "/page")
    for path in ("//evil.example/", "/\\evil.example/", "/\\/\\evil.example/"):
        assert web.get(f"{path}?cove_token={secret}").headers["Location"] == "/evil.example/", path


def test_a_neighbour_does_not_break_the_cookie(box):
    """Whatever page below the domain sets one of the same name for the domain, if a browser lets it."""
    secret, name = token(box, "ports", port=guest.WEB), "__Host-cove_token"
    for cookies in (f"{name}={secret}; {name}=x", f"{name}=; {name}=covetok_x; {name}={secret}",
                    f"{name}={'y' * 3000}; a=b; {name}={secret}; {name}={token(box, 'look')}"):
        answer = named(box, guest.WEB, Cookie=cookies, **TLS).get("/")
        assert answer.status == 200 and "cove_token" not in answer.bytes.decode(), cookies
    for value in ("x", box.serve.key):
        assert named(box, guest.WEB, Cookie=f"{name}={value}", **TLS).get("/").status == 401, "no page has a key"


def test_with_tls_the_cookie_is_one_that_no_neighbour_can_set(box):
    secret = token(box, "ports", port=guest.WEB)
    cookie = named(box, guest.WEB, **TLS).get(f"/?cove_token={secret}").headers["Set-Cookie"]
    assert cookie.startswith("__Host-cove_token=") and "; Secure" in cookie and "; Path=/" in cookie
    answer = named(box, guest.WEB, Cookie=cookie.split(";")[0], **TLS).get("/")
    assert answer.status == 200 and "cove_token" not in answer.bytes.decode()
    assert named(box, guest.WEB, Cookie=f"cove_token={secret}", **TLS).get("/").status == 401


# ---- where it is ---------------------------------------------------------------------------------

def test_a_place_below_the_path_is_written_with_the_id(serve):
    name = "n" * 60
    with Sandbox(serve, name=name) as sandbox:
        sandbox.serves()
        for text in (name, "%6e" * 60):
            web = Way(serve.port, f"/v1/sandboxes/name:{text}/ports/{guest.WEB}", Authorization=f"Bearer {serve.key}")
            assert web.get("/go").headers["Location"] == f"{sandbox.path}/ports/{guest.WEB}/there?x=1"
            assert web.get("/a?b=/c").json["line"] == "GET /a?b=/c HTTP/1.1"


def test_a_target_may_name_the_host(box):
    host = f"{guest.WEB}-{box.id}.{DOMAIN}"
    for target, where in ((f"http://127.0.0.1{box.path}/ports/{guest.WEB}/a?b", "127.0.0.1"),
                          (f"HTTP://{host}/a?b", host)):
        with raw(box.serve.port, f"GET {target} HTTP/1.1\r\nHost: {where}\r\nX-Cove-Token: {box.serve.key}\r\n"
                 f"Authorization: Bearer {box.serve.key}\r\nConnection: close\r\n\r\n") as opened:
            said = read_all(opened).decode()
            assert said.startswith("HTTP/1.1 200 ") and '"GET /a?b HTTP/1.1"' in said, said


# ---- too much ------------------------------------------------------------------------------------

def test_visitors_leave_room_for_the_owner(serve):
    with Sandbox(serve, ports=[{"port": number, "public": True} for number in (guest.WEB, guest.SOCKETS)]) as sandbox:
        sandbox.serves()
        text = f"GET / HTTP/1.1\r\nHost: {guest.SOCKETS}-{sandbox.id}.{DOMAIN}\r\n{SWITCH}\r\n"
        held = [raw(serve.port, text) for _ in range(192)]
        for one in held:
            assert one.recv(1 << 16).startswith(b"HTTP/1.1 101 ")
        answer = named(sandbox, guest.WEB).get("/")
        assert answer.refusal == (503, "too_many_connections")
        with web_by_path(sandbox, guest.WEB) as web:
            assert web.get("/").status == 200
        held.pop().close()
        harness.wait_for(lambda: named(sandbox, guest.WEB).get("/").status == 200, SECONDS, "room")
        for one in held:
            one.close()


def test_a_visitor_who_stays_keeps_nothing_awake(serve):
    with Sandbox(serve, disk_kind="persistent", lifecycle={"idle_ms": 20000, "then": "stop"},
                 ports=[{"port": 7000, "public": True}]) as sandbox:
        sandbox.run(f"setsid python3 -c '{STAYS}' >/tmp/log 2>&1 </dev/null &\n"
                    "until grep -q :1B58 /proc/net/tcp; do sleep 0.05; done")
        connection, answer = named(sandbox, 7000).ask("/")
        assert answer.status == 200
        serve.clock.advance(15)
        assert not select.select([answer], [], [], 0)[0], "the page goes on"
        serve.clock.advance(5)
        harness.wait_for(lambda: sandbox.ask("GET").json["state"] == "stopped", SECONDS, "its end")
        with contextlib.suppress(http.client.HTTPException, ConnectionError):
            answer.read()
        connection.close()


def test_of_many_that_listen_the_lowest_are_known(serve):
    with Sandbox(serve, ports=[{"port": 9000}]) as sandbox:
        listener = Listener(sandbox)
        listener.tell("open 4 127.0.0.1 5000-5199")

        def listening():
            return sorted(port for port, one in sandbox.ports().items() if one["listening"])

        harness.wait_for(lambda: listening() == list(range(5000, 5128)), SECONDS, "the lowest")
        assert sandbox.ports()[9000]["open"], "and all that are open"
        listener.tell("open 4 127.0.0.1 4000-4000")
        harness.wait_for(lambda: listening() == [4000, *range(5000, 5127)], SECONDS, "the lowest")


def test_listeners_without_end_are_not_all_looked_at(serve):
    """The loop is everybody's: who has that many is looked at now and then."""
    with Sandbox(serve) as sandbox, Sandbox(serve) as other:
        listeners = [Listener(sandbox) for _ in range(4)]
        for number, listener in enumerate(listeners, 1):
            listener.tell(f"open 4 127.0.0.{number} 20000-27999")
        assert len(sandbox.ports()) == 128
        for listener in listeners:
            listener.tell("close - - -")
        assert len(sandbox.ports()) == 128, "it is what is known of them"
        theirs = Listener(other)
        theirs.tell("open 4 127.0.0.1 4000-4000")
        assert other.ports()[4000]["listening"]
        assert other.run("true")["process"]["exit_code"] == 0
