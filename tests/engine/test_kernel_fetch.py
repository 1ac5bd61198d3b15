"""fetch() of kernels over the API, from the code in a worker to a server and back, by way of an operator's proxy: so it is
the same for root and for an ordinary user. What each part must hold is tested in tests/kernel/test_engine_fetch.py."""
import subprocess
import sys

import pytest

import fetch_servers as servers
import harness
import serving
import worlds
from fetch_servers import FOUR, PORT

CONFIG = """[boxes]
pool = 0
[network]
resolvers = 127.0.0.1:{}
proxy = http://mine:secret@127.0.0.1:{}
proxy_names = yes
"""
nothing_left, _, api = serving.one_for_all()


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    program = subprocess.Popen([sys.executable, servers.THIS, "alone"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    proxy = int(program.stdout.readline())
    try:
        with worlds.World(tmp_path_factory.mktemp("world"), beyond=True) as world, \
                serving.Serve(tmp_path_factory.mktemp("serve"), config=CONFIG.format(world.ports["dns"], proxy)) as started:
            yield started
    finally:
        program.stdin.close()
        program.wait()
        program.stdout.close()


def run(api, code, *hosts, path="/v1/kernels/run", **more):
    answer = api.post(path, {"code": code, **({"allowed_hosts": list(hosts)} if hosts else {}), **more})
    assert answer.status == 200, answer
    return answer.json


def value(api, code, *hosts, **more):
    found = run(api, code, *(hosts or ["four.test"]), **more)
    assert found["error"] is None, found["error"]
    return found["value"]


def refused(api, code, *hosts):
    error = run(api, code, *(hosts or ["four.test"]), wall_ms=300000)["error"]
    assert error is not None and error["name"] == "TypeError", error
    return error["message"]


def open_now(api):
    return value(api, f"(await (await fetch('{FOUR}/')).json()).open")


def test_a_request_and_its_answer(api):
    found = value(api, f"""const r = await fetch('{FOUR}/a?b=c#d', {{ method: 'POST', body: 'héllo', headers: {{ 'X-Mine': '1',
        'Host': 'evil' }} }}); [r.status, r.statusText, r.ok, r.url, r.redirected, r.headers.get('x-two'), await r.json()]""")
    assert found[:6] == [200, "Fine", True, f"{FOUR}/a?b=c#d", False, "a"]
    asked = found[6]
    assert (asked["method"], asked["path"], asked["body"], asked["from"]) == ("POST", "/a?b=c", "héllo", "four.test")
    assert asked["headers"]["x-mine"] == "1" and asked["headers"]["host"] == f"four.test:{PORT}"
    assert "proxy-authorization" not in asked["headers"]


def test_bodies_come_whole_and_as_they_are_read(api):
    assert value(api, f"const t = await (await fetch('{FOUR}/chunks')).text(); [t.slice(0, 9), t.length]") == ["one two x", 100008]
    assert value(api, f"""const b = new Uint8Array(await (await fetch('{FOUR}/sized?3000000')).arrayBuffer());
        [b.length, new TextDecoder().decode(b.subarray(2000000, 2000016))]""") == [3000000, "0250000\n0250001\n"]
    assert value(api, f"""const r = (await fetch('{FOUR}/endless')).body.getReader(); let n = 0;
        while (n < 1000000) n += (await r.read()).value.length; await r.cancel(); n >= 1000000""") is True
    assert value(api, f"const r = await fetch('{FOUR}/none'); [r.status, await r.text()]") == [204, ""]
    assert value(api, f"""(await Promise.all(Array.from({{ length: 100 }}, (_, i) => fetch('{FOUR}/' + i).then((r) => r.json()))))
        .every((one, i) => one.path === '/' + i)""") is True


def test_large_bodies_are_sent_as_they_are(api):
    """Also several at once, and where the answer comes before all was sent."""
    found = value(api, f"""await Promise.all([1, 2, 3].map(async (n) => {{
        const body = String(n).repeat((3 << 20) + n), r = await fetch('{FOUR}/a', {{ method: 'POST', body }}), asked = await r.json();
        return [asked.size, asked.body.slice(0, 3)] }}))""")
    assert found == [[(3 << 20) + n, str(n) * 3] for n in (1, 2, 3)]
    early = f"const r = await fetch('{FOUR}/early-no', {{ method: 'POST', body: 'x'.repeat(3 << 20) }}); [r.status, await r.text()]"
    assert value(api, early) == [413, "no"]
    assert value(api, "1 + 1") == 2


def test_each_hop_is_judged(api):
    found = value(api, f"const r = await fetch('{FOUR}/moved', {{ method: 'POST', body: 'x' }}); [r.url, r.redirected, (await r.json()).method]")
    assert found == [f"{FOUR}/here?x=1", True, "GET"]
    assert "other.test' is denied" in refused(api, f"await fetch('{FOUR}/other')")
    for path in ("/metadata", "/to?http://127.0.0.1/", "/to?http://[::1]/", "/to?http://0177.0.0.1/", "/to?http://2130706433/"):
        assert "no rule can allow it" in refused(api, f"await fetch('{FOUR}{path}')", "four.test", "*"), path
    assert "private=yes" in refused(api, f"await fetch('{FOUR}/to?http://10.77.0.2/')", "four.test", "*")
    assert "scheme" in refused(api, f"await fetch('{FOUR}/file')", "four.test", "*")


def test_what_is_denied_is_said_with_what_would_allow_it(api):
    assert "allow it with" in refused(api, f"await fetch('{FOUR}/')", "other.test")
    assert "allowed_hosts ('four.test')" in refused(api, f"await fetch('{FOUR}/')", "four.test:80")
    assert "denied" in run(api, f"await fetch('{FOUR}/')")["error"]["message"]


def test_what_a_run_fetches_ends_with_it(api):
    harness.wait_for(lambda: open_now(api) == 1, what="that the server has but this one")
    code = f"await fetch('{FOUR}/endless'); await fetch('{FOUR}/slow'); fetch('{FOUR}/silent'); await fetch('{FOUR}/silent')"
    assert run(api, code, "four.test", wall_ms=300)["timed_out"]
    harness.wait_for(lambda: open_now(api) == 1, 30 * harness.PATIENCE, "connections that are closed")
    made = api.post("/v1/kernels", {"allowed_hosts": ["four.test"]})
    path = made.headers["Location"]
    assert run(api, f"globalThis.r = await fetch('{FOUR}/endless'); 1", path=f"{path}/run")["value"] == 1
    harness.wait_for(lambda: open_now(api) == 1, 30 * harness.PATIENCE, "a connection whose run is over")
    late = run(api, "try { await r.text() } catch (why) { String(why) }", path=f"{path}/run")
    assert late["error"] is None and late["value"], late
    assert api.delete(path).status in (200, 204)


def test_a_run_has_so_many_requests_and_no_more(api):
    assert "at most 1000 requests" in refused(api, f"for (let i = 0; i < 1001; i++) await fetch('{FOUR}/none')")
