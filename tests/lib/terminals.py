"""A client of the terminal route, frame by frame: nothing in it mends what a server does wrong."""
import json
import socket
import time
import urllib.parse

import harness
from frames import BINARY, CLOSE, PING, PONG, TEXT, Frames, frame


class Refused(Exception):
    """The answer was no WebSocket."""

    def __init__(self, status, body):
        super().__init__(f"{status} {body!r}")
        self.status = status
        self.body = body

    @property
    def code(self):
        return json.loads(self.body)["code"]


class Watcher(Frames):
    """Somebody who is attached to a terminal. What came is in `shown`, offsets are counted as a client
    counts them that wants to go on later."""

    LIMIT = 60 * harness.PATIENCE

    def __init__(self, serve, sandbox, process, headers=(), port=None, over=None, host=None, **query):
        """`over`: a connection that somebody else has made, to whom the server is `host`."""
        path = f"/v1/sandboxes/{sandbox}/processes/{process}/terminal"
        self.open(serve, path + ("?" + urllib.parse.urlencode(query) if query else ""), headers, port,
                  over, host)

    def open(self, serve, path, headers=(), port=None, over=None, host=None):
        self.socket = over or (socket.create_connection(("127.0.0.1", port), self.LIMIT) if port else
                               socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self.socket.settimeout(self.LIMIT)
        if not port and not over:
            self.socket.connect(str(serve.socket))
        lines = [f"GET {path} HTTP/1.1", f"Host: {host or (f'127.0.0.1:{port}' if port else 'localhost')}",
                 "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        self.data = b""
        self.shown = b""
        self.said = []
        self.offset = None
        self.closed = None
        head = self.until_bytes(b"\r\n\r\n")
        status = int(head.split()[1])
        if status != 101:
            size = int(head.lower().split(b"content-length:")[1].split()[0])
            self.need(size)
            self.socket.close()
            raise Refused(status, self.data[:size])

    # ---- bytes ----

    def more(self):
        try:
            super().more()
        except TimeoutError as error:
            raise AssertionError(f"nothing came for {self.LIMIT} s after {self.shown[-2000:]!r} {self.said}") from error

    def until_bytes(self, mark):
        while mark not in self.data:
            self.more()
        head, self.data = self.data.split(mark, 1)
        return head

    def send(self, opcode, data):
        self.socket.sendall(frame(opcode, data))

    # ---- messages ----

    def step(self):
        opcode, data = self.frame()
        if opcode == BINARY:
            self.shown += data
            if self.offset is not None:
                self.offset += len(data)
        elif opcode == TEXT:
            message = json.loads(data)
            self.said.append(message)
            if message["type"] == "attached":
                self.offset = message["from"]
            elif message["type"] == "gap" and self.offset is not None:
                self.offset = message["to"]
        elif opcode == PING:
            self.send(PONG, data)
        elif opcode == CLOSE:
            self.closed = int.from_bytes(data[:2], "big") if data else 1005
        return opcode

    def type(self, text):
        self.send(BINARY, text.encode() if isinstance(text, str) else text)

    def tell(self, **message):
        self.send(TEXT, json.dumps(message).encode())

    def until(self, holds, what):
        deadline = time.monotonic() + self.LIMIT
        while not holds():
            assert time.monotonic() < deadline, f"no {what}: {self.shown[-2000:]!r} {self.said}"
            assert self.closed is None, f"closed before {what}: {self.shown[-2000:]!r} {self.said}"
            self.step()

    def sees(self, mark, after=0):
        """Until this was shown, from that place on; the place behind it."""
        mark = mark.encode() if isinstance(mark, str) else mark
        self.until(lambda: mark in self.shown[after:], mark)
        return self.shown.index(mark, after) + len(mark)

    def hears(self, kind):
        self.until(lambda: any(message["type"] == kind for message in self.said), kind)
        return next(message for message in self.said if message["type"] == kind)

    def ends(self):
        """What it says of the process at the end."""
        message = self.hears("exit")
        self.until(lambda: self.closed is not None, "close")
        assert self.closed == 1000, self.closed
        return message["process"]

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
