"""A FUSE file system of a file, `file`, whose reads are never answered, and of a directory in another one, deep/given.
With a name it stops itself when it has first said that there is such; with "--forget" no attributes are kept. From SIGUSR1 to SIGUSR2 it answers nothing at all,
and says when it is asked. Speaks the kernel's protocol itself, for it must do what no library does.
usage: hanging_files.py DIRECTORY [NAME | --forget]"""
import ctypes
import os
import signal
import struct
import sys

LOOKUP, GETATTR, OPEN, READ, STATFS, INIT, OPENDIR, READDIR, ACCESS = 1, 3, 14, 15, 17, 26, 27, 28, 34
RELEASE, RELEASEDIR, FLUSH, FORGET, INTERRUPT, BATCH_FORGET = 18, 29, 25, 2, 36, 42
SILENT = (FORGET, BATCH_FORGET, INTERRUPT, READ)
INODES = {b"file": 2, b"deep": 3, b"given": 4}
KEPT_FOR = 0 if "--forget" in sys.argv else 1  # seconds

IN = struct.Struct("<IIQQIIIHH")
INIT_EXT, ALLOW_IDMAP_HIGH = 1 << 30, 1 << 8


def attributes(inode):
    mode, links = (0o100644, 1) if inode == INODES[b"file"] else (0o040755, 2)
    return struct.pack("<QQQQQQIIIIIIIIII", inode, 4096, 8, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0,
                       4096, 0)


def reply(opcode, inode, body):
    if opcode == INIT:
        flags = struct.unpack_from("<IIII", body)[3] & INIT_EXT
        return struct.pack("<IIIIHHIIHHI", 7, 40, 65536, flags, 8, 8, 65536, 1, 0, 0,
                           ALLOW_IDMAP_HIGH if flags else 0) + bytes(24)
    if opcode == LOOKUP:
        number = INODES.get(body.rstrip(b"\0"))
        if number is None:
            return 2
        known_for = 1 if number == INODES[b"file"] else 0  # seconds
        return struct.pack("<QQQQII", number, 0, known_for, KEPT_FOR, 0, 0) + attributes(number)
    if opcode == GETATTR:
        return struct.pack("<QII", KEPT_FOR, 0, 0) + attributes(inode)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    if opcode == STATFS:
        return bytes(80)
    if opcode in (ACCESS, FLUSH, RELEASE, RELEASEDIR, READDIR):
        return b""
    return 38


def answer(device, request):
    _, opcode, unique, inode = IN.unpack_from(request)[:4]
    said = reply(opcode, inode, request[IN.size:])
    error, data = (-said, b"") if isinstance(said, int) else (0, said)
    os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


def serve(device, stops_at):
    silent, late = [], []

    def answer_all(*_):
        silent.clear()
        while late:
            answer(device, late.pop(0))

    signal.signal(signal.SIGUSR1, lambda *_: silent.append(True))
    signal.signal(signal.SIGUSR2, answer_all)
    while True:
        request = os.read(device, 1 << 17)
        opcode = IN.unpack_from(request)[1]
        if opcode == READ or silent and opcode not in SILENT:
            print("asked", flush=True)
        if opcode in SILENT:
            continue
        if silent:
            late.append(request)
            continue
        answer(device, request)
        if opcode == INIT:
            print("ready", flush=True)
        if opcode == LOOKUP and request[IN.size:].rstrip(b"\0") == stops_at:
            stops_at = None
            os.kill(os.getpid(), signal.SIGSTOP)


def main():
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if libc.mount(b"fuse", sys.argv[1].encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(device, sys.argv[2].encode() if len(sys.argv) > 2 else None)
    finally:
        libc.umount2(sys.argv[1].encode(), 2)
        os.close(device)


main()
