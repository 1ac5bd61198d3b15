"""Servers that a kernel fetches from, in the network of a world's servers: kind ones, and all that a server can do
wrong or out of malice. Bytes as they are, for what is wrong in them is the point.

usage: fetch_servers.py [CERTIFICATE FOREIGN], files with a key in them: TLS by the first at TLS_PORT, by the second,
which nobody trusts, at FOREIGN_PORT. At PROXY_PORT is a proxy that leads to PORT alone.
       fetch_servers.py alone: the same on loopback, at ports that are free; it says which is the proxy's."""
import gzip
import json
import os
import pathlib
import socket
import socketserver
import ssl
import sys
import threading
import time

import certificates

THIS = pathlib.Path(__file__).resolve()

PORT, TLS_PORT, FOREIGN_PORT, PROXY_PORT = 8080, 8443, 8444, 3128
FOUR = f"http://four.test:{PORT}"
BOMB = gzip.compress(bytes(10 << 20), mtime=0)
open_now = 0  # connections
counting = threading.Lock()
plain = None  # the server at PORT
proxied = {}  # by the port that the proxy dialled from: the host that it was told


def start(world, *certificates):
    server = world.start("nsenter", f"--net=/proc/{world.servers.pid}/ns/net", sys.executable, THIS, *certificates)
    assert server.stdout.readline() == b"ready\n"
    return server


def make_certificates(world):
    """One of the world's authority, and one of another that nobody knows; both for four.test and its address."""
    names = "DNS:four.test,IP:203.0.113.2"
    foreign = certificates.Authority(world.directory / "foreign")
    return world.authority.certificate("four", names), foreign.certificate("four", names)


def to(status, where):
    return f"HTTP/1.1 {status} Moved\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"


def chunked(body):
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"


def sized(size):
    """Bytes that tell where each of them belongs."""
    return b"".join(b"%07d\n" % i for i in range(size // 8 + 1))[:size]


class Answers(socketserver.StreamRequestHandler):
    def handle(self):
        global open_now
        with counting:
            open_now += 1
        try:
            self.answer()
        except OSError:
            pass  # who asked has gone
        finally:
            with counting:
                open_now -= 1

    def answer(self):
        if self.rfile.peek(1)[:1] == b"\x16":  # it speaks TLS, where there is none
            self.wfile.write(b"HTTP/1.0 400 What\r\n\r\n")
            return
        line = self.rfile.readline().decode("latin-1").split()
        if len(line) < 2:
            return
        headers, lines = {}, []
        while (header := self.rfile.readline().decode("latin-1").strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
            lines.append(header)
        if line[1].startswith("/early-no"):  # an answer before the body was read
            self.wfile.write(b"HTTP/1.1 413 Too much\r\nContent-Length: 2\r\n\r\nno")
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read(65536):  # closed before that, a reset follows, and may overtake the answer
                pass
            return
        size = int(headers.get("content-length", 0))
        body = self.rfile.read(size).decode()
        said = json.dumps({"method": line[0], "path": line[1], "headers": headers, "lines": lines, "size": len(body),
                           "body": body[:1000], "open": open_now, "from": proxied.get(self.client_address[1])})
        whole = f"HTTP/1.1 200 Fine\r\nX-Two: a\r\nContent-Length: {len(said)}\r\n\r\n{said}"
        path, _, query = line[1].partition("?")
        if path in ENDLESS:
            ENDLESS[path](self)
        elif path == "/sized":
            self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {query}\r\n\r\n".encode() + sized(int(query)))
        elif path == "/to":
            self.wfile.write(to(302, query).encode())
        elif path == "/gzip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB)
        elif path == "/gzip-transfer":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n" % len(BOMB) + BOMB + b"\r\n0\r\n\r\n")
        else:
            self.wfile.write(ANSWERS.get(path, whole).replace("WHOLE", whole).encode())

    def endless(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            self.wfile.write(bytes(65536))

    def slow(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            self.wfile.write(b"x")
            time.sleep(0.02)

    def silent(self):
        self.rfile.read(1)

    def endless_early(self):
        while True:
            self.wfile.write(b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n")

    def endless_head(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            self.wfile.write(b"X-More: " + b"y" * 1000 + b"\r\n")

    def endless_line(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            self.wfile.write(b"y" * 65536)

    def endless_trailer(self):
        self.wfile.write(chunked("1\r\nx\r\n0\r\n").encode())
        while True:
            self.wfile.write(b"X-More: " + b"y" * 1000 + b"\r\n")


class Proxy(socketserver.StreamRequestHandler):
    def handle(self):
        target = self.rfile.readline().decode().split()[1]
        headers = []
        while (header := self.rfile.readline().decode().strip()) != "":
            headers.append(header)
        host, _, port = target.rpartition(":")
        if int(port) != PORT or "Proxy-Authorization: Basic bWluZTpzZWNyZXQ=" not in headers:
            self.wfile.write(b"HTTP/1.1 403 No\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", plain.server_address[1])) as server:
            proxied[server.getsockname()[1]] = host
            self.wfile.write(b"HTTP/1.1 200 Yes\r\n\r\n")
            threading.Thread(target=carry, args=(self.connection, server), daemon=True).start()
            carry(server, self.connection)


def carry(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


ENDLESS = {"/endless": Answers.endless, "/slow": Answers.slow, "/silent": Answers.silent,
           "/endless-early": Answers.endless_early, "/endless-head": Answers.endless_head,
           "/endless-line": Answers.endless_line, "/endless-trailer": Answers.endless_trailer}
CHUNKS = "".join(f"{len(part):x}\r\n{part}\r\n" for part in ("one ", "two ", "x" * 100000)) + "0\r\n\r\n"
ANSWERS = {
    "/chunks": chunked(CHUNKS),
    "/tiny-chunks": chunked("1\r\nx\r\n" * 100000 + "0\r\n\r\n"),
    "/until-the-end": "HTTP/1.1 200 OK\r\n\r\nall of it",
    "/none": "HTTP/1.1 204 None\r\n\r\n",
    "/early": "HTTP/1.1 103 Early\r\nX-Early: 1\r\n\r\nWHOLE",
    "/cut": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
    "/cut-chunk": chunked("a\r\nshort"),
    "/noise": "SSH-2.0-nothing of yours\r\n\r\n",
    "/both": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "/bad-chunk": chunked("zz\r\nwhat\r\n0\r\n\r\n"),
    "/large-chunk": chunked("fffffffffffffffff\r\nwhat\r\n0\r\n\r\n"),
    "/two-lengths": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "/minus": "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nabcd",
    "/many-heads": "HTTP/1.1 200 OK\r\n" + "".join(f"X-{i}: y\r\n" for i in range(1000)) + "\r\n",
    "/switch": "HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nwhat",
    "/cookie": "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nok",
    "/login": "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 2\r\n\r\nno",
    "/moved": to(302, "/here?x=1"),
    "/kept": to(307, "here"),
    "/other": to(302, f"http://other.test:{PORT}/here"),
    "/metadata": to(302, "http://169.254.169.254/latest/"),
    "/file": to(302, "file:///etc/passwd"),
    "/round": to(302, "/round"),
}


def serve(port, certificate=None, handler=Answers, address=""):
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer.daemon_threads = True
    socketserver.ThreadingTCPServer.request_queue_size = 512
    server = socketserver.ThreadingTCPServer((address, port), handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main():
    global plain
    if sys.argv[1:] == ["alone"]:
        plain = serve(0, address="127.0.0.1")
        print(serve(0, handler=Proxy, address="127.0.0.1").server_address[1], flush=True)
        sys.stdin.read()
        os._exit(0)
    plain = serve(PORT)
    serve(PROXY_PORT, handler=Proxy)
    for port, certificate in zip((TLS_PORT, FOREIGN_PORT), sys.argv[1:]):
        serve(port, certificate)
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
