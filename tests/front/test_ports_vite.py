"""A development server inside a box, as people use it: its page, and live reload over a WebSocket, by the listener
on loopback. It is a real one (tests/vite), installed on the host and mounted into the box."""
import asyncio
import contextlib
import http.client
import json

import websockets

import harness
import serving
from sandboxes import make

PORT = 5173
SECONDS = 60 * harness.PATIENCE
CONFIG = f"[boxes]\npool = 1\nmemory = 1G\n[mounts]\nvite = {harness.BUILD / 'vite'}:ro\n"
PAGE = b"<!doctype html><title>one</title><script type=module src=/main.js></script>"
SCRIPT = b"document.title = 'NUMBER'\n"


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, (path, body[:500])
    return body.decode()


async def reloads(port, change):
    """What the page is told when `change` has been made: again and again, for the server looks at files only some time
    after it listens, and at one that was replaced only once it has seen that."""
    async with websockets.connect(f"ws://127.0.0.1:{port}/", subprotocols=["vite-hmr"],
                                  open_timeout=SECONDS) as page:
        assert json.loads(await page.recv())["type"] == "connected"
        while True:
            await asyncio.to_thread(change)
            with contextlib.suppress(asyncio.TimeoutError):
                while (told := json.loads(await asyncio.wait_for(page.recv(), 5)))["type"] == "ping":
                    pass
                return told


def test_a_page_is_reloaded_when_its_file_changes(tmp_path):
    with serving.Serve(tmp_path, CONFIG) as serve, serve.client() as client:
        path = make(client, network={"mode": "none"}, ports=[{"port": PORT}],
                    mounts=[{"name": "vite", "target": "/mnt/vite", "read_only": True}])

        def write(name, data):
            assert client.ask("PUT", f"{path}/files?path=/tmp/site/{name}", data).status == 200

        assert client.post(f"{path}/exec", {"command": "mkdir /tmp/site"}).status == 200
        write("index.html", PAGE)
        write("main.js", SCRIPT.replace(b"NUMBER", b"1"))
        answer = client.post(f"{path}/processes", {
            "argv": ["node", "/mnt/vite/node_modules/vite/bin/vite.js", "/tmp/site", "--host", "127.0.0.1",
                     "--port", str(PORT), "--strictPort"], "env": {"NO_COLOR": "1"}})
        process = f"{path}/processes/{answer.json['id']}"

        def ready():
            ports = client.get(f"{path}/ports").json["ports"]
            assert client.get(process).json["state"] == "running", client.get(f"{process}/output").bytes
            return [port["url"] for port in ports if port["port"] == PORT and port["listening"]]

        harness.wait_for(ready, SECONDS, "the server")
        port = int(ready()[0].rpartition(":")[2])

        for number in ("1", "2"):
            assert "/@vite/client" in get(port, "/")
            assert f"'{number}'" in get(port, "/main.js")
            told = asyncio.run(asyncio.wait_for(
                reloads(port, lambda number=number: write("main.js", SCRIPT.replace(
                    b"NUMBER", str(int(number) + 1).encode()))), SECONDS))
            assert told["type"] == "full-reload", told
            # What is told may be of the last change, which was made more than once.
            harness.wait_for(lambda number=number: f"'{int(number) + 1}'" in get(port, "/main.js"), SECONDS)
            if number == "1":  # and so with the next engine
                client.close()
                serve.kill_engine()
        assert client.delete(path).status == 204
