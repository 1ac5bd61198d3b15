"""Frames of a WebSocket, as a client sends and reads them: nothing in it mends what a server does wrong."""
import os
import struct

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(opcode, data=b"", final=True, masked=True, reserved=0, length=None):
    """A frame as a client sends it; `length` announces another size, in that many bytes."""
    first = (0x80 if final else 0) | reserved << 4 | opcode
    size = len(data)
    mask = 0x80 if masked else 0
    if length is not None:
        form, told = length
        head = bytes([first, mask | {2: 126, 8: 127}[form]]) + told.to_bytes(form, "big")
    elif size < 126:
        head = bytes([first, mask | size])
    elif size < 65536:
        head = bytes([first, mask | 126]) + struct.pack(">H", size)
    else:
        head = bytes([first, mask | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + data
    key = os.urandom(4)
    whole = (key * (size // 4 + 1))[:size]
    return head + key + (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")


class Frames:
    """Reads frames of a WebSocket's server; `data` has come of `socket` and was not read."""

    def more(self):
        part = self.socket.recv(1 << 20)
        if not part:
            raise EOFError(f"the connection was cut: {self.data}")
        self.data += part

    def need(self, size):
        while len(self.data) < size:
            self.more()

    def frame(self):
        self.need(2)
        size, start = self.data[1], 2
        assert self.data[0] & 0xf0 == 0x80 and size < 128, self.data[:2]
        if size > 125:
            start = 4 if size == 126 else 10
            self.need(start)
            size = int.from_bytes(self.data[2:start], "big")
        self.need(start + size)
        opcode, data = self.data[0] & 15, self.data[start:start + size]
        self.data = self.data[start + size:]
        return opcode, data
