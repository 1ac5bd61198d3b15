"""fetch() of `cove js`: it reaches what is granted and nothing else, hop by hop, and what servers do wrong is an error that
says so. The servers are in a network of their own, whose names the world's resolver knows."""
import json

import pytest

import certificates
import fetch_servers as servers
import harness
import worlds
from fetch_servers import FOREIGN_PORT, FOUR, PORT, TLS_PORT


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    assert harness.EXPECT.is_root, "these tests make networks"
    with worlds.World(tmp_path_factory.mktemp("world")) as made:
        made.authority = certificates.Authority(made.directory / "ours")
        servers.start(made, *servers.make_certificates(made))
        yield made


def js(world, code, *grants):
    words = [word for grant in grants for word in ("--allow-host", grant)]
    done = world.cove("js", "--json", "--wall-ms", "300000", "--cpu-ms", "60000", *words, "-e", code)
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout)


def value(world, code, *grants):
    found = js(world, code, *(grants or ["four.test"]))
    assert found["error"] is None, found["error"]
    return found["value"]


def refused(world, code, *grants):
    error = js(world, code, *(grants or ["four.test"]))["error"]
    assert error is not None and error["name"] == "TypeError", error
    return error["message"]


def test_a_request_and_its_answer(world):
    found = value(world, f"""const r = await fetch('{FOUR}/a?b=c#d', {{ method: 'POST', body: 'héllo', headers: {{ 'X-Mine': '1',
        'Host': 'evil', 'Content-Length': '1' }} }}); [r.status, r.statusText, r.ok, r.url, r.redirected, r.headers.get('x-two'), await r.json()]""")
    assert found[:4] == [200, "Fine", True, f"{FOUR}/a?b=c#d"] and found[4:6] == [False, "a"]
    asked = found[6]
    assert (asked["method"], asked["path"], asked["body"]) == ("POST", "/a?b=c", "héllo")
    assert asked["headers"]["x-mine"] == "1" and asked["headers"]["host"] == f"four.test:{PORT}"
    assert asked["headers"]["content-length"] == "6" and asked["headers"]["user-agent"] == "cove"


def test_bodies_in_all_their_forms(world):
    assert value(world, f"const t = await (await fetch('{FOUR}/chunks')).text(); [t.slice(0, 9), t.length]") == ["one two x", 100008]
    assert value(world, f"await (await fetch('{FOUR}/until-the-end')).text()") == "all of it"
    assert value(world, f"const r = await fetch('{FOUR}/none'); [r.status, await r.text()]") == [204, ""]
    assert value(world, f"(await (await fetch('{FOUR}/early')).json()).path") == "/early"
    assert value(world, f"const r = await fetch('{FOUR}/x', {{ method: 'HEAD' }}); [r.status, await r.text()]") == [200, ""]


def test_many_at_once(world):
    assert value(world, f"const all = await Promise.all(Array.from({{ length: 100 }}, (_, i) => fetch('{FOUR}/' + i).then((r) => r.json())));"
                        "all.every((one, i) => one.path === '/' + i)") is True


def test_what_is_not_read_holds_nothing_up(world):
    assert value(world, f"await fetch('{FOUR}/chunks'); const r = await fetch('{FOUR}/chunks'); await r.body.cancel(); 7") == 7


def test_a_redirect_is_followed_hop_by_hop(world):
    found = value(world, f"const r = await fetch('{FOUR}/moved', {{ method: 'POST', body: 'x' }}); [r.url, r.redirected, await r.json()]")
    assert found[:2] == [f"{FOUR}/here?x=1", True] and (found[2]["method"], found[2]["body"]) == ("GET", "")
    assert value(world, f"(await (await fetch('{FOUR}/kept', {{ method: 'PUT', body: 'x' }})).json()).body") == "x"
    secrets = "{ headers: { Authorization: 'secret', Accept: 'a/b' } }"
    found = value(world, f"(await (await fetch('{FOUR}/other', {secrets})).json()).headers", "four.test", "other.test")
    assert "authorization" not in found and found["accept"] == "a/b"
    assert value(world, f"(await fetch('{FOUR}/moved', {{ redirect: 'manual' }})).status") == 302
    assert "unexpected redirect" in refused(world, f"await fetch('{FOUR}/moved', {{ redirect: 'error' }})")
    assert "redirect count exceeded" in refused(world, f"await fetch('{FOUR}/round')")


@pytest.mark.parametrize("path, grants, said", [
    ("/other", ["four.test"], "--allow-host other.test"),
    ("/metadata", ["four.test", "*", "169.254.169.254"], "no rule can allow it"),
    ("/metadata", ["four.test", "*", "meta.test private=yes"], "no rule can allow it"),
    ("/file", ["four.test"], "scheme"),
    ("/to?ftp://four.test/", ["four.test"], "scheme"),
    (f"/to?http://10.77.0.2:{PORT}/", ["four.test", "*"], "private"),
    (f"/to?http://private.test:{PORT}/", ["four.test", "*"], "private=yes"),
    ("/to?http://127.0.0.1/", ["four.test", "*"], "loopback"), ("/to?http://[::1]/", ["four.test", "*"], "loopback"),
    ("/to?http://0.0.0.0/", ["four.test", "*"], "no rule can allow it"), ("/to?http://2130706433/", ["four.test", "*"], "loopback"),
    ("/to?http://0177.0.0.1/", ["four.test", "*"], "loopback"), ("/to?http://0x7f000001/", ["four.test", "*"], "loopback"),
    ("/to?http://203.0.113.1/", ["four.test", "*"], "no rule can allow it: host"),
    ("/to?http://four.test@127.0.0.1/", ["four.test", "*"], "fetch failed"),
])
def test_a_redirect_leads_no_further_than_a_request(world, path, grants, said):
    if "169.254.169.254" in grants:
        grants = grants[:-1]  # a rule for it is refused itself
    assert said in refused(world, f"await fetch('{FOUR}{path}')", *grants)


@pytest.mark.parametrize("url, grants, said", [
    (f"{FOUR}/", ["other.test"], "the host 'four.test' is denied: allow it with allowedHosts (--allow-host four.test)"),
    (f"{FOUR}/", ["four.test:80"], "--allow-host four.test"),
    (f"http://private.test:{PORT}/", ["private.test"], "private=yes"),
    ("http://own.test/", ["own.test"], "no rule can allow it: host"),
    ("http://loop.test/", ["*"], "no rule can allow it: loopback"),
    ("http://mapped.test/", ["*"], "no rule can allow it"),
    ("http://127.0.0.1/", ["*"], "no rule can allow it: loopback"),
    ("http://[::1]/", ["*"], "no rule can allow it: loopback"),
    ("http://0x7f.1/", ["*"], "no rule can allow it: loopback"),
    ("http://10.77.0.2/", ["*"], "private"),
    ("http://metadata.test@meta.test/", ["*"], "d"),
    ("http://meta.test/", ["meta.test private=yes"], "no rule can allow it: metadata"),
    ("http://four.test:1/", ["four.test"], "cannot be reached"),
    ("http://nothing.test/", ["*"], "fetch failed"),
    (f"{FOUR}/cut", ["four.test"], None),
    (f"{FOUR}/noise", ["four.test"], "is no HTTP"),
    (f"{FOUR}/both", ["four.test"], "is no HTTP"),
    (f"https://four.test:{PORT}/", ["four.test"], "TLS"),
])
def test_what_is_refused(world, url, grants, said):
    error = js(world, f"await (await fetch('{url}')).text()", *grants)["error"]
    assert error is not None and (said or "ended the connection") in error["message"], error


def test_private_addresses_are_reached_when_a_rule_says_so(world):
    code = f"(await fetch('http://private.test:{PORT}/')).status"
    assert value(world, code, "private.test private=yes") == 200
    assert value(world, f"(await fetch('http://10.77.0.2:{PORT}/')).status", "10.77.0.0/24") == 200


def test_nobody_waits_longer_than_the_run_may(world):
    done = world.cove("js", "--json", "--wall-ms", "300", "--allow-host", "silent.test", "-e", "await fetch('http://silent.test/')")
    assert json.loads(done.stdout)["timed_out"] and done.returncode == 124


@pytest.fixture
def believing(world, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(world.authority.file))
    return world


def test_https_is_fetched_from_whom_the_authorities_vouch_for(believing):
    assert value(believing, f"(await (await fetch('https://four.test:{TLS_PORT}/a')).json()).path") == "/a"
    assert value(believing, f"(await (await fetch('https://four.test:{TLS_PORT}/sized?300000')).arrayBuffer()).byteLength") == 300000
    assert value(believing, f"(await (await fetch('https://203.0.113.2:{TLS_PORT}/a')).json()).path", "203.0.113.2") == "/a"


@pytest.mark.parametrize("url", [f"https://other.test:{TLS_PORT}/", f"https://four.test:{FOREIGN_PORT}/",
                                 f"https://203.0.113.3:{TLS_PORT}/"])
def test_a_wrong_certificate_is_not_believed(believing, url):
    assert "certificate" in refused(believing, f"await fetch('{url}')", "*.test", "other.test", "four.test", "203.0.113.3")


def test_what_the_host_does_not_believe_is_not_believed(world):
    assert "certificate" in refused(world, f"await fetch('https://four.test:{TLS_PORT}/')")


def test_a_redirect_may_lead_to_https(believing):
    found = value(believing, f"const r = await fetch('{FOUR}/to?https://four.test:{TLS_PORT}/b'); [r.url, (await r.json()).path]")
    assert found == [f"https://four.test:{TLS_PORT}/b", "/b"]
    assert "certificate" in refused(believing, f"await fetch('{FOUR}/to?https://four.test:{FOREIGN_PORT}/')")


def test_no_run_asks_hears_or_says_without_end(world):
    assert "at most 1000 requests" in refused(world, f"for (let i = 0; i < 1001; i++) await fetch('{FOUR}/none')")
    assert "at most 268435456 bytes of answers" in js(world, f"""const r = (await fetch('{FOUR}/endless')).body.getReader();
        while (true) await r.read()""", "four.test")["error"]["message"]
    assert "at most 67108864 bytes of requests" in refused(world, f"""const body = new Uint8Array(15 << 20);
        for (let i = 0; i < 5; i++) await fetch('{FOUR}/none', {{ method: 'POST', body }})""")
    assert "at most 16777216 bytes" in refused(world, f"await fetch('{FOUR}/none', {{ method: 'POST', body: new Uint8Array((16 << 20) + 1) }})")
    assert "are open" in refused(world, f"const all = []; for (let i = 0; i < 257; i++) all.push(await fetch('{FOUR}/slow'))")


@pytest.mark.parametrize("path", ["/endless-head", "/endless-early", "/endless-line", "/many-heads", "/large-chunk", "/bad-chunk"])
def test_what_has_no_end_but_should_is_an_error(world, path):
    error = js(world, f"await (await fetch('{FOUR}{path}')).text()", "four.test")["error"]
    assert error is not None and "is no HTTP" in error["message"], error
