#!/usr/bin/env python3
"""Carries connections between a TCP port of 127.0.0.1 and a socket file, so that a program in a box reaches a service of
the host that listens on TCP alone (docs/network.md). LISTEN and CONNECT are each a port or the path of a socket file.

    python3 relay.py service/model.sock 11434     on the host: one service, in a directory that is mounted
    python3 relay.py 11434 /service/model.sock    in the box: the port as the program expects it
"""
import asyncio
import contextlib
import sys

listen, connect = sys.argv[1:]


async def carry(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def serve(reader, writer):
    with contextlib.closing(writer):
        there = asyncio.open_connection("127.0.0.1", connect) if connect.isdigit() else asyncio.open_unix_connection(connect)
        far_reader, far_writer = await there
        with contextlib.closing(far_writer):
            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))


async def main():
    if listen.isdigit():
        server = await asyncio.start_server(serve, "127.0.0.1", listen)
    else:
        server = await asyncio.start_unix_server(serve, listen)
    print(f"{listen} leads to {connect}", flush=True)
    await server.serve_forever()


asyncio.run(main())
