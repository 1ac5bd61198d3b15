"""What there is outside of boxes: a DNS server with the names of a table, and servers that say who they are and
repeat what they hear. In a network namespace of its own, or on loopback behind a proxy.

usage: world.py LOG, and a line of JSON on standard input: {"names": {NAME: [ADDRESS, ...]}, "dns": ADDRESS,
"ports": [...]}, or with "proxy": true on loopback. Then it says a line of JSON: its ports. A name whose list is
null is never answered; one that is not there does not exist; "*.NAME" is each below NAME. With "services":
DIRECTORY the servers of services.py have the ports that are theirs. With "beyond": true the proxy dials what is in
no table."""
import ipaddress
import json
import os
import socket
import struct
import sys
import threading

import services

LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
WORLD = json.loads(sys.stdin.readline())
SERVICES = services.Services(WORLD["services"]) if "services" in WORLD else None


def note(*words):
    os.write(LOG, (" ".join(map(str, words)) + "\n").encode())


# ---- DNS -----------------------------------------------------------------------------------------

def find(name):
    if name in WORLD["names"]:
        return WORLD["names"][name]
    return WORLD["names"].get("*." + name.partition(".")[2], ())


def answer_to(packet):
    """None: nothing is answered."""
    at, labels = 12, []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("ascii").lower())
        at += 1 + packet[at]
    kind, = struct.unpack("!H", packet[at + 1:at + 3])
    name = ".".join(labels)
    note("dns", name, {1: "A", 28: "AAAA"}.get(kind, kind))
    found = find(name)
    if found is None:
        return None
    records = b""
    count = 0
    for address in map(ipaddress.ip_address, found):
        if kind == {4: 1, 6: 28}[address.version]:
            records += struct.pack("!HHHIH", 0xc00c, kind, 1, 5, len(address.packed)) + address.packed
            count += 1
    code = 3 if found == () else 0
    return (packet[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, count, 0, 0) +
            packet[12:at + 5] + records)


def dns_udp(server):
    while True:
        packet, peer = server.recvfrom(4096)
        answer = answer_to(packet)
        if answer is not None:
            server.sendto(answer, peer)


# ---- servers that repeat -------------------------------------------------------------------------

def repeat(client, where):
    note("tcp", where)
    with client:
        try:
            client.sendall(f"hello {where}\n".encode())
            while True:
                data = client.recv(65536)
                if not data:
                    break
                client.sendall(data)
            client.sendall(b"bye\n")
        except OSError as error:
            note("end", where, error.errno)


def answer(client, address, port):
    """As who has that address, or name, and port."""
    if SERVICES and port in SERVICES.talks:
        note("tcp", address, port)
        try:
            SERVICES.talks[port](client)
        except OSError as error:
            note("end", address, port, error)
    else:
        repeat(client, f"{address} {port}")


def plain(client):
    address, port = client.getsockname()[:2]
    answer(client, address.removeprefix("::ffff:"), port)


def beyond(client, host, port):
    """What is in no table, to wherever that really leads."""
    try:
        server = socket.create_connection((host, port), 60)
    except OSError as error:
        client.sendall(f"HTTP/1.1 502 {error.strerror}\r\n\r\n".encode())
        return
    with server:
        server.settimeout(None)
        client.sendall(b"HTTP/1.1 200 It is there\r\n\r\n")
        back = threading.Thread(target=services.carry, args=(server, client), daemon=True)
        back.start()
        services.carry(client, server)
        back.join()


def proxied(client):
    head = b""
    while b"\r\n\r\n" not in head:
        data = client.recv(4096)
        if not data:
            return
        head += data
    method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
    assert method == "CONNECT", head
    host, _, port = target.rpartition(":")
    is_name = not host.startswith("[") and not host[-1].isdigit()
    if is_name and not find(host) and WORLD.get("beyond"):
        with client:
            beyond(client, host, int(port))
        return
    if is_name and not find(host):
        client.sendall(b"HTTP/1.1 502 There is no such name\r\n\r\n")
        client.close()
        return
    client.sendall(b"HTTP/1.1 200 It is there\r\n\r\n")
    answer(client, host.strip("[]"), int(port))


def serve(listener, talk):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=talk, args=(client,), daemon=True).start()


def listen(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(512)
    return listener


def main():
    if SERVICES:
        SERVICES.start_database()
    is_proxy = WORLD.get("proxy", False)
    dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    dns.bind((WORLD["dns"], 0 if is_proxy else 53))
    threading.Thread(target=dns_udp, args=(dns,), daemon=True).start()
    ports = {"dns": dns.getsockname()[1]}
    if is_proxy:
        listener = listen("127.0.0.1", 0)
        ports["proxy"] = listener.getsockname()[1]
        threading.Thread(target=serve, args=(listener, proxied), daemon=True).start()
    for port in WORLD.get("ports", ()):
        threading.Thread(target=serve, args=(listen("::", port), plain), daemon=True).start()
    print(json.dumps(ports), flush=True)
    sys.stdin.read()
    if SERVICES:
        SERVICES.stop()


main()
