"""Updates per second of the sink of NATS JetStream, beside plain publishing of the same documents in the same run.

    python -m benchmarks.sink_nats [UPDATES]

The sink gets batches as they arrive from a publisher, and a datamarker every 20,000 updates. What is counted is all
that it does: to decode, make documents, publish and wait for the answers. Plain publishing is that of the client, each
message after the answer to the one before, and with up to 4,000 answers outstanding, which does not keep the order
where one of them is refused.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import nats
import uvloop

from benchmarks.sink_feed import RUNS, Bodies, bodies, documents, feed, show
from sinks.nats.kind import KIND
from sinks.nats.settings import NatsSettings
from tests.support.nats_server import NatsServer

_STREAM: Final = "bench"

Work = Callable[[NatsServer], Awaitable[None]]


async def _by_the_sink(given: Bodies, server: NatsServer) -> None:
    await feed(KIND.open(_STREAM, NatsSettings(url=server.url)), given, "bench")


async def _plain(outstanding: bool, plain: list[bytes], server: NatsServer) -> None:
    client = await nats.connect(server.url)
    stream = client.jetstream()
    for number, document in enumerate(plain):
        headers = {"Nats-Msg-Id": str(number)}
        if outstanding:
            await stream.publish_async(f"{_STREAM}.shop.orders", document, headers=headers)
        else:
            await stream.publish(f"{_STREAM}.shop.orders", document, headers=headers)
    if outstanding:
        await stream.publish_async_completed()
    await client.close()


def _rate(server: NatsServer, count: int, atomic: bool, work: Work) -> float:
    server.make_stream(name=_STREAM, subjects=[f"{_STREAM}.>"], allow_atomic=atomic)
    begin = time.monotonic()
    uvloop.run(work(server))  # type: ignore[arg-type]
    seconds = time.monotonic() - begin
    assert uvloop.run(_removed(server)) == count
    return count / seconds


async def _removed(server: NatsServer) -> int:
    client = await server.connect()
    stored = (await client.jetstream().stream_info(_STREAM)).state.messages
    await client.jetstream().delete_stream(_STREAM)
    await client.close()
    return stored


def main() -> None:
    """See the module."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    given = bodies(count)
    plain = documents(given)
    cases: dict[str, tuple[bool, Work]] = {
        "plain, one after another": (False, partial(_plain, False, plain)),
        "plain, 4,000 outstanding": (False, partial(_plain, True, plain)),
        "sink, atomic batches": (True, partial(_by_the_sink, given)),
        "sink, one after another": (False, partial(_by_the_sink, given)),
    }
    with NatsServer() as server:
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(RUNS):
            for name, (atomic, work) in cases.items():
                found[name].append(_rate(server, count, atomic, work))
    title = f"{count:,} updates as documents of {len(plain[0])} bytes"
    show(found, "plain, 4,000 outstanding", "of 4,000 outstanding", title)


if __name__ == "__main__":
    main()
