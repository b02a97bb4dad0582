"""The reference for throughput: gRPC alone, in Python on both sides, which transports messages of the same size.

Run as ``python -m benchmarks.raw receive PORT BYTES`` and ``... send PORT BYTES MESSAGE_BYTES``. The receiver prints
the seconds of the transfer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import uvloop

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]


async def receive(port: int, total: int) -> None:
    """Serve one stream and print the seconds from its first to its last byte."""
    done = asyncio.Event()

    async def push(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        left, first = total, 0.0
        async for data in requests:
            first = first or time.monotonic()
            left -= len(data)
            if left <= 0:
                break
        print(time.monotonic() - first, flush=True)
        done.set()
        yield b""

    server = grpc.aio.server(options=_OPTIONS)
    handler: Any = grpc.stream_stream_rpc_method_handler(push)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("raw", {"Push": handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", flush=True)
    await done.wait()
    await server.stop(0.5)


async def send(port: int, total: int, size: int) -> None:
    """Send ``total`` bytes in messages of ``size``."""
    message = bytes(size)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", _OPTIONS) as channel:
        call: Any = channel.stream_stream("/raw/Push")()
        for _ in range(-(-total // size)):
            await call.write(message)
        await call.read()
        call.cancel()


if __name__ == "__main__":
    words = list(map(int, sys.argv[2:]))
    uvloop.run(receive(*words) if sys.argv[1] == "receive" else send(*words))
