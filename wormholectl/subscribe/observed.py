"""Observes the updates that an application receives. It dials publishers like a subscriber, but sends no acks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from subscriber_sdk.server.dialler import publisher_channel, refusal
from wormhole.host.tls import open_trust
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import StreamBroken, UsageError
from wormhole.model.schema import Schema
from wormhole.push.attaching import OBSERVE_METHOD, Attaching
from wormhole.wire.body import parse_body
from wormhole.wire.bounds import MOST_FRAME_BYTES
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import push_pb2

if TYPE_CHECKING:
    from wormhole.config import TlsAuthority, TlsFiles
    from wormhole.host.trust import Trust

__all__ = ["Observed", "ObservedFrames", "observe", "observe_all"]

_HELLO_S: Final = 10.0
_SILENCE: Final = 3  # after this many missing heartbeats the publisher is considered gone


@dataclass(frozen=True, slots=True)
class Observed:
    """The callbacks: one for the publisher's greeting, one for each update. ``update``: returns whether to continue."""

    begun: Callable[[push_pb2.Hello], None]
    update: Callable[[Update], bool]


class ObservedFrames:
    """Decodes the publisher's messages to updates. Pure. ``hello``: its greeting; ``None`` until it arrives."""

    def __init__(self) -> None:
        self.hello: push_pb2.Hello | None = None
        self._shards: dict[int, str] = {}
        self._schemas: dict[int, Schema] = {}
        self._parts: dict[int, bytearray] = {}

    def updates(self, message: bytes) -> Iterator[Update]:
        """The updates in the next message."""
        for frame in push_pb2.PublisherMessage.FromString(message).frames:
            match frame.WhichOneof("kind"):
                case "hello":
                    self.hello = frame.hello
                case "assign":
                    self._shards[frame.assign.flow] = frame.assign.shard
                case "schema":
                    self._schemas[frame.schema.id] = Schema.from_canonical(frame.schema.canonical)
                case "batch":
                    yield from self._of(frame.batch.flow, frame.batch.body)
                case "part":
                    body = self._parts.setdefault(frame.part.flow, bytearray())
                    body += frame.part.data
                    if frame.part.last:
                        yield from self._of(frame.part.flow, bytes(self._parts.pop(frame.part.flow)))

    def _of(self, flow: int, body: bytes) -> list[Update]:
        return Batch(parse_body(body), self._shards[flow], 0, False, self._schemas.__getitem__).updates()


async def observe(address: str, who: Attaching, trust: Trust | None, name: str, observed: Observed) -> None:
    """Report the updates of the publisher at ``address`` until it ends. ``name``: the name that its certificate must
    have.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    channel, certificate = await publisher_channel(address, trust, MOST_FRAME_BYTES)
    async with channel:
        if certificate is not None and not certificate.is_for(name):
            raise UsageError(
                f"{address} has a certificate with the names {', '.join(certificate.names)}, not {name!r}",
                hint="give its name with --tls-name",
                code="certificate-refused",
            )
        frames, silence_s = ObservedFrames(), _HELLO_S
        call: Any = channel.stream_stream(OBSERVE_METHOD)(metadata=who.to_metadata())
        try:
            while True:
                async with asyncio.timeout(silence_s):
                    message = await call.read()
                if message is grpc.aio.EOF:
                    return
                begun = frames.hello is not None
                for update in frames.updates(message):
                    if not observed.update(update):
                        return
                if not begun and frames.hello is not None:
                    silence_s = max(_HELLO_S, _SILENCE * frames.hello.heartbeat_ms / 1000)
                    observed.begun(frames.hello)
        except TimeoutError:
            raise StreamBroken(f"nothing was heard from {address} for {silence_s:g} s") from None
        except grpc.RpcError:
            raise await refusal(call, address) from None
        finally:
            call.cancel()


async def observe_all(
    publishers: Iterable[str], who: Attaching, tls: TlsFiles | TlsAuthority | None, name: str, observed: Observed
) -> None:
    """Observe all ``publishers`` until one of them ends the observation or enough updates were shown. ``name``: the
    name that their certificates must have; empty: the host of each.
    """
    trust = await asyncio.to_thread(open_trust, tls)
    tasks = [
        asyncio.create_task(observe(address, who, trust, name or address.rpartition(":")[0], observed))
        for address in publishers
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()
    finally:
        await cancel_all(*tasks)
