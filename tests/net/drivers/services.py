"""What real clients talk to: HTTP and HTTPS with files, git behind them, sshd, and PostgreSQL. Each takes a
connection that somebody else has accepted, so that it does not matter where that came from. What they give away
lies in a directory that wares.py made. Part of world.py, and nothing that may be reached by others."""
import glob
import http.server
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import types

IS_ROOT = os.geteuid() == 0
TYPES = {".html": "text/html", ".json": "application/json"}


class Handler(http.server.BaseHTTPRequestHandler):
    """Of files below `www`, and of the repositories below `git`."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def give(self, status, body, kind="application/octet-stream", **more):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def git(self, path, query):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, check=True, env={
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.server.directory / "git"),
            "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query, "REMOTE_USER": "a client",
            "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", "")})
        head, _, said = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.give(int(fields.pop("Status", "200").split(" ")[0]), said,
                  fields.pop("Content-Type", "text/plain"), **fields)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path.startswith("/git/"):
            self.git(path.removeprefix("/git"), query)
        elif path == "/hello":
            self.give(200, f"hello {self.headers['Host']} {self.server.scheme}\n".encode(), "text/plain")
        else:
            top = self.server.directory / "www"
            found = (top / path.lstrip("/")).resolve()
            if found.is_dir():
                found = next(iter(found.glob("index.*")), found)
            if top in found.parents and found.is_file():
                self.give(200, found.read_bytes(), TYPES.get(found.suffix, "application/octet-stream"))
            else:
                self.give(404, b"there is no such file\n")

    do_HEAD = do_POST = do_GET


class Services:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory).resolve()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.directory / "server.pem", self.directory / "server.key")
        self.talks = {80: self.http, 443: self.https, 22: self.ssh, 5432: self.database}
        self.kept = None  # where the database is
        self.postgres = None

    def speak(self, client, scheme):
        server = types.SimpleNamespace(directory=self.directory, scheme=scheme)
        Handler(client, ("", 0), server)

    def http(self, client):
        with client:
            self.speak(client, "http")

    def https(self, client):
        with self.tls.wrap_socket(client, server_side=True) as wrapped:
            self.speak(wrapped, "https")

    def ssh(self, client):
        """One sshd for one connection. Root's wants a directory in /run that only an init would make."""
        before = ["unshare", "-m", "sh", "-c",
                  'mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec "$@"', "sh"] if IS_ROOT else []
        with client:
            subprocess.run([*before, shutil.which("sshd", path="/usr/sbin:/usr/bin"), "-i", "-f",
                            self.directory / "sshd_config", "-E", "/dev/null"], stdin=client, stdout=client,
                           check=False)

    def start_database(self):
        """Ends with this process. It serves nobody as root, and nobody but a client without rights."""
        self.kept = tempfile.mkdtemp(prefix="database-", dir="/tmp")
        as_whom = ["setpriv", "--pdeathsig", "QUIT"]
        if IS_ROOT:
            shutil.chown(self.kept, "postgres", "postgres")
            as_whom += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        data = f"{self.kept}/data"
        subprocess.run([*as_whom, f"{programs}/initdb", "-D", data, "-A", "reject", "--no-sync", "--locale=C"],
                       check=True, stdout=subprocess.DEVNULL, cwd="/")
        subprocess.run([*as_whom, f"{programs}/postgres", "--single", "-D", data, "postgres"], check=True,
                       input=b"create role client login", stdout=subprocess.DEVNULL, cwd="/")
        with open(f"{data}/pg_hba.conf", "w", encoding="ascii") as rules:
            rules.write("local postgres client trust\n")
        self.postgres = subprocess.Popen(
            [*as_whom, f"{programs}/postgres", "-D", data, "-k", self.kept, "-c",
             "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=fatal"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        for _ in range(1200):
            if subprocess.run([f"{programs}/pg_isready", "-q", "-h", self.kept], check=False).returncode == 0:
                return
            assert self.postgres.poll() is None, "the database ended"
            time.sleep(0.05)
        raise AssertionError("the database does not answer")

    def database(self, client):
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as inner:
            inner.connect(f"{self.kept}/.s.PGSQL.5432")
            back = threading.Thread(target=carry, args=(inner, client), daemon=True)
            back.start()
            carry(client, inner)
            back.join()

    def stop(self):
        self.postgres.send_signal(signal.SIGQUIT)
        self.postgres.wait()
        shutil.rmtree(self.kept, ignore_errors=True)


def carry(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
