"""What there is outside of boxes: a DNS server with the names of a table, and servers that say who they are and
repeat what they hear. In a network namespace of its own, or on loopback behind a proxy.

usage: world.py LOG, and a line of JSON on standard input: {"names": {NAME: [ADDRESS, ...]}, "dns": ADDRESS, "ports":
[...]}, or with "proxy": true on loopback. Then it says a line of JSON: its ports; more lines are for do(). A name
whose list is null is never answered; one that is not there does not exist; "*.NAME" is each below NAME. Instead of a
list: {"turns": [[...], ...]}, of which each question for an IPv4 address takes the next, {"cname": NAME, "addresses":
[...]}, and either with "ttl". More: "tls": [PORT, CERTIFICATE, KEY], a server that says what it was told; "sniff":
true, and each packet that comes for another address than a port of those is noted. With "services": DIRECTORY the
servers of services.py have the ports that are theirs. With "beyond": true the proxy dials what is in no table."""
import contextlib
import ipaddress
import json
import os
import socket
import ssl
import struct
import sys
import threading

import services

SO_RCVBUFFORCE = 33

LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
WORLD = json.loads(sys.stdin.readline())
SERVICES = services.Services(WORLD["services"]) if "services" in WORLD else None


def note(*words):
    os.write(LOG, (" ".join(map(str, words)) + "\n").encode())


def lose_none(receiver):
    """For our slowness."""
    with contextlib.suppress(PermissionError):
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)


# ---- DNS -----------------------------------------------------------------------------------------

def find(name):
    if name in WORLD["names"]:
        return WORLD["names"][name]
    return WORLD["names"].get("*." + name.partition(".")[2], ())


def name_on_wire(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def record(owner, kind, ttl, data):
    return owner + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


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
    records, count, owner, ttl = b"", 0, b"\xc0\x0c", 5
    if isinstance(found, dict):
        ttl = found.get("ttl", 5)
        if "cname" in found:
            target = name_on_wire(found["cname"])
            records, count, owner = record(owner, 5, ttl, target), 1, target
        if "turns" in found:
            found = found["turns"].pop(0) if kind == 1 and len(found["turns"]) > 1 else found["turns"][0]
        else:
            found = found["addresses"]
    for address in map(ipaddress.ip_address, found):
        if kind == {4: 1, 6: 28}[address.version]:
            records += record(owner, kind, ttl, address.packed)
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


def secure(client, context):
    """Says by TLS whom the client said to mean, and what it asked for first."""
    names, at = [], client.getsockname()[0].removeprefix("::ffff:")
    context.sni_callback = lambda _, name, __: names.append(name)
    with client:
        try:
            with context.wrap_socket(client, server_side=True) as talk:
                head = b""
                while b"\r\n\r\n" not in head and (data := talk.recv(4096)):
                    head += data
                text = json.dumps({"at": at, "sni": names[0] if names else None, "head": head.decode()})
                note("tls", at)
                talk.sendall(b"HTTP/1.0 200 It is here\r\n\r\n" + text.encode())
        except OSError as error:
            note("tls", at, type(error).__name__)


def secure_of(certificate, key):
    def talk(client):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        secure(client, context)
    return talk


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
    if "tls" in WORLD and int(port) == WORLD["tls"][0]:
        note("tcp", f"{host.strip('[]')} {port}")
        secure_of(*WORLD["tls"][1:])(client)
        return
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


# ---- what else comes -----------------------------------------------------------------------------

noted = set()  # since it was told to forget


def is_about_an_answer(packet, at):
    """The kernel's own word that no port is open there, to the server of names: its answer came too late."""
    quoted = packet[at + 8:]
    if tuple(packet[at:at + 2]) not in ((3, 3), (1, 4)) or len(quoted) < 28:
        return False
    size, protocol = (4 * (quoted[0] & 15), quoted[9]) if quoted[0] >> 4 == 4 else (40, quoted[6])
    return protocol == 17 and int.from_bytes(quoted[size:size + 2], "big") == 53


def sniff():
    """Each kind of packet that is for us, once: protocol, destination, port."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)) as all_of_it:
        lose_none(all_of_it)
        while True:
            packet, (_, ethernet, kind, _, _) = all_of_it.recvfrom(256)
            if kind != socket.PACKET_HOST or ethernet not in (0x800, 0x86dd):
                continue
            four = ethernet == 0x800
            size = 4 * (packet[0] & 15) if four else 40
            protocol = packet[9] if four else packet[6]
            address = ipaddress.ip_address(packet[16:20] if four else packet[24:40])
            if protocol == 58 and 133 <= packet[size] <= 136:
                continue  # who is who on the wire
            if protocol in (1, 58) and is_about_an_answer(packet, size):
                continue
            port = struct.unpack_from("!H", packet, size + 2)[0] if protocol in (6, 17) else 0
            if (protocol, address, port) not in noted:
                noted.add((protocol, address, port))
                note("packet", protocol, address, port)


def start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


def do(forget=False, send=None):
    """What is asked for later: that each kind of packet be noted once more; or one, to an address and a port."""
    if forget:
        noted.clear()
    if send:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_port:
            any_port.sendto(b"known", tuple(send))


def main():
    if SERVICES:
        SERVICES.start_database()
    is_proxy = WORLD.get("proxy", False)
    ports = {}
    if "dns" in WORLD:
        dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        lose_none(dns)
        dns.bind((WORLD["dns"], 0 if is_proxy else 53))
        start(dns_udp, dns)
        ports["dns"] = dns.getsockname()[1]
    if is_proxy:
        listener = listen("127.0.0.1", 0)
        ports["proxy"] = listener.getsockname()[1]
        start(serve, listener, proxied)
    listeners = [listen("::", port) for port in WORLD.get("ports", ())]
    ports["ports"] = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        start(serve, listener, plain)
    if "tls" in WORLD and not is_proxy:
        start(serve, listen("::", WORLD["tls"][0]), secure_of(*WORLD["tls"][1:]))
    if WORLD.get("sniff", False):
        start(sniff)
    print(json.dumps(ports), flush=True)
    for line in sys.stdin:
        do(**json.loads(line))
        print("{}", flush=True)
    if SERVICES:
        SERVICES.stop()


main()
