"""Servers inside a box, each on a port of its own: what is reached from outside. It says "ready" when all listen."""
import asyncio
import hashlib
import http.server
import json
import os
import socket
import socketserver
import threading
import time

import websockets

ECHO, HASH, SEND, WEB, LIES, SOCKETS, SHY = 7000, 7001, 7002, 8000, 8001, 8002, 8003
BIG = 100 << 20


def big():
    """Bytes of which no part is like another, the same on both sides."""
    block = hashlib.shake_256(b"big").digest(1 << 20)
    for number in range(BIG >> 20):
        yield number.to_bytes(8, "big") + block[8:]


class Threaded(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 128


class Echo(socketserver.BaseRequestHandler):
    """Echoes until the other side has said all, and then has one more word."""

    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b"bye")


class Hash(socketserver.BaseRequestHandler):
    def handle(self):
        digest = hashlib.sha256()
        while data := self.request.recv(1 << 20):
            digest.update(data)
        self.request.sendall(digest.hexdigest().encode())


class Send(socketserver.BaseRequestHandler):
    """Ends its half first, and then hears what the other side has to say."""
    heard = []

    def handle(self):
        for part in big():
            self.request.sendall(part)
        self.request.shutdown(socket.SHUT_WR)
        print("heard", self.request.recv(100).decode(), flush=True)


class Lies(socketserver.StreamRequestHandler):
    """What no honest server does; the path says which."""

    def handle(self):
        word = self.rfile.readline().split(b" ")[1].decode().strip("/").split("?")[0]
        print("begun", word, flush=True)
        try:
            getattr(self, word)()
        except OSError:
            pass
        print("over", word, flush=True)

    def say(self, data):
        self.wfile.write(data)
        self.wfile.flush()

    def slow(self):
        self.say(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            self.say(b"x")
            time.sleep(0.05)

    def endless(self):
        self.say(b"HTTP/1.1 200 OK\r\n")
        while True:
            self.say(b"X-Endless: " + b"x" * 1000 + b"\r\n")

    def silent(self):
        self.connection.recv(1 << 20)
        self.connection.recv(1)

    def rubbish(self):
        self.say(b"SSH-2.0-rubbish\r\n\r\n")

    def split(self):
        self.say(b"HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n")

    def switch(self):
        self.say(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n")

    def cut(self):
        self.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def do_GET(self):
        word = self.path.split("?")[0]
        if word == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(3):
                self.chunk(b"part %d\n" % number)
                # The next one when somebody asks for it: the part before has to have come.
                while not os.path.exists(f"/tmp/go{number}"):
                    time.sleep(0.02)
            self.wfile.write(b"0\r\n\r\n")
        elif word == "/big":
            self.send_response(200)
            self.send_header("Content-Length", str(BIG))
            self.end_headers()
            for part in big():
                self.wfile.write(part)
        elif word == "/go":
            self.answer(b"", 302, Location="/there?x=1", Set_Cookie="evil=1; Path=/v1",
                        Clear_Site_Data="*", Service_Worker_Allowed="/", Refresh="0; url=/v1/keys")
        elif word == "/away":
            self.answer(b"", 302, Location="//evil.example/x")
        else:
            said = {"line": self.requestline, "headers": list(self.headers.items())}
            self.answer(json.dumps(said).encode(), Content_Type="application/json")

    do_HEAD = do_DELETE = do_PATCH = do_OPTIONS = do_PROPFIND = do_GET

    def do_POST(self):
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 50000):
            self.chunk(body[at:at + 50000])
        self.wfile.write(b"0\r\n\r\n")

    do_PUT = do_POST


def serve(port, handler, kind=Threaded):
    server = kind(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


async def sockets():
    async def echo(websocket):
        async for message in websocket:
            await websocket.send(message)

    async with websockets.serve(echo, "127.0.0.1", SOCKETS, max_size=1 << 26, ping_interval=None):
        print("ready", flush=True)
        await asyncio.Future()


def shy():
    """Accepts and is gone, at once and again and again."""
    listener = socket.create_server(("127.0.0.1", SHY))
    while True:
        one, _ = listener.accept()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        one.close()


if __name__ == "__main__":
    for port, handler in ((ECHO, Echo), (HASH, Hash), (SEND, Send), (LIES, Lies)):
        serve(port, handler)
    serve(WEB, Web, http.server.ThreadingHTTPServer)
    threading.Thread(target=shy, daemon=True).start()
    asyncio.run(sockets())
