"""A service of the host, as docs/network.md says how a box reaches it: by its socket file in a mount."""
import contextlib
import http.server
import shutil
import subprocess
import sys
import threading

import harness

RELAY = harness.ROOT / "examples" / "relay.py"


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello\n" * 50_000)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def service_at(directory):
    """A server on the host's loopback alone, and a socket file that leads to it and to nothing else."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = str(server.server_address[1])
        with subprocess.Popen([sys.executable, RELAY, directory / "model.sock", port], stdout=subprocess.PIPE) as relay:
            assert relay.stdout.readline().endswith(b" leads to %s\n" % port.encode())
            try:
                yield port
            finally:
                relay.kill()
                server.shutdown()


def run(directory, *command, net=()):
    return subprocess.run([harness.COVE, "run", *net, "--mount", f"{directory}:/service:ro", "--", *command],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * harness.PATIENCE, check=False)


def test_a_service_of_the_host_is_reached_by_its_socket_file_and_by_no_address(tmp_path):
    service = tmp_path / "service"
    service.mkdir()
    shutil.copy(RELAY, service)
    with service_at(service) as port:
        ended = run(service, "curl", "-sS", "--unix-socket", "/service/model.sock", "http://localhost/")
        assert (ended.returncode, ended.stdout) == (0, "hello\n" * 50_000), ended.stderr
        inside = f"""python3 /service/relay.py {port} /service/model.sock >/tmp/said & until grep -q leads /tmp/said; do sleep 0.05; done
                     curl -sS http://127.0.0.1:{port}/ | wc -c; curl -sS http://127.0.0.1:{port}/ | tail -n 1"""
        ended = run(service, "sh", "-c", inside)
        assert (ended.returncode, ended.stdout) == (0, f"{6 * 50_000}\nhello\n"), ended.stderr
        ended = run(service, "curl", "-sS", f"http://127.0.0.1:{port}/")
        assert ended.returncode == 7, "the box's own loopback has no such port"
        ended = run(service, "true", net=("--net", f"allow=127.0.0.1:{port}"))
        assert ended.returncode == 125 and "leave the rule away" in ended.stderr and "socket file" in ended.stderr, ended.stderr
