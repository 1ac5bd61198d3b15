"""A FUSE file system of one file, `file`, whose reads are never answered. Speaks the kernel's
protocol itself, for it must do what no library does. usage: hanging_files.py DIRECTORY"""
import ctypes
import os
import signal
import struct
import sys

LOOKUP, GETATTR, OPEN, READ, STATFS, INIT, OPENDIR, READDIR, ACCESS = 1, 3, 14, 15, 17, 26, 27, 28, 34
RELEASE, RELEASEDIR, FLUSH, FORGET, INTERRUPT, BATCH_FORGET = 18, 29, 25, 2, 36, 42
SILENT = (FORGET, BATCH_FORGET, INTERRUPT, READ)

IN = struct.Struct("<IIQQIIIHH")
INIT_EXT, ALLOW_IDMAP_HIGH = 1 << 30, 1 << 8


def attributes(inode):
    mode, links = (0o040755, 2) if inode == 1 else (0o100644, 1)
    return struct.pack("<QQQQQQIIIIIIIIII", inode, 4096, 8, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0,
                       4096, 0)


def reply(opcode, inode, body):
    if opcode == INIT:
        flags = struct.unpack_from("<IIII", body)[3] & INIT_EXT
        return struct.pack("<IIIIHHIIHHI", 7, 40, 65536, flags, 8, 8, 65536, 1, 0, 0,
                           ALLOW_IDMAP_HIGH if flags else 0) + bytes(24)
    if opcode == LOOKUP:
        if body.rstrip(b"\0") != b"file":
            return 2
        return struct.pack("<QQQQII", 2, 0, 1, 1, 0, 0) + attributes(2)
    if opcode == GETATTR:
        return struct.pack("<QII", 1, 0, 0) + attributes(inode)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    if opcode == STATFS:
        return bytes(80)
    if opcode in (ACCESS, FLUSH, RELEASE, RELEASEDIR, READDIR):
        return b""
    return 38


def serve(device):
    while True:
        request = os.read(device, 1 << 17)
        _, opcode, unique, inode = IN.unpack_from(request)[:4]
        if opcode == READ:
            print("asked", flush=True)
        if opcode in SILENT:
            continue
        answer = reply(opcode, inode, request[IN.size:])
        error, data = (-answer, b"") if isinstance(answer, int) else (0, answer)
        os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        if opcode == INIT:
            print("ready", flush=True)


def main():
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if libc.mount(b"fuse", sys.argv[1].encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(device)
    finally:
        libc.umount2(sys.argv[1].encode(), 2)
        os.close(device)


main()
